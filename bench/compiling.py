"""CPU seconds of the first use of a command, when no kernel has been compiled yet.

`python -m bench compiling` simulates a small log and runs each command with an empty cache folder,
twice, the faster of which counts. `--beside CHECKOUT` runs the same commands with the
sources of another checkout, in turn, and prints how much of its time ours take. CPU seconds of a
busy machine are up to half more than those of an idle one; the ratio hardly changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import print_row

# Half of what the commands took before kernels were made fewer and smaller.
LIMITS = {
    "fit --model multiclick": 4.7,
    "fit --model ubm": 4.95,
    "fit --model luceclick": 11.1,
    "predict, multiclick": 8.0,
    "predict, ubm": 6.2,
    "predict, luceclick": 7.4,
}
MOST_BESIDE = 0.5
RUNS = 2


def main(beside: str | None = None) -> bool:
    """Print the table; whether every limit holds."""
    sources = {"ours": Path(__file__).parents[1] / "src"}
    if beside is not None:
        sources["theirs"] = Path(beside) / "src"
    print("\nCPU seconds of the first use of a command, with no kernel compiled\n")
    held = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _simulate(folder / "logs")
        for what, limit in LIMITS.items():
            seconds: dict[str, list[float]] = {whose: [] for whose in sources}
            for run in range(RUNS):
                for whose, source in sources.items():
                    to = folder / f"{whose}{run}"
                    seconds[whose].append(_first_use(to, folder / "logs", source, what))
            held += _print_rows(what, limit, seconds)
    return all(held)


def _print_rows(what: str, limit: float, seconds: dict[str, list[float]]) -> list[bool]:
    ours = min(seconds["ours"])
    held = [print_row(what, f"{ours:.2f} s", f"≤ {limit:g} s", ours <= limit)]
    if "theirs" in seconds:
        theirs = min(seconds["theirs"])
        title, ratio = f"    of {theirs:.2f} s with the other sources", ours / theirs
        limits = f"{ratio:.2f}", f"≤ {MOST_BESIDE:g}", ratio <= MOST_BESIDE
        held.append(print_row(title, *limits))
    return held


def _simulate(logs: Path) -> None:
    arguments = ["simulate", "--to", str(logs), "--sessions", "2000", "--seed", "0"]
    subprocess.run(
        [sys.executable, "-m", "reclick", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def _first_use(folder: Path, logs: Path, source: Path, what: str) -> float:
    """CPU seconds of a command in a process of its own, with an empty cache.

    `fit` leaves its model in the folder for `predict`.
    """
    name = what.rsplit(maxsplit=1)[-1]
    model = str(folder / f"model-{name}")
    if what.startswith("fit"):
        arguments = ["fit", str(logs / "week2.parquet"), "--model", name, "--to", model]
    else:
        to = str(folder / f"{name}.parquet")
        arguments = ["predict", model, str(logs / "week3.parquet"), "--to", to]
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "RECLICK_CACHE_DIR": cache,
            "NUMBA_CACHE_DIR": cache,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "reclick", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        messages = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(messages)
    return usage.ru_utime + usage.ru_stime
