"""The answers of a fitted model: probabilities of clicks, and the relevance of ads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.data.batch import Float64, SessionBatch
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import Bool
from reclick.errors import (
    Argument,
    CannotAnswerError,
    SettingError,
    UsageError,
    check_range,
    check_seed,
    check_whole,
)
from reclick.fitting.beta import BetaPrior
from reclick.fitting.posterior import PairPosteriors, Posterior, RelevanceDraws
from reclick.logs import as_log, as_pairs, read_ads
from reclick.models.base.description import DescribedModel
from reclick.models.batching import (
    Answer,
    RankedSequence,
    concatenate_chunks,
    map_chunks,
    open_pages,
    pad_pages,
    stack_padded,
    to_click_lists,
)
from reclick.models.impression_values import ImpressionValues, PairValues
from reclick.runtime.arguments import check_arguments
from reclick.text.word_rates import TextIndex

if TYPE_CHECKING:
    from reclick.models.base.click_model import ClickModel
    from reclick.models.explanation import Explanation


MOST_SEQUENCES = 1_000_000  # the largest `top` of `rank_sequences`
PAIRS_TOGETHER = 1 << 18  # pairs per table of relevance


class AnsweringModel(DescribedModel):
    """A model whose answers come from the distribution over the clicks of a page."""

    # pages

    @abstractmethod
    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        """Look up the queries and ads of a batch, once for all its pages.

        The result takes start and end and returns the distribution of the pages start … end − 1.
        """

    def pages(self, pages: object, *, text: object = None) -> PageDistribution:
        """Return the distribution over the clicks of some pages, which must fit in memory.

        Its parameters are named fields; see `reclick.clicks`.
        """
        self.check_fitted()
        log = open_pages(pages, text)
        batches = list(log.batches())
        log.require_rows()
        if len(batches) > 1:
            raise CannotAnswerError(
                f"{log.name} is too large for one distribution: it was read in {len(batches)} "
                "batches. Give fewer pages, or use map_pages."
            )
        index = self._index_text(log.ads)
        return self._distribution(batches[0], index)(0, len(batches[0]))

    def map_pages(
        self,
        pages: object,
        answer: Callable[[SessionBatch, PageDistribution], Answer],
        *,
        text: object = None,
        clicks: bool = False,
        with_rows: bool = False,
        threads: int | None = None,
    ) -> Iterator[Answer]:
        """Call a function of yours for each chunk of the log; yield the results in order.

        `answer` gets the sessions of the chunk and the distribution of its pages. Chunks are
        processed in parallel.
        """
        self.check_fitted()
        log = open_pages(pages, text, clicks_required=clicks)
        index = self._index_text(log.ads)
        for batch in log.batches(with_rows=with_rows):
            yield from map_chunks(batch, self._distribution(batch, index), answer, threads)

    def map_batch(
        self,
        batch: SessionBatch,
        answer: Callable[[SessionBatch, PageDistribution], Answer],
        *,
        text: TextIndex | None = None,
        threads: int | None = None,
    ) -> Iterator[Answer]:
        """As `map_pages`, for sessions that were already read; `text` is from `_index_text`."""
        self.check_fitted()
        index = self._index_text(None) if text is None else text
        distribution = self._distribution(batch, index)
        return map_chunks(batch, distribution, answer, threads)

    def _distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        """Return `_page_distribution`, with the component of random clicks if the model has one."""
        pages = self._page_distribution(batch, text)
        return pages if self.noise_ is None else self.noise_.add_to(self._whole, batch, pages)

    def score_clicks(self, sessions: SessionBatch, pages: PageDistribution) -> Float64:
        """Log-probability of the clicks of sessions, in their order if the model has an order."""
        clicks = _clicks(sessions)
        return pages.log_prob(clicks) if self.ordered else pages.log_set_prob(clicks)

    def _index_text(self, ads: pa.Table | None) -> TextIndex | None:
        """Index the text of the model's ads, and of the new ads in a checked ads table."""
        return self._pairs.text_with(ads)

    # probabilities

    def log_prob(self, sessions: object, *, text: object = None) -> Float64:
        """Log-probability of each session's clicks in their order [session]."""
        return concatenate_chunks(
            self.map_pages(
                sessions,
                lambda part, pages: pages.log_prob(_clicks(part)),
                text=text,
                clicks=True,
            )
        )

    def log_set_prob(self, sessions: object, *, text: object = None) -> Float64:
        """Log-probability of the set of clicked positions, in any order [session]."""
        return concatenate_chunks(
            self.map_pages(
                sessions,
                lambda part, pages: pages.log_set_prob(_clicks(part)),
                text=text,
                clicks=True,
            )
        )

    def click_prob(self, pages: object, *, text: object = None) -> Float64:
        """Probability that each position is clicked [session, position], nan beyond the page."""
        return stack_padded(
            self.map_pages(
                pages, lambda part, chunk: pad_pages(part.page, chunk.click_prob()), text=text
            )
        )

    def expected_clicks(self, pages: object, *, text: object = None) -> Float64:
        """Expected number of clicks on each page [session]."""
        return np.asarray(np.nansum(self.click_prob(pages, text=text), axis=1))

    def satisfaction_prob(self, pages: object, *, text: object = None) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [session]."""
        return concatenate_chunks(
            self.map_pages(pages, lambda _, chunk: chunk.satisfaction_prob(), text=text)
        )

    def next_click_prob(
        self,
        pages: object,
        clicks: Sequence[Sequence[int]] | Sequence[int] | None = None,
        *,
        text: object = None,
    ) -> Float64:
        """Probability that each position is clicked next, given the clicks so far.

        An array [session, position]. One minus the sum over the positions is the probability that
        the session ends. The clicks so far are `clicks`, one list per page (for a single page, the
        list itself), or else the clicks in the log. A model whose clicks go down the page assumes
        that all of them are above the next click.
        """
        return stack_padded(
            self.map_pages(
                open_pages(pages, text, clicks),
                lambda part, chunk: pad_pages(part.page, chunk.next_click_prob(_clicks(part))[0]),
            )
        )

    def noise_prob(self, sessions: object) -> Float64:
        """Probability that the clicks of each session are random [session].

        For a model with the setting `noise`. With `noise="user"` the log must have a column user,
        and the probability is that of the user, given all sessions of this user in the log.
        """
        self.check_fitted()
        if self.noise_ is None:
            raise CannotAnswerError(
                f"This {type(self).__name__} has no component of random clicks: fit it with ",
                Argument("noise", "session"),
                ".",
            )
        from reclick.models.noise import noise_prob

        return noise_prob(self._whole, as_log(sessions))

    def instantaneous_attractiveness(
        self,
        pages: object,
        clicks: Sequence[Sequence[int]] | Sequence[int] | None = None,
        *,
        text: object = None,
    ) -> Float64:
        """Attractiveness of the other ads after the clicks so far [session, position].

        For MultiClick; θ itself for a page without clicks.
        """
        raise CannotAnswerError(
            f"{type(self).__name__} has no instantaneous attractiveness; MultiClick has. "
            "See next_click_prob() for where the next click is, and relevance() for each ad alone."
        )

    def rank_sequences(
        self,
        page: object,
        ads: Sequence[str] | None = None,
        *,
        length: int | None = None,
        top: int = 10,
        text: object = None,
    ) -> list[RankedSequence]:
        """The most likely click sequences of one page, best first.

        The page is a query and its ads, as two arguments or as `(query, ads)`. With a `length`,
        only sequences of that many clicks. `text` is the text of ads that the model does not know.
        """
        query, ads = _as_page(page, ads)
        top, lengths = check_whole("top", top, 1), range(len(ads) + 1)
        if top > MOST_SEQUENCES:
            raise SettingError("top", top, f"a whole number from 1 to {MOST_SEQUENCES:,}")
        is_whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
        if length is not None and not (is_whole and length in lengths):
            expected = f"0 to {len(ads)}, the number of ads on the page"
            raise SettingError("length", length, expected)
        best = self.pages((query, ads), text=text).top_sequences(length, top)
        rows = zip(best.sequences[0], best.lengths[0], best.probabilities[0], strict=True)
        return [
            RankedSequence(tuple(clicks[:count].tolist()), float(probability))
            for clicks, count, probability in rows
            if probability > 0
        ]

    @check_arguments
    def sample(
        self, pages: object, rng: np.random.Generator | int, *, text: object = None
    ) -> pa.Array:
        """Draw a click sequence for each page: a list of positions per row."""
        check_seed("rng", rng)
        generator = np.random.default_rng(rng)
        return to_click_lists(
            self.map_pages(pages, lambda _, chunk: chunk.sample(generator), text=text, threads=1)
        )

    # relevance

    @check_arguments
    def relevance(
        self,
        pairs: object = None,
        *,
        query: str | None = None,
        text: object = None,
        level: float = 0.9,
    ) -> pa.Table:
        """Attractiveness θ, satisfaction ρ and relevance θρ of (query, ad) pairs, as a table.

        Each comes with an equal-tailed credible interval that contains a share `level` of its
        posterior. The posterior of the product is a Beta with the same mean and variance, unless
        the docs of the model say otherwise. Impressions and clicks in the training log are the
        support behind these figures.

        `pairs` is a table with columns query and ad, or a single page as `(query, ads)`; by default
        all pairs of the training log. `query` selects the pairs of one query, the most relevant
        first. `text` is the text of ads that the model does not know. For a model without
        satisfaction, the satisfaction is null and the relevance is the attractiveness.

        >>> from reclick.models import DCTR
        >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2], [2]]}
        >>> DCTR().fit(log).relevance(query="pizza").select(["ad", "clicks"]).to_pylist()
        [{'ad': 'b', 'clicks': 2.0}, {'ad': 'a', 'clicks': 0.0}]
        """
        self.check_fitted()
        check_range("level", level, 1e-6, 1 - 1e-6)
        if query is not None:
            if pairs is not None:
                raise UsageError(
                    "Give ", Argument("pairs"), " or ", Argument("query"), ", not both."
                )
            table = self.relevance(self._pairs.pairs_of_query(query), text=text, level=level)
            return table.sort_by([("relevance", "descending"), ("ad", "ascending")])
        lookup, counts = self._pairs.lookup(pairs, text), self._pairs.counts
        estimates = self._posteriors(lookup).columns(level)
        support = {
            "impressions": self._pairs.take_or(counts.impressions, lookup.row, 0.0),
            "clicks": self._pairs.take_or(counts.clicks, lookup.row, 0.0),
        }
        return pa.table({"query": lookup.queries, "ad": lookup.ads, **estimates, **support})

    @check_arguments
    def iterate_relevance(
        self, size: int = PAIRS_TOGETHER, *, level: float = 0.9
    ) -> Iterator[pa.Table]:
        """`relevance` of all pairs, in tables of about `size`; no query is in two of them.

        A model in buckets reads one bucket at a time, so that all pairs are never in memory.
        """
        self.check_fitted()
        for pairs in self.iterate_pairs(check_whole("size", size, 1)):
            yield self.relevance(pairs, level=level)

    @check_arguments
    def explain(self, query: str, ad: str, *, text: object = None) -> Explanation:
        """Explain the attractiveness of an ad for a query by its evidence, its prior and its words.

        `text` is an ads table for an ad that the model does not know.
        """
        from reclick.models.explanation import explain

        self.check_fitted()
        index = self._index_text(None if text is None else read_ads(text))
        return explain(self._gather_queries(pa.array([query])), query, ad, index)

    @check_arguments
    def sample_relevance(
        self, pairs: object, draws: int, rng: np.random.Generator | int, *, text: object = None
    ) -> RelevanceDraws:
        """Draw the attractiveness and the satisfaction of pairs from their posteriors.

        The posteriors are the Betas behind the intervals of `relevance`, treated as independent.
        `pairs` and `text` are as in `relevance`.

        >>> from reclick.models import DCTR
        >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2], [2]]}
        >>> drawn = DCTR().fit(log).sample_relevance(("pizza", ["a", "b"]), 100, 0)
        >>> drawn.attractiveness.shape, drawn.satisfaction is None
        ((100, 2), True)
        """
        self.check_fitted()
        table = pa.table(dict(zip(("query", "ad"), as_pairs(pairs), strict=True)))
        model = self._gather_queries(pc.unique(table["query"]))
        posteriors = model._posteriors(model._pairs.lookup(table, text))
        draws = check_whole("draws", draws, 1)
        generator = np.random.default_rng(rng)
        satisfaction = posteriors.satisfaction
        return RelevanceDraws(
            posteriors.attractiveness.value,
            posteriors.attractiveness.mean,
            posteriors.attractiveness.sample(draws, generator),
            None if satisfaction is None else satisfaction.sample(draws, generator),
        )

    def examination_by_position(self) -> Float64 | None:
        """P(examination) of each position, if it depends on nothing else; None in most models."""
        self.check_fitted()
        return None

    def find_known(self, sessions: SessionBatch) -> tuple[Bool, Bool]:
        """Whether the query of each session, and the ad of each impression, is in the training log.

        Answers about unknown queries and ads come from priors alone.
        """
        self.check_fitted()
        return self._gather_sessions(sessions)._pairs.find_known(sessions)

    def find_volumes(self, sessions: SessionBatch) -> Float64:
        """Number of sessions in the training log with the query of each session."""
        self.check_fitted()
        return self._gather_sessions(sessions)._pairs.find_volumes(sessions)

    def _gather_queries(self, queries: pa.Array) -> ClickModel:
        """Return a model that has these queries in memory: by default this one."""
        return self._whole

    def _gather_sessions(self, sessions: SessionBatch) -> ClickModel:
        """Return a model that has the queries of these sessions in memory: by default this one."""
        return self._whole

    # posteriors

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """Return the posteriors of some pairs: Betas with the fitted values as means.

        Their strengths are the examinations and clicks behind the values, plus the strengths of
        the priors.
        """
        prior = self._prior_of(pairs)
        fitted, settings = vars(self), self.get_params()
        theta = np.where(
            pairs.row >= 0, self._pairs.take_or(fitted["theta_"], pairs.row, 0.0), prior.mean
        )
        examinations = self._pairs.take_or(fitted["exposure_"], pairs.row, 0.0)
        attractiveness = Posterior(theta, theta, examinations + prior.strength)
        if "rho_" not in fitted:
            return PairPosteriors(attractiveness)
        rho = self._pairs.take_or(fitted["rho_"], pairs.row, fitted["satisfaction_"])
        clicks = self._pairs.take_or(self._pairs.counts.clicks, pairs.row, 0.0)
        satisfaction = Posterior(rho, rho, clicks + settings["satisfaction_strength"])
        return PairPosteriors(attractiveness, satisfaction)

    def _prior_of(self, pairs: PairLookup) -> BetaPrior:
        """Return the prior of some pairs; those not in the log have the prior of unseen pairs."""
        size, fitted = len(pairs.row), self._pair_prior()
        unseen = BetaPrior.constant(self.prior_mean_, self._overall_strength, size)
        if self._pairs.ad_prior is not None:
            unseen = self._pairs.unseen_prior(pairs).to_beta(self._strength_setting)
        is_known = pairs.row >= 0
        for new, values in zip(unseen, fitted, strict=True):
            new[is_known] = values[pairs.row[is_known]]
        return unseen

    def _pair_prior(self) -> BetaPrior:
        """The prior of the attractiveness of each pair of the training log."""
        if self._pairs.ad_prior is not None:
            return self._pairs.ad_prior.pairs.to_beta(self._strength_setting)
        return BetaPrior.constant(self.prior_mean_, self._overall_strength, len(self._pairs))

    @property
    def _strength_setting(self) -> float | None:
        """The strength of the prior of attractiveness, if it is a number."""
        strength = self.get_params().get("attractiveness_strength", "auto")
        return None if isinstance(strength, str) else float(strength)

    @property
    def _overall_strength(self) -> float:
        """The strength of one prior mean for all pairs, in examinations."""
        strength = self._strength_setting
        return self.overall_strength if strength is None else strength

    def _with_values(self, attractiveness: Float64, satisfaction: Float64 | None) -> Self:
        """Return a copy that uses these values of the impressions of one batch in its answers."""
        model, state = copy(self), vars(self)
        theta = state.get("theta_", state.get("_theta"))
        rho = state.get("rho_", state.get("_rho"))
        model._pairs = ImpressionValues(
            self._pairs, PairValues(theta, rho), PairValues(attractiveness, satisfaction)
        )
        return model


def _as_page(page: object, ads: Sequence[str] | None) -> tuple[object, Sequence[str]]:
    """Return the query and the ads of one page, from two arguments or one tuple."""
    is_list = isinstance(ads, Iterable) and not isinstance(ads, str | bytes | pa.Table)
    if ads is not None and is_list:
        return page, list(ads)
    if isinstance(page, tuple) and len(page) == 2 and not isinstance(page[1], str):
        return page[0], list(page[1])
    raise UsageError(
        "This is about one page: give its query and its ads, such as "
        "rank_sequences('pizza', ['ad1', 'ad2'])."
    )


def _clicks(sessions: SessionBatch) -> Clicks:
    return Clicks(sessions.click, sessions.clicks)
