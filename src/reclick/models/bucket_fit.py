"""A fit whose result is a model folder in buckets: each bucket is fitted and written by a task.

The model of a bucket is an ordinary model with the queries of the bucket. What it needs to know of
the whole log comes from the driver: pooled counts, the totals of its ads, their prior, and for EM
the totals of each round. The driver's own model has no queries: it holds what is common to all.
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

from reclick.data.counts import Counts, require_usable_weights
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
from reclick.models.buckets import (
    BucketWriter,
    CommonTables,
    WrittenBucket,
    ads_as_words,
    describe_model,
)
from reclick.models.luceclick import LuceClick
from reclick.models.partitioned import PartitionedModel
from reclick.models.provenance import SeenLogs, see_logs
from reclick.models.query_rows import AD, SEQUENCE, TrainingTotals
from reclick.models.registry import load
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
) -> PartitionedModel:
    """Fit a model in buckets, see `ClickModel.fit_to`."""
    _check_model(model)
    if history is not None:
        model.check_uses_history()
    writer, where = BucketWriter.start(folder, buckets), _as_task_engine(engine)
    text = input_text(sessions, ads)
    with where.scratch() as store:
        before, earlier = _pool_history(where, history)
        log, records = _collect(where, sessions, store, buckets, model)
        model._check_length(log.head.max_ads)
        _check_outcomes(model, log)
        seen = (*see_logs(records, "fit"), *earlier)
        _fit_and_write(BucketFit(model.clone(), log, where, before, text), writer, seen)
    pa.default_memory_pool().release_unused()
    return cast(PartitionedModel, load(folder))


def _fit_and_write(fit: BucketFit, writer: BucketWriter, seen: SeenLogs) -> None:
    """What the driver knows of the log goes before the model is opened."""
    fit.estimate()
    with writer.lock():
        fit.write(writer, seen)


def _check_model(model: ClickModel) -> None:
    """Refuse what cannot be fitted in buckets."""
    if not model.fits_in_buckets:
        name = type(model).__name__
        raise CannotAnswerError(f"{name} cannot be fitted in buckets: {IN_MEMORY}")
    if model.noise is not None:
        raise cannot_fit_in_buckets(model, "noise", None)
    model._check_buckets()


def _check_outcomes(model: ClickModel, log: BucketedLog) -> None:
    """Refuse outcomes of clicks where how many clicks satisfied is counted over all pairs."""
    given = model.get_params()
    if log.head.outcomes is None or not given.get("outcome_weight", 0.0):
        return
    by_em = not (model.fits_from_counts or isinstance(model, CountedCascade))
    is_given = not isinstance(given.get("satisfaction_prior"), str)
    if by_em and (is_given or isinstance(model, LuceClick)):
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
    where = as_engine(engine)
    if type(where) is LocalEngine:
        return SerialEngine()
    if not isinstance(where, TaskEngine):
        raise SettingError("engine", engine, "rc.PoolEngine() or rc.SparkEngine()", or_none=True)
    return where


def _collect(
    engine: TaskEngine, sessions: object, store: Store, buckets: int, model: ClickModel
) -> tuple[BucketedLog, tuple[LogRecord, ...]]:
    """The log in buckets, as the model is fitted to it, and the records of the logs in it."""
    if model.fits_from_counts and artifact.is_artifact(sessions):
        sessions = Counts.load(cast(Location, sessions))
    if model.fits_from_counts and isinstance(sessions, Counts):
        return split_counts(sessions, store, buckets), sessions.logs
    if isinstance(sessions, Counts) or artifact.is_artifact(sessions):
        as_grouped(sessions)  # which raises an error with the reason
    if isinstance(sessions, GroupedSessions):
        raise SettingError("sessions", sessions, "a log, which a fit in buckets reads in parts")
    recorded = RecordedLog(open_log(sessions))
    log = collect_buckets(engine, recorded, store, buckets, counts_only=model.fits_from_counts)
    require_usable_weights(log.head, recorded.name)
    return log, (recorded.record,)


def _pool_history(engine: TaskEngine, history: object) -> tuple[Counts | None, SeenLogs]:
    """The totals of an earlier log, and its record."""
    if history is None:
        return None, ()
    if artifact.is_artifact(history):
        history = Counts.load(cast(Location, history))
    if isinstance(history, Counts | GroupedSessions):
        counts = get_counts(history)
        return counts.pool(), see_logs(counts.logs, "history")
    recorded = RecordedLog(open_log(history))
    with engine.scratch() as store:
        log = collect_buckets(engine, recorded, store, engine.n_tasks, counts_only=True)
    return log.head, see_logs([recorded.record], "history")


# ---- the driver


class FittedRows(NamedTuple):
    """Where the rows of an EM are when it has ended."""

    stage: str
    problem: str  # its files
    parameters: BucketedParameters[Any]


class BucketFit:
    """Fits a model bucket by bucket; `model` becomes that of a bucket without queries."""

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
        self._before = log.head if history is None else history
        model._engine, model._log = LocalEngine(), log.head
        self._ads = log.number_ads()
        self._corpus_words: CorpusWords | None = None
        self._prior: AdPrior | None = None
        self._prior_files: str | None = None
        self._fitted: FittedRows | None = None
        self._luce: LuceBuckets | None = None
        self._store_whole_log()

    def _store_whole_log(self) -> None:
        """Leave what every bucket needs to know of the log in a file."""
        shown = self._shown
        if self._text is not None:
            self._corpus_words, _ = CorpusWords.count(shown, TextIndex(self._text))
        words = None if self._corpus_words is None else self._corpus_words.to_table()
        whole = WholeLog(self._history, self._text, words, shown.click_rate)
        self.log.store.put(WHOLE_LOG, [whole])
        for bucket in self.log.sizes:
            numbers, totals = self.log.ad_numbers(bucket), self._ads.totals
            own = totals.impressions[numbers], totals.clicks[numbers]
            self.log.store.put(f"ad-totals-{bucket}", [own])

    @property
    def _shown(self) -> ShownAds:
        """All ads, with their impressions and clicks."""
        ads, totals = self._ads
        every = np.arange(len(ads), dtype=np.int32)
        return ShownAds(ads, every, totals.impressions, totals.clicks)

    def estimate(self) -> None:
        """Everything but what a task finds when it writes its bucket."""
        model = self.model
        if isinstance(model, LuceClick):
            self._luce = LuceBuckets(self, model)
            self._luce.estimate()
            return
        if _has_own_fit(model):
            return
        model._set_prior_mean(self._before)
        recurs = bool(self._ads.totals.queries.max(initial=0.0) > 1)
        own = None
        if model._fit_stages():
            own = model._prepare(_without_unused(model, self.log.empty_sessions()))
            self.each(_prepare_bucket, "buckets prepared")
        if model._asks_for_ads(self._text, some_ad_recurs=recurs):
            model._is_pilot = True
            self._run_stages(own)
            self.each(partial(_record_bucket, self._row_setter()), "ads recorded")
            model._is_pilot = False
            self.set_ad_prior(model._select_ad_prior)
        self._run_stages(own)

    def _run_stages(self, own: Any) -> None:
        """Run the EM of every stage; a model that is counted has none."""
        model, prior = self.model, self._no_pairs()
        last = None if self._fitted is None else self._fitted.parameters
        if last is None and model._fit_stages():
            wanted = model._sample_size()
            sample = self.sample_queries(wanted) if wanted else None
            model._choose_settings(sample, self._before)
        for stage in model._fit_stages():
            name = f"{PROBLEM}-{uuid4().hex}"
            self.each(partial(_make_problem, stage, name), "problems made")
            mine = model._make_problem(stage, own, prior, self._before)
            problem: BucketedProblem[Any] = BucketedProblem(name, mine, self.tasks)
            fit = problem.maximise(last, **model._em_limits)
            model._set_fit(stage, problem.own, cast(Any, _with_common(fit)))
            model._report_fit(_with_common(fit))
            if self._fitted is not None:
                self.discard(self._fitted.problem)
            self._fitted, last = FittedRows(stage, name, fit.parameters), fit.parameters

    def sample_queries(self, n_sessions: int) -> GroupedSessions:
        """About so many distinct sessions, as in memory."""
        sample = self.log.sample_queries(self.tasks, n_sessions, self._ads.ads)
        return _without_unused(self.model, sample)

    def _no_pairs(self) -> BetaPrior:
        return BetaPrior.constant(self.model.prior_mean_, self.model._overall_strength, 0)

    def ad_words(self) -> tuple[TokenLists | None, int]:
        """The tokens of all ads, if there is text, and the size of the vocabulary."""
        if self._text is None or self._corpus_words is None:
            return None, 0
        tokens = self._corpus_words.encode(self._ads.ads, TextIndex(self._text))
        return tokens, int(self._corpus_words.words.size)

    def set_ad_prior(self, choose: Callable[..., AdPrior | None]) -> None:
        """Set the prior of each pair, chosen from the clicks and examinations of the pilot."""
        record = BucketedRecord(self.log, self.tasks, len(self._ads.ads))
        self._prior = choose(record, *self.ad_words())
        if self._prior is not None:
            self._prior_files = record.store_priors(self._prior)

    def _row_setter(self) -> RowSetter:
        """What sets the fitted attributes of the model of a bucket."""
        if self._luce is not None:
            return self._luce.row_setter()
        if self._fitted is None:
            return _set_counted
        stage, problem, parameters = self._fitted
        return partial(_set_fitted, stage, problem, parameters.rows.name)

    def each(self, function: Any, what: str) -> dict[int, Any]:
        """function(part) in the task of every bucket."""
        name = f"template-{uuid4().hex}"
        template = copy(self.model)
        template._pilot_parameters = None
        self.log.store.put(name, [template])
        opened = partial(_with_part, function, self.log, name, self._prior_files)
        try:
            return self.tasks.each(opened, what)
        finally:
            self.log.store.discard([name])

    def discard(self, name: str) -> None:
        """Remove the files of this name, one of each bucket."""
        self.log.store.discard(f"{name}-{bucket}" for bucket in self.log.sizes)

    # ---- writing

    def write(self, writer: BucketWriter, seen: SeenLogs) -> str:
        """Let every task write its bucket, and make them the model of the folder."""
        first = min(self.log.sizes)
        function = partial(_write_bucket, writer, self._row_setter(), first)
        found = self.each(function, "buckets written")
        described = found[first].described
        for bucket, each in found.items():
            if each.described != described:  # a task that ran with other code or numbers
                raise CannotAnswerError(
                    f"Bucket {bucket} came out with other values of the whole log than bucket "
                    f"{first}: the processes must be of one version. Nothing was saved."
                )
        tables = self._common_tables(self.log.store.load("of-log"))
        common = CommonTables(described, tables, self._totals())
        written = [each.written for each in found.values()]
        return writer.commit(written, common=common, provenance=seen)

    def _common_tables(self, of_log: dict[str, pa.Table]) -> dict[str, pa.Table]:
        """The tables of a model in buckets besides the rows of its queries."""
        ads, totals = self._ads
        columns: dict[str, Any] = {AD: ads}
        if self._prior is not None:
            columns |= {
                f"prior_ads.{name}": values
                for name, values in self._prior.prior.ads._asdict().items()
            }
        columns |= {"totals.impressions": totals.impressions, "totals.clicks": totals.clicks}
        head = self.log.head
        lists = pa.LargeListArray.from_arrays(head.sequence_starts, head.sequence_clicks)
        sequences = {SEQUENCE: lists, "totals.sessions": head.per_sequence()}
        tables = {**of_log, "ads": pa.table(columns), "sequences": pa.table(sequences)}
        if self._corpus_words is not None:
            tables["words"] = self._corpus_words.to_table()
        return tables

    def _totals(self) -> TrainingTotals:
        sizes, totals = self.log.sizes.values(), self._ads.totals
        return TrainingTotals(
            self.log.head.total,
            sum(each.queries for each in sizes),
            len(self._ads.ads),
            sum(each.pairs for each in sizes),
            float(totals.impressions.sum()),
            float(totals.clicks.sum()),
            self.log.head.max_ads,
        )


def _without_unused(model: ClickModel, sessions: GroupedSessions) -> GroupedSessions:
    """Sessions without their outcomes, if these count nothing."""
    weight = model.get_params().get("outcome_weight", 1.0)
    return sessions if weight else sessions.without_outcomes()


def _has_own_fit(model: ClickModel) -> bool:
    """Whether a model does not take the way of `ClickModel._fit`: it is counted in one go."""
    return type(model)._fit is not ClickModel._fit


def _with_common(fit: FitResult[BucketedParameters[Any], Statistics]) -> FitResult[Any, Any]:
    """A fit as a bucket without rows knows it."""
    return replace(cast(Any, fit), parameters=fit.parameters.common)


# ---- in the tasks


@dataclass(frozen=True)
class WholeLog:
    """What every bucket needs to know of the log besides its pooled counts."""

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
        """The words of the text, of all queries."""
        return CorpusWords.from_tables({"words": self.word_totals}, "words", self.click_rate)


class BucketPart(NamedTuple):
    """A bucket in a task: its model, which is not fitted yet, and its data."""

    model: ClickModel
    data: Counts | GroupedSessions
    history: Counts | None  # pooled
    store: Store
    bucket: int

    @property
    def before(self) -> Counts:
        """The pooled counts that prior means come from: of the history, or of the log."""
        return self.history or self.model._whole_log(get_counts(self.data))


def _with_part(
    function: Any, log: BucketedLog, template: str, prior: str | None, store: Store, bucket: int
) -> Any:
    """function(part): the model of a bucket knows its pairs, and their prior if there is one."""
    model: ClickModel = copy(store.load(template))
    whole: WholeLog = store.keep(WHOLE_LOG)
    data = log.load(bucket)
    if isinstance(data, GroupedSessions):
        data = _without_unused(model, data)
    counts = get_counts(data)
    model._corpus = _make_corpus(counts, whole, *store.load(f"ad-totals-{bucket}"))
    model._pairs = model._index(counts, None)
    if prior is not None:
        own: BucketPrior = store.load(f"{prior}-{bucket}")
        model._pairs.ad_prior = own.to_ad_prior(store.load(f"record-{bucket}"))
    return function(BucketPart(model, data, whole.history, store, bucket))


def _make_corpus(counts: Counts, whole: WholeLog, shown: Float64, clicked: Float64) -> Corpus:
    """What the model of a bucket knows of the ads and words of the whole log."""
    if whole.text_index is not None:
        return Corpus(counts.ads, whole.text_index, lambda: whole.words, None)
    every = np.arange(len(counts.ads), dtype=np.int32)
    own = ShownAds(counts.ads, every, shown, clicked)
    return Corpus(counts.ads, None, partial(ads_as_words, own, whole.click_rate), None)


def _prepare_bucket(part: BucketPart) -> None:
    part.store.put(f"{PREPARED}-{part.bucket}", [part.model._prepare(part.data)])


def _make_problem(stage: str, name: str, part: BucketPart) -> None:
    prepared = part.store.load(f"{PREPARED}-{part.bucket}")
    prior = part.model._pair_prior()
    problem: EMProblem[Any] = part.model._make_problem(stage, prepared, prior, part.before)
    part.store.put(f"{name}-{part.bucket}", [problem])


def _set_counted(part: BucketPart) -> None:
    """Set every fitted attribute of the model of a bucket, where it is counted."""
    model = part.model
    if _has_own_fit(model):
        model._fit(part.data, part.history, None)
    else:
        model._estimate(model._prepare(part.data), model._pair_prior(), part.before)


def _set_fitted(stage: str, problem: str, rows: str, part: BucketPart) -> None:
    """The same where it is fitted by EM, from where that ended."""
    parameters, pairs = load_rows(part.store, rows, part.bucket)
    found = Statistics(0.0, {}, pairs)
    part.model._set_counted(part.data, part.before)
    fit = FitResult(parameters, found, (), converged=True, message="")
    part.model._set_fit(stage, part.store.load(f"{problem}-{part.bucket}"), fit)


def _record_bucket(set_rows: RowSetter, part: BucketPart) -> None:
    """Leave the clicks and the exposure of each pair in a file."""
    set_rows(part)
    model, counts = part.model, get_counts(part.data)
    record = AdRecord(*model._clicks_and_exposure(), counts.pair_ad, len(counts.ads))
    store_record(part.store, part.bucket, record, counts)


@dataclass(frozen=True)
class BucketResult:
    """What the driver hears of a bucket that was written."""

    written: WrittenBucket
    described: dict[str, Any]


def _write_bucket(
    writer: BucketWriter, set_rows: RowSetter, first: int, part: BucketPart
) -> BucketResult:
    set_rows(part)
    written, of_log = writer.write_rows(part.model, part.bucket)
    if part.bucket == first:
        part.store.put("of-log", [of_log])
    return BucketResult(written, describe_model(part.model))
