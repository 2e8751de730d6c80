"""Run the benchmarks: `python -m bench` for all, `python -m bench counting` for one.

`--minutes` is how long `service` is under load, `--requests` the number of requests of `requests`.
`--beside` names the checkout that attractiveness, compiling, small and versions compare with.
`python -m bench.answers` compares the answers of two versions of the code: see its docstring.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from bench import (
    attractiveness,
    auction,
    backward,
    buckets,
    compiling,
    counting,
    em,
    engines,
    evaluating,
    headlines,
    luce,
    models,
    paper,
    predicting,
    real,
    remote,
    requests,
    service,
    small,
    trace_files,
    ubi,
    versions,
)

BENCHMARKS = {
    "attractiveness": attractiveness.main,
    "auction": auction.main,
    "backward": backward.main,
    "buckets": buckets.main,
    "compiling": compiling.main,
    "counting": counting.main,
    "em": em.main,
    "engines": engines.main,
    "evaluating": evaluating.main,
    "headlines": headlines.main,
    "luce": luce.main,
    "models": models.main,
    "paper": paper.main,
    "predicting": predicting.main,
    "real": real.main,
    "remote": remote.main,
    "requests": requests.main,
    "service": service.main,
    "small": small.main,
    "trace_files": trace_files.main,
    "ubi": ubi.main,
    "versions": versions.main,
}


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="how long service is under load"
    )
    parser.add_argument(
        "--sessions", type=int, default=engines.SESSIONS, help="sessions in the log of engines"
    )
    parser.add_argument(
        "--requests", type=int, default=100_000, help="number of requests of requests"
    )
    parser.add_argument("--seed", type=int, default=1, help="first seed of requests")
    parser.add_argument(
        "--beside",
        metavar="CHECKOUT",
        help="the checkout to compare with, for attractiveness, compiling, small and versions",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=small.SAMPLES,
        help="training samples of small --beside, at least two",
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    benchmarks = BENCHMARKS | {
        "attractiveness": partial(attractiveness.main, options.beside),
        "compiling": partial(compiling.main, options.beside),
        "small": partial(small.main, options.beside, options.samples),
        "versions": partial(versions.main, options.beside),
        "service": partial(service.main, options.minutes),
        "requests": partial(requests.main, options.requests, options.seed),
        "engines": partial(engines.main, options.sessions),
    }
    results = [benchmarks[name]() for name in options.names or BENCHMARKS]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
