"""Fits that write a model folder in buckets: each bucket is fitted and written by a task.

The model of a bucket is an ordinary model with the queries of the bucket. What it needs from the
whole log comes from the driver: pooled counts, the totals of its ads, their prior, and for EM the
totals of each round. The model of the driver has no queries, only the parameters that are common to
all buckets.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.counts_checks import require_usable_weights
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.log_record import LogRecord
from reclick.data.ragged import Float64
from reclick.engines import Engine, LocalEngine, RecordedLog, as_engine, as_grouped, open_log
from reclick.engines.bucketed_log import (
    BucketedLog,
    BucketTasks,
    collect_buckets,
    split_counts,
)
from reclick.engines.store import Store
from reclick.engines.tasks import SerialEngine, TaskEngine
from reclick.errors import Argument, CannotAnswerError, SettingError
from reclick.fitting.attractiveness_prior import AdPrior, AdRecord
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import EMProblem, FitResult, Statistics
from reclick.models.base import IN_MEMORY, ClickModel, cannot_fit_in_buckets, get_counts
from reclick.models.bucket_em import BucketedParameters, BucketedProblem, load_rows
from reclick.models.bucket_luce import LuceBuckets
from reclick.models.bucket_prior import BucketedRecord, BucketPrior, store_record
from reclick.models.bucketed_model import BucketedModel, open_later
from reclick.models.buckets import (
    BucketWriter,
    CommonTables,
    WrittenBucket,
    ads_as_words,
    describe_model,
)
from reclick.models.luceclick import LuceClick
from reclick.models.provenance import SeenLogs, to_seen_logs
from reclick.models.query_rows import AD, SEQUENCE, TrainingTotals
from reclick.models.simple_cascade import CountedCascade
from reclick.models.text_pair_index import Corpus, input_text
from reclick.runtime import artifact
from reclick.runtime.filesystem import Location
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import CorpusWords, ShownAds, TextIndex, TokenLists

PREPARED, PROBLEM, WHOLE_LOG = "prepared", "problem", "whole-log"
RowSetter = Callable[["BucketPart"], None]


def fit_to(
    model: ClickModel,
    folder: Location,
    sessions: object,
    buckets: int,
    *,
    history: object = None,
    ads: object = None,
    engine: Engine | None = None,
) -> BucketedModel:
    """Fit a model in buckets; see `ClickModel.fit_to`."""
    _check_model(model)
    if history is not None:
        model.check_uses_history()
    writer, task_engine = BucketWriter.start(folder, buckets), _as_task_engine(engine)
    text = input_text(sessions, ads)
    with task_engine.scratch() as store:
        pooled_history, history_logs = _pool_history(task_engine, history)
        log, records = _collect(task_engine, sessions, store, buckets, model)
        model._check_length(log.head.max_ads)
        _check_outcomes(model, log)
        provenance = (*to_seen_logs(records, "fit"), *history_logs)
        fit = BucketFit(model.clone(), log, task_engine, pooled_history, text)
        fit.estimate()
        with writer.lock():
            fingerprint = fit.write(writer, provenance)
    pa.default_memory_pool().release_unused()
    return open_later(folder, fingerprint, type(model))


def _check_model(model: ClickModel) -> None:
    """Raise an error if the model or its settings cannot be fitted in buckets."""
    if not model.fits_in_buckets:
        name = type(model).__name__
        raise CannotAnswerError(f"{name} cannot be fitted in buckets: {IN_MEMORY}")
    if model.noise is not None:
        raise cannot_fit_in_buckets(model, "noise", None)
    model._check_buckets()


def _check_outcomes(model: ClickModel, log: BucketedLog) -> None:
    """Raise an error if the fit must count the satisfied clicks of all pairs."""
    settings = model.get_params()
    if log.head.outcomes is None or not settings.get("outcome_weight", 0.0):
        return
    by_em = not (model.fits_from_counts or isinstance(model, CountedCascade))
    has_prior_mean = not isinstance(settings.get("satisfaction_prior"), str)
    if by_em and (has_prior_mean or isinstance(model, LuceClick)):
        return
    number: tuple[str | Argument, ...] = ()
    if by_em:
        number = "give ", Argument("satisfaction_prior", ...), " a number, "
    raise CannotAnswerError(
        f"The log has outcomes of clicks, which {type(model).__name__} cannot use in buckets with "
        "these settings. Set ",
        Argument("outcome_weight", 0),
        ", ",
        *number,
        f"or {IN_MEMORY}",
    )


def _as_task_engine(engine: Engine | None) -> TaskEngine:
    task_engine = as_engine(engine)
    if type(task_engine) is LocalEngine:
        return SerialEngine()
    if not isinstance(task_engine, TaskEngine):
        raise SettingError("engine", engine, "rc.PoolEngine() or rc.SparkEngine()", or_none=True)
    return task_engine


def _collect(
    engine: TaskEngine, sessions: object, store: Store, buckets: int, model: ClickModel
) -> tuple[BucketedLog, tuple[LogRecord, ...]]:
    """Split the data of the fit into buckets; return it with the records of its logs."""
    if model.fits_from_counts and artifact.is_artifact(sessions):
        sessions = Counts.load(cast(Location, sessions))
    if model.fits_from_counts and isinstance(sessions, Counts):
        return split_counts(sessions, store, buckets), sessions.logs
    if isinstance(sessions, Counts) or artifact.is_artifact(sessions):
        as_grouped(sessions)  # raises an error with the reason
    if isinstance(sessions, GroupedSessions):
        raise SettingError("sessions", sessions, "a log, which a fit in buckets reads in parts")
    recording = RecordedLog(open_log(sessions))
    log = collect_buckets(engine, recording, store, buckets, counts_only=model.fits_from_counts)
    require_usable_weights(log.head, recording.name)
    return replace(log, has_weights=recording.record.has_weights), (recording.record,)


def _pool_history(engine: TaskEngine, history: object) -> tuple[Counts | None, SeenLogs]:
    """Return the pooled counts of an earlier log, and its record."""
    if history is None:
        return None, ()
    if artifact.is_artifact(history):
        history = Counts.load(cast(Location, history))
    if isinstance(history, Counts | GroupedSessions):
        counts = get_counts(history)
        return counts.pool(), to_seen_logs(counts.logs, "history")
    recording = RecordedLog(open_log(history))
    with engine.scratch() as store:
        log = collect_buckets(engine, recording, store, engine.n_tasks, counts_only=True)
    require_usable_weights(log.head, recording.name)
    return log.head, to_seen_logs([recording.record], "history")


# ---- the driver


class FittedRows(NamedTuple):
    """Where the rows of a finished EM are."""

    stage: str
    problem: str  # name of its files
    parameters: BucketedParameters[Any]


class BucketFit:
    """Fits a model bucket by bucket; `model` becomes the model of a bucket without queries."""

    def __init__(
        self,
        model: ClickModel,
        log: BucketedLog,
        engine: TaskEngine,
        history: Counts | None,
        text: AdTokens | None,
    ) -> None:
        self.model, self.log = model, log
        self.tasks = BucketTasks.of(engine, log)
        self._history, self._text = history, text
        self._prior_counts = log.head if history is None else history
        model._engine, model._log = LocalEngine(), log.head
        self._ads = log.number_ads(self.tasks)
        self._corpus_words: CorpusWords | None = None
        self._prior: AdPrior | None = None
        self._prior_files: str | None = None
        self._fitted: FittedRows | None = None
        self._luce: LuceBuckets | None = None
        self._store_whole_log()

    def _store_whole_log(self) -> None:
        """Write what every bucket needs from the whole log to files."""
        shown_ads = self._shown_ads
        if self._text is not None:
            self._corpus_words, _ = CorpusWords.count(shown_ads, TextIndex(self._text))
        words = None if self._corpus_words is None else self._corpus_words.to_table()
        whole = WholeLog(self._history, self._text, words, shown_ads.click_rate)
        self.log.store.put(WHOLE_LOG, [whole])

    @property
    def _shown_ads(self) -> ShownAds:
        """All ads, with their impressions and clicks."""
        totals = self._ads.totals
        rows = np.arange(self._ads.size, dtype=np.int32)
        return ShownAds(self._ads.ads, rows, totals.impressions, totals.clicks)

    def estimate(self) -> None:
        """Fit everything except what a task computes when it writes its bucket."""
        model = self.model
        if isinstance(model, LuceClick):
            self._luce = LuceBuckets(self, model)
            self._luce.estimate()
            return
        if _has_own_fit(model):
            return
        model._set_prior_mean(self._prior_counts)
        empty_data = None
        if model._fit_stages():
            first, nothing = min(self.log.sizes), self.log.empty_sessions()
            prepare = partial(_prepare_bucket, first, _without_unused(model, nothing))
            empty_data = self.map_buckets(prepare, "buckets prepared")[first]
        if model._needs_pilot(self._text, some_ad_recurs=self._ads.some_recurs):
            model._is_pilot = True
            self._run_stages(empty_data)
            self.map_buckets(partial(_record_bucket, self._row_setter()), "ads recorded")
            model._is_pilot = False
            self.set_ad_prior(model._select_ad_prior)
        self._run_stages(empty_data)

    def _run_stages(self, empty_data: Any) -> None:
        """Run the EM of every stage; a model that is counted has no stages.

        `empty_data` is the prepared data of a bucket without queries.
        """
        model, prior = self.model, self._no_pairs()
        last = None if self._fitted is None else self._fitted.parameters
        if last is None and model._fit_stages():
            sample_size = model._sample_size()
            sample = self.sample_queries(sample_size) if sample_size else None
            model._choose_settings(sample, self._prior_counts)
        for stage in model._fit_stages():
            name = f"{PROBLEM}-{uuid4().hex}"
            self.map_buckets(partial(_make_problem, stage, name), "problems made")
            common = model._make_problem(stage, empty_data, prior, self._prior_counts)
            problem: BucketedProblem[Any] = BucketedProblem(name, common, self.tasks)
            fit = problem.maximise(last, **model._em_limits)
            model._set_fit(stage, problem.common, cast(Any, _with_common(fit)))
            model._report_fit(_with_common(fit))
            if self._fitted is not None:
                self.discard(self._fitted.problem)
            self._fitted, last = FittedRows(stage, name, fit.parameters), fit.parameters

    def sample_queries(self, n_sessions: int) -> GroupedSessions:
        """Draw queries with about this many distinct sessions, the same as a fit in memory."""
        sample = self.log.sample_queries(self.tasks, n_sessions, self._ads.ads)
        return _without_unused(self.model, sample)

    def _no_pairs(self) -> BetaPrior:
        return BetaPrior.constant(self.model.prior_mean_, self.model._overall_strength, 0)

    def ad_words(self) -> tuple[TokenLists | None, int]:
        """Return the tokens of all ads, None without text, and the size of the vocabulary."""
        if self._text is None or self._corpus_words is None:
            return None, 0
        tokens = self._corpus_words.encode(self._ads.ads, TextIndex(self._text))
        return tokens, int(self._corpus_words.words.size)

    def set_ad_prior(self, choose: Callable[..., AdPrior | None]) -> None:
        """Set the prior of each pair, which `choose` selects from the record of the pilot."""
        record = BucketedRecord(self.log, self.tasks, self._ads.size)
        self._prior = choose(record, *self.ad_words())
        if self._prior is not None:
            self._prior_files = record.store_priors(self._prior)

    def _row_setter(self) -> RowSetter:
        """Return the function that sets the fitted attributes of the model of a bucket."""
        if self._luce is not None:
            return self._luce.row_setter()
        if self._fitted is None:
            return _set_counted_rows
        stage, problem, parameters = self._fitted
        return partial(_set_em_rows, stage, problem, parameters.rows.name)

    def map_buckets(self, function: Any, what: str) -> dict[int, Any]:
        """Call function(part) in the task of every bucket; return the results by bucket."""
        name = f"template-{uuid4().hex}"
        template = copy(self.model)
        template._pilot_parameters = None
        self.log.store.put(name, [template])
        task = partial(_call_with_part, function, self.log, name, self._prior_files)
        try:
            return self.tasks.each(task, what)
        finally:
            self.log.store.discard([name])

    def discard(self, name: str) -> None:
        """Remove the files of this name: one per bucket."""
        self.log.store.discard(f"{name}-{bucket}" for bucket in self.log.sizes)

    # ---- writing

    def write(self, writer: BucketWriter, provenance: SeenLogs) -> str:
        """Write every bucket in a task, and commit them as the model of the folder."""
        first = min(self.log.sizes)
        function = partial(_write_bucket, writer, self._row_setter(), first)
        results = self.map_buckets(function, "buckets written")
        description = results[first].description
        for bucket, result in results.items():
            if result.description != description:  # a task that ran with other code or numbers
                raise CannotAnswerError(
                    f"Bucket {bucket} has other values of the whole log than bucket {first}: all "
                    "processes must run one version of Reclick. Nothing was saved."
                )
        tables = self._common_tables(self.log.store.load("log-tables"))
        common = CommonTables(description, tables, self._totals())
        buckets = [result.bucket for result in results.values()]
        return writer.commit(buckets, common=common, provenance=provenance)

    def _common_tables(self, log_tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the tables of a model in buckets, except those of the rows of its queries."""
        totals = self._ads.totals
        columns: dict[str, Any] = {AD: self._ads.ads}
        if self._prior is not None:
            columns |= {
                f"prior_ads.{name}": values
                for name, values in self._prior.prior.ads._asdict().items()
            }
        columns |= {"totals.impressions": totals.impressions, "totals.clicks": totals.clicks}
        head = self.log.head
        lists = pa.LargeListArray.from_arrays(head.sequence_starts, head.sequence_clicks)
        sequences = {SEQUENCE: lists, "totals.sessions": head.per_sequence()}
        tables = {**log_tables, "ads": pa.table(columns), "sequences": pa.table(sequences)}
        if self._corpus_words is not None:
            tables["words"] = self._corpus_words.to_table()
        return tables

    def _totals(self) -> TrainingTotals:
        sizes, totals = self.log.sizes.values(), self._ads.totals
        return TrainingTotals(
            self.log.head.total,
            sum(size.queries for size in sizes),
            self._ads.size,
            sum(size.pairs for size in sizes),
            float(totals.impressions.sum()),
            float(totals.clicks.sum()),
            self.log.head.max_ads,
        )


