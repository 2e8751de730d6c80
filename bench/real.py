"""Every model on two real logs, from the training part to the test part; each in a process of its own.

The logs are not part of the project: they are looked for in $RECLICK_DATA, or in shared/data next to the checkout. Pages are cut to their first ten
results, and clicks beyond are dropped.
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

from bench.measure import line

Float64 = npt.NDArray[np.float64]
Entry = tuple[str, str, dict[str, Any]]  # label, model, settings
LOGS = ("yandex", "naver")
LONGEST = 10
NORMALISED: Entry = ("multiclick normalised", "multiclick", {"reading": "normalised"})  # beside the defaults of every model
UBM_SET = {"yandex": -3.244, "naver": -1.525}  # log-probability of the click set a session, of a plain UBM
WIDTH = 24
COLUMNS = ("model", "log P(set)", "log P(sequence)", "perplexity", "by position", "conditional", "fit s", "iterations", "converged", "peak MB")


def main() -> bool:
    """Print a table for each log; whether every limit holds. Without the logs there is nothing to hold."""
    folder = Path(os.environ.get("RECLICK_DATA", Path(__file__).parents[2] / "shared" / "data"))
    held = [_table(folder / f"{name}.parquet") for name in LOGS]  # all of them, also after a miss
    return all(held)


def _table(path: Path) -> bool:
    from reclick.models import MODELS

    if not path.exists():
        print(f"\nReal log {path.stem}: skipped, {path} is not there (set RECLICK_DATA to its folder)")
        return True
    print(f"\nReal log {path.stem}: training part to test part, pages of {LONGEST} results\n")
    print(f"{COLUMNS[0]:<{WIDTH}}" + "".join(f"{head:>16}" for head in COLUMNS[1:]), flush=True)
    found = {}
    entries: list[Entry] = [*((name, name, {}) for name in MODELS), NORMALISED]
    for label, name, settings in entries:
        found[label] = _in_own_process(path, name, settings)
        print(f"{label:<{WIDTH}}" + "".join(f"{cell:>16}" for cell in _cells(found[label])), flush=True)
    reached, limit = found["ubm"]["set"], UBM_SET[path.stem]
    print()
    return line(f"UBM, log-probability of the click set, {path.stem}", f"{reached:.4f}", f"≥ {limit}", reached >= limit)


def _in_own_process(path: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "bench.real", str(path), name, json.dumps(settings)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _cells(found: dict[str, Any]) -> list[str]:
    """One row of the table; where some test session is impossible under the model, its share in place of the mean."""
    figures = [
        f"−inf ({share:.0%})" if share else f"{value:.4f}"
        for value, share in ((found["set"], found["set_impossible"]), (found["sequence"], found["sequence_impossible"]))
    ]
    scores = [f"{found[key]:.4f}" for key in ("perplexity", "by_position", "conditional")]
    loop = ["" if found[key] is None else str(found[key]) for key in ("iterations", "converged")]
    return [*figures, *scores, f"{found['seconds']:.2f}", *loop, f"{found['memory']:.0f}"]


def measure(path: str, name: str, settings: str) -> dict[str, Any]:
    """Fit one model, its settings being JSON, and score it on the test part."""
    from reclick.models import MODELS

    train, test = _part(path, "train"), _part(path, "test")
    given = json.loads(settings)
    MODELS[name](**given).fit(train.slice(0, 50))  # compile, or load what is compiled
    start = time.perf_counter()
    model = MODELS[name](**given).fit(train)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sets, sequences = model.log_set_prob(test), model.log_prob(test)
    marginals = model.click_prob(test)
    positions = np.count_nonzero(~np.isnan(marginals))
    surprise = _surprise(marginals, test["clicks"].to_pylist())  # [session, position]
    return {
        "set": float(sets.mean()),
        "set_impossible": float(np.isneginf(sets).mean()),
        "sequence": float(sequences.mean()),
        "sequence_impossible": float(np.isneginf(sequences).mean()),
        "perplexity": float(2 ** np.nanmean(surprise)),
        "by_position": float(np.mean(2 ** np.nanmean(surprise, axis=0))),
        "conditional": float(np.exp(-sets.sum() / positions)),
        "seconds": seconds,
        "iterations": getattr(model, "iterations_", None),
        "converged": getattr(model, "converged_", None),
        "memory": memory,
    }


def _part(path: str, split: str) -> Any:
    """The training or the test part as an Arrow table, pages and clicks cut."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["query", "ads", "clicks"], filters=[("split", "=", split)]).combine_chunks()
    clicks, session = pc.list_flatten(table["clicks"]), pc.list_parent_indices(table["clicks"]).to_numpy()
    kept = clicks.to_numpy() <= LONGEST
    starts = np.concatenate([[0], np.cumsum(np.bincount(session[kept], minlength=len(table)))])
    lists = pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), clicks.combine_chunks().filter(pa.array(kept)))
    return pa.table({"query": table["query"], "ads": pc.list_slice(table["ads"], 0, LONGEST), "clicks": lists})


def _surprise(chance: Float64, clicks: list[list[int]]) -> Float64:
    """−log₂ of the probability given to what happened at each position [session, position]; nan beyond the page."""
    clicked = np.zeros(chance.shape, bool)
    for session, positions in enumerate(clicks):
        clicked[session, np.asarray(positions, np.int64) - 1] = True
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log2(np.where(clicked, chance, 1 - chance)))


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:4])))
