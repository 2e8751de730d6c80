"""ClickModel: what every click model does, written once; a model adds its fit and its pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import Bool
from reclick.data.stored_tables import read_numbers, table_error
from reclick.engines import Engine, LocalEngine, as_counts, as_engine, as_grouped
from reclick.errors import (
    Argument,
    CannotAnswerError,
    NotFittedError,
    SettingError,
    StoreError,
    UsageError,
    check_range,
    check_seed,
    check_whole,
)
from reclick.fitting.attractiveness_prior import (
    NO_TEXT,
    NOTHING_KNOWN,
    AdPrior,
    AdRecord,
    AdRecords,
    fit_ad_prior,
    fit_words,
    select_ad_prior,
)
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import EMProblem, FitResult, Statistics
from reclick.fitting.posterior import PairPosteriors, Posterior, RelevanceDraws
from reclick.fitting.priors import top_click_rate
from reclick.logs import as_log, as_pairs, read_ads
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
from reclick.models.provenance import (
    SeenLogs,
    extend_provenance,
    provenance_to_table,
    see_logs,
)
from reclick.models.query_rows import QueryRows, TrainingTotals
from reclick.models.settings import Setting, declare_settings, setting
from reclick.models.text_pair_index import (
    Corpus,
    TextPairIndex,
    counts_from_tables,
    counts_to_tables,
    input_text,
    merge_text,
)
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location, resolve
from reclick.runtime.notebook import render_card
from reclick.runtime.progress import ProgressOption, track_progress
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex, TokenLists

if TYPE_CHECKING:
    from reclick.models.explanation import Explanation
    from reclick.models.noise import Noise
    from reclick.models.partitioned import PartitionedModel

FIT_REPORT = ("iterations_", "converged_", "objective_", "message_")  # of an iterative fit
# A pilot fit only has to tell how often each pair was examined.
PILOT_ITERATIONS, PILOT_TOLERANCE = 15, 1e-3
MOST_STORED_REDUNDANCY = 1e6
IN_MEMORY = (  # what to do about a fit that cannot be in buckets
    "fit it in memory: fit(…) and then save(folder, buckets=…), on the command line without "
    "--engine."
)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(setting,))
class DeclaredSettings(ABC):  # noqa: B024, its subclass ClickModel has abstract methods
    """Whose subclasses have the settings that they declare, in their constructor too."""

    settings: ClassVar[Mapping[str, Setting]] = {}  # by name, in the order of the constructor

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.settings = declare_settings(cls)


MOST_SEQUENCES = 1_000_000  # that are ranked


class ClickModel(DeclaredSettings):
    """A click model: a probability for every click sequence of a page of ads.

    A subclass declares its settings, says how it is fitted (`_estimate` or `_fit`) and what the
    distribution over the clicks of a page is (`_page_distribution`); all else is here. Settings are
    given by keyword, checked, and listed by `get_params()`; `settings` describes them.

    `pages` and `sessions` are a log from `read_sessions`, or anything it reads: a path, a table,
    a dict of columns, or a single page as `(query, ads)`. Answers come in the log's order, with one
    row per page. `text` is the text of ads that the model does not know, as a table or as
    `{ad: text}`.

    >>> from reclick.models import UBM
    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [2], [], [1, 2]]}
    >>> ads = {"a": "hot pizza", "b": "cold pizza"}
    >>> model = UBM(attractiveness_prior="words").fit(log, ads=ads)
    >>> model.click_prob(("pizza", ["new", "a"]), text={"new": "hot pizza"}).shape
    (1, 2)
    """

    name: ClassVar[str]  # in MODELS, on the command line, in saved folders
    assumes: ClassVar[str]  # its idea of the user, in a sentence
    reference: ClassVar[str]
    ordered: ClassVar[bool] = False  # clicks may go back up the page; else that has probability 0
    all_sets_possible: ClassVar[bool] = True  # no set of clicked positions has probability 0
    attractiveness: ClassVar[bool] = True  # estimates the attractiveness of each (query, ad)
    satisfaction: ClassVar[bool] = False  # estimates how well each (query, ad) satisfies
    fits_from_counts: ClassVar[bool] = False  # `Counts` are enough to fit it
    longest_page: ClassVar[int] = 2_000  # ads; a table of positions by last clicks grows with n²
    fits_in_buckets: ClassVar[bool] = False  # `fit_to` can fit it
    stages: ClassVar[tuple[str, ...]] = ()  # of a fit by EM, each an `EMProblem`
    updates: ClassVar[bool] = False  # `update` can continue a fit
    uses_history: ClassVar[bool] = True  # prior means may come from an earlier log
    pair_parameters: ClassVar[tuple[str, ...]] = ()  # fitted attributes with one value per pair
    query_parameters: ClassVar[tuple[str, ...]] = ()  # … with a probability per query, or None
    global_parameters: ClassVar[tuple[str, ...]] = ()  # … common to all pairs: numbers, arrays
    max_page_ads: ClassVar[int | None] = None  # longer pages are refused
    table_rows: ClassVar[Mapping[str, str]] = {}  # what rows its own saved tables have: query_rows
    hyperparameters_: Mapping[str, Any] = {}  # settings that a fit has chosen, or was given
    provenance_: SeenLogs = ()  # the logs that the model has learned from
    _corpus: Corpus | None = None  # of a model that holds only some of the queries
    overall_strength: ClassVar[float] = 1.0  # of one prior mean of attractiveness for all pairs
    noise_: Noise | None = None  # the component of random clicks, where there is one
    redundancy_: float = 0.0  # κ of ads that repeat what was clicked, where the model has it
    _engine: Engine = LocalEngine()  # another one during a fit with engine=…
    _log: Counts | None = None  # during the fit of a bucket: the pooled counts of the whole log
    _is_pilot: bool = False  # during the pilot of a fit
    _pilot_parameters: Any = None  # where it ended

    noise: str | None = setting(default=None, choices=("session", "user"), allow_none=True)

    def __init__(self, **values: Any) -> None:
        self._set(values)

    def _set(self, values: Mapping[str, Any]) -> None:
        """Set all settings: to these values, or else to their defaults."""
        for name in values:
            if name not in self.settings:
                raise UsageError(
                    f"{name!r} is not a setting of {type(self).__name__}. "
                    f"Settings: {', '.join(self.settings)}."
                )
        for name, each in self.settings.items():
            setattr(self, name, each.check(name, values.get(name, each.default)))
        self._check_settings()

    def _check_settings(self) -> None:
        """Refuse settings that do not go together; each of them alone is checked already."""

    # fitting

    @check_arguments
    def fit(
        self,
        sessions: object,
        *,
        history: object = None,
        ads: object = None,
        engine: Engine | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Fit the model to a log of sessions.

        Prior means come from `history`, an earlier log; without one from the sessions themselves.
        A model that takes nothing from a history (`uses_history`) refuses one. `ads` is a table
        with the ads' text, by default the one given to `read_sessions`. `engine`
        is where the log is counted and EM iterates: by default `LocalEngine()`.
        """
        if history is not None:
            self.check_uses_history()
        with track_progress(progress, f"Fitting {type(self).__name__}"):
            fresh = self.clone()
            fresh._engine = as_engine(engine)
            before = None if history is None else as_counts(history, engine=engine)
            text = input_text(sessions, ads)
            if fresh.noise is None:
                data = fresh._collect(sessions)
                fresh._fit(data, before, text)
            else:
                data = fresh._fit_with_noise(sessions, before, text)
            earlier = () if before is None else see_logs(before.logs, "history")
            fresh.provenance_ = (*see_logs(get_counts(data).logs, "fit"), *earlier)
            del fresh._engine  # it may hold connections, which a fitted model has no use for
        return self._adopt_state(fresh)

    def fit_to(
        self,
        folder: Location,
        sessions: object,
        *,
        buckets: int,
        history: object = None,
        ads: object = None,
        engine: Engine | None = None,
        progress: ProgressOption = None,
    ) -> PartitionedModel:
        """Fit the model to a log larger than memory, into a folder in buckets, and open that.

        The result is that of `fit(…)` and `save(folder, buckets=…)`, but pairs, queries and their
        parameters are never in memory together: each bucket is fitted and written by a task of the
        `engine`, a `PoolEngine` or a `SparkEngine`; by default in this process, one after another.
        The folder changes when all of them are written. Not every model can (`fits_in_buckets`).
        """
        from reclick.models.bucket_fit import fit_to

        with track_progress(progress, f"Fitting {type(self).__name__}"):
            return fit_to(self, folder, sessions, buckets, history=history, ads=ads, engine=engine)

    def _check_buckets(self) -> None:
        """Refuse settings that `fit_to` has no way to fit."""

    def _collect_update(self, sessions: object, fresh: Self) -> Any:
        """What `fresh` continues with; sessions count by how likely they are not noise."""
        if self.noise_ is None or self.noise_.share == 0:
            return fresh._collect(sessions)
        from reclick.models.noise import collect_clean

        return collect_clean(self, sessions)

    def _fit_with_noise(
        self, sessions: object, history: Counts | None, text: AdTokens | None
    ) -> Any:
        """Fit the model and its component of random clicks; return what it was fitted to."""
        from reclick.models.noise import fit_with_noise

        return fit_with_noise(self, sessions, history, text)

    def _adopt_state(self, other: Self) -> Self:
        """Take over the settings and the fit of another, in one step.

        So an interrupted fit changes nothing.
        """
        origin = {name: value for name, value in vars(self).items() if name == "_origin"}
        self.__dict__ = {**vars(other), **origin}
        return self

    @check_arguments
    def update(
        self,
        sessions: object = None,
        *,
        forget: object = None,
        decay: float = 1.0,
        ads: object = None,
        again: bool = False,
        engine: Engine | None = None,
        progress: ProgressOption = None,
    ) -> Self:
        """Continue from the last fit with new sessions, where the model can.

        The old sessions count by `decay`, and are not read again. Where counts are all that a model
        is fitted to, sessions can also be subtracted: those of `forget`. A log that the model has
        seen before is refused, unless `again`. `engine` is as in `fit`.
        """
        name = type(self).__name__
        if not self.updates:
            raise CannotAnswerError(f"{name} cannot be updated: fit it again on all the sessions.")
        self.check_fitted()
        if forget is not None and not self.fits_from_counts:
            raise CannotAnswerError(
                f"{name} cannot forget sessions it was fitted to: let them fade with ",
                Argument("decay", ...),
                ", or fit it again without them. MultiClick can.",
            )
        with track_progress(progress, f"Updating {name}"):
            fresh = self.clone()
            fresh._engine = as_engine(engine)
            only_counts = sessions is None and self.fits_from_counts
            new = None if only_counts else self._collect_update(sessions, fresh)
            old = None if forget is None else fresh._collect(forget)
            logs = (() if each is None else get_counts(each).logs for each in (new, old))
            seen = extend_provenance(self.provenance_, *logs, again=again)
            text = merge_text(self._pairs.text, input_text(sessions, ads))
            fresh._continue(self, new, old, decay, text)
            fresh.provenance_, fresh.noise_ = seen, self.noise_
            fresh.redundancy_ = self.redundancy_
            del fresh._engine  # as after a fit
        return self._adopt_state(fresh)

    def _continue(
        self, last: Self, new: Any, old: Any, decay: float, text: AdTokens | None
    ) -> None:
        """Set every fitted attribute: those of the `last` fit, continued.

        With `new` data, and without `old` data.
        """
        raise NotImplementedError

    @property
    def learns_from(self) -> str:
        """What a fit needs of a log: "counts", distinct "sessions", or the "log" with its users."""
        if self.noise == "user":
            return "log"
        needs_pages = self.noise is not None or self.get_params().get("redundancy") == "auto"
        return "counts" if self.fits_from_counts and not needs_pages else "sessions"

    def _collect(self, sessions: object) -> Any:
        """The data that this model is fitted to: counts where they are enough, else sessions."""
        if self.fits_from_counts:
            counts = as_counts(sessions, engine=self._engine)
            self._check_length(counts.max_ads)
            return counts
        grouped = as_grouped(sessions, engine=self._engine)
        self._check_length(grouped.counts.max_ads)
        weight = self.get_params().get("outcome_weight", 1.0)
        return grouped if weight else grouped.without_outcomes()

    def _check_length(self, longest: int) -> None:
        """Refuse pages whose table of positions by last clicks would take gigabytes."""
        if longest > self.longest_page:
            raise UsageError(
                f"Tables of positions by positions take too much memory on pages of {longest:,} "
                f"ads. {type(self).__name__} fits pages of up to {self.longest_page:,}: cut longer "
                "ones with rc.Cleaning(first=…)."
            )

    def _fit(self, data: Any, history: Counts | None, text: AdTokens | None) -> None:
        """Set `_pairs` and every fitted attribute.

        Where ads or words may say something of a pair, a pilot with one prior mean for all pairs
        comes first. The examinations that it infers make a record of every ad that is not biased
        by positions, and that record gives each pair a prior of its own for the final fit.
        """
        counts = get_counts(data)
        before = history or counts
        self._set_prior_mean(before)
        self._pairs = self._index(counts, text)
        prepared = self._prepare(data)
        if self._asks_for_ads(text, some_ad_recurs=_some_ad_recurs(counts)):
            self._is_pilot = True
            self._estimate(prepared, self._pair_prior(), before)
            self._is_pilot = False
            self._set_ad_prior()
        self._estimate(prepared, self._pair_prior(), before)
        self._pilot_parameters = None

    def _set_prior_mean(self, history: Counts) -> None:
        """Set the prior mean of all pairs: what the settings say, or that of the history."""
        setting = self.get_params().get("attractiveness_prior", "overall")
        self.prior_mean_ = (
            self.overall_rate(history) if isinstance(setting, str) else float(setting)
        )

    def _asks_for_ads(self, text: AdTokens | None, *, some_ad_recurs: bool) -> bool:
        """Whether pairs may have priors of their own, from what is known of their ads."""
        setting = self.get_params().get("attractiveness_prior", "overall")
        if setting not in ("auto", "words"):
            return False
        self.prior_report_ = NOTHING_KNOWN if setting == "auto" else NO_TEXT
        return text is not None or (setting == "auto" and some_ad_recurs)

    def _prepare(self, data: Any) -> Any:
        """What `_estimate` gets of the data, made once for the pilot and the final fit."""
        return data

    def _set_ad_prior(self) -> None:
        """Choose the prior of each pair from the clicks and examinations of the last fit."""
        counts = self._pairs.counts
        record = AdRecord(*self._clicks_and_exposure(), counts.pair_ad, len(counts.ads))
        self._pairs.ad_prior = self._select_ad_prior(record, *self._ad_words())

    def _select_ad_prior(
        self, record: AdRecords, tokens: TokenLists | None, words: int
    ) -> AdPrior | None:
        """The prior of each pair, where there is more to say of it than one mean for all."""
        overall, prior = self.prior_mean_, None
        if self.get_params()["attractiveness_prior"] == "auto":
            prior, self.prior_report_ = select_ad_prior(record, tokens, words, overall=overall)
        else:
            prior = fit_words(record, tokens, words, overall=overall)
            self.prior_report_ = prior.report
        return prior

    def _clicks_and_exposure(self) -> tuple[Float64, Float64]:
        """The clicks of each pair among its inferred examinations, and those [pair].

        θ = (clicks + strength · mean) / (examinations + strength), solved for the clicks.
        """
        theta, examinations = vars(self)["theta_"], vars(self)["exposure_"]
        prior = self._pair_prior()
        clicks = theta * (examinations + prior.strength) - prior.strength * prior.mean
        return np.clip(clicks, 0.0, examinations), examinations

    def _pair_prior(self) -> BetaPrior:
        """The prior of the attractiveness of each pair of the training log."""
        if self._pairs.ad_prior is not None:
            return self._pairs.ad_prior.pairs.to_beta(self._given_strength)
        return BetaPrior.constant(self.prior_mean_, self._overall_strength, len(self._pairs))

    @property
    def _given_strength(self) -> float | None:
        """The strength of the prior of attractiveness, if it is a number."""
        strength = self.get_params().get("attractiveness_strength", "auto")
        return None if isinstance(strength, str) else float(strength)

    @property
    def _overall_strength(self) -> float:
        """The strength of one prior mean for all pairs, in examinations."""
        given = self._given_strength
        return self.overall_strength if given is None else given

    def _prior_of(self, asked: PairLookup) -> BetaPrior:
        """The prior of some pairs; of one that is not in the log, as an unseen pair [pair]."""
        size, own = len(asked.row), self._pair_prior()
        unseen = BetaPrior.constant(self.prior_mean_, self._overall_strength, size)
        if self._pairs.ad_prior is not None:
            unseen = self._pairs.unseen_prior(asked).to_beta(self._given_strength)
        known = asked.row >= 0
        for new, values in zip(unseen, own, strict=True):
            new[known] = values[asked.row[known]]
        return unseen

    @property
    def _em_limits(self) -> dict[str, Any]:
        """Where EM stops: a pilot early, the final fit where the settings say."""
        most, tolerance = (self.get_params()[name] for name in ("max_iterations", "tolerance"))
        if self._is_pilot:
            most = min(most, PILOT_ITERATIONS)
            return {"max_iterations": most, "tolerance": PILOT_TOLERANCE, "quiet": True}
        return {"max_iterations": most, "tolerance": tolerance}

    def _fit_ad_prior(
        self, record: AdRecords, words: tuple[TokenLists | None, int] | None = None
    ) -> AdPrior:
        """The prior of pairs with this record, from what is known of the ads and their words."""
        levels = self.get_params()["attractiveness_prior"]
        if levels not in ("auto", "words"):
            return fit_ad_prior(record, None, 0, use_ads=False)
        words = self._ad_words() if words is None else words
        if levels == "words":
            return fit_words(record, *words)
        return fit_ad_prior(record, *words)

    def _ad_words(self) -> tuple[TokenLists | None, int]:
        """The tokens of the ads, if there is text, and the size of the vocabulary."""
        tokens = self._pairs.ad_tokens()
        return tokens, 0 if tokens is None else self._pairs.words.vocabulary_size

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The mean attractiveness: what a pair gets that is not in the log."""
        return top_click_rate(counts)

    def _estimate(self, data: Any, prior: BetaPrior, history: Counts) -> None:
        """Set the fitted attributes.

        `prior` is that of the attractiveness [pair]; other prior means come from the counts of the
        `history`. What holds for the whole log is from `_whole_log`, as the `data` may be one
        bucket of it. By default EM, stage after stage; it starts where a pilot ended, if any.
        """
        if not self.stages:
            raise NotImplementedError
        last = self._pilot_parameters
        if last is None:
            wanted = self._sample_size()
            self._choose_settings(data.sessions.sample_queries(wanted) if wanted else None, history)
        for stage in self._fit_stages():
            problem = self._make_problem(stage, data, prior, history)
            fit = problem.maximise(last, self._engine, **self._em_limits)
            self._set_fit(stage, problem, fit)
            self._report_fit(fit)
            last = fit.parameters

    def _whole_log(self, counts: Counts) -> Counts:
        """Counts with the totals of the whole log: these, or where they are of a bucket, pooled."""
        return counts if self._log is None else self._log

    def _fit_stages(self) -> tuple[str, ...]:
        """The stages of EM with these settings; a pilot has the first alone."""
        return self.stages[:1]

    def _sample_size(self) -> int:
        """How many distinct sessions settings are chosen on; 0 where none is."""
        return 0

    def _choose_settings(self, sample: GroupedSessions | None, history: Counts) -> None:
        """Set what is chosen before EM starts, on a sample of whole queries, or is counted."""

    def _make_problem(
        self, stage: str, data: Any, prior: BetaPrior, history: Counts
    ) -> EMProblem[Any]:
        """What EM maximises in a stage."""
        raise NotImplementedError

    def _set_fit(self, stage: str, problem: Any, fit: FitResult[Any, Statistics]) -> None:
        """Set the fitted attributes from where EM ended."""
        raise NotImplementedError

    @abstractmethod
    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        """Look up the queries and ads of a batch, once for all its pages.

        The result takes start and end and returns the distribution of the pages start … end − 1.
        """

    def _report_fit(self, fit: Any) -> None:
        """Set the four attributes that report on an iterative fit."""
        self.iterations_: int = len(fit.objective)
        self.converged_: bool = fit.converged
        self.objective_: tuple[float, ...] = fit.objective
        self.message_: str = fit.message
        if self._is_pilot:
            self._pilot_parameters = fit.parameters

    def _posteriors(self, asked: PairLookup) -> PairPosteriors:
        """The posteriors of some pairs: Betas with the fitted values as means.

        Their strengths are the examinations and clicks behind the values, and the priors'
        strengths.
        """
        prior = self._prior_of(asked)
        fitted, settings = vars(self), self.get_params()
        theta = np.where(
            asked.row >= 0, self._pairs.take_or(fitted["theta_"], asked.row, 0.0), prior.mean
        )
        examinations = self._pairs.take_or(fitted["exposure_"], asked.row, 0.0)
        attractiveness = Posterior(theta, theta, examinations + prior.strength)
        if "rho_" not in fitted:
            return PairPosteriors(attractiveness)
        rho = self._pairs.take_or(fitted["rho_"], asked.row, fitted["satisfaction_"])
        clicks = self._pairs.take_or(self._pairs.counts.clicks, asked.row, 0.0)
        satisfaction = Posterior(rho, rho, clicks + settings["satisfaction_strength"])
        return PairPosteriors(attractiveness, satisfaction)

    def _with_values(self, attractiveness: Float64, satisfaction: Float64 | None) -> Self:
        """A copy that answers about one batch with these values of its impressions."""
        other, own = copy(self), vars(self)
        fitted = PairValues(own.get("theta_", own.get("_theta")), own.get("rho_", own.get("_rho")))
        other._pairs = ImpressionValues(
            self._pairs, fitted, PairValues(attractiveness, satisfaction)
        )
        return other

    @check_arguments
    def report(self, log: object = None, *, ads: object = None, **options: Any) -> Any:
        """Report on this model alone: how well it predicts the `log`, and which ads to act on.

        Without a log, only what the model has learnt. `options` are those of
        `reclick.evaluation.report_model`, such as `labels` and `name`.

        >>> from reclick.models import DBN
        >>> week = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2], [1, 2]]}
        >>> DBN(max_iterations=2).fit(week).report()
        Evaluation(DBN, not scored)
        """
        from reclick.evaluation import report_model

        return report_model(self, log, ads=ads, **options)

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

        Each comes with a credible interval that holds a share `level` of its posterior, equal
        tails. That of the product is a Beta matched to its mean and variance, unless the model's
        own docs differ. Impressions and clicks in the training log are the support behind them.

        `pairs` is a table with columns query and ad, or a single page as `(query, ads)`; by default
        all pairs of the training log. `query` selects the pairs of one query, the most relevant
        first. `text` is the text of ads that the model does not know. A model without satisfaction
        has nulls there, and its relevance is the attractiveness.

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
        asked, counts = self._pairs.lookup(pairs, text), self._pairs.counts
        estimates = self._posteriors(asked).columns(level)
        support = {
            "impressions": self._pairs.take_or(counts.impressions, asked.row, 0.0),
            "clicks": self._pairs.take_or(counts.clicks, asked.row, 0.0),
        }
        return pa.table({"query": asked.queries, "ad": asked.ads, **estimates, **support})

    @check_arguments
    def explain(self, query: str, ad: str, *, text: object = None) -> Explanation:
        """The evidence, the prior and the words behind the attractiveness of an ad for a query.

        `text` is an ads table for an ad that the model does not know.
        """
        from reclick.models.explanation import explain

        self.check_fitted()
        index = self._index_text(None if text is None else read_ads(text))
        return explain(self._gather_queries(pa.array([query])), query, ad, index)

    def find_known(self, sessions: SessionBatch) -> tuple[Bool, Bool]:
        """Whether the query of each session, and the ad of each impression, is in the training log.

        What is not known is answered from priors alone.
        """
        self.check_fitted()
        return self._gather_sessions(sessions)._pairs.find_known(sessions)

    def find_volumes(self, sessions: SessionBatch) -> Float64:
        """How many sessions the training log has of the query of each session."""
        self.check_fitted()
        return self._gather_sessions(sessions)._pairs.find_volumes(sessions)

    @check_arguments
    def sample_relevance(
        self, pairs: object, draws: int, rng: np.random.Generator | int, *, text: object = None
    ) -> RelevanceDraws:
        """Draw the attractiveness and the satisfaction of pairs from their posteriors.

        The posteriors are those behind the intervals of `relevance`, Betas that are taken as
        independent. `pairs` and `text` are as there.

        >>> from reclick.models import DCTR
        >>> log = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2], [2]]}
        >>> drawn = DCTR().fit(log).sample_relevance(("pizza", ["a", "b"]), 100, 0)
        >>> drawn.attractiveness.shape, drawn.satisfaction is None
        ((100, 2), True)
        """
        self.check_fitted()
        asked = pa.table(dict(zip(("query", "ad"), as_pairs(pairs), strict=True)))
        model = self._gather_queries(pc.unique(asked["query"]))
        found = model._posteriors(model._pairs.lookup(asked, text))
        draws = check_whole("draws", draws, 1)
        generator = np.random.default_rng(rng)
        satisfaction = found.satisfaction
        return RelevanceDraws(
            found.attractiveness.value,
            found.attractiveness.mean,
            found.attractiveness.sample(draws, generator),
            None if satisfaction is None else satisfaction.sample(draws, generator),
        )

    @property
    def training_counts(self) -> Counts:
        """The counts of the training log. Their pairs are the pairs of the model."""
        self.check_fitted()
        return self._pairs.counts

    @property
    def training_totals(self) -> TrainingTotals:
        """The size of the training log."""
        return TrainingTotals.of(self.training_counts)

    @property
    def sequence_counts(self) -> Counts:
        """Counts with at least the click sequences of the training log."""
        return self.training_counts

    @check_arguments
    def iterate_pairs(self, size: int) -> Iterator[pa.Table]:
        """All pairs of the training log, in tables of about `size`; no query is in two of them."""
        counts, start = self.training_counts, 0
        ends = np.append(np.flatnonzero(np.diff(counts.pair_query)) + 1, len(counts.pair_query))
        while start < len(counts.pair_query):
            end = int(ends[min(int(np.searchsorted(ends, start + size)), len(ends) - 1)])
            queries = counts.queries.take(pa.array(counts.pair_query[start:end]))
            yield pa.table(
                {"query": queries, "ad": counts.ads.take(pa.array(counts.pair_ad[start:end]))}
            )
            start = end

    @property
    def training_ads(self) -> pa.Array:
        """Every ad of the training log."""
        return self.training_counts.ads

    def check_folder(self) -> None:
        """Check what is left of the folder that the model was loaded from: nothing, as a rule."""

    def query_volumes(self) -> pa.Table:
        """Every query of the training log and its sessions."""
        counts = self.training_counts
        return pa.table({"query": counts.queries, "sessions": counts.volumes})

    @check_arguments
    def queries_of_ad(self, ad: str) -> pa.Array:
        """The queries that an ad was shown for in the training log."""
        counts = self.training_counts
        code = pc.index(counts.ads, pa.scalar(ad, counts.ads.type)).as_py()
        return counts.queries.take(pa.array(counts.pair_query[counts.pair_ad == code]))

    @check_arguments
    def first_page(self, ads: int) -> tuple[str, list[str]]:
        """A query of the training log and up to so many of its ads, to try an answer on."""
        counts = self.training_counts
        rows = np.flatnonzero(counts.pair_query == counts.pair_query[0])[:ads]
        query = str(counts.queries[int(counts.pair_query[0])].as_py())
        return query, [str(counts.ads[int(ad)].as_py()) for ad in counts.pair_ad[rows]]

    def _gather_queries(self, queries: pa.Array) -> ClickModel:
        """A model that has all that is known of these queries in memory: as a rule itself."""
        return self

    def _gather_sessions(self, sessions: SessionBatch) -> ClickModel:
        """The same for the queries of some sessions."""
        return self

    def examination_by_position(self) -> Float64 | None:
        """P(examination) of each position, if it depends on nothing else; None in most models."""
        self.check_fitted()
        return None

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

        An array [session, position]; what is missing to 1 is the probability that the session
        ends. The clicks so far are `clicks`, one list per page (of a single page the list itself),
        or else the log's own. A model whose clicks go down the page takes them all as above the
        next click.
        """
        return stack_padded(
            self.map_pages(
                open_pages(pages, text, clicks),
                lambda part, chunk: pad_pages(part.page, chunk.next_click_prob(_clicks(part))[0]),
            )
        )

    def noise_prob(self, sessions: object) -> Float64:
        """Probability that the clicks of each session are random [session].

        For a model with the setting `noise`. With `noise="user"`, of each user from all her
        sessions in the log, which has a column user.
        """
        self.check_fitted()
        if self.noise_ is None:
            raise CannotAnswerError(
                f"This {type(self).__name__} has no component of random clicks: fit it with ",
                Argument("noise", "session"),
                ".",
            )
        from reclick.models.noise import noise_prob

        return noise_prob(self, as_log(sessions))

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
        whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
        if length is not None and not (whole and length in lengths):
            expected = f"0 to {len(ads)}, the number of ads on the page"
            raise SettingError("length", length, expected)
        best = self.pages((query, ads), text=text).top_sequences(length, top)
        listed = zip(best.sequences[0], best.lengths[0], best.probabilities[0], strict=True)
        return [
            RankedSequence(tuple(clicks[:count].tolist()), float(probability))
            for clicks, count, probability in listed
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

    # settings, printing, saving

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; scikit-learn calls it with `deep`."""
        return {name: getattr(self, name) for name in self.settings}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; a fitted model is then no longer fitted, unless nothing changed."""
        before = self.get_params()
        changed = type(self)(**{**before, **settings})
        return self if changed.get_params() == before else self._adopt_state(changed)

    def clone(self) -> Self:
        """A new model with the same settings, not fitted."""
        return type(self)(**self.get_params())

    @check_arguments
    def save(
        self, folder: Location, *, overwrite: bool = False, buckets: int | None = None
    ) -> None:
        """Write the model to a folder; a reader sees the old model or the new, never a part.

        A model that was loaded from the folder is not saved over what somebody else has saved
        there since, unless `overwrite`. `rc.updating` keeps others away meanwhile. With `buckets`
        it is written in as many parts, by a hash of the query: `rc.load` then reads only those
        that an answer needs, so that the model may be larger than memory.
        """
        self.check_fitted()
        origin, place = getattr(self, "_origin", None), resolve(folder)
        replaces = origin[1] if origin and origin[0] == place and not overwrite else None
        if buckets is not None:
            from reclick.models.buckets import BucketWriter

            writer = BucketWriter.start(folder, buckets)
            with writer.lock():
                fingerprint = writer.commit(writer.write(self), self, replaces=replaces)
            self._origin = place, fingerprint
            return
        values, tables = self._save_tables()
        fingerprint = artifact.write(
            folder,
            kind="model",
            settings={
                "model": self.name,
                "settings": self.get_params(),
                "values": values,
                "provenance": [each.to_dict() for each in self.provenance_],
            },
            tables={**tables, "provenance": provenance_to_table(self.provenance_)},
            replaces=replaces,
        )
        self._origin = place, fingerprint

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """What `save` writes besides the settings: values for the manifest, and tables."""
        tables = counts_to_tables(self._pairs.counts, self._pairs.text)
        fitted = {name: getattr(self, name) for name in self.pair_parameters if hasattr(self, name)}
        if fitted:
            tables["pairs"] = pa.table(fitted)
        per_query = {name: getattr(self, name) for name in self.query_parameters}
        if any(value is not None for value in per_query.values()):
            known = {name: value for name, value in per_query.items() if value is not None}
            tables["queries"] = pa.table(known)
        reports = (name for name in (*FIT_REPORT, "prior_report_") if hasattr(self, name))
        names = dict.fromkeys((*self.global_parameters, *reports))
        values = {name: np.asarray(getattr(self, name)).tolist() for name in names}
        if self.hyperparameters_:
            values["hyperparameters_"] = self.hyperparameters_
        if self._pairs.ad_prior is not None:
            values["ad_prior"], prior = self._pairs.ad_prior.to_tables()
            tables |= {f"prior_{name}": table for name, table in prior.items()}
        return values, tables

    def _save_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """`_to_tables`, with the component of random clicks and the redundancy, if any."""
        values, tables = self._to_tables()
        noise = {} if self.noise_ is None else {"noise_": self.noise_.to_value()}
        redundancy = {"redundancy_": self.redundancy_} if self.redundancy_ else {}
        return {**values, **noise, **redundancy}, tables

    def _load_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        """Restore a fit from what `_save_tables` returned."""
        rest = dict(values)
        noise, redundancy = rest.pop("noise_", None), rest.pop("redundancy_", None)
        self._from_tables(rest, tables)
        if redundancy is not None:
            check_range("redundancy_", redundancy, 0, MOST_STORED_REDUNDANCY)
            self.redundancy_ = float(redundancy)
        if noise is not None:
            from reclick.models.noise import Noise

            self.noise_ = Noise.from_value(noise)

    def _to_rows(self) -> tuple[QueryRows, dict[str, pa.Table]]:
        """The tables that `save` writes: rows of queries, and what holds for the whole log."""
        _, tables = self._to_tables()
        return QueryRows.from_tables(type(self).__name__, tables, self.table_rows)

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        """Restore a fit from what `_to_tables` returned."""
        values = dict(values)
        prior = values.pop("ad_prior", None)
        if "hyperparameters_" in values:
            self.hyperparameters_ = values.pop("hyperparameters_")
        counts, text = counts_from_tables(tables)
        for name in tables["pairs"].column_names if "pairs" in tables else ():
            if name not in (*self.pair_parameters, "word_exposure_", "word_clicks_"):
                raise table_error("pairs", f"{type(self).__name__} has no parameter {name}")
            column = read_numbers(tables, "pairs", name, length=len(counts.impressions))
            setattr(self, name, column.copy())
        for name in tables["queries"].column_names if "queries" in tables else ():
            if name not in self.query_parameters:
                raise table_error("queries", f"{type(self).__name__} has no parameter {name}")
            size = len(counts.queries)
            rates = read_numbers(tables, "queries", name, length=size, low=0.0, high=1.0)
            setattr(self, name, rates.copy())
        for name, value in values.items():
            setattr(self, name, self._check_value(name, value))
        self._pairs = self._index(counts, text)
        if prior is not None:
            self._pairs.ad_prior = self._read_ad_prior(prior, tables)
        return self

    def _read_ad_prior(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> AdPrior:
        """The prior of each pair; what it says of ads is that of the corpus, if there is one."""
        of_prior = {
            name.removeprefix("prior_"): table
            for name, table in tables.items()
            if name.startswith("prior_")
        }
        n_pairs, corpus = len(self._pairs), self._corpus
        if corpus is not None and corpus.ad_prior is not None:
            return corpus.ad_prior.with_pairs(of_prior, n_pairs)
        ad_prior = AdPrior.from_tables(values, of_prior)
        if not ad_prior.is_for(n_pairs, len(self._pairs.counts.ads)):
            raise table_error("prior_pairs", "its rows are not those of the pairs and ads")
        return ad_prior

    def _check_value(self, name: str, value: Any) -> Any:
        """A fitted value of a manifest; a name or a type that no fit has is refused."""
        if name == "objective_" and isinstance(value, list):
            return tuple(float(each) for each in value)
        if name in ("message_", "prior_report_") and isinstance(value, str):
            return value
        if name not in (*self.global_parameters, *FIT_REPORT):
            raise StoreError(
                f"The folder has a value {name!r}, which {type(self).__name__} has not: it was "
                "altered. Fit again, and save to a new folder."
            )
        if value is None and name in ("outcome_rates_", "cv_"):  # no outcomes, no cross-validation
            return None
        numbers = np.array(value)
        if numbers.dtype.kind not in "fiub" or not np.isfinite(numbers).all():
            raise StoreError(
                f"The folder has {name} = {value!r:.100}, expected numbers: it was altered. "
                "Fit again, and save to a new folder."
            )
        if name == "prior_mean_" and not 0 < float(numbers) < 1:
            raise StoreError(
                f"The folder has {name} = {value!r:.100}, expected a probability: it was altered. "
                "Fit again, and save to a new folder."
            )
        return numbers if isinstance(value, list) else value

    def _index(self, counts: Counts, text: AdTokens | None) -> TextPairIndex:
        """The index of the pairs of some counts, as this model looks them up."""
        return TextPairIndex(
            counts,
            text,
            prior_mean=getattr(self, "prior_mean_", 0.5),
            min_query_sessions=getattr(self, "min_query_sessions", 50),
            word_strength=getattr(self, "word_strength", 0.0),
            corpus=self._corpus,
        )

    @property
    def advice(self) -> str:
        """A caution about this model and these settings; empty where there is none."""
        return ""

    @property
    def fitted(self) -> bool:
        """Whether the model is fitted."""
        # What is fitted was set last.
        names = reversed(vars(self))
        return any(name[-1] == "_" and name[0] != "_" for name in names)

    def __repr__(self) -> str:
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value != self.settings[name].default
        )
        fit = self._describe_fit() if self.fitted else ""
        return f"{type(self).__name__}({', '.join(changed)}){fit}"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"assumes": self.assumes}
        if self.fitted:
            totals = self.training_totals
            facts["fitted on"] = (
                f"{totals.sessions:,.0f} sessions, {totals.queries:,} queries, "
                f"{totals.pairs:,} (query, ad) pairs"
            )
            facts["fit"] = getattr(self, "message_", "")
        else:
            facts["fitted on"] = "nothing yet: call fit(sessions)"
        params = self.get_params().items()
        settings = ", ".join(f"{name}={value!r}" for name, value in params)
        return render_card(type(self).__name__, {**facts, "settings": settings}, self.advice)

    def _describe_fit(self) -> str:
        reports = [getattr(self, name, "") for name in ("message_", "prior_report_")]
        if self.noise_ is not None:
            reports.append(f"noise: {self.noise_.share:.1%} of the sessions")
        chosen = ", ".join(f"{name}={value}" for name, value in self.hyperparameters_.items())
        lines = [f"fitted on {self._pairs.counts!r}", *filter(None, [*reports, chosen])]
        return "".join(f"\n  {line}" for line in lines)

    def check_fitted(self) -> None:
        """Raise a `NotFittedError` unless the model is fitted."""
        if not self.fitted:
            raise NotFittedError(
                f"{type(self).__name__} is not fitted yet. "
                "Call fit(sessions) first, or rc.load(folder)."
            )

    def check_uses_history(self) -> None:
        """Raise a `UsageError` unless the model takes prior means from a history."""
        if not self.uses_history:
            raise UsageError(
                f"{type(self).__name__} takes no priors from a history: leave out ",
                Argument("history"),
                ". To learn from the earlier log too, fit to both logs together.",
            )

    # pages

    def pages(self, pages: object, *, text: object = None) -> PageDistribution:
        """The distribution over the clicks of some pages, all held in memory.

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
        """An answer of your own for each chunk of the log, in order.

        `answer` gets the chunk's sessions and the distribution of its pages. Chunks are answered
        in parallel.
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
        """The same for sessions that were read already; `text` is from `_index_text`."""
        self.check_fitted()
        known = self._index_text(None) if text is None else text
        distribution = self._distribution(batch, known)
        return map_chunks(batch, distribution, answer, threads)

    def _distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        """`_page_distribution`, with the component of random clicks where there is one."""
        pages = self._page_distribution(batch, text)
        return pages if self.noise_ is None else self.noise_.add_to(self, batch, pages)

    def score_clicks(self, sessions: SessionBatch, pages: PageDistribution) -> Float64:
        """Log-probability of the clicks of sessions: in their order if the model has one."""
        clicks = _clicks(sessions)
        return pages.log_prob(clicks) if self.ordered else pages.log_set_prob(clicks)

    def _index_text(self, ads: pa.Table | None) -> TextIndex | None:
        """The model's text of ads, and that of a checked ads table for those new to it."""
        return self._pairs.text_with(ads)