def _without_unused(model: ClickModel, sessions: GroupedSessions) -> GroupedSessions:
    """Drop the outcomes of the sessions if the model gives them no weight."""
    weight = model.get_params().get("outcome_weight", 1.0)
    return sessions if weight else sessions.without_outcomes()


def _has_own_fit(model: ClickModel) -> bool:
    """Whether a model overrides `ClickModel._fit`: it is counted in one step."""
    return type(model)._fit is not ClickModel._fit


def _with_common(fit: FitResult[BucketedParameters[Any], Statistics]) -> FitResult[Any, Any]:
    """Replace the parameters of a fit by those of a bucket without rows."""
    return replace(cast(Any, fit), parameters=fit.parameters.common)


# ---- in the tasks


@dataclass(frozen=True)
class WholeLog:
    """What every bucket needs from the whole log, in addition to its pooled counts."""

    history: Counts | None  # pooled
    text: AdTokens | None
    word_totals: pa.Table | None  # of `CorpusWords`
    click_rate: float

    @cached_property
    def text_index(self) -> TextIndex | None:
        """The text of the ads, indexed once for all buckets of a process."""
        return None if self.text is None else TextIndex(self.text)

    @cached_property
    def words(self) -> CorpusWords:
        """The words of the text, with their totals over all queries."""
        return CorpusWords.from_tables({"words": self.word_totals}, "words", self.click_rate)


