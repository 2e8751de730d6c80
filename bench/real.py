"""Every model on two real logs, fitted to the training part and scored on the test part.

The logs are not part of the project: they are searched in $RECLICK_DATA, or in shared/data next to
the checkout. Pages are cut to their first ten results, then to their first four; clicks below are
dropped. A model without an order of clicks gets one from a table learnt on the training part
(`rc.OrderTable`). Each model runs in a separate process. LuceClick is then compared with its best
rival, metric by metric, on the same resamples of the test sessions (`rc.evaluate`).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.measure import print_row

Float64 = npt.NDArray[np.float64]
Entry = tuple[str, str, dict[str, Any]]  # label, model, settings
LOGS = ("yandex", "naver")
CUTS = (10, 4)  # page lengths that pages are cut to
VARIANTS: tuple[Entry, ...] = (  # in addition to every model with its defaults
    ("multiclick normalised", "multiclick", {"variant": "normalised"}),
    ("dbn per query", "dbn", {"initiation": "query", "continuation": "query"}),
)
MIN_LOG_PROB = {  # log-probability per session, on pages of ten results
    ("ubm", "set"): {"yandex": -3.244, "naver": -1.525},
    ("dbn per query", "set"): {"yandex": -3.262, "naver": -1.55},
    ("scan", "sequence"): {"yandex": -3.72, "naver": -1.56},
    ("luceclick", "sequence"): {"yandex": -3.625, "naver": -1.520},
    ("luceclick", "set"): {"yandex": -3.15, "naver": -1.48},
}
RIVALS = (
    "luceclick",
    "ubm",
    "thcm",
    "ccm",
    "dbn",
    "pbm",
)  # each of them is the best model by some metric
FIGURES = ("log_likelihood", "log_set_likelihood", "perplexity", "first_click_accuracy")
WIDTH = 24
COLUMNS = (
    "model", "log P(set)", "log P(sequence)", "perplexity", "by position", "conditional",
    "first click", "fit s", "iterations", "converged", "peak MB",
)  # fmt: skip


def main() -> bool:
    """Print a table per log and page length; return whether the limits hold or logs are missing."""
    results = [
        _log(data_folder() / f"{name}.parquet", longest) for longest in CUTS for name in LOGS
    ]  # all of them, also if one misses its limit
    return all(results)


def data_folder() -> Path:
    """The folder of the real logs."""
    return Path(os.environ.get("RECLICK_DATA", Path(__file__).parents[2] / "shared" / "data"))


def _log(path: Path, longest: int) -> bool:
    if not path.exists():
        print(
            f"\nReal log {path.stem}: skipped, {path} is not there (set RECLICK_DATA to its folder)"
        )
        return True
    print(f"\nReal log {path.stem}: training part to test part, pages of {longest} results\n")
    good = table(path, longest)
    return compare_with_rivals(path, longest) and good


def table(path: Path, longest: int) -> bool:
    """Print a row per model, and return whether every limit holds."""
    from reclick.models import MODELS

    print(f"{COLUMNS[0]:<{WIDTH}}" + "".join(f"{head:>16}" for head in COLUMNS[1:]), flush=True)
    figures = {}
    names = [name for name in MODELS if MODELS[name].max_page_ads != 2]  # not TCM
    entries: list[Entry] = [*((name, name, {}) for name in names), *VARIANTS]
    for label, name, settings in entries:
        figures[label] = _in_own_process(str(path), str(longest), name, json.dumps(settings))
        print(
            f"{label:<{WIDTH}}" + "".join(f"{cell:>16}" for cell in _cells(figures[label])),
            flush=True,
        )
    print()
    good = True
    for (name, figure), floor in MIN_LOG_PROB.items() if longest == CUTS[0] else ():
        value, limit = figures[name][figure], floor[path.stem]
        good &= print_row(f"{name}, log P({figure})", f"{value:.4f}", f"≥ {limit}", value >= limit)
    return good


def compare_with_rivals(path: Path, longest: int) -> bool:
    """Compare LuceClick with its best rival by each metric.

    Return whether it is significantly ahead in likelihood, and nowhere significantly behind.
    """
    good = True
    for figure, luce_value, rival, rival_value, gain, low, high in _in_own_process(
        str(path), str(longest), "rivals"
    ):
        name = f"{figure} {luce_value:.4f}, {rival} {rival_value:.4f}"
        good &= print_row(
            name,
            f"{gain:+.4f}",
            f"{low:+.4f} … {high:+.4f}",
            low > 0 if "likelihood" in figure else high >= 0,
        )
    return good


def _in_own_process(*arguments: str) -> Any:
    completed_process = subprocess.run(
        [sys.executable, "-m", "bench.real", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed_process.returncode:
        raise RuntimeError(completed_process.stderr)
    return json.loads(completed_process.stdout.splitlines()[-1])


def _cells(row: dict[str, Any]) -> list[str]:
    """The cells of one row of the table.

    Where some test sessions are impossible under the model, their share replaces the mean.
    """
    likelihoods = [
        f"−inf ({share:.0%})" if share else f"{value:.4f}"
        for value, share in (
            (row["set"], row["set_impossible"]),
            (row["sequence"], row["sequence_impossible"]),
        )
    ]
    scores = [
        f"{row[key]:.4f}" for key in ("perplexity", "by_position", "conditional", "first_click")
    ]
    loop = ["" if row[key] is None else str(row[key]) for key in ("iterations", "converged")]
    return [*likelihoods, *scores, f"{row['seconds']:.2f}", *loop, f"{row['memory']:.0f}"]


def measure(path: str, longest: int, name: str, settings: str) -> dict[str, Any]:
    """Fit one model with settings given as JSON, and score it on the test part."""
    from reclick import MODELS, OrderTable

    train, test = part(path, "train", longest), part(path, "test", longest)
    setting_values = json.loads(settings)
    MODELS[name](**setting_values).fit(train.slice(0, 50))  # compiles or loads the kernels
    start = time.perf_counter()
    model = MODELS[name](**setting_values).fit(train)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sets, sequences = model.log_set_prob(test), model.log_prob(test)
    if not model.ordered:
        sequences = sets + OrderTable.fit(train).log_prob(test)
    marginals, clicks = model.click_prob(test), test["clicks"].to_pylist()
    positions = np.count_nonzero(~np.isnan(marginals))
    bits = surprisal(marginals, clicks)  # [session, position]
    return {
        "set": float(sets.mean()),
        "set_impossible": float(np.isneginf(sets).mean()),
        "sequence": float(sequences.mean()),
        "sequence_impossible": float(np.isneginf(sequences).mean()),
        "perplexity": float(2 ** np.nanmean(bits)),
        "by_position": float(np.mean(2 ** np.nanmean(bits, axis=0))),
        "conditional": float(np.exp(-sets.sum() / positions)),
        "first_click": float(
            np.nanmean(first_hits(model.next_click_prob(test, [[]] * len(test)), clicks))
        ),
        "seconds": seconds,
        "iterations": getattr(model, "iterations_", None),
        "converged": getattr(model, "converged_", None),
        "memory": memory,
    }


def compare(path: str, longest: int) -> list[tuple[str, float, str, float, float, float, float]]:
    """Per metric: name, LuceClick's value, best rival, its value, the gain and its interval."""
    from reclick import evaluate
    from reclick.metrics import SESSION_METRICS

    evaluation = evaluate(RIVALS, part(path, "test", longest), train=part(path, "train", longest))
    luceclick, *rivals = list(evaluation.details["models"])
    rows = []
    for figure in FIGURES:
        sign = 1.0 if SESSION_METRICS[figure].better == "higher" else -1.0
        signed_values = {
            row["model"]: sign * row["value"]
            for row in evaluation.scores.to_pylist()
            if _overall(row, figure)
        }
        rival = max(rivals, key=signed_values.__getitem__)
        (row,) = (
            row
            for row in evaluation.differences.to_pylist()
            if _overall(row, figure) and (row["model"], row["against"]) == (luceclick, rival)
        )
        ends = sorted(sign * row[end] for end in ("low", "high"))
        rows.append(
            (
                figure,
                sign * signed_values[luceclick],
                rival,
                sign * signed_values[rival],
                sign * row["difference"],
                *ends,
            )
        )
    return rows


