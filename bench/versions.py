"""CPU seconds of counting, predicting and loading, of those of another checkout.

`python -m bench versions --beside CHECKOUT` runs each job with our sources and with those of the
other checkout, which has an environment of its own in `.venv`. Each writes the folders that it
loads. The two take turns in fresh processes, which first do the job on a small log, and the
quickest of all runs counts, as a busy machine makes some of them slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench.biglogs import write_log
from bench.measure import WORK, print_row

SESSIONS, PAGES = 2_000_000, 500_000
ROUNDS = 7  # processes of each version
RUNS = 3  # of a job in each process
LIMIT = 1.03
SAVE = "rc.count(rc.read_sessions({log})).save({counts}); rc.MultiClick().fit({log}).save({model})"
JOBS = {  # what is timed; and before it, what is not
    "count": ("rc.count(rc.read_sessions({log}))", "rc.count(rc.read_sessions({small}))"),
    "predict": (
        "rc.predict(model, {pages}, {to}, top=0)",
        "model = rc.load({model}); rc.predict(model, {small}, {to}, top=0)",
    ),
    "load model": ("rc.load({model})", "rc.MultiClick().fit({small})"),
    "load counts": ("rc.Counts.load({counts})", "rc.count(rc.read_sessions({small}))"),
}
PROGRAM = """
import json, time, reclick as rc
{before}
cpu, wall = [], []
for _ in range({runs}):
    start, started = time.process_time(), time.perf_counter()
    {code}
    cpu.append(time.process_time() - start)
    wall.append(time.perf_counter() - started)
print(json.dumps([min(cpu), min(wall)]))
"""


def main(beside: str | None = None) -> bool:
    """Print the table; whether every limit holds."""
    if beside is None:
        print("\nversions: nothing to compare with; give --beside CHECKOUT")
        return True
    pythons = {
        "ours": (sys.executable, Path(__file__).parents[1] / "src"),
        "theirs": (str(Path(beside) / ".venv" / "bin" / "python"), Path(beside) / "src"),
    }
    print(f"\nCPU seconds of {SESSIONS:,} sessions and {PAGES:,} pages, of those of {beside}\n")
    files = {whose: _write_folders(python, whose) for whose, python in pythons.items()}
    held = []
    for what, (code, before) in JOBS.items():
        cpu: dict[str, list[float]] = {whose: [] for whose in pythons}
        wall: dict[str, list[float]] = {whose: [] for whose in pythons}
        for _ in range(ROUNDS):
            for whose, python in pythons.items():
                parts = {"code": code.format(**files[whose]), "runs": RUNS}
                program = PROGRAM.format(before=before.format(**files[whose]), **parts)
                seconds = json.loads(_run(python, program))
                cpu[whose].append(seconds[0])
                wall[whose].append(seconds[1])
        ours, theirs = min(cpu["ours"]), min(cpu["theirs"])
        elapsed = f"{min(wall['ours']) / min(wall['theirs']):.2f} of the time that passed"
        title = f"{what}: {ours:.3f} s of {theirs:.3f} s; {elapsed}"
        ratio = ours / theirs
        held.append(print_row(title, f"{ratio:.3f}", f"≤ {LIMIT:g}", ratio <= LIMIT))
    return all(held)


def _write_folders(python: tuple[str, Path], whose: str) -> dict[str, str]:
    """The paths of a version's files, quoted; counts and a model are written anew."""
    folder = WORK / "versions"
    paths = {
        "log": write_log(folder / "log.parquet", SESSIONS, seed=1),
        "small": write_log(folder / "small.parquet", 100_000, seed=0),
        "pages": write_log(folder / "pages.parquet", PAGES, seed=9, page=(4, 4)),
        **{name: folder / whose / name for name in ("counts", "model", "to.parquet")},
    }
    files = {name.removesuffix(".parquet"): repr(str(path)) for name, path in paths.items()}
    _run(python, "import reclick as rc\n" + SAVE.format(**files))
    return files


def _run(python: tuple[str, Path], program: str) -> str:
    command, source = python
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [command, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()[-1] if done.stdout else ""