class BucketPart(NamedTuple):
    """A bucket in a task: its model, which is not fitted yet, and its data."""

    model: ClickModel
    data: Counts | GroupedSessions
    history: Counts | None  # pooled
    store: Store
    bucket: int

    @property
    def prior_counts(self) -> Counts:
        """The pooled counts that prior means come from: of the history, or else of the log."""
        return self.history or self.model._whole_log(get_counts(self.data))


def _call_with_part(
    function: Any, log: BucketedLog, template: str, prior: str | None, store: Store, bucket: int
) -> Any:
    """Call function(part); the model of the part has its pairs, and their prior if there is one."""
    model: ClickModel = copy(store.load(template))
    whole: WholeLog = store.keep(WHOLE_LOG)
    data = log.load(bucket)
    if isinstance(data, GroupedSessions):
        data = _without_unused(model, data)
    counts = get_counts(data)
    model._corpus = _make_corpus(counts, whole, *log.ad_totals(bucket))
    model._pairs = model._index(counts, None)
    if prior is not None:
        bucket_prior: BucketPrior = store.load(f"{prior}-{bucket}")
        model._pairs.ad_prior = bucket_prior.to_ad_prior(store.load(f"record-{bucket}"))
    return function(BucketPart(model, data, whole.history, store, bucket))


