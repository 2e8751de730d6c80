"""Attractiveness in the simulated market: whether models order the ads of a query correctly.

The market is `rc.simulate()` with its defaults: 300,000 sessions over three weeks. The figure is
Kendall's τ between the attractiveness of a model and the truth within each query, over pairs with
at least ten impressions, averaged over queries. It is measured with one prior mean for all pairs,
with the default prior, and with the text of the ads. CPU seconds are those of a default fit, with
kernels already compiled.

The limits are those of a former market, in which good ads were less often on top (decision 24), so
they do not apply to the present one. `python -m bench attractiveness --beside CHECKOUT` takes the
market that another checkout simulates by default, and prints the same table with the limits. As
markets of different seeds differ, it then does the same for the means over several seeds.
"""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import reclick as rc
from bench.checkouts import open_checkout
from bench.measure import WORK, print_row

Float64 = npt.NDArray[np.float64]
MIN_IMPRESSIONS = 10
LIMITS = {"luceclick": 0.60, "ubm": 0.55, "dbn": 0.55}  # with the default prior, without text
MODELS = ("luceclick", "ubm", "dbn", "pbm", "bbm", "ccm", "thcm", "dcm", "sdbn", "cm", "dctr")
NAMES = ["query", "ad", "attractiveness"]
POOLED = ("multiclick",)  # has no prior; ads have the same attractiveness in most queries
SEEDS = range(5)  # of the markets of another checkout; the first is its default

SIMULATION = """
import pyarrow as pa, pyarrow.parquet as pq, reclick as rc
market = rc.simulate(seed={seed})
tables = {{"log": pa.concat_tables(market.weeks), "truth": market.truth.pairs, "ads": market.ads}}
for name, table in tables.items():
    pq.write_table(table, {folder!r} + f"/{{name}}.parquet")
"""


class Market(NamedTuple):
    """All sessions of a simulated market, the attractiveness of its pairs, and text of its ads."""

    log: pa.Table
    truth: pa.Table
    ads: pa.Table


def main(other_checkout: str | None = None) -> bool:
    """Print a row per model, and return whether every limit holds."""
    logging.disable()
    if other_checkout is None:
        market = rc.simulate()
        tables = Market(pa.concat_tables(market.weeks), market.truth.pairs, market.ads)
        return _print_table("the simulated market (limits: see --beside)", tables, {})
    markets = [_simulate_elsewhere(other_checkout, seed) for seed in SEEDS]
    results = [
        _print_table(f"the market of {other_checkout}", markets[0], LIMITS),
        _print_means(other_checkout, markets),
    ]
    return all(results)


def _simulate_elsewhere(checkout: str, seed: int) -> Market:
    """A market of another checkout, through files."""
    folder = WORK / "attractiveness" / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    open_checkout(checkout).run(SIMULATION.format(seed=seed, folder=str(folder)))
    return Market(*(pq.read_table(folder / f"{name}.parquet") for name in Market._fields))


def _print_table(where: str, market: Market, limits: dict[str, float]) -> bool:
    print(
        f"\nOrder of attractiveness within queries in {where}, Kendall's τ with the truth: one "
        "prior mean for all pairs, the default prior, and with text; CPU seconds of a default fit\n"
    )
    results = [_rank_ads(name, market, limits.get(name)) for name in MODELS]
    for name in POOLED:
        tau = order_ads(rc.MODELS[name]().fit(market.log), market.truth)
        _print_tau(name, tau, None)
    return all(results)


def _print_means(checkout: str, markets: list[Market]) -> bool:
    """Print the mean τ over markets; the clicks of a pair alone show how they differ."""
    print(f"\nThe same with default settings, mean over {len(markets)} markets of {checkout}\n")
    entries: list[tuple[str, dict[str, str], float | None]] = [
        *((name, {}, limit) for name, limit in LIMITS.items()),
        *((name, {}, None) for name in POOLED),
        ("dctr", {"attractiveness_prior": "overall"}, None),
    ]
    results = []
    for name, settings, limit in entries:
        taus = [order_ads(rc.MODELS[name](**settings).fit(log), truth) for log, truth, _ in markets]
        row = f"{name}{', one mean' if settings else ''}: " + ", ".join(f"{x:.3f}" for x in taus)
        results.append(_print_tau(row, float(np.mean(taus)), limit))
    return all(results)


def _rank_ads(name: str, market: Market, limit: float | None) -> bool:
    """Print the row of a model with a prior, and return whether its limit holds."""
    model, (log, truth, ads) = rc.MODELS[name], market
    tau_one_mean = order_ads(model(attractiveness_prior="overall").fit(log), truth)
    start = time.process_time()
    model_fit = model().fit(log)
    seconds = time.process_time() - start
    tau, tau_with_text = order_ads(model_fit, truth), order_ads(model().fit(log, ads=ads), truth)
    row = f"{name}: one mean {tau_one_mean:.3f}, with text {tau_with_text:.3f}, {seconds:.1f} s"
    return _print_tau(row, tau, limit)


def _print_tau(row: str, tau: float, limit: float | None) -> bool:
    is_within_limit = limit is None or tau >= limit
    return print_row(
        row, f"{tau:.3f}", "(no limit)" if limit is None else f"≥ {limit:.2f}", is_within_limit
    )


def order_ads(model: Any, truth: pa.Table) -> float:
    """The mean over queries of τ between fitted and true attractiveness."""
    table = model.relevance()
    table = table.filter(np.asarray(table["impressions"]) >= MIN_IMPRESSIONS)
    true = truth.select(NAMES).rename_columns(["query", "ad", "truth"])
    columns = table.select(NAMES).cast(truth.select(NAMES).schema)
    columns = columns.join(true, keys=["query", "ad"], join_type="inner")
    columns = columns.sort_by([("query", "ascending"), ("ad", "ascending")])
    query = columns["query"].combine_chunks().dictionary_encode().indices.to_numpy()
    estimates, true_values = columns["attractiveness"].to_numpy(), columns["truth"].to_numpy()
    starts = np.flatnonzero(np.diff(query, prepend=-1, append=query.max() + 1))
    taus = [
        _kendall(estimates[first:last], true_values[first:last])
        for first, last in pairwise(starts)
        if last - first > 1
    ]
    return float(np.mean(taus))


def _kendall(one: Float64, another: Float64) -> float:
    """Kendall's τ: pairs in the same order minus pairs in the opposite order, as a share of all."""
    i, j = np.triu_indices(len(one), 1)
    return float(np.mean(np.sign(one[i] - one[j]) * np.sign(another[i] - another[j])))
