"""Fitting LuceClick: 1 M sessions of 10 results, of 1,000 and of 200,000 queries, and 4 M sessions.

An iteration is one E-step over all sessions and the M-step. Its time is the difference between fits
of 45 and of 5 iterations, of sessions that were read and grouped before, kernels compiled, with
fixed hyperparameters. The search for hyperparameters uses a sample of 20,000 distinct sessions,
whatever the length of the log; the time of a default fit, with the search, is printed too. The
number of iterations is that to the default tolerance. The update adds a tenth of the log, grouped
before.

Coverage of intervals is measured on sessions drawn from known parameters: 1,200 pairs of 200
queries, four of the six ads of a query on each page, in random order. The outside option weighs as
much as an average ad, a tenth of that, or is drawn for each query; in the last world the
attractiveness of a pair is that of its ad times its own, so that the prior can use the ad's other
queries.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import em
from bench.em import write_em_log
from bench.measure import WORK, Measurement, measure, print_row
from reclick.clicks.choice import ChoicePages
from reclick.data.batch import Float64
from reclick.models import LuceClick

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
DRAWS, IMPRESSIONS = 5, (20, 200)  # logs per world; impressions of an ad
LEVELS, MAX_ERROR = (0.5, 0.9), 0.1  # of the intervals; of their coverage
SAME_ADS, OWN_ADS = 60, 2.0  # distinct ads where they recur; the shape of their own attractiveness


class World(NamedTuple):
    """What sessions are drawn from."""

    outside: float = 1.0  # the weight of the outside option
    query_strength: float | None = None  # of the outside option of each query
    ads_recur: bool = False  # whether an ad is alike on all its queries


WORLDS = {
    "outside option like one ad": World(),
    "weak outside option": World(outside=0.1),
    "per query": World(query_strength=3.0),
    "per query, ads recur": World(query_strength=3.0, ads_recur=True),
}


def main() -> bool:
    """Print the table; whether every limit holds."""
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
        whole, iterations = _fit_whole(log, SETTINGS)
        good &= print_row(
            f"iterations, {queries:,} queries",
            f"{iterations}",
            f"≤ {MAX_ITERATIONS}",
            iterations <= MAX_ITERATIONS,
        )
        good &= print_row(
            f"peak memory, {queries:,} queries",
            f"{whole.memory:,.0f} MB",
            f"≤ {MAX_MEMORY:,} MB",
            whole.memory <= MAX_MEMORY,
        )
        default, steps = _fit_whole(log, "")
        print(
            f"    the whole fit {whole.seconds:.1f} s; a default fit, with the search and the "
            f"hierarchical prior {default.seconds:.1f} s, {steps} iterations"
        )
        good &= _time_update(log, whole.seconds)
    small, large = (
        _time_iteration(str(_repeat_log(WORK / "em1000.parquet", count))) for count in (1, 4)
    )
    times = large / small
    good &= print_row(
        "an iteration of 4 M sessions, as a multiple of 1 M's",
        f"{times:.2f}",
        f"≤ {4 * MAX_GROWTH:g}",
        times <= 4 * MAX_GROWTH,
    )
    return coverage() and good


def _time_iteration(log: str) -> float:
    """Seconds of one iteration: the difference of fits of 45 and of 5."""
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
    done = measure(code, setup=SETUP.format(settings=settings, log=log), runs=1)
    return done, int(file.read_text())


def _repeat_log(path: Path, count: int) -> Path:
    """The log, so count times over, each time with queries of its strength."""
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
    """Add the last tenth of the log to a model of the rest, relative to the fit of all of it."""
    before, day = _split_last_tenth(Path(log))
    done = measure(
        "model.update(day)",
        setup=SETUP.format(settings=SETTINGS, log=before) + DAY.format(settings=SETTINGS, day=day),
        runs=1,
    )
    share = done.seconds / whole
    return print_row(
        "an update with a tenth of the log, of the whole fit",
        f"{share:.2f}",
        f"≤ {MAX_UPDATE}",
        share <= MAX_UPDATE,
    )


def _split_last_tenth(path: Path) -> tuple[str, str]:
    """The log in two files: the first nine tenths of its rows, and the last."""
    table, files = (
        pq.read_table(path),
        [path.with_name(f"{path.stem}-{name}.parquet") for name in ("before", "day")],
    )
    cut = len(table) * 9 // 10
    for part, to in zip((table.slice(0, cut), table.slice(cut)), files, strict=True):
        pq.write_table(part, to)
    return str(files[0]), str(files[1])


def coverage() -> bool:
    """Print how often the intervals of the default settings hold the truth.

    For frequent ads it has to be near their level. For rare ads it is only printed: their posterior
    is the prior, whose strength is chosen for prediction, on the strong side. Where a log decides
    for one satisfaction common to all, in rows of its own, the interval is that of the common
    value.
    """
    print(f"\nShare of intervals that hold the truth, {DRAWS} logs of each world.\n")
    good = True
    for impressions, world in product(IMPRESSIONS, WORLDS):
        shares: dict[tuple[str, float], list[float]] = defaultdict(list)
        for seed in range(DRAWS):
            log, pairs, truth = _draw_log(impressions, WORLDS[world], np.random.default_rng(seed))
            model = LuceClick().fit(log)
            for name, level in product(truth, LEVELS):
                common = (
                    name == "satisfaction"
                    and model.hyperparameters_["satisfaction_strength"] is None
                )
                shares[f"{name}, one for all" if common else name, level].append(
                    _coverage(model.relevance(pairs, level=level), name, truth[name])
                )
        for (name, level), each in shares.items():
            share, row = (
                float(np.mean(each)),
                f"{name}, {impressions} impressions per ad, {world}, {len(each)} logs",
            )
            if impressions < max(IMPRESSIONS) or "one for all" in name:
                print(f"{row:<70} {share:>10.1%}   {level:.0%}")
            else:
                good &= print_row(
                    row,
                    f"{share:.1%}",
                    f"{level:.0%} ± {MAX_ERROR:.0%}",
                    abs(share - level) <= MAX_ERROR,
                )
    return good


def _coverage(table: pa.Table, name: str, truth: Float64) -> float:
    """The share of intervals that hold the truth."""
    return float(
        np.mean(
            (table[f"{name}_low"].to_numpy() <= truth) & (truth <= table[f"{name}_high"].to_numpy())
        )
    )


def _draw_log(
    impressions: int, world: World, rng: np.random.Generator
) -> tuple[pa.Table, dict[str, list[str]], dict[str, Float64]]:
    """Sessions, their pairs, and the true attractiveness and satisfaction of these."""
    count = QUERIES * ADS * impressions // SHOWN
    theta = rng.gamma(2.0, 0.5, (QUERIES, ADS))  # weights, with γ = 1 at the top
    rho = rng.beta(3.0, 5.0, (QUERIES, ADS))
    ad = np.arange(QUERIES * ADS).reshape(QUERIES, ADS)  # every pair has an ad of its own
    if world.ads_recur:
        ad = np.argsort(rng.random((QUERIES, SAME_ADS)), axis=1)[:, :ADS]
        theta *= rng.gamma(OWN_ADS, 1 / OWN_ADS, SAME_ADS)[ad]
    query, shown = (
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
        values[query[:, None], shown].ravel() for values in (theta / f[:, None], rho)
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
        pa.array([f"ad{i}" for i in ad[query[:, None], shown].ravel()]),
    )
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    pairs = {
        "query": [f"q{q}" for q in range(QUERIES) for _ in range(ADS)],
        "ad": [f"ad{i}" for i in ad.ravel()],
    }
    attractiveness = theta / (world.outside + theta)
    truth = {"attractiveness": attractiveness.ravel(), "satisfaction": rho.ravel()}
    return pa.table({"query": [f"q{q}" for q in query], "ads": ads, "clicks": lists}), pairs, truth