def _make_corpus(counts: Counts, whole: WholeLog, impressions: Float64, clicks: Float64) -> Corpus:
    """Make the corpus of a bucket: its ads, with totals of ads and words over the whole log."""
    if whole.text_index is not None:
        return Corpus(counts.ads, whole.text_index, lambda: whole.words, None)
    rows = np.arange(len(counts.ads), dtype=np.int32)
    shown_ads = ShownAds(counts.ads, rows, impressions, clicks)
    return Corpus(counts.ads, None, partial(ads_as_words, shown_ads, whole.click_rate), None)


def _prepare_bucket(first: int, nothing: GroupedSessions, part: BucketPart) -> Any:
    """Prepare the sessions of a bucket; the task of the first one returns an empty bucket too.

    So the driver needs no compiled kernels.
    """
    part.store.put(f"{PREPARED}-{part.bucket}", [part.model._prepare(part.data)])
    return part.model._prepare(nothing) if part.bucket == first else None


def _make_problem(stage: str, name: str, part: BucketPart) -> None:
    prepared = part.store.load(f"{PREPARED}-{part.bucket}")
    prior = part.model._pair_prior()
    problem: EMProblem[Any] = part.model._make_problem(stage, prepared, prior, part.prior_counts)
    part.store.put(f"{name}-{part.bucket}", [problem])


