"""ClickModel: how a model is fitted and updated; a model adds its estimates and its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from reclick.data.batch import Float64
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.engines import Engine, LocalEngine, as_counts, as_engine, as_grouped
from reclick.errors import Argument, CannotAnswerError, UsageError
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
from reclick.fitting.priors import top_click_rate
from reclick.models.base.answers import AnsweringModel
from reclick.models.base.storage import StoredModel
from reclick.models.provenance import extend_provenance, see_logs
from reclick.models.text_pair_index import input_text, merge_text
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.progress import ProgressOption, track_progress
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TokenLists

if TYPE_CHECKING:
    from reclick.models.partitioned import PartitionedModel


# A pilot fit only has to tell how often each pair was examined.
PILOT_ITERATIONS, PILOT_TOLERANCE = 15, 1e-3
IN_MEMORY = (  # what to do about a fit that cannot be in buckets
    "fit it in memory: fit(…) and then save(folder, buckets=…), on the command line without "
    "--engine."
)


class ClickModel(AnsweringModel, StoredModel):
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

    stages: ClassVar[tuple[str, ...]] = ()  # of a fit by EM, each an `EMProblem`
    _engine: Engine = LocalEngine()  # another one during a fit with engine=…
    _log: Counts | None = None  # during the fit of a bucket: the pooled counts of the whole log
    _is_pilot: bool = False  # during the pilot of a fit
    _pilot_parameters: Any = None  # where it ended

    def __init__(self, **values: Any) -> None:
        self._set(values)

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

    def _collect_update(self, sessions: object, fresh: Self) -> Any:
        """What `fresh` continues with; sessions count by how likely they are not noise."""
        if self.noise_ is None or self.noise_.share == 0:
            return fresh._collect(sessions)
        from reclick.models.noise import collect_clean

        return collect_clean(self, sessions)

    def _check_length(self, longest: int) -> None:
        """Refuse pages whose table of positions by last clicks would take gigabytes."""
        if longest > self.longest_page:
            raise UsageError(
                f"Tables of positions by positions take too much memory on pages of {longest:,} "
                f"ads. {type(self).__name__} fits pages of up to {self.longest_page:,}: cut longer "
                "ones with rc.Cleaning(first=…)."
            )

    def _check_buckets(self) -> None:
        """Refuse settings that `fit_to` has no way to fit."""

    def _fit_with_noise(
        self, sessions: object, history: Counts | None, text: AdTokens | None
    ) -> Any:
        """Fit the model and its component of random clicks; return what it was fitted to."""
        from reclick.models.noise import fit_with_noise

        return fit_with_noise(self, sessions, history, text)

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

    def _continue(
        self, last: Self, new: Any, old: Any, decay: float, text: AdTokens | None
    ) -> None:
        """Set every fitted attribute: those of the `last` fit, continued.

        With `new` data, and without `old` data.
        """
        raise NotImplementedError

    # the prior of attractiveness

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

    def _clicks_and_exposure(self) -> tuple[Float64, Float64]:
        """The clicks of each pair among its inferred examinations, and those [pair].

        θ = (clicks + strength · mean) / (examinations + strength), solved for the clicks.
        """
        theta, examinations = vars(self)["theta_"], vars(self)["exposure_"]
        prior = self._pair_prior()
        clicks = theta * (examinations + prior.strength) - prior.strength * prior.mean
        return np.clip(clicks, 0.0, examinations), examinations

    def _ad_words(self) -> tuple[TokenLists | None, int]:
        """The tokens of the ads, if there is text, and the size of the vocabulary."""
        tokens = self._pairs.ad_tokens()
        return tokens, 0 if tokens is None else self._pairs.words.vocabulary_size

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The mean attractiveness: what a pair gets that is not in the log."""
        return top_click_rate(counts)

    # estimation

    def _set_counted(self, sessions: Any, history: Counts) -> Any:
        """Set what is counted beside EM, where a model has both."""

    def _prepare(self, data: Any) -> Any:
        """What `_estimate` gets of the data, made once for the pilot and the final fit."""
        return data

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

    @property
    def _em_limits(self) -> dict[str, Any]:
        """Where EM stops: a pilot early, the final fit where the settings say."""
        most, tolerance = (self.get_params()[name] for name in ("max_iterations", "tolerance"))
        if self._is_pilot:
            most = min(most, PILOT_ITERATIONS)
            return {"max_iterations": most, "tolerance": PILOT_TOLERANCE, "quiet": True}
        return {"max_iterations": most, "tolerance": tolerance}

    def _report_fit(self, fit: Any) -> None:
        """Set the four attributes that report on an iterative fit."""
        self.iterations_: int = len(fit.objective)
        self.converged_: bool = fit.converged
        self.objective_: tuple[float, ...] = fit.objective
        self.message_: str = fit.message
        if self._is_pilot:
            self._pilot_parameters = fit.parameters


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
