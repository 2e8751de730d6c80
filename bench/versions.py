"""CPU seconds of counts, fits, predictions, evaluations and loading, beside another checkout.

`python -m bench versions --beside CHECKOUT` runs each job with the sources of this checkout and of
the other one, which must have its own environment in `.venv`. Each checkout writes the folders that
it loads. The two alternate, in new processes that first do the job on a small log. The fastest run
counts, because other work on the machine makes some runs slower.
"""

from __future__ import annotations

import json

from bench.biglogs import write_log
from bench.checkouts import THIS_CHECKOUT, Checkout, open_checkout
from bench.measure import WORK, print_row

SESSIONS, PAGES = 2_000_000, 500_000
ROUNDS = 7  # processes per checkout
RUNS = 3  # runs of a job per process
LIMIT = 1.03
# Equal parameters from every engine cost up to 20 % of an EM (decision 33).
LIMITS = {"fit UBM": 1.25, "evaluate": 1.25}
UBM = {"attractiveness_prior": "overall", "max_iterations": 20, "tolerance": 0}
SAVE = "rc.count(rc.read_sessions({log})).save({counts}); rc.MultiClick().fit({log}).save({model})"
EVALUATE = "rc.evaluate({{'multiclick': model}}, {log}, resamples=100, progress=None)"
JOBS = {  # the code that is timed, and the code that runs before it
    "count": ("rc.count(rc.read_sessions({log}))", "rc.count(rc.read_sessions({small}))"),
    "predict": (
        "rc.predict(model, {pages}, {to}, top=0)",
        "model = rc.load({model}); rc.predict(model, {small}, {to}, top=0)",
    ),
    "fit UBM": ("rc.MODELS['ubm'](**{ubm}).fit({log})", "rc.MODELS['ubm'](**{ubm}).fit({small})"),
    "evaluate": (
        EVALUATE.replace("{log}", "{pages}"),
        "model = rc.load({model}); " + EVALUATE.replace("{log}", "{small}"),
    ),
    "load model": ("rc.load({model})", "rc.MultiClick().fit({small})"),
    "load counts": ("rc.Counts.load({counts})", "rc.count(rc.read_sessions({small}))"),
}
PROGRAM = """
import json, time, reclick as rc
{before}
cpu, wall = [], []
for _ in range({runs}):
    cpu_start, wall_start = time.process_time(), time.perf_counter()
    {code}
    cpu.append(time.process_time() - cpu_start)
    wall.append(time.perf_counter() - wall_start)
print(json.dumps([min(cpu), min(wall)]))
"""


def main(other_checkout: str | None = None) -> bool:
    """Print the table, and return whether every limit holds."""
    if other_checkout is None:
        print("\nversions: nothing to compare with; give --beside CHECKOUT")
        return True
    checkouts = {"this": THIS_CHECKOUT, "other": open_checkout(other_checkout)}
    print(
        f"\nCPU seconds on {SESSIONS:,} sessions and {PAGES:,} pages, relative to "
        f"{other_checkout}\n"
    )
    files = {name: _write_folders(checkout, name) for name, checkout in checkouts.items()}
    results = []
    for what, (code, before) in JOBS.items():
        cpu: dict[str, list[float]] = {name: [] for name in checkouts}
        wall: dict[str, list[float]] = {name: [] for name in checkouts}
        for _ in range(ROUNDS):
            for name, checkout in checkouts.items():
                parts = {"code": code.format(**files[name]), "runs": RUNS}
                program = PROGRAM.format(before=before.format(**files[name]), **parts)
                seconds = json.loads(checkout.run(program))
                cpu[name].append(seconds[0])
                wall[name].append(seconds[1])
        cpu_here, cpu_other = min(cpu["this"]), min(cpu["other"])
        wall_ratio = min(wall["this"]) / min(wall["other"])
        title = f"{what}: {cpu_here:.3f} s / {cpu_other:.3f} s; wall time {wall_ratio:.2f}"
        ratio, limit = cpu_here / cpu_other, LIMITS.get(what, LIMIT)
        results.append(print_row(title, f"{ratio:.3f}", f"≤ {limit:g}", ratio <= limit))
    return all(results)


def _write_folders(checkout: Checkout, folder_name: str) -> dict[str, str]:
    """Write the counts and the model of a checkout; returns the quoted paths of its files."""
    folder = WORK / "versions"
    paths = {
        "log": write_log(folder / "log.parquet", SESSIONS, seed=1),
        "small": write_log(folder / "small.parquet", 100_000, seed=0),
        "pages": write_log(folder / "pages.parquet", PAGES, seed=9, page=(4, 4)),
        **{name: folder / folder_name / name for name in ("counts", "model", "to.parquet")},
    }
    files = {name.removesuffix(".parquet"): repr(str(path)) for name, path in paths.items()}
    checkout.run("import reclick as rc\n" + SAVE.format(**files))
    return {**files, "ubm": repr(UBM)}
