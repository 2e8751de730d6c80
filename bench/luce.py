"""LuceClick and its targets: likelihood on test data, order of ads, cost, coverage of intervals.

- Likelihood: the test parts of the real logs of `bench.real`, default settings.
- Order: Kendall's τ of attractiveness with the truth of the simulated market, within queries, as in
  `bench.attractiveness`, which has limits in a former market.
- Cost: CPU seconds and peak memory of a default fit, hyperparameter search included. Sessions are
  already read and grouped; memory is that of the whole process.
- Iterations: 1 M sessions of 10 results, of 1,000 and of 200,000 queries, fixed hyperparameters.
  The time of one iteration is that of a fit of 45 minus that of a fit of 5, divided by 40. The
  update adds a tenth of the log.
- Coverage: sessions drawn from known parameters: 1,200 pairs of 200 queries, four of the six ads of
  a query on each page, in random order. The outside option weighs as much as an average ad, a tenth
  of that, or is drawn for each query. In the last world the attractiveness of a pair is a factor of
  its ad times a factor of the pair, so that the prior can use the ad's other queries. The error of
  a coverage is from its spread over logs, because the intervals of a log are not independent: they
  share hyperparameters and effects of positions. It may be outside its limits by two errors.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import em
from bench.attractiveness import order_ads
from bench.em import write_em_log
from bench.measure import WORK, Measurement, measure, print_row
from bench.real import data_folder, part
from reclick.clicks.choice import ChoicePages
from reclick.data.batch import Float64
from reclick.models import LuceClick
from reclick.simulation import simulate

MIN_LOG_PROB = {"yandex": (-3.600, -3.145), "naver": (-1.522, -1.462)}  # in order, click set
MAX_COST: dict[str, tuple[float, int | None]] = {  # CPU seconds and MB of a default fit
    "yandex": (4, None),
    "naver": (3, None),
    "100,000 simulated sessions": (4, None),
    "1,000,000 simulated sessions": (20, 1_200),
}
SETTINGS = (
    "attractiveness_strength=1.0, satisfaction_strength=5.0, satisfaction_prior=0.3, "
    "query_strength=2.0, transition_strength=4.0, components=1, position_effect_strength=None, "
    "tune='off'"
)
SETUP = """
import logging
from reclick.models import MODELS
from reclick.engines import as_grouped
logging.disable()
small = {{"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}}
MODELS["luceclick"]({settings}).fit(small)  # loads the kernels
sessions = as_grouped({log!r})
"""
FIT = "MODELS['luceclick']({settings}, max_iterations={count}, tolerance=0).fit(sessions)"
DAY = "model, day = MODELS['luceclick']({settings}).fit(sessions), as_grouped({day!r})"
MAX_SECONDS, MAX_ITERATIONS, MAX_MEMORY = 0.3, 40, 1_500  # per iteration; of a fit; MB
MAX_GROWTH, MAX_UPDATE = 1.25, 0.5  # relative to linear; relative to the whole fit
QUERIES, ADS, SHOWN = 200, 6, 4
DRAWS, IMPRESSIONS = 20, (20, 200)  # logs per world; impressions of an ad
LEVELS, TARGET = (0.5, 0.9), (0.86, 0.93)  # of the intervals; coverage of those of 90 %
SAME_ADS, OWN_ADS = 60, 2.0  # distinct ads if ads recur; gamma shape of the factor of an ad


class World(NamedTuple):
    """The parameters that sessions are drawn from."""

    outside: float = 1.0  # weight of the outside option
    query_strength: float | None = None  # gamma shape of the outside option per query
    ads_recur: bool = False  # whether the ads of different queries are the same


WORLDS = {
    "outside option like one ad": World(),
    "weak outside option": World(outside=0.1),
    "per query": World(query_strength=3.0),
    "per query, ads recur": World(query_strength=3.0, ads_recur=True),
}


def main() -> bool:
    """Print all tables, and return whether every limit holds."""
    results = [
        score_test_parts(),
        rank_ads(),
        measure_cost(),
        measure_iterations(),
        measure_coverage(),
    ]  # all of them, also if one misses its limit
    return all(results)


def score_test_parts() -> bool:
    """Measure the likelihood of the test parts of the real logs, with default settings."""
    print("\nLog-likelihood per session of the test parts, default settings.\n")
    good = True
    for name, (in_order, of_set) in MIN_LOG_PROB.items():
        path = data_folder() / f"{name}.parquet"
        if not path.exists():
            print(f"{name}: skipped, {path} does not exist (set RECLICK_DATA to its folder)")
            continue
        train, test = part(str(path), "train", 10), part(str(path), "test", 10)
        model = LuceClick().fit(train)
        for what, value, limit in (
            ("in order", float(model.log_prob(test).mean()), in_order),
            ("click set", float(model.log_set_prob(test).mean()), of_set),
        ):
            row = f"{name}, {what}"
            good &= print_row(row, f"{value:.4f}", f"≥ {limit:.3f}", value >= limit)
    return good


def rank_ads() -> bool:
    """Measure how well attractiveness orders the ads of a query in the simulated market."""
    print("\nKendall's τ of attractiveness with the truth within queries, simulated market.\n")
    market = simulate()
    tau = order_ads(LuceClick().fit(pa.concat_tables(market.weeks)), market.truth.pairs)
    return print_row("300,000 sessions", f"{tau:.3f}", "(no limit)", True)


def measure_cost() -> bool:
    """Measure CPU seconds and memory of default fits, each in a separate process."""
    print("\nA default fit: CPU seconds, iterations, and the peak memory of its process.\n")
    good = True
    for name, (seconds, memory) in MAX_COST.items():
        log = _write_training_log(name)
        if log is None:
            continue
        cpu_seconds, steps, has_converged, peak = _fit_default(str(log))
        good &= print_row(name, f"{cpu_seconds:.1f} s", f"≤ {seconds:g} s", cpu_seconds <= seconds)
        good &= print_row(f"{name}: converged", f"{steps}", "iterations", has_converged)
        if memory is not None:
            row = f"{name}: peak memory"
            good &= print_row(row, f"{peak:,.0f} MB", f"≤ {memory:,} MB", peak <= memory)
    return good


def _write_training_log(name: str) -> Path | None:
    """Write the training log of a row of the cost table; None if the real log is missing."""
    to = WORK / f"luce-{name.replace(' ', '-').replace(',', '')}.parquet"
    if name in MIN_LOG_PROB:
        path = data_folder() / f"{name}.parquet"
        if not path.exists():
            print(f"{name}: skipped, {path} does not exist (set RECLICK_DATA to its folder)")
            return None
        pq.write_table(part(str(path), "train", 10), to)
    elif not to.exists():
        sessions = int(name.split(maxsplit=1)[0].replace(",", ""))
        week = simulate(sessions, weeks=1, seed=0).weeks[0]
        pq.write_table(week.select(["query", "ads", "clicks"]), to)
    return to


def _fit_default(log: str) -> tuple[float, int, bool, float]:
    """CPU seconds, iterations, convergence and peak MB of a default fit of a log."""
    file = WORK / "luce.json"
    code = (
        "cpu = time.process_time()\n"
        "model = MODELS['luceclick']().fit(sessions)\n"
        "figures = [time.process_time() - cpu, model.iterations_, model.converged_]\n"
        f"open({str(file)!r}, 'w').write(json.dumps(figures))"
    )
    measurement = measure(code, setup=SETUP.format(settings="", log=log), runs=1)
    seconds, steps, has_converged = json.loads(file.read_text())
    return seconds, steps, has_converged, measurement.memory


def measure_iterations() -> bool:
    """Measure the seconds of one iteration, how they grow with the log, and an update."""
    print(
        "\nFitting LuceClick to 1 M sessions of 10 results: seconds per iteration, and iterations "
        "to the default tolerance.\n"
    )
    good = True
    for queries in em.QUERIES:
        log = str(write_em_log(WORK / f"em{queries}.parquet", queries))
        once = _time_iteration(log)
        good &= print_row(
            f"an iteration, {queries:,} queries",
            f"{once:.3f} s",
            f"≤ {MAX_SECONDS} s",
            once <= MAX_SECONDS,
        )
        whole, steps = _fit_whole(log, SETTINGS)
        good &= print_row(
            f"iterations, {queries:,} queries",
            f"{steps}",
            f"≤ {MAX_ITERATIONS}",
            steps <= MAX_ITERATIONS,
        )
        good &= print_row(
            f"peak memory, {queries:,} queries",
            f"{whole.memory:,.0f} MB",
            f"≤ {MAX_MEMORY:,} MB",
            whole.memory <= MAX_MEMORY,
        )
        good &= _time_update(log, whole.seconds)
    small, large = (
        _time_iteration(str(_repeat_log(WORK / "em1000.parquet", count))) for count in (1, 4)
    )
    times = large / small
    return good & print_row(
        "an iteration of 4 M sessions / of 1 M sessions",
        f"{times:.2f}",
        f"≤ {4 * MAX_GROWTH:g}",
        times <= 4 * MAX_GROWTH,
    )


def _time_iteration(log: str) -> float:
    """The seconds of one iteration, from fits of 45 and of 5 iterations."""
    long, short = (
        measure(
            FIT.format(settings=SETTINGS, count=count),
            setup=SETUP.format(settings=SETTINGS, log=log),
            runs=1,
        )
        for count in (45, 5)
    )
    return (long.seconds - short.seconds) / 40


def _fit_whole(log: str, settings: str) -> tuple[Measurement, int]:
    file = WORK / "luce.txt"
    code = (
        f"model = MODELS['luceclick']({settings}).fit(sessions)\n"
        f"open({str(file)!r}, 'w').write(str(model.iterations_))"
    )
    measurement = measure(code, setup=SETUP.format(settings=settings, log=log), runs=1)
    return measurement, int(file.read_text())


def _repeat_log(path: Path, count: int) -> Path:
    """Concatenate `count` copies of the log, each with its own queries."""
    if count == 1:
        return path
    to = path.with_name(f"{path.stem}x{count}.parquet")
    if not to.exists():
        table = pq.read_table(path)
        queries_of = [
            pc.binary_join_element_wise(table["query"], pa.scalar(str(i)), pa.scalar("#"))
            for i in range(count)
        ]
        whole = pa.concat_tables(
            [
                table.set_column(table.schema.get_field_index("query"), "query", query)
                for query in queries_of
            ]
        )
        pq.write_table(whole, to.with_suffix(".writing"))
        to.with_suffix(".writing").replace(to)
    return to


def _time_update(log: str, whole: float) -> bool:
    """Time an update with the last tenth of the log, relative to a fit of the whole log."""
    before, day = _split_last_tenth(Path(log))
    measurement = measure(
        "model.update(day)",
        setup=SETUP.format(settings=SETTINGS, log=before) + DAY.format(settings=SETTINGS, day=day),
        runs=1,
    )
    share = measurement.seconds / whole
    return print_row(
        "an update with a tenth of the log / a fit of the whole log",
        f"{share:.2f}",
        f"≤ {MAX_UPDATE}",
        share <= MAX_UPDATE,
    )


def _split_last_tenth(path: Path) -> tuple[str, str]:
    """Split the log into two files: the first nine tenths of its rows, and the last tenth."""
    table, files = (
        pq.read_table(path),
        [path.with_name(f"{path.stem}-{name}.parquet") for name in ("before", "day")],
    )
    n_before = len(table) * 9 // 10
    for rows, to in zip((table.slice(0, n_before), table.slice(n_before)), files, strict=True):
        pq.write_table(rows, to)
    return str(files[0]), str(files[1])


def measure_coverage() -> bool:
    """Measure how often the intervals of the default settings contain the truth."""
    print(
        f"\nShare of intervals that contain the truth: mean of {DRAWS} logs per world, and its "
        "standard error.\n"
    )
    good = True
    for impressions, world in product(IMPRESSIONS, WORLDS):
        shares: dict[tuple[str, float], list[float]] = defaultdict(list)
        for seed in range(DRAWS):
            log, pairs, truth = _draw_log(impressions, WORLDS[world], np.random.default_rng(seed))
            model = LuceClick().fit(log)
            for name, level in product(truth, LEVELS):
                table = model.relevance(pairs, level=level)
                shares[name, level].append(_coverage(table, name, truth[name]))
        for (name, level), values in shares.items():
            row = f"{name}, {impressions} impressions per ad, {world}: {level:.0%}"
            good &= _print_coverage(row, values, TARGET if level == max(LEVELS) else None)
    return good


def _print_coverage(row: str, shares: list[float], target: tuple[float, float] | None) -> bool:
    """Print the mean share of the logs; it may be outside the target by two standard errors."""
    share, error = float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
    value = f"{share:.1%} ± {error:.1%}"
    if target is None:
        print(f"{row:<72} {value:>14}", flush=True)
        return True
    low, high = target
    is_within_target = low - 2 * error <= share <= high + 2 * error
    return print_row(f"{row:<72}", f"{value:>14}", f"{low:.0%} … {high:.0%}", is_within_target)


def _coverage(table: pa.Table, name: str, truth: Float64) -> float:
    """The share of intervals that contain the truth."""
    return float(
        np.mean(
            (table[f"{name}_low"].to_numpy() <= truth) & (truth <= table[f"{name}_high"].to_numpy())
        )
    )


def _draw_log(
    impressions: int, world: World, rng: np.random.Generator
) -> tuple[pa.Table, dict[str, list[str]], dict[str, Float64]]:
    """Draw sessions, and return them with their pairs and the true parameters of the pairs."""
    count = QUERIES * ADS * impressions // SHOWN
    theta = rng.gamma(2.0, 0.5, (QUERIES, ADS))  # weights, with γ = 1 at the top
    rho = rng.beta(3.0, 5.0, (QUERIES, ADS))
    ad = np.arange(QUERIES * ADS).reshape(QUERIES, ADS)  # every pair has an ad of its own
    if world.ads_recur:
        ad = np.argsort(rng.random((QUERIES, SAME_ADS)), axis=1)[:, :ADS]
        theta *= rng.gamma(OWN_ADS, 1 / OWN_ADS, SAME_ADS)[ad]
    query, ads_on_page = (
        rng.integers(0, QUERIES, count),
        np.argsort(rng.random((count, ADS)), axis=1)[:, :SHOWN],
    )
    distance = np.abs(
        np.arange(SHOWN) - np.arange(SHOWN + 1)[:, None] + (np.arange(SHOWN + 1) > 0)[:, None]
    )
    gamma, omega = 0.7 ** distance[None], world.outside * np.array([[1.0, 0.8, 0.9, 1.0, 1.0]])
    f, strength = np.ones(QUERIES), world.query_strength
    if strength is not None:
        f = rng.gamma(strength, 1 / strength, QUERIES)
    weights, satisfactions = (
        values[query[:, None], ads_on_page].ravel() for values in (theta / f[:, None], rho)
    )
    click, clicks = ChoicePages(
        "luce",
        weights,
        satisfactions,
        omega,
        gamma,
        np.arange(count + 1) * SHOWN,
        np.zeros(count, np.int64),
    ).sample(rng)
    ads = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1, dtype=np.int32) * SHOWN),
        pa.array([f"ad{i}" for i in ad[query[:, None], ads_on_page].ravel()]),
    )
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    pairs = {
        "query": [f"q{q}" for q in range(QUERIES) for _ in range(ADS)],
        "ad": [f"ad{i}" for i in ad.ravel()],
    }
    attractiveness = theta / (world.outside + theta)
    truth = {"attractiveness": attractiveness.ravel(), "satisfaction": rho.ravel()}
    return pa.table({"query": [f"q{q}" for q in query], "ads": ads, "clicks": lists}), pairs, truth