def _as_page(page: object, ads: Sequence[str] | None) -> tuple[object, Sequence[str]]:
    """The query and the ads of one page, given as two arguments or as one tuple."""
    if ads is not None and not isinstance(ads, str | bytes) and isinstance(ads, Iterable):
        return page, list(ads)
    if isinstance(page, tuple) and len(page) == 2 and not isinstance(page[1], str):
        return page[0], list(page[1])
    raise UsageError(
        "This is about one page: give its query and its ads, such as "
        "rank_sequences('pizza', ['ad1', 'ad2'])."
    )


def cannot_fit_in_buckets(model: ClickModel, setting: str, value: object) -> CannotAnswerError:
    """The error of a setting that `fit_to` has no way to fit, and the value that it can."""
    return CannotAnswerError(
        f"{type(model).__name__} with {setting}={getattr(model, setting)!r} cannot be fitted in "
        f"buckets. {'Leave out' if value is None else 'Set'} ",
        Argument(setting, value),
        f", or {IN_MEMORY}",
    )


def _some_ad_recurs(counts: Counts) -> bool:
    """Whether an ad was shown for more than one query."""
    return bool(np.bincount(counts.pair_ad).max(initial=0) > 1)


def get_counts(data: Counts | GroupedSessions) -> Counts:
    """The counts of what a model is fitted to."""
    return data if isinstance(data, Counts) else data.counts


def _clicks(sessions: SessionBatch) -> Clicks:
    return Clicks(sessions.click, sessions.clicks)
