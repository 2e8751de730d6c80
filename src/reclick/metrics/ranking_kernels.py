"""How well scores rank labelled pairs: areas under curves and NDCG, ties and resampled queries included. The kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reclick.data.batch import Float64, Int64
from reclick.runtime.jit import kernel

Mask = npt.NDArray[np.bool_]


@kernel
def areas(query: Int64, relevant: Mask, ends: Mask, weights: Float64, out: Float64) -> None:
    """Fill out [resample, 2] with the average precision and the area under the ROC curve of pairs, best score first, weighted by their queries.

    A tied group is one step, ending where `ends`. With t and f the relevant and other pairs so far, and Δ what a step adds:
    average precision = Σ Δt · t / (t + f) / T;  area = Σ Δf · (t before + Δt / 2) / (T F). nan where there are none to find, or to tell them from.
    """
    for b in range(len(weights)):
        found = other = step_found = step_other = precision = area = 0.0
        for i in range(len(query)):
            weight = weights[b, query[i]]
            if relevant[i]:
                step_found += weight
            else:
                step_other += weight
            if not ends[i]:
                continue
            area += step_other * (found + step_found / 2)
            found += step_found
            other += step_other
            if step_found > 0.0:
                precision += step_found * found / (found + other)
            step_found = step_other = 0.0
        out[b, 0] = precision / found if found > 0.0 else np.nan
        out[b, 1] = area / (found * other) if found > 0.0 and other > 0.0 else np.nan


@kernel
def dcg(gain: Float64, ends: Mask, places: int) -> float:
    """Expected Σ gain / log2(place + 1) over the first places, when tied ones stand in random order: each has the mean gain of its group."""
    total = 0.0
    start = 0
    for i in range(len(gain)):
        if not ends[i]:
            continue
        if start < places:
            discount = 0.0
            for place in range(start, min(i + 1, places)):
                discount += 1.0 / np.log2(place + 2.0)
            total += gain[start : i + 1].mean() * discount
        start = i + 1
    return total


@kernel
def ndcgs(starts: Int64, gain: Float64, ends: Mask, places: int, out: Float64) -> None:
    """Fill out [query] with DCG / the best DCG there could be; pairs lie query after query, best score first. nan where nothing gains."""
    for q in range(len(out)):
        here = slice(starts[q], starts[q + 1])
        ideal = np.sort(gain[here])[::-1]
        best = dcg(ideal, np.ones(len(ideal), np.bool_), places)
        out[q] = dcg(gain[here], ends[here], places) / best if best > 0.0 else np.nan
