"""Attractiveness in the simulated market: whether models order the ads of a query correctly.

The market is `rc.simulate()` with its defaults: 300,000 sessions over three weeks. The figure is
Kendall's τ between the attractiveness of a model and the truth within each query, over pairs with
at least ten impressions, averaged over queries. It is measured with one prior mean for all pairs,
with the default prior, and with the text of the ads. CPU seconds are those of a default fit, with
kernels already compiled.
"""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.measure import print_row

Float64 = npt.NDArray[np.float64]
MIN_IMPRESSIONS = 10
LIMITS = {"luceclick": 0.60, "ubm": 0.55, "dbn": 0.55}  # with the default prior, without text
MODELS = ("luceclick", "ubm", "dbn", "pbm", "bbm", "ccm", "thcm", "dcm", "sdbn", "cm", "dctr")
NAMES = ["query", "ad", "attractiveness"]
POOLED = ("multiclick",)  # has no prior; ads have the same attractiveness in most queries


def main() -> bool:
    """Print a row per model, and return whether every limit holds."""
    import reclick as rc

    logging.disable()
    market = rc.simulate()
    log, truth = pa.concat_tables(market.weeks), market.truth.pairs
    print(
        "\nOrder of attractiveness within queries, Kendall's τ with the truth: one prior mean for "
        "all pairs, the default prior, and with text; CPU seconds of a default fit\n"
    )
    good = True
    for name in MODELS:
        model = rc.MODELS[name]
        tau_one_mean = order_ads(model(attractiveness_prior="overall").fit(log), truth)
        start = time.process_time()
        model_fit = model().fit(log)
        seconds = time.process_time() - start
        tau, tau_with_text = (
            order_ads(model_fit, truth),
            order_ads(model().fit(log, ads=market.ads), truth),
        )
        limit = LIMITS.get(name)
        good &= print_row(
            f"{name}: one mean {tau_one_mean:.3f}, with text {tau_with_text:.3f}, {seconds:.1f} s",
            f"{tau:.3f}",
            "(no limit)" if limit is None else f"≥ {limit:.2f}",
            limit is None or tau >= limit,
        )
    for name in POOLED:
        tau = order_ads(rc.MODELS[name]().fit(log), truth)
        print_row(name, f"{tau:.3f}", "(no limit)", True)
    return good


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