def _set_counted_rows(part: BucketPart) -> None:
    """Set every fitted attribute of the model of a bucket, for a model that is counted."""
    model = part.model
    if _has_own_fit(model):
        model._fit(part.data, part.history, None)
    else:
        model._estimate(model._prepare(part.data), model._pair_prior(), part.prior_counts)


def _set_em_rows(stage: str, problem: str, rows: str, part: BucketPart) -> None:
    """Set every fitted attribute of the model of a bucket from the rows where EM ended."""
    parameters, pairs = load_rows(part.store, rows, part.bucket)
    statistics = Statistics(0.0, {}, pairs)
    part.model._set_counted_parameters(part.data, part.prior_counts)
    fit = FitResult(parameters, statistics, (), converged=True, message="")
    part.model._set_fit(stage, part.store.load(f"{problem}-{part.bucket}"), fit)


def _record_bucket(set_rows: RowSetter, part: BucketPart) -> None:
    """Write the clicks and the exposure of each pair to a file."""
    set_rows(part)
    model, counts = part.model, get_counts(part.data)
    record = AdRecord(*model._clicks_and_exposure(), counts.pair_ad, len(counts.ads))
    store_record(part.store, part.bucket, record, counts)


@dataclass(frozen=True)
class BucketResult:
    """What a task that wrote a bucket returns to the driver."""

    bucket: WrittenBucket
    description: dict[str, Any]


def _write_bucket(
    writer: BucketWriter, set_rows: RowSetter, first: int, part: BucketPart
) -> BucketResult:
    set_rows(part)
    bucket, log_tables = writer.write_rows(part.model, part.bucket)
    if part.bucket == first:
        part.store.put("log-tables", [log_tables])
    return BucketResult(bucket, describe_model(part.model))
