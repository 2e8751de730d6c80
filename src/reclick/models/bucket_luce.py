"""LuceClick over buckets: the weights of pairs and queries stay in the file of their bucket.

The tables have one factor per pair and query, and a few common factors: for classes of pairs and
queries, transitions, the outside option and outcomes. A task computes the rows of its bucket. The
driver computes the common factors, with the same tables without rows. An M-step sweeps over the
levels of a table. The level of the classes needs sums over all buckets, once per sweep: the first
are returned by the E-step, the second need a round of their own. Where EM extrapolates, the
lengths of the steps are sums over all rows, which need one more round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

import numpy as np

from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.ragged import Float64
from reclick.engines import LocalEngine
from reclick.engines.store import Store
from reclick.fitting.attractiveness_prior import AdPrior, PairPrior, PairRecords
from reclick.fitting.em import FitResult, PairSums, Squarem, Statistics, iterate_em
from reclick.fitting.folds import MAX_SESSIONS
from reclick.fitting.mixture import MixingWeights
from reclick.fitting.parameter_tables import ParameterTable, find_statistics, squarem_length
from reclick.fitting.rates import RateTable
from reclick.models.bucket_em import RowFiles
from reclick.models.bucket_prior import store_record
from reclick.models.luce.e_step import e_step
from reclick.models.luce.fit import (
    PILOT_LIMITS,
    PILOT_STRENGTH,
    LuceResult,
    LuceState,
    TrainingData,
    plan_pilot,
    plan_stages,
)
from reclick.models.luce.parameters import (
    N_CLASSES,
    PAIR_CLASS,
    QUERY_CLASS,
    Hyperparameters,
    Layout,
    LuceParameters,
    initial_parameters,
)
from reclick.models.luceclick import LuceClick
from reclick.text.word_rates import TokenLists

if TYPE_CHECKING:
    from reclick.models.bucket_fit import BucketFit, BucketPart

CLASS_LEVELS = {"appeal": PAIR_CLASS, "query_outside": QUERY_CLASS}  # the common levels
MAYBE_COMMON = ("mixing", "satisfaction")  # without a strength: one value for all rows
COMMON = ("transition", "outside", "outcomes")
START = "start"  # name of the files with the parameters that the next stage starts from
Values = dict[str, Float64]  # by table
Ratios = dict[str, list[Float64]]  # by table: factors that change its classes, per sweep
TakeStep = Callable[["LuceProblem", Store, int], LuceParameters]


class LuceProblem(NamedTuple):
    """The data of a bucket in EM."""

    data: TrainingData
    first: LuceParameters  # where EM starts


@dataclass(eq=False)
class LucePoint:
    """The parameters of a log in buckets, as the driver knows them."""

    common: LuceParameters  # with no rows
    rows: RowFiles  # the rows of the buckets
    take: TakeStep  # how a bucket computes its rows
    origins: tuple[RowFiles, ...] = ()  # the rows that they are computed from

    @property
    def values(self) -> Values:
        """The parameters that are common to all rows, by table."""
        return {name: table.values for name, table in self.common}

    def mark_stored(self) -> None:
        """Load the rows from their files from now on; the files of their origins can be deleted."""
        self.take, self.origins = partial(_take_stored, self.rows.name), ()


class FittedLuce(NamedTuple):
    """What a task needs from a finished EM."""

    hyper: Hyperparameters
    problem: str  # the name of its files
    rows: str
    values: Values  # common parameters
    totals: Mapping[str, Float64]  # common statistics, under these parameters
    report: tuple[tuple[float, ...], bool, str]  # the last fields of a `FitResult`
    typical_outside: float


# ---- the driver


class LuceBuckets:
    """The fit of a LuceClick in buckets, as the driver knows it."""

    def __init__(self, fit: BucketFit, model: LuceClick) -> None:
        self._fit, self._model = fit, model
        self._hyper = Hyperparameters()
        self._volumes = np.zeros(N_CLASSES)  # sessions of each class of queries
        self._problem: str | None = None
        self._result: FitResult[LucePoint, Statistics] | None = None

    def estimate(self) -> None:
        """Choose the hyperparameters; fit a pilot, the prior of each pair, and the model."""
        fit, model = self._fit, self._model
        self._hyper = self._choose()
        self._run(plan_pilot(self._hyper), PILOT_LIMITS, is_pilot=True)
        fit.map_buckets(partial(_finish_pilot, self._describe_fit()), "ads recorded")
        fit.set_ad_prior(self._set_prior)
        start = self._point.common
        stages = plan_stages(self._hyper, start, model._em_limits)
        for number, (hyper, limits) in enumerate(stages):
            self._run(hyper, limits)
            if number + 1 < len(stages):
                fit.map_buckets(partial(_store_start, self._describe_fit()), "")
        model.redundancy_ = float(model.redundancy)

    def row_setter(self) -> Callable[[BucketPart], None]:
        """Return the function that sets the fitted attributes of the model of a bucket."""
        return partial(_set_rows, self._describe_fit())

    @property
    def _point(self) -> LucePoint:
        return cast(FitResult[LucePoint, Statistics], self._result).parameters

    def _choose(self) -> Hyperparameters:
        """Choose the hyperparameters, on the same sample of queries as a fit in memory."""
        fit, log = self._fit, self._fit.log
        sample: GroupedSessions = log.empty_sessions()
        if self._model.tune != "off":
            sample = replace(fit.sample_queries(MAX_SESSIONS), log=log.size)
        queries = sum(size.queries for size in log.sizes.values())
        return self._model._choose(sample, queries, fit.ad_words())

    def _set_prior(self, record: PairRecords, tokens: TokenLists | None, words: int) -> AdPrior:
        prior = self._model._fit_ad_prior(record, (tokens, words))
        self._model.prior_report_ = prior.report
        return prior

    def _run(self, hyper: Hyperparameters, limits: dict[str, Any], is_pilot: bool = False) -> None:
        """Run EM from where the last one ended."""
        fit, last = self._fit, None if self._result is None else self._point.common
        mixing = _start_mixing(hyper, last)
        name = f"luce-{uuid4().hex}"
        function = partial(_make_problem, name, hyper, mixing, last is not None, is_pilot)
        volumes = fit.map_buckets(function, "problems made")
        self._volumes = np.sum([volumes[bucket] for bucket in sorted(volumes)], axis=0)
        layout = _make_layout(fit.log.empty_sessions(), hyper)
        first = _make_common(layout, hyper, mixing)
        common = first if last is None else first.start_from(last)
        self._result = _BucketedLuce(name, fit).maximise(common, **limits)
        if self._problem is not None:
            fit.discard(self._problem)
        self._problem = name

    def _describe_fit(self) -> FittedLuce:
        result = cast(FitResult[LucePoint, Statistics], self._result)
        point, statistics = result.parameters, result.statistics
        classes = np.log(point.common.query_outside.level(QUERY_CLASS))
        typical = float(np.exp(np.average(classes, weights=self._volumes)))
        totals = {
            f"{name}_{statistic}": statistics.totals[f"{name}_{statistic}"]
            for name in COMMON
            for statistic in getattr(point.common, name).statistics
        }
        report = result.objective, result.converged, result.message
        files = cast(str, self._problem), point.rows.name
        return FittedLuce(self._hyper, *files, point.values, totals, report, typical)


def _start_mixing(hyper: Hyperparameters, last: LuceParameters | None) -> Float64:
    """Mixing weights to start from: the common ones of the last EM, else equal ones [component]."""
    if last is not None and len(last.mixing.mean) == hyper.components and len(last.mixing.weights):
        return np.asarray(last.mixing.weights[0])
    return np.full(hyper.components, 1 / hyper.components)


def _make_common(layout: Layout, hyper: Hyperparameters, mixing: Float64) -> LuceParameters:
    """Make the tables without rows; a table with one value for all rows has that one row."""
    common = initial_parameters(layout, hyper, PairPrior.flat(0), mixing)
    if hyper.mixing_strength is None:
        common = replace(common, mixing=MixingWeights.build(1, mixing, None))
    if hyper.satisfaction_strength is None:
        one = RateTable.build(1, hyper.satisfaction_prior, None)
        common = replace(common, satisfaction=one)
    return common


class _BucketedLuce:
    """EM over buckets whose problems are in the files `name`."""

    def __init__(self, name: str, fit: BucketFit) -> None:
        self._name, self._tasks, self._sessions = name, fit.tasks, fit.log.head.total

    def maximise(self, common: LuceParameters, **limits: Any) -> FitResult[LucePoint, Statistics]:
        """Run EM from the start."""
        return iterate_em(
            LucePoint(common, self._new_rows(), _take_first),
            self._evaluate,
            self._m_step,
            log_prior=lambda now: now.common.log_prior(),
            sessions=self._sessions,
            accelerate=Squarem(self._extrapolate),
            **limits,
        )

    def _new_rows(self) -> RowFiles:
        return RowFiles(self._tasks.store, self._tasks.buckets())

    def _evaluate(self, now: LucePoint) -> Statistics:
        function = partial(_evaluate, self._name, now.take, now.values, now.rows.name)
        statistics = self._tasks.add(function)
        now.mark_stored()
        return statistics

    def _m_step(self, now: LucePoint, statistics: Statistics) -> LucePoint:
        tables: dict[str, Any] = dict(now.common)
        ratios = self._solve_classes(now, statistics)
        for name, table in now.common:
            if name in CLASS_LEVELS:
                tables[name] = tables[name].with_factors(table.values * ratios[name][-1])
            elif name in COMMON or _is_common(table):
                tables[name] = table.m_step(*find_statistics(statistics, name, table))
        take = partial(_take_m_step, now.rows.name, ratios)
        return LucePoint(LuceParameters(**tables), self._new_rows(), take, (now.rows,))

    def _solve_classes(self, now: LucePoint, statistics: Statistics) -> Ratios:
        """Compute the factors that change the classes in each sweep."""
        ratios: Ratios = {name: [] for name in CLASS_LEVELS}
        tables: dict[str, Any] = {name: getattr(now.common, name) for name in CLASS_LEVELS}
        for sweep in range(max(table.sweeps for table in tables.values())):
            if sweep > 0:
                function = partial(_run_sweep, self._name, now.rows.name, ratios)
                statistics = self._tasks.add(function)
            for name, table in tables.items():
                if sweep < table.sweeps:
                    sums = statistics[f"{name}_choices"], statistics[f"{name}_demand"]
                    ratios[name].append(table.solve_level(CLASS_LEVELS[name], *sums))
        return ratios

    def _extrapolate(
        self, first: LucePoint, second: LucePoint, third: LucePoint, limit: float
    ) -> tuple[LucePoint, float]:
        """Extrapolate three points, as `ParameterTables.extrapolate`."""
        function = partial(
            _measure_steps,
            self._name,
            (first.rows.name, second.rows.name),
            third.take,
            third.values,
            third.rows.name,
        )
        norms = self._tasks.add(function)
        third.mark_stored()
        weights = {  # 0 where the tasks measured the rows
            name: np.full(len(values), 0.0 if name in MAYBE_COMMON else 1.0)
            for name, values in first.values.items()
        }
        norms = norms + first.common.measure_steps(second.common, third.common, weights)
        length = squarem_length(norms, limit)
        if length == 1.0:
            return third, length
        rows = first.rows, second.rows, third.rows
        take = partial(_take_ahead, [files.name for files in rows], length)
        common = first.common.step_ahead(second.common, third.common, length)
        return LucePoint(common, self._new_rows(), take, rows), length


# ---- in the tasks: parameters


def _is_common(table: Any) -> bool:
    """Whether a table (mixing weights or satisfaction) has one value for all rows."""
    return table.strength is None


def _set_values(table: ParameterTable, values: Float64) -> Any:
    """Return the table with exactly these values."""
    shape = np.shape(getattr(table, table.value))
    return replace(cast(Any, table), **{table.value: values.reshape(shape)})


def _set_common(now: LuceParameters, values: Values) -> LuceParameters:
    """Set the common values in the parameters of a bucket."""
    tables: dict[str, Any] = {}
    for name, table in now:
        table_values = table.values
        if name in COMMON:
            table_values = values[name]
        elif name in CLASS_LEVELS:
            table_values = table_values.copy()
            table_values[_class_rows(name, table)] = values[name]
        elif _is_common(table):
            table_values = np.tile(values[name], len(table_values) // len(values[name]))
        tables[name] = _set_values(table, table_values)
    return replace(now, **tables)


def _class_rows(name: str, table: Any) -> slice:
    """The rows of the classes among the factors of a table."""
    level = CLASS_LEVELS[name]
    return slice(table.starts[level], table.starts[level + 1])


def _load_stored(problem: LuceProblem, rows: str, store: Store, bucket: int) -> LuceParameters:
    """Load the rows of a stored point; of its common values, only those of classes are right."""
    values: Values = store.load(f"{rows}-{bucket}")
    tables = {
        name: _set_values(getattr(problem.first, name), table_values)
        for name, table_values in values.items()
    }
    return replace(problem.first, **tables)


def _take_first(problem: LuceProblem, store: Store, bucket: int) -> LuceParameters:
    return problem.first


def _take_stored(rows: str, problem: LuceProblem, store: Store, bucket: int) -> LuceParameters:
    return _load_stored(problem, rows, store, bucket)


def _take_m_step(
    origin: str, ratios: Ratios, problem: LuceProblem, store: Store, bucket: int
) -> LuceParameters:
    now, sums = _load_stored(problem, origin, store, bucket), store.load(f"{origin}-{bucket}", 1)
    statistics, tables = Statistics(0.0, {}, sums), {}
    for name, level in CLASS_LEVELS.items():
        table: Any = getattr(now, name)
        table_statistics = find_statistics(statistics, name, table)
        tables[name] = table.step_rows(*table_statistics, level, ratios[name])
    for name in MAYBE_COMMON:
        table = getattr(now, name)
        if not _is_common(table):
            tables[name] = table.m_step(*find_statistics(statistics, name, table))
    return replace(now, **tables)


def _take_ahead(
    rows: Sequence[str], length: float, problem: LuceProblem, store: Store, bucket: int
) -> LuceParameters:
    first, second, third = (_load_stored(problem, name, store, bucket) for name in rows)
    return first.step_ahead(second, third, length)


def _store_point(
    now: LuceParameters, sums: PairSums | None, rows: str, store: Store, bucket: int
) -> None:
    values = {name: table.values for name, table in now if name not in COMMON}
    store.put(f"{rows}-{bucket}", [values, sums])


# ---- in the tasks: rounds


def _load_problem(name: str, store: Store, bucket: int) -> LuceProblem:
    problem: LuceProblem = store.keep(f"{name}-{bucket}")
    return problem


def _evaluate(
    name: str, take: TakeStep, values: Values, rows: str, store: Store, bucket: int
) -> Statistics:
    """Compute and store the rows of a point, run their E-step, and return the totals.

    The log-likelihood includes the log-density of the prior of the rows.
    """
    problem = _load_problem(name, store, bucket)
    now = _set_common(take(problem, store, bucket), values)
    statistics = LocalEngine().reduce(e_step, now, problem.data.blocks)
    _store_point(now, statistics.pairs, rows, store, bucket)
    totals = {**statistics.totals, **_sum_classes(now, statistics.pairs, {}).totals}
    for table_name in MAYBE_COMMON:
        table: Any = getattr(now, table_name)
        if _is_common(table):
            for key in (f"{table_name}_{statistic}" for statistic in table.statistics):
                totals[key] = statistics.pairs[key].sum(axis=0, keepdims=True)
    return Statistics(statistics.log_likelihood + _log_row_prior(now), totals)


def _log_row_prior(now: LuceParameters) -> float:
    """Log-density of the parameters that are not common to all buckets."""
    total = 0.0
    for name in CLASS_LEVELS:
        table: Any = getattr(now, name)
        strength = table.strength.copy()
        strength[_class_rows(name, table)] = 0.0
        total += replace(table, strength=strength).log_prior()
    for name in MAYBE_COMMON:
        table = getattr(now, name)
        total += 0.0 if _is_common(table) else table.log_prior()
    return total


def _run_sweep(name: str, rows: str, ratios: Ratios, store: Store, bucket: int) -> Statistics:
    """Return the sums of the classes for the next sweep of an M-step."""
    now = _load_stored(_load_problem(name, store, bucket), rows, store, bucket)
    return _sum_classes(now, store.load(f"{rows}-{bucket}", 1), ratios)


def _sum_classes(now: LuceParameters, sums: PairSums, ratios: Ratios) -> Statistics:
    """Choices and demand of each class, given the factors of the classes in earlier sweeps."""
    statistics, totals = Statistics(0.0, {}, sums), {}
    for name, level in CLASS_LEVELS.items():
        table: Any = getattr(now, name)
        sweep_ratios = ratios.get(name, [])
        if len(sweep_ratios) < table.sweeps:
            table_statistics = find_statistics(statistics, name, table)
            class_sums = table.step_rows(*table_statistics, level, sweep_ratios)
            totals[f"{name}_choices"], totals[f"{name}_demand"] = class_sums
    return Statistics(0.0, totals)


def _measure_steps(
    name: str,
    earlier_rows: Sequence[str],
    take: TakeStep,
    values: Values,
    rows: str,
    store: Store,
    bucket: int,
) -> Float64:
    """Compute and store the rows of a third point; return the squared lengths of the steps."""
    problem = _load_problem(name, store, bucket)
    first, second = (_load_stored(problem, files, store, bucket) for files in earlier_rows)
    third = _set_common(take(problem, store, bucket), values)
    _store_point(third, None, rows, store, bucket)
    weights = {
        table_name: np.full(len(table.values), 0.0 if table_name in COMMON else 1.0)
        for table_name, table in first
    }
    for table_name in CLASS_LEVELS:
        weights[table_name][_class_rows(table_name, getattr(first, table_name))] = 0.0
    return first.measure_steps(second, third, weights)


# ---- in the tasks: before and after EM


def _make_layout(sessions: GroupedSessions, hyper: Hyperparameters) -> Layout:
    return Layout.of(sessions, has_positions=hyper.position_effect_strength is not None)


def _make_problem(
    name: str,
    hyper: Hyperparameters,
    mixing: Float64,
    has_start: bool,
    is_pilot: bool,
    part: BucketPart,
) -> Float64:
    """Write the data of a bucket in EM to a file; return the sessions of each class of queries."""
    sessions, pairs = cast(GroupedSessions, part.data), part.model._pairs
    layout = _make_layout(sessions, hyper)
    data = TrainingData.of(sessions, layout)
    prior = PairPrior.flat(len(layout.pair_class), PILOT_STRENGTH)
    if not is_pilot:
        prior = hyper.apply_strength(cast(AdPrior, pairs.ad_prior).pairs)
        kappa = float(cast(LuceClick, part.model).redundancy)
        data = data.with_redundancy(kappa, pairs.ad_tokens() if kappa else None)
    first = initial_parameters(layout, hyper, prior, mixing)
    if has_start:
        first = first.start_from(part.store.load(f"{START}-{part.bucket}"))
    part.store.put(f"{name}-{part.bucket}", [LuceProblem(data, first)])
    return np.bincount(layout.query_class, layout.volumes, N_CLASSES).astype(np.float64)


def _load_result(fitted: FittedLuce, part: BucketPart) -> tuple[TrainingData, LuceResult]:
    """Load the sessions of a bucket, and the result of EM."""
    store, bucket = part.store, part.bucket
    problem = _load_problem(fitted.problem, store, bucket)
    now = _set_common(_load_stored(problem, fitted.rows, store, bucket), fitted.values)
    statistics = Statistics(0.0, fitted.totals, store.load(f"{fitted.rows}-{bucket}", 1))
    return problem.data, FitResult(now, statistics, *fitted.report)


def _store_start(fitted: FittedLuce, part: BucketPart) -> None:
    """Write the parameters that the next stage starts from to a file."""
    _, result = _load_result(fitted, part)
    part.store.put(f"{START}-{part.bucket}", [result.parameters])


def _finish_pilot(fitted: FittedLuce, part: BucketPart) -> None:
    """Write the record of each ad, and the parameters of the pilot with the variance of each ρ."""
    state = LuceState.of(fitted.hyper, *_load_result(fitted, part))
    parameters = state.with_rho_variance().parameters
    part.store.put(f"{START}-{part.bucket}", [parameters])
    store_record(part.store, part.bucket, state.ad_record(), state.layout.counts)


def _set_rows(fitted: FittedLuce, part: BucketPart) -> None:
    """Set every fitted attribute of the model of a bucket."""
    data, result = _load_result(fitted, part)
    state = LuceState.of(fitted.hyper, data, result)
    cast(LuceClick, part.model)._set_state(state, result, fitted.typical_outside)
