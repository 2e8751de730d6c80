"""Run the benchmarks: `python -m bench` for all, `python -m bench counting` for one."""

from __future__ import annotations

import sys

from bench import counting, em, evaluating, headlines, luce, predicting, real, small, ubi

BENCHES = {
    "counting": counting.main,
    "em": em.main,
    "evaluating": evaluating.main,
    "headlines": headlines.main,
    "luce": luce.main,
    "predicting": predicting.main,
    "real": real.main,
    "small": small.main,
    "ubi": ubi.main,
}


def main() -> None:
    """Run those named on the command line, or all."""
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    passed = [BENCHES[name]() for name in names]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
