"""Run a piece of Python in a process of its own, and measure its time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORK = Path(__file__).parent / "work"

# Not ru_maxrss: that of a process that starts another one counts for the other one too.
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
    """Seconds of the code alone, and the peak memory of its whole process in MB."""

    seconds: float
    memory: float


def measure(code: str, *, setup: str = "", runs: int = 3) -> Measurement:
    """The fastest of some runs, each in a fresh process; `setup` is not timed."""
    results = [_run(TEMPLATE.format(setup=setup, code=code)) for _ in range(runs)]
    return Measurement(
        min(result.seconds for result in results), max(result.memory for result in results)
    )


def _run(program: str) -> Measurement:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Measurement(*json.loads(done.stdout.splitlines()[-1]))


def print_row(name: str, value: str, limit: str, good: bool) -> bool:
    """Print a row: what was measured, the value, its limit, and whether it holds."""
    print(f"{name:<70} {value:>10}   {limit:<22} {'ok' if good else 'MISSED'}", flush=True)
    return good
