"""The verbs of a click model, once for all models."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import (
    Pages,
    click_probs,
    log_probs,
    log_set_probs,
    next_click_probs,
    samples,
    top_sequences_of_pages,
)
from reclick.clicks.top_k import ANY_LENGTH
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts, as_counts
from reclick.data.grouped_sessions import as_sessions
from reclick.data.pair_index import Asked, Pairs
from reclick.errors import CannotAnswerError, NotFittedError, SettingError
from reclick.fitting.posterior import Belief, Beliefs
from reclick.fitting.priors import top_click_rate
from reclick.logs import as_log
from reclick.models.batching import (
    Answer,
    RankedSequence,
    answer_parts,
    click_lists,
    joined,
    padded,
    stacked,
)
from reclick.models.inputs import text_given, with_clicks
from reclick.models.persistence import saved_counts, tables_of_counts
from reclick.models.settings import check_names, check_range
from reclick.runtime import artifact
from reclick.runtime.progress import Progress
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

EDGE = 1e-6  # how near to 0 and 1 a prior mean may come
FIT_REPORT = (
    "iterations_",
    "converged_",
    "objective_",
    "message_",
)  # the truth about an iterative fit


class ClickModel(ABC):
    """What every click model answers. A model says how it is fitted and what its pages' parameters are; the verbs are here.

    `pages` and `sessions` are a log from `read_sessions`, or anything it reads: a path, a table, or a dict of columns. Answers come in the log's
    order.
    """

    name: ClassVar[str]
    assumes: ClassVar[str]
    reference: ClassVar[str]
    ordered: ClassVar[bool] = (
        False  # whether clicks may go back up the page; else a sequence that does has probability 0
    )
    attractiveness: ClassVar[bool] = (
        True  # whether it knows how attractive each (query, ad) is; else `relevance` says why not
    )
    satisfaction: ClassVar[bool] = (
        False  # whether it learns how well each (query, ad) satisfies once clicked
    )
    counts_suffice: ClassVar[bool] = False  # whether `Counts` are all it learns from
    pair_values: ClassVar[tuple[str, ...]] = ()  # learnt values, one a pair
    shared_values: ClassVar[
        tuple[str, ...]
    ] = ()  # learnt values common to all pairs: numbers and arrays
    _pairs: Pairs

    # fitting

    def fit(
        self,
        sessions: object,
        *,
        history: object = None,
        ads: object = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from a log of sessions; the priors come from `history`, an earlier log (without one, from the sessions themselves).

        `ads` is a table with the ads' text, by default the one given to `read_sessions`.
        """
        before = None if history is None else as_counts(history, progress=progress)
        fresh = self.clone()
        fresh._learn(self._gather(sessions, progress), before, text_given(sessions, ads))
        return self._become(fresh)

    def _become(self, fresh: Self) -> Self:
        """Take over all that another is set to and has learnt, at once: a fit that was stopped changes nothing."""
        vars(self).clear()
        vars(self).update(vars(fresh))
        return self

    def update(
        self,
        sessions: object = None,
        *,
        forget: object = None,
        decay: float = 1.0,
        ads: object = None,
        progress: Progress | None = None,
    ) -> Self:
        """Continue from the last fit with new sessions, where the model can."""
        raise CannotAnswerError(
            f"{type(self).__name__} cannot be updated: fit it again on all the sessions."
        )

    def _gather(self, sessions: object, progress: Progress | None) -> Any:
        """The sessions as this model learns from them: counted where that suffices, else grouped."""
        return (
            as_counts(sessions, progress=progress)
            if self.counts_suffice
            else as_sessions(sessions, progress=progress)
        )

    def _learn(self, data: Any, history: Counts | None, text: AdTokens | None) -> None:
        """Set `_pairs` and every learnt value: once with one prior mean for all pairs, and with "words" again with what the words say of each.

        The words' click rates are over the looks that the first fit gave each pair, so that where an ad stood does not count against its words.
        """
        counts: Counts = data if isinstance(data, Counts) else data.counts
        before = history or counts
        given = self.get_params().get("attractiveness_prior", "overall")
        self.unseen_ = float(given) if isinstance(given, int | float) else self.overall_rate(before)
        self._pairs = self._index(counts, text)
        self._estimate(data, np.full(len(self._pairs), self.unseen_), before)
        if given == "words":
            self.word_exposure_, self.word_clicks_ = self._looks_and_clicks()
            self._pairs = self._index(counts, text)
            self._estimate(
                data, np.clip(self._pairs.words.of_pairs()[:, 0], EDGE, 1 - EDGE), before
            )

    def _looks_and_clicks(self) -> tuple[Float64, Float64]:
        """The looks of each pair, and the successes among them: θ = (successes + prior) / (looks + strength), solved for the successes."""
        theta, looks, strength = (
            vars(self)["theta_"],
            vars(self)["exposure_"],
            self.get_params()["attractiveness_strength"],
        )
        return looks, np.clip(theta * (looks + strength) - strength * self.unseen_, 0.0, looks)

    @staticmethod
    def overall_rate(counts: Counts) -> float:
        """The mean attractiveness, which a pair never seen is given."""
        return top_click_rate(counts)

    def _estimate(self, data: Any, means: Float64, history: Counts) -> None:
        """Set the learnt values, given the prior mean of each pair's attractiveness and the counts that other priors come from."""
        raise NotImplementedError

    @abstractmethod
    def _prepare(self, batch: SessionBatch, text: TextIndex | None) -> Callable[[int, int], Pages]:
        """Look up a batch's queries and ads once; the result gives the parameters of the pages start … end − 1."""

    def _beliefs(self, asked: Asked) -> Beliefs:
        """What is believed of some pairs: Betas of the learnt means, with the looks and clicks behind them and the priors as strength."""
        prior = (
            asked.words[:, 0]
            if self._pairs.unseen is None
            else np.full(len(asked.row), self._pairs.unseen)
        )
        learnt = vars(self)
        seen = asked.row >= 0
        theta = np.where(seen, self._pairs.at(learnt["theta_"], asked.row, 0.0), prior)
        strength = (
            self._pairs.at(learnt["exposure_"], asked.row, 0.0)
            + self.get_params()["attractiveness_strength"]
        )
        if "rho_" not in learnt:
            return Beliefs(Belief(theta, theta, strength))
        rho = self._pairs.at(learnt["rho_"], asked.row, learnt["satisfaction_"])
        clicks = self._pairs.at(self._pairs.counts.clicks, asked.row, 0.0)
        return Beliefs(
            Belief(theta, theta, strength),
            Belief(rho, rho, clicks + self.get_params()["satisfaction_strength"]),
        )

    # relevance

    def relevance(
        self, pairs: object = None, *, text: object = None, level: float = 0.9
    ) -> pa.Table:
        """Attractiveness θ, satisfaction ρ and their product for each (query, ad), with credible intervals and the support behind them.

        `pairs` is a table with columns query and ad, by default all pairs of the training log; `text` is an ads table for ads that the model has
        not seen. The intervals hold a share `level` of the posterior, equal tails; that of the product is a Beta matched to its mean and variance,
        unless the model's own docs say otherwise.
        A model without satisfaction has nulls there, and its relevance is the attractiveness.
        """
        self._check_fitted()
        check_range("level", level, 1e-6, 1 - 1e-6)
        asked, counts = self._pairs.asked(pairs, text), self._pairs.counts
        believed = self._beliefs(asked).columns(level)
        support = {
            "impressions": self._pairs.at(counts.impressions, asked.row, 0.0),
            "clicks": self._pairs.at(counts.clicks, asked.row, 0.0),
        }
        return pa.table({"query": asked.queries, "ad": asked.ads, **believed, **support})

    # probabilities

    def log_prob(self, sessions: object) -> Float64:
        """Log-probability of each session's clicks in their order [session]."""
        return joined(
            self.answers(
                sessions, lambda part, pages: log_probs(pages, part.click, part.clicks), clicks=True
            )
        )

    def log_set_prob(self, sessions: object) -> Float64:
        """Log-probability that exactly the clicked positions are clicked, in whatever order [session]."""
        return joined(
            self.answers(
                sessions,
                lambda part, pages: log_set_probs(pages, part.click, part.clicks),
                clicks=True,
            )
        )

    def click_prob(self, pages: object) -> Float64:
        """Probability that each position is clicked [session, position], nan beyond the page."""
        return stacked(
            self.answers(
                pages, lambda part, parameters: padded(part, self.marginals(part, parameters))
            )
        )

    def marginals(self, part: SessionBatch, pages: Pages) -> Float64:
        """What `click_prob` answers, for a part of a log whose parameters are known, laid end to end [impression]."""
        return click_probs(pages)

    def expected_clicks(self, pages: object) -> Float64:
        """Expected number of clicks on each page [session]."""
        return np.asarray(np.nansum(self.click_prob(pages), axis=1))

    def next_click_prob(
        self, pages: object, clicks: Sequence[Sequence[int]] | None = None
    ) -> Float64:
        """Probability that each position is clicked next, given the clicks so far [session, position].

        The clicks so far are `clicks`, one list a page, or else the log's own; to a model whose clicks go down the page they are all above the
        next. What is missing to 1 is the probability that the session ends.
        """
        log = with_clicks(pages, clicks)
        return stacked(
            self.answers(
                log,
                lambda part, parameters: padded(
                    part, next_click_probs(parameters, part.click, part.clicks)[0]
                ),
            )
        )

    def instantaneous_attractiveness(
        self, pages: object, clicks: Sequence[Sequence[int]] | None = None
    ) -> Float64:
        """What the clicks so far leave of the attractiveness of the other ads [session, position], where the model has fatigue."""
        raise CannotAnswerError(
            f"{type(self).__name__} has no fatigue, so clicks leave the attractiveness of other ads as it is: see relevance(). MultiClick has it."
        )

    def rank_sequences(
        self,
        query: str,
        ads: Sequence[str],
        *,
        length: int | None = None,
        top: int = 10,
        text: object = None,
    ) -> list[RankedSequence]:
        """The most likely click sequences of a page, of a given number of clicks or of any, best first.

        `text` is an ads table for ads that the model has not seen.
        """
        if length is not None and not 0 <= length <= len(ads):
            raise SettingError(
                f"length: got {length}, expected 0 to {len(ads)}, the number of ads on the page."
            )
        page = as_log({"query": [query], "ads": [list(ads)]}, ads=text, clicks_required=False)
        asked = np.array([ANY_LENGTH if length is None else length])
        ((places, lengths, probabilities),) = self.answers(
            page, lambda _, pages: top_sequences_of_pages(pages, asked, top)
        )
        listed = zip(places[0], lengths[0], probabilities[0], strict=True)
        return [
            RankedSequence(tuple(clicks[:many].tolist()), float(chance))
            for clicks, many, chance in listed
            if chance > 0
        ]

    def sample(self, pages: object, rng: np.random.Generator | int) -> pa.Array:
        """Draw a click sequence for each page: a list of positions a row."""
        generator = np.random.default_rng(rng)
        return click_lists(
            self.answers(pages, lambda _, parameters: samples(parameters, generator), threads=1)
        )

    # settings, printing, saving

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings given to the constructor."""
        return {
            name: getattr(self, name)
            for name in inspect.signature(type(self).__init__).parameters
            if name != "self"
        }

    def set_params(self, **settings: Any) -> Self:
        """Change settings; a fitted model forgets what it learnt with the old ones, and is to be fitted again."""
        before = self.get_params()
        check_names(settings, before)
        changed = type(self)(**{**before, **settings})
        return self if changed.get_params() == before else self._become(changed)

    def clone(self) -> Self:
        """A new model with the same settings, not fitted."""
        return type(self)(**self.get_params())

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder; a reader sees the old model or the new one, never half."""
        self._check_fitted()
        values, tables = self._to_tables()
        artifact.write(
            folder,
            kind="model",
            settings={"model": self.name, "settings": self.get_params(), "values": values},
            tables=tables,
        )

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """What `save` writes beside the settings: plain values and tables."""
        tables = tables_of_counts(self._pairs.counts, self._pairs.text)
        learnt = {
            name: getattr(self, name)
            for name in (*self.pair_values, "word_exposure_", "word_clicks_")
            if hasattr(self, name)
        }
        if learnt:
            tables["learnt"] = pa.table(learnt)
        names = [*self.shared_values, *(name for name in FIT_REPORT if hasattr(self, name))]
        return {name: np.asarray(getattr(self, name)).tolist() for name in names}, tables

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        """Take back what `_to_tables` gave."""
        for name in tables["learnt"].column_names if "learnt" in tables else ():
            setattr(
                self,
                name,
                tables["learnt"][name].combine_chunks().to_numpy(zero_copy_only=False).copy(),
            )
        for name, value in values.items():
            setattr(
                self,
                name,
                tuple(value)
                if name == "objective_"
                else np.array(value)
                if isinstance(value, list)
                else value,
            )
        self._pairs = self._index(*saved_counts(tables))
        return self

    def _index(self, counts: Counts, text: AdTokens | None) -> Pairs:
        """The pairs of the counts, as this model looks them up."""
        looks = (
            (self.word_exposure_, self.word_clicks_) if hasattr(self, "word_exposure_") else None
        )
        unseen = getattr(self, "unseen_", None) if looks is None else None
        settings = self.get_params()
        words = {
            "frequent": settings.get("frequent", 50),
            "word_strength": settings.get("word_strength", 0.0),
        }
        return Pairs(counts, text, looks=looks, unseen=unseen, **words)

    @property
    def advice(self) -> str:
        """What a user of this model and these settings should know; empty when there is nothing."""
        return ""

    @property
    def fitted(self) -> bool:
        """Whether the model has learnt anything."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({settings}){self._learnt() if self.fitted else ''}"

    def _learnt(self) -> str:
        told = getattr(self, "message_", "")
        return f"\n  fitted on {self._pairs.counts!r}" + (f"\n  {told}" if told else "")

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(
                f"{type(self).__name__} is not fitted yet. Call fit(sessions) first, or rc.load(folder)."
            )

    # streaming

    def answers(
        self,
        pages: object,
        answer: Callable[[SessionBatch, Pages], Answer],
        *,
        clicks: bool = False,
        with_rows: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Answer]:
        """An answer of your own for each part of the log, in order, from its sessions and their pages' parameters; the verbs are made of this.

        Parts are answered side by side: kernels do not hold each other up.
        """
        self._check_fitted()
        log = as_log(pages, clicks_required=clicks)
        text = self._pairs.text_for(log)
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            for batch in log.batches(with_rows=with_rows, progress=progress):
                yield from answer_parts(pool, batch, self._prepare(batch, text), answer)
