"""Fitting LuceClick: 1 M sessions of 10 results, of 1,000 and of 200,000 queries, and 4 M; adding a day; and whether its intervals hold the truth.

An iteration is one pass over all sessions with the step that follows; its time is that of a fit of 40 iterations, divided by them, of sessions that
were read and grouped before, kernels compiled, with the options given (what "auto" decides is decided on a sample of 20,000 sessions, whatever the
log's length; its time stands beside). The number of iterations is that to the default tolerance, both stages of a fit together. The day added is a
tenth of the log, its sessions grouped before, as the others were.

Intervals are asked about sessions drawn from known parameters: 1,200 ads of 200 queries, four of the six of a query on each page, in random order;
users who find nothing leave as readily as they click an average ad, or a tenth of that, or as readily as it is drawn for each query.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import em
from bench.em import _write_log
from bench.measure import WORK, Measured, line, measure
from reclick.clicks.choice import ChoicePages
from reclick.data.batch import Float64
from reclick.models import LuceClick

OPTIONS = (
    "attractiveness_strength=1.0, satisfaction_strength=5.0, satisfaction_prior=0.3, query_strength=2.0, transition_strength=4.0, kinds=1, "
    "position_strength=None"
)
SETUP = """
import logging
from reclick.models import MODELS
from reclick.engines import as_grouped
logging.disable()
small = {{"query": ["q"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}}
MODELS["luceclick"]({options}).fit(small)  # loads the kernels
sessions = as_grouped({log!r})
"""
FIT = "MODELS['luceclick']({options}, max_iterations={many}, tolerance=0).fit(sessions)"
DAY = "model, day = MODELS['luceclick']({options}).fit(sessions), as_grouped({day!r})"
LIMIT, MOST, MEMORY, LINEAR, FRACTION = 0.3, 40, 1_500, 1.25, 0.5
QUERIES, ADS, SHOWN = 200, 6, 4
DRAWS, IMPRESSIONS, LEVELS, OFF = (
    5,
    (20, 200),
    (0.5, 0.9),
    0.1,
)  # logs; of an ad; of the intervals; by which coverage may be off
WORLDS = {
    "leaving as one ad": (1.0, None),
    "hardly leaving": (0.1, None),
    "each query its own": (1.0, 3.0),
}  # the outside option; its spread


def main() -> bool:
    """Print the table; whether every limit holds."""
    print(
        "\nFitting LuceClick to 1 M sessions of 10 results: seconds an iteration, and iterations to the default tolerance.\n"
    )
    good = True
    for queries in em.QUERIES:
        log = str(_write_log(WORK / f"em{queries}.parquet", queries))
        once = _iteration(log)
        good &= line(
            f"an iteration, {queries:,} queries", f"{once:.3f} s", f"≤ {LIMIT} s", once <= LIMIT
        )
        whole, iterations = _whole(log, OPTIONS)
        good &= line(
            f"iterations, {queries:,} queries", f"{iterations}", f"≤ {MOST}", iterations <= MOST
        )
        good &= line(
            f"peak memory, {queries:,} queries",
            f"{whole.memory:,.0f} MB",
            f"≤ {MEMORY:,} MB",
            whole.memory <= MEMORY,
        )
        decided, _ = _whole(log, "")
        print(
            f"    the whole fit {whole.seconds:.1f} s; with all settings decided by the log {decided.seconds:.1f} s"
        )
        good &= _updating(log, whole.seconds)
    small, large = (_iteration(str(_times(WORK / "em1000.parquet", many))) for many in (1, 4))
    times = large / small
    good &= line(
        "an iteration of 4 M sessions, as a multiple of 1 M's",
        f"{times:.2f}",
        f"≤ {4 * LINEAR:g}",
        times <= 4 * LINEAR,
    )
    return coverage() and good


def _iteration(log: str) -> float:
    """Seconds of one iteration: the difference of fits of 45 and of 5."""
    long, short = (
        measure(
            FIT.format(options=OPTIONS, many=many),
            setup=SETUP.format(options=OPTIONS, log=log),
            runs=1,
        )
        for many in (45, 5)
    )
    return (long.seconds - short.seconds) / 40


def _whole(log: str, options: str) -> tuple[Measured, int]:
    told = WORK / "luce.txt"
    code = f"model = MODELS['luceclick']({options}).fit(sessions)\nopen({str(told)!r}, 'w').write(str(model.pooled_iterations_ + model.iterations_))"
    done = measure(code, setup=SETUP.format(options=options, log=log), runs=1)
    return done, int(told.read_text())


def _times(path: Path, many: int) -> Path:
    """The log, so many times over, each time with queries of its own."""
    if many == 1:
        return path
    to = path.with_name(f"{path.stem}x{many}.parquet")
    if not to.exists():
        table = pq.read_table(path)
        mark = [
            pc.binary_join_element_wise(table["query"], pa.scalar(str(i)), pa.scalar("#"))
            for i in range(many)
        ]
        whole = pa.concat_tables(
            [
                table.set_column(table.schema.get_field_index("query"), "query", query)
                for query in mark
            ]
        )
        pq.write_table(whole, to.with_suffix(".writing"))
        to.with_suffix(".writing").replace(to)
    return to


def _updating(log: str, whole: float) -> bool:
    """Add the last tenth of the log to a model of the rest, against the fit of all of it."""
    before, day = _parted(Path(log))
    done = measure(
        "model.update(day)",
        setup=SETUP.format(options=OPTIONS, log=before) + DAY.format(options=OPTIONS, day=day),
        runs=1,
    )
    share = done.seconds / whole
    return line(
        "an update with a tenth of the log, of the whole fit",
        f"{share:.2f}",
        f"≤ {FRACTION}",
        share <= FRACTION,
    )


def _parted(path: Path) -> tuple[str, str]:
    """The log in two files: all but the last tenth of its rows, and that."""
    table, files = (
        pq.read_table(path),
        [path.with_name(f"{path.stem}-{name}.parquet") for name in ("before", "day")],
    )
    cut = len(table) * 9 // 10
    for part, to in zip((table.slice(0, cut), table.slice(cut)), files, strict=True):
        pq.write_table(part, to)
    return str(files[0]), str(files[1])


def coverage() -> bool:
    """Print how often the intervals of the default settings hold the truth, over a few logs; whether that is near what they say of ads often shown.

    Of ads seldom shown it is only told: what is known of them is the prior, and its strength is decided for prediction, on the strong side. Where a
    log decides for one satisfaction common to all, told apart here, the interval is that of the common value.
    """
    print(f"\nShare of intervals that hold the truth, {DRAWS} logs drawn of each kind.\n")
    good = True
    for impressions, world in product(IMPRESSIONS, WORLDS):
        shares: dict[tuple[str, float], list[float]] = defaultdict(list)
        for seed in range(DRAWS):
            log, asked, truth = _drawn(impressions, *WORLDS[world], np.random.default_rng(seed))
            model = LuceClick().fit(log)
            for name, level in product(truth, LEVELS):
                common = name == "satisfaction" and model.hyperparameters_["satisfaction_strength"] is None
                shares[f"{name}, one for all" if common else name, level].append(
                    _held(model.relevance(asked, level=level), name, truth[name])
                )
        for (name, level), each in shares.items():
            share, told = (
                float(np.mean(each)),
                f"{name}, {impressions} impressions an ad, {world}, {len(each)} logs",
            )
            if impressions < max(IMPRESSIONS) or "one for all" in name:
                print(f"{told:<70} {share:>10.1%}   {level:.0%}")
            else:
                good &= line(
                    told, f"{share:.1%}", f"{level:.0%} ± {OFF:.0%}", abs(share - level) <= OFF
                )
    return good


def _held(table: pa.Table, name: str, truth: Float64) -> float:
    """The share of intervals that hold the truth."""
    return float(
        np.mean(
            (table[f"{name}_low"].to_numpy() <= truth) & (truth <= table[f"{name}_high"].to_numpy())
        )
    )


def _drawn(
    impressions: int, outside: float, own: float | None, rng: np.random.Generator
) -> tuple[pa.Table, dict[str, list[str]], dict[str, Float64]]:
    """Sessions, the pairs to ask about, and their true attractiveness and satisfaction."""
    count = QUERIES * ADS * impressions // SHOWN
    theta, rho = (
        rng.gamma(2.0, 0.5, (QUERIES, ADS)),
        rng.beta(3.0, 5.0, (QUERIES, ADS)),
    )  # weights where a first look at the top is worth 1
    query, shown = (
        rng.integers(0, QUERIES, count),
        np.argsort(rng.random((count, ADS)), axis=1)[:, :SHOWN],
    )
    far = np.abs(
        np.arange(SHOWN) - np.arange(SHOWN + 1)[:, None] + (np.arange(SHOWN + 1) > 0)[:, None]
    )
    gamma, omega = 0.7 ** far[None], outside * np.array([[1.0, 0.8, 0.9, 1.0, 1.0]])
    f = np.ones(QUERIES) if own is None else rng.gamma(own, 1 / own, QUERIES)
    pulls, pleases = (values[query[:, None], shown].ravel() for values in (theta / f[:, None], rho))
    click, clicks = ChoicePages(
            "luce",
            pulls,
            pleases,
            omega,
            gamma,
            np.arange(count + 1) * SHOWN,
            np.zeros(count, np.int64),
        ).sample(rng)
    ads = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1, dtype=np.int32) * SHOWN),
        pa.array([f"ad{i}" for i in shown.ravel()]),
    )
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    asked = {
        "query": [f"q{q}" for q in range(QUERIES) for _ in range(ADS)],
        "ad": [f"ad{i}" for _ in range(QUERIES) for i in range(ADS)],
    }
    truth = {"attractiveness": (theta / (outside + theta)).ravel(), "satisfaction": rho.ravel()}
    return pa.table({"query": [f"q{q}" for q in query], "ads": ads, "clicks": lists}), asked, truth
