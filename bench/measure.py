"""Run Python code in a separate process, and measure its time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORK = Path(__file__).parent / "work"

# Not ru_maxrss: a process inherits that of the process which started it.
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
"""
TEMPLATE = (
    PEAK
    + """
import json, time
{setup}
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
print(json.dumps([seconds, peak()]))
"""
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The seconds of the code alone, and the peak memory of its whole process in MB."""

    seconds: float
    memory: float


def measure(code: str, *, setup: str = "", runs: int = 3) -> Measurement:
    """Measure the fastest of several runs, each in a new process; `setup` is not timed."""
    results = [_run(TEMPLATE.format(setup=setup, code=code)) for _ in range(runs)]
    return Measurement(
        min(result.seconds for result in results), max(result.memory for result in results)
    )


def _run(program: str) -> Measurement:
    completed_process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if completed_process.returncode:
        raise RuntimeError(completed_process.stderr)
    return Measurement(*json.loads(completed_process.stdout.splitlines()[-1]))


def print_row(name: str, value: str, limit: str, good: bool) -> bool:
    """Print a row: the title, the value, its limit, and whether the limit holds."""
    print(f"{name:<70} {value:>10}   {limit:<22} {'ok' if good else 'MISSED'}", flush=True)
    return good
