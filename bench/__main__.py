"""Run the benchmarks: `python -m bench` for all, `python -m bench counting` for one.

`python -m bench.answers` compares the answers of two versions of the code; see there.
"""

from __future__ import annotations

import sys

from bench import (
    attractiveness,
    auction,
    counting,
    em,
    evaluating,
    headlines,
    luce,
    models,
    paper,
    predicting,
    real,
    service,
    small,
    trace_files,
    ubi,
)

BENCHMARKS = {
    "attractiveness": attractiveness.main,
    "auction": auction.main,
    "counting": counting.main,
    "em": em.main,
    "evaluating": evaluating.main,
    "headlines": headlines.main,
    "luce": luce.main,
    "models": models.main,
    "paper": paper.main,
    "predicting": predicting.main,
    "real": real.main,
    "service": service.main,
    "small": small.main,
    "trace_files": trace_files.main,
    "ubi": ubi.main,
}


def main() -> None:
    """Run those named on the command print_row, or all."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    passed = [BENCHMARKS[name]() for name in names]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
