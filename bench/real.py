"""Every model on two real logs, from the training part to the test part.

The logs are not part of the project: they are looked for in $RECLICK_DATA, or in shared/data next
to the checkout. Pages are cut to their first ten results, then to their first four, and clicks
beyond are dropped. A model that has no order of clicks gets one from a table learnt on the training
part (`rc.OrderTable`). Each model runs in a process of its own. LuceClick is then compared with the
best of its rivals, metric by metric, on the same resamples of the test sessions (`rc.evaluate`).
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
CUTS = (10, 4)  # results that are left of a page
VARIANTS: tuple[Entry, ...] = (  # besides the defaults of every model
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
)  # each of the others is the best by some metric
FIGURES = ("log_likelihood", "log_set_likelihood", "perplexity", "first_click_accuracy")
WIDTH = 24
COLUMNS = (
    "model", "log P(set)", "log P(sequence)", "perplexity", "by position", "conditional",
    "first click", "fit s", "iterations", "converged", "peak MB",
)  # fmt: skip


def main() -> bool:
    """Print a table for each log and cut; whether every limit holds, or the logs are missing."""
    held = [
        _log(data_folder() / f"{name}.parquet", longest) for longest in CUTS for name in LOGS
    ]  # all of them, also after a miss
    return all(held)


def data_folder() -> Path:
    """Where the logs are looked for."""
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
    """Print a row for each model; whether the floors are reached."""
    from reclick.models import MODELS

    print(f"{COLUMNS[0]:<{WIDTH}}" + "".join(f"{head:>16}" for head in COLUMNS[1:]), flush=True)
    found = {}
    entries: list[Entry] = [*((name, name, {}) for name in MODELS), *VARIANTS]
    for label, name, settings in entries:
        found[label] = _in_own_process(str(path), str(longest), name, json.dumps(settings))
        print(
            f"{label:<{WIDTH}}" + "".join(f"{cell:>16}" for cell in _cells(found[label])),
            flush=True,
        )
    print()
    good = True
    for (name, figure), floor in MIN_LOG_PROB.items() if longest == CUTS[0] else ():
        value, limit = found[name][figure], floor[path.stem]
        good &= print_row(f"{name}, log P({figure})", f"{value:.4f}", f"≥ {limit}", value >= limit)
    return good


def compare_with_rivals(path: Path, longest: int) -> bool:
    """Compare LuceClick with the best of its rivals.

    Whether it is ahead in likelihood, and nowhere significantly behind.
    """
    good = True
    for figure, ours, rival, theirs, better, low, high in _in_own_process(
        str(path), str(longest), "rivals"
    ):
        name = f"{figure} {ours:.4f}, {rival} {theirs:.4f}"
        good &= print_row(
            name,
            f"{better:+.4f}",
            f"{low:+.4f} … {high:+.4f}",
            low > 0 if "likelihood" in figure else high >= 0,
        )
    return good


def _in_own_process(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "bench.real", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _cells(found: dict[str, Any]) -> list[str]:
    """One row of the table.

    Where some test sessions are impossible under the model, their share replaces the mean.
    """
    figures = [
        f"−inf ({share:.0%})" if share else f"{value:.4f}"
        for value, share in (
            (found["set"], found["set_impossible"]),
            (found["sequence"], found["sequence_impossible"]),
        )
    ]
    scores = [
        f"{found[key]:.4f}" for key in ("perplexity", "by_position", "conditional", "first_click")
    ]
    loop = ["" if found[key] is None else str(found[key]) for key in ("iterations", "converged")]
    return [*figures, *scores, f"{found['seconds']:.2f}", *loop, f"{found['memory']:.0f}"]


def measure(path: str, longest: int, name: str, settings: str) -> dict[str, Any]:
    """Fit one model, its settings being JSON, and score it on the test part."""
    from reclick import MODELS, OrderTable

    train, test = part(path, "train", longest), part(path, "test", longest)
    given = json.loads(settings)
    MODELS[name](**given).fit(train.slice(0, 50))  # compile, or load what is compiled
    start = time.perf_counter()
    model = MODELS[name](**given).fit(train)
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
    """For each metric: its name, ours, the best rival and its value, the gain and its interval."""
    from reclick import evaluate
    from reclick.metrics import SESSION_METRICS

    found = evaluate(RIVALS, part(path, "test", longest), train=part(path, "train", longest))
    ours, *others = list(found.details["models"])
    rows = []
    for figure in FIGURES:
        sign = 1.0 if SESSION_METRICS[figure].better == "higher" else -1.0
        better = {
            row["model"]: sign * row["value"]
            for row in found.scores.to_pylist()
            if _overall(row, figure)
        }
        rival = max(others, key=better.__getitem__)
        (row,) = (
            row
            for row in found.differences.to_pylist()
            if _overall(row, figure) and (row["model"], row["against"]) == (ours, rival)
        )
        ends = sorted(sign * row[end] for end in ("low", "high"))
        rows.append(
            (
                figure,
                sign * better[ours],
                rival,
                sign * better[rival],
                sign * row["difference"],
                *ends,
            )
        )
    return rows


def _overall(row: dict[str, Any], figure: str) -> bool:
    return (row["metric"], row["sessions"], row["volume"]) == (figure, "all", "all")


def part(path: str, split: str, longest: int) -> Any:
    """The training or the test part as an Arrow table, pages and clicks cut."""
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
    kept = clicks.to_numpy() <= longest
    starts = np.concatenate([[0], np.cumsum(np.bincount(session[kept], minlength=len(table)))])
    lists = pa.ListArray.from_arrays(
        pa.array(starts.astype(np.int32)), clicks.combine_chunks().filter(pa.array(kept))
    )
    return pa.table(
        {"query": table["query"], "ads": pc.list_slice(table["ads"], 0, longest), "clicks": lists}
    )


def surprisal(probability: Float64, clicks: list[list[int]]) -> Float64:
    """−log₂ P(what happened at each position) [session, position]; nan beyond the page."""
    clicked = np.zeros(probability.shape, bool)
    for session, positions in enumerate(clicks):
        clicked[session, np.asarray(positions, np.int64) - 1] = True
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log2(np.where(clicked, probability, 1 - probability)))


def first_hits(probability: Float64, clicks: list[list[int]]) -> Float64:
    """Whether the first click is at the most likely position [session]; nan without a click.

    Of k positions that are tied, each is 1 / k of a hit.
    """
    tied = probability >= np.nanmax(probability, axis=1, keepdims=True) * (1 - 1e-9)
    first = np.array([positions[0] - 1 if positions else 0 for positions in clicks])
    hits = tied[np.arange(len(clicks)), first] / tied.sum(axis=1)
    return np.where([bool(positions) for positions in clicks], hits, np.nan)


if __name__ == "__main__":
    where, cut, *asked = sys.argv[1:]
    print(
        json.dumps(
            compare(where, int(cut)) if asked == ["rivals"] else measure(where, int(cut), *asked)
        )
    )
