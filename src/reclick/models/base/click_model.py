"""ClickModel: fits and updates; a subclass adds its estimates and its page distributions."""

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
    PairRecords,
    fit_ad_prior,
    fit_words,
    select_ad_prior,
)
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import EMProblem, FitResult, Statistics
from reclick.fitting.priors import top_click_rate
from reclick.models.base.answers import AnsweringModel
from reclick.models.base.storage import StoredModel
from reclick.models.provenance import extend_provenance, to_seen_logs
from reclick.models.text_pair_index import input_text, merge_text
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import Location
from reclick.runtime.progress import ProgressOption, track_progress
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TokenLists

if TYPE_CHECKING:
    from reclick.models.bucketed_model import BucketedModel


# A pilot fit is only used for the number of examinations of each pair.
PILOT_ITERATIONS, PILOT_TOLERANCE = 15, 1e-3
IN_MEMORY = (  # advice for a fit that cannot be in buckets
    "fit it in memory: fit(…) and then save(folder, buckets=…), on the command line without "
    "--engine."
)


class ClickModel(AnsweringModel, StoredModel):
    """A click model: a probability for every click sequence of a page of ads.

    A subclass declares its settings and implements its fit (`_estimate` or `_fit`) and the
    distribution over the clicks of a page (`_page_distribution`); everything else is here. Settings
    are passed by keyword, checked, and listed by `get_params()`; `settings` describes them.

    `pages` and `sessions` are a log from `read_sessions`, or anything it reads: a path, a table,
    a dict of columns, or a single page as `(query, ads)`. Answers are in the order of the log, with
    one row per page. `text` is the text of ads that the model does not know, as a table or as
    `{ad: text}`.

    >>> from reclick.models import UBM
    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [2], [], [1, 2]]}
    >>> ads = {"a": "hot pizza", "b": "cold pizza"}
    >>> model = UBM(attractiveness_prior="words").fit(log, ads=ads)
    >>> model.click_prob(("pizza", ["new", "a"]), text={"new": "hot pizza"}).shape
    (1, 2)
    """

    stages: ClassVar[tuple[str, ...]] = ()  # of a fit by EM: one `EMProblem` per stage
    _engine: Engine = LocalEngine()  # replaced during a fit with engine=…
    _log: Counts | None = None  # during the fit of a bucket: the pooled counts of the whole log
    _is_pilot: bool = False  # during the pilot of a fit
    _pilot_parameters: Any = None  # where the pilot ended

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

        Prior means come from `history`, an earlier log, or else from the sessions themselves. A
        model without `uses_history` raises an error if it gets a history. `ads` is a table with the
        text of ads, by default the one passed to `read_sessions`. `engine` is where the log is
        counted and EM runs, by default `LocalEngine()`.
        """
        if history is not None:
            self.check_uses_history()
        with track_progress(progress, f"Fitting {type(self).__name__}"):
            fresh = self.clone()
            fresh._engine = as_engine(engine)
            history_counts = None if history is None else as_counts(history, engine=engine)
            text = input_text(sessions, ads)
            if fresh.noise is None:
                data = fresh._collect(sessions)
                fresh._fit(data, history_counts, text)
            else:
                data = fresh._fit_with_noise(sessions, history_counts, text)
            earlier_logs = () if history_counts is None else history_counts.logs
            history_logs = to_seen_logs(earlier_logs, "history")
            fresh.provenance_ = (*to_seen_logs(get_counts(data).logs, "fit"), *history_logs)
            del fresh._engine  # it may hold connections, which a fitted model does not need
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
    ) -> BucketedModel:
        """Fit the model to a log larger than memory, write it to a folder in buckets, and open it.

        The result is the same as from `fit(…)` and `save(folder, buckets=…)`, but the pairs,
        queries and parameters of the whole log are never in memory together. Each bucket is fitted
        and written by a task of the `engine`, a `PoolEngine` or a `SparkEngine`; by default, this
        process runs the tasks one after another. The folder changes when all buckets are written.
        Only models with `fits_in_buckets` can do this.
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
        """Continue from the last fit with new sessions, if the model can.

        The weight of the old sessions is multiplied by `decay`; they are not read again. The
        sessions of `forget` are subtracted, which needs a model that is fitted from counts. A log
        that the model was already fitted to raises an error, unless `again`. `engine` is as in
        `fit`.
        """
        name = type(self).__name__
        if not self.updates:
            raise CannotAnswerError(f"{name} cannot be updated: fit it again on all the sessions.")
        self.check_fitted()
        if forget is not None and not self.fits_from_counts:
            raise CannotAnswerError(
                f"{name} cannot subtract sessions it was fitted to: reduce their weight with ",
                Argument("decay", ...),
                ", or fit it again without them. MultiClick can.",
            )
        with track_progress(progress, f"Updating {name}"):
            fresh = self.clone()
            fresh._engine = as_engine(engine)
            only_counts = sessions is None and self.fits_from_counts
            new = None if only_counts else self._collect_update(sessions, fresh)
            old = None if forget is None else fresh._collect(forget)
            logs = (() if data is None else get_counts(data).logs for data in (new, old))
            provenance = extend_provenance(self.provenance_, *logs, again=again)
            text = merge_text(self._pairs.text, input_text(sessions, ads))
            fresh._continue(self, new, old, decay, text)
            fresh.provenance_, fresh.noise_ = provenance, self.noise_
            fresh.redundancy_ = self.redundancy_
            del fresh._engine  # as after a fit
        return self._adopt_state(fresh)

    @check_arguments
    def report(
        self,
        log: object = None,
        *,
        ads: object = None,
        labels: object = None,
        name: str | None = None,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
        engine: Engine | None = None,
        progress: ProgressOption = None,
    ) -> Any:
        """Report on this model alone: how well it predicts the `log`, and which ads to act on.

        Without a log, the report only shows what the model has learnt. `to_html` of the result
        writes the page. `name` is the display name, by default that of the class; the other
        arguments are those of `evaluate`.

        >>> from reclick.models import DBN
        >>> week = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[2], [1, 2]]}
        >>> DBN(max_iterations=2).fit(week).report()
        Evaluation(DBN, not scored)
        """
        from reclick.evaluation import report_model

        return report_model(
            self,
            log,
            ads=ads,
            labels=labels,
            name=name,
            level=level,
            resamples=resamples,
            seed=seed,
            engine=engine,
            progress=progress,
        )

    @property
    def learns_from(self) -> str:
        """What a fit needs: "counts", distinct "sessions", or the "log" with its users."""
        if self.noise == "user":
            return "log"
        needs_pages = self.noise is not None or self.get_params().get("redundancy") == "auto"
        return "counts" if self.fits_from_counts and not needs_pages else "sessions"

    def _collect(self, sessions: object) -> Any:
        """Return the data that this model is fitted to: counts if it can, else sessions."""
        if self.fits_from_counts:
            counts = as_counts(sessions, engine=self._engine)
            self._check_length(counts.max_ads)
            return counts
        grouped = as_grouped(sessions, engine=self._engine)
        self._check_length(grouped.counts.max_ads)
        weight = self.get_params().get("outcome_weight", 1.0)
        return grouped if weight else grouped.without_outcomes()

    def _collect_update(self, sessions: object, fresh: Self) -> Any:
        """Return the data of an update; sessions are weighted by P(not noise)."""
        if self.noise_ is None or self.noise_.share == 0:
            return fresh._collect(sessions)
        from reclick.models.noise import collect_clean

        return collect_clean(self, sessions)

    def _check_length(self, longest: int) -> None:
        """Raise an error for pages whose table of positions by last clicks would take gigabytes."""
        if longest > self.longest_page:
            raise UsageError(
                f"Tables of positions by positions take too much memory on pages of {longest:,} "
                f"ads. {type(self).__name__} fits pages of up to {self.longest_page:,}: cut longer "
                "ones with rc.Cleaning(first=…)."
            )

    def _check_buckets(self) -> None:
        """Raise an error for settings that `fit_to` cannot fit."""
        if getattr(self, "redundancy", 0) == "auto":
            raise cannot_fit_in_buckets(self, "redundancy", 0)

    def _fit_with_noise(
        self, sessions: object, history: Counts | None, text: AdTokens | None
    ) -> Any:
        """Fit the model and its component of random clicks; return the data of the fit."""
        from reclick.models.noise import fit_with_noise

        return fit_with_noise(self, sessions, history, text)

    def _fit(self, data: Any, history: Counts | None, text: AdTokens | None) -> None:
        """Set `_pairs` and every fitted attribute.

        If ads or words may inform the prior of a pair, a pilot with one prior mean for all pairs
        runs first. The examinations that it infers give a record of every ad that is not biased by
        positions. From this record, each pair gets its own prior for the final fit.
        """
        counts = get_counts(data)
        prior_counts = history or counts
        self._set_prior_mean(prior_counts)
        self._pairs = self._index(counts, text)
        model_data = self._prepare(data)
        if self._needs_pilot(text, some_ad_recurs=_some_ad_recurs(counts)):
            self._is_pilot = True
            self._estimate(model_data, self._pair_prior(), prior_counts)
            self._is_pilot = False
            self._set_ad_prior()
        self._estimate(model_data, self._pair_prior(), prior_counts)
        self._pilot_parameters = None

    def _continue(
        self, last: Self, new: Any, old: Any, decay: float, text: AdTokens | None
    ) -> None:
        """Set every fitted attribute by continuing the `last` fit.

        `new` data are added, and `old` data are subtracted.
        """
        raise NotImplementedError

    # the prior of attractiveness

    def _set_prior_mean(self, history: Counts) -> None:
        """Set the prior mean of all pairs, from the settings or from the history."""
        setting = self.get_params().get("attractiveness_prior", "overall")
        self.prior_mean_ = (
            self.overall_rate(history) if isinstance(setting, str) else float(setting)
        )

    def _needs_pilot(self, text: AdTokens | None, *, some_ad_recurs: bool) -> bool:
        """Whether a pilot must run, because each pair may get its own prior from its ad."""
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
        self, record: PairRecords, tokens: TokenLists | None, words: int
    ) -> AdPrior | None:
        """Select the prior of each pair; None if one mean for all pairs is as good."""
        overall, prior = self.prior_mean_, None
        if self.get_params()["attractiveness_prior"] == "auto":
            prior, self.prior_report_ = select_ad_prior(record, tokens, words, overall=overall)
        else:
            prior = fit_words(record, tokens, words, overall=overall)
            self.prior_report_ = prior.report
        return prior

    def _fit_ad_prior(
        self, record: PairRecords, words: tuple[TokenLists | None, int] | None = None
    ) -> AdPrior:
        """Fit the prior of pairs to their record, from their ads and the words of the ads."""
        levels = self.get_params()["attractiveness_prior"]
        if levels not in ("auto", "words"):
            return fit_ad_prior(record, None, 0, use_ads=False)
        words = self._ad_words() if words is None else words
        if levels == "words":
            return fit_words(record, *words)
        return fit_ad_prior(record, *words)

    def _clicks_and_exposure(self) -> tuple[Float64, Float64]:
        """The clicks of each pair in its inferred examinations, and these examinations [pair].

        θ = (clicks + strength · mean) / (examinations + strength), solved for the clicks.
        """
        theta, examinations = vars(self)["theta_"], vars(self)["exposure_"]
        prior = self._pair_prior()
        clicks = theta * (examinations + prior.strength) - prior.strength * prior.mean
        return np.clip(clicks, 0.0, examinations), examinations

    def _ad_words(self) -> tuple[TokenLists | None, int]:
        """The tokens of the ads, None without text, and the size of the vocabulary."""
        tokens = self._pairs.ad_tokens()
        return tokens, 0 if tokens is None else self._pairs.words.vocabulary_size

    @staticmethod
    @check_arguments
    def overall_rate(counts: Counts) -> float:
        """The mean attractiveness, used for a pair that is not in the log."""
        return top_click_rate(counts)

    # estimation

    def _set_counted_parameters(self, sessions: Any, history: Counts) -> Any:
        """Set the attributes that are counted, for a model with both counting and EM."""

    def _prepare(self, data: Any) -> Any:
        """Prepare the data for `_estimate`, once for the pilot and the final fit."""
        return data

    def _estimate(self, data: Any, prior: BetaPrior, history: Counts) -> None:
        """Set the fitted attributes.

        `prior` is the prior of attractiveness [pair]; other prior means come from the counts of the
        `history`. Values of the whole log must come from `_whole_log`, as the `data` may be one of
        its buckets. By default, EM runs stage by stage, starting where a pilot ended, if any.
        """
        if not self.stages:
            raise NotImplementedError
        last = self._pilot_parameters
        if last is None:
            size = self._sample_size()
            self._choose_settings(data.sessions.sample_queries(size) if size else None, history)
        for stage in self._fit_stages():
            problem = self._make_problem(stage, data, prior, history)
            fit = problem.maximise(last, self._engine, **self._em_limits)
            self._set_fit(stage, problem, fit)
            self._report_fit(fit)
            last = fit.parameters

    def _whole_log(self, counts: Counts) -> Counts:
        """Counts with the totals of the whole log: `counts`, or the pooled counts in a bucket."""
        return counts if self._log is None else self._log

    def _fit_stages(self) -> tuple[str, ...]:
        """The stages of EM with these settings; a pilot only has the first."""
        return self.stages[:1]

    def _sample_size(self) -> int:
        """Number of distinct sessions on which settings are chosen; 0 if none are chosen."""
        return 0

    def _choose_settings(self, sample: GroupedSessions | None, history: Counts) -> None:
        """Set what is counted, or chosen on a sample of whole queries, before EM starts."""

    def _make_problem(
        self, stage: str, data: Any, prior: BetaPrior, history: Counts
    ) -> EMProblem[Any]:
        """Return the problem that EM maximises in a stage."""
        raise NotImplementedError

    def _set_fit(self, stage: str, problem: Any, fit: FitResult[Any, Statistics]) -> None:
        """Set the fitted attributes from where EM ended."""
        raise NotImplementedError

    @property
    def _em_limits(self) -> dict[str, Any]:
        """When EM stops: early in a pilot, by the settings in the final fit."""
        settings = self.get_params()
        max_iterations, tolerance = settings["max_iterations"], settings["tolerance"]
        if self._is_pilot:
            max_iterations = min(max_iterations, PILOT_ITERATIONS)
            return {"max_iterations": max_iterations, "tolerance": PILOT_TOLERANCE, "quiet": True}
        return {"max_iterations": max_iterations, "tolerance": tolerance}

    def _report_fit(self, fit: Any) -> None:
        """Set the four attributes that report on an iterative fit."""
        self.iterations_: int = len(fit.objective)
        self.converged_: bool = fit.converged
        self.objective_: tuple[float, ...] = fit.objective
        self.message_: str = fit.message
        if self._is_pilot:
            self._pilot_parameters = fit.parameters


def cannot_fit_in_buckets(model: ClickModel, setting: str, value: object) -> CannotAnswerError:
    """The error for a setting that `fit_to` cannot fit, with a value that it can."""
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
    """The counts of the data that a model is fitted to."""
    return data if isinstance(data, Counts) else data.counts
