"""CPU seconds of the first use of a command, when no kernel is compiled yet.

`python -m bench compiling` simulates a small log and runs each command twice with an empty cache
folder; the faster run counts. `--beside CHECKOUT` also runs the commands with the sources of
another checkout, alternating between the two, and prints the ratio of the times. On a busy machine
CPU seconds are up to 50 % higher than on an idle one; the ratio hardly changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import print_row

# Half the seconds that the commands took before the number and the size of kernels were reduced.
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


def main(other_checkout: str | None = None) -> bool:
    """Print the table, and return whether every limit holds."""
    sources = {"this": Path(__file__).parents[1] / "src"}
    if other_checkout is not None:
        sources["other"] = Path(other_checkout) / "src"
    print("\nCPU seconds of the first use of a command, with no kernel compiled\n")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _simulate(folder / "logs")
        for what, limit in LIMITS.items():
            seconds: dict[str, list[float]] = {checkout: [] for checkout in sources}
            for run in range(RUNS):
                for checkout, sources_folder in sources.items():
                    to = folder / f"{checkout}{run}"
                    seconds[checkout].append(_first_use(to, folder / "logs", sources_folder, what))
            results += _print_rows(what, limit, seconds)
    return all(results)


def _print_rows(what: str, limit: float, seconds: dict[str, list[float]]) -> list[bool]:
    seconds_here = min(seconds["this"])
    results = [print_row(what, f"{seconds_here:.2f} s", f"≤ {limit:g} s", seconds_here <= limit)]
    if "other" in seconds:
        seconds_other = min(seconds["other"])
        title, ratio = (
            f"    relative to the other checkout, {seconds_other:.2f} s",
            seconds_here / seconds_other,
        )
        limits = f"{ratio:.2f}", f"≤ {MOST_BESIDE:g}", ratio <= MOST_BESIDE
        results.append(print_row(title, *limits))
    return results


def _simulate(logs: Path) -> None:
    arguments = ["simulate", "--to", str(logs), "--sessions", "2000", "--seed", "0"]
    subprocess.run(
        [sys.executable, "-m", "reclick", *arguments], check=True, stdout=subprocess.DEVNULL
    )


def _first_use(folder: Path, logs: Path, sources_folder: Path, what: str) -> float:
    """The CPU seconds of a command in a separate process, with an empty cache.

    `fit` saves its model in the folder, where `predict` loads it.
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
            "PYTHONPATH": str(sources_folder),
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