def _overall(row: dict[str, Any], figure: str) -> bool:
    return (row["metric"], row["sessions"], row["volume"]) == (figure, "all", "all")


def part(path: str, split: str, longest: int) -> Any:
    """The training or the test part as an Arrow table, with pages cut to `longest` results."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(
        path, columns=["query", "ads", "clicks"], filters=[("split", "=", split)]
    ).combine_chunks()
    clicks, session = (
        pc.list_flatten(table["clicks"]),
        pc.list_parent_indices(table["clicks"]).to_numpy(),
    )
    is_on_page = clicks.to_numpy() <= longest
    starts = np.concatenate(
        [[0], np.cumsum(np.bincount(session[is_on_page], minlength=len(table)))]
    )
    lists = pa.ListArray.from_arrays(
        pa.array(starts.astype(np.int32)), clicks.combine_chunks().filter(pa.array(is_on_page))
    )
    return pa.table(
        {"query": table["query"], "ads": pc.list_slice(table["ads"], 0, longest), "clicks": lists}
    )


def surprisal(probability: Float64, clicks: list[list[int]]) -> Float64:
    """−log₂ P(what happened at each position) [session, position]; nan beyond the page."""
    is_clicked = np.zeros(probability.shape, bool)
    for session, positions in enumerate(clicks):
        is_clicked[session, np.asarray(positions, np.int64) - 1] = True
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log2(np.where(is_clicked, probability, 1 - probability)))


def first_hits(probability: Float64, clicks: list[list[int]]) -> Float64:
    """Whether the first click is at the most likely position [session]; nan without a click.

    If k positions are tied for most likely, each counts as 1 / k of a hit.
    """
    is_tied = probability >= np.nanmax(probability, axis=1, keepdims=True) * (1 - 1e-9)
    first = np.array([positions[0] - 1 if positions else 0 for positions in clicks])
    hits = is_tied[np.arange(len(clicks)), first] / is_tied.sum(axis=1)
    return np.where([bool(positions) for positions in clicks], hits, np.nan)


if __name__ == "__main__":
    log_path, page_length, *arguments = sys.argv[1:]
    length = int(page_length)
    if arguments == ["rivals"]:
        print(json.dumps(compare(log_path, length)))
    else:
        print(json.dumps(measure(log_path, length, *arguments)))
