"""Models and their extensions on two real logs: log-probability, and fit time relative to UBM.

Models are fitted to the training parts of the logs of `bench.real` and scored on the test parts,
with pages cut to ten, to four, and (for TCM) to two results. The time is the CPU time of a second
fit in the same process, so that it includes no compilation.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.measure import print_row
from bench.real import CUTS, LOGS, data_folder, part

Entry = tuple[str, str, dict[str, Any]]  # label, model, settings
UNIT = "ubm"
ENTRIES: tuple[Entry, ...] = (
    (UNIT, "ubm", {}),
    ("ubm, 2 components", "ubm", {"components": 2}),
    ("ubm, auto components", "ubm", {"components": "auto"}),
    ("pbm", "pbm", {}),
    ("pbm, 2 components", "pbm", {"components": 2}),
    ("pbm, auto components", "pbm", {"components": "auto"}),
    ("dbn", "dbn", {}),
    ("dbn, auto satisfaction", "dbn", {"satisfaction_prior": "auto"}),
    ("cm per query", "cm", {"initiation": "query"}),
    ("dcm per query", "dcm", {"initiation": "query"}),
    ("sdbn per query", "sdbn", {"initiation": "query"}),
    ("ccm", "ccm", {}),
    ("ccm per query", "ccm", {"initiation": "query"}),
    ("dbn per query", "dbn", {"initiation": "query", "continuation": "query"}),
    ("scan", "scan", {}),
    ("thcm", "thcm", {}),
    ("pom", "pom", {}),
    ("crf", "crf", {}),
    ("multiclick", "multiclick", {}),
    ("multiclick normalised", "multiclick", {"variant": "normalised"}),
    ("luceclick", "luceclick", {}),
    *(
        (name, name, {})
        for name in ("gctr", "rctr", "dctr", "icm", "pm", "am", "cm", "dcm", "sdbn", "bbm")
    ),
)
TWO_ADS: tuple[Entry, ...] = (  # TCM is a model of pages with two ads
    (UNIT, "ubm", {}),
    ("tcm", "tcm", {}),
    ("scan", "scan", {}),
    ("thcm", "thcm", {}),
    ("luceclick", "luceclick", {}),
)
LEAST_LOG_PROB = {  # by log and page length
    ("ubm, 2 components", "set"): {("yandex", 10): -3.205, ("yandex", 4): -1.892},
    ("dbn per query", "set"): {("yandex", 10): -3.262, ("yandex", 4): -1.901},
    ("scan", "sequence"): {("yandex", 10): -3.72, ("yandex", 4): -2.09},
}
MOST_TIMES_UBM = {"ubm, 2 components": 60.0, "dbn per query": 10.0, "scan": 20.0}
WIDTH = 28


def main() -> bool:
    """Print a table per log and page length; return whether the limits hold or logs are missing."""
    folder = data_folder()
    results = [_log(folder / f"{name}.parquet", longest) for longest in (*CUTS, 2) for name in LOGS]
    return all(results)


def _log(path: Path, longest: int) -> bool:
    if not path.exists():
        print(f"\n{path.stem}: skipped, {path} is not there (set RECLICK_DATA to its folder)")
        return True
    print(f"\n{path.stem}: training part to test part, pages of {longest} results\n")
    heads = ("log P(set)", "log P(sequence)", "CPU s", "times UBM")
    print(f"{'':<{WIDTH}}" + "".join(f"{head:>16}" for head in heads), flush=True)
    parts = part(str(path), "train", longest), part(str(path), "test", longest)
    figures: dict[str, dict[str, float]] = {}
    for label, name, settings in TWO_ADS if longest == 2 else ENTRIES:
        figures[label] = measure(name, settings, *parts)
        times = figures[label]["seconds"] / figures[UNIT]["seconds"]
        cells = (
            f"{figures[label]['set']:.4f}",
            f"{figures[label]['sequence']:.4f}",
            f"{figures[label]['seconds']:.2f}",
            f"{times:.1f}",
        )
        print(f"{label:<{WIDTH}}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    print()
    return longest == 2 or _check_limits(figures, (path.stem, longest))


def _check_limits(figures: dict[str, dict[str, float]], log: tuple[str, int]) -> bool:
    good = True
    for (label, figure), floors in LEAST_LOG_PROB.items():
        if log in floors:
            value, limit = figures[label][figure], floors[log]
            row = f"{label}, log P({figure})"
            good &= print_row(row, f"{value:.4f}", f"≥ {limit}", value >= limit)
    for label, limit in MOST_TIMES_UBM.items():
        times = figures[label]["seconds"] / figures[UNIT]["seconds"]
        good &= print_row(f"{label}, times UBM", f"{times:.1f}", f"≤ {limit:g}", times <= limit)
    return good


def measure(name: str, settings: dict[str, Any], train: Any, test: Any) -> dict[str, float]:
    """Fit one model twice, time the second fit, and score it on the test part.

    A model that has no order of clicks gets one from a table learnt on the training part.
    """
    from reclick import MODELS, OrderTable
    from reclick.engines import as_grouped

    groups = as_grouped(train)
    for _ in range(2):
        start = time.process_time()
        model = MODELS[name](**settings).fit(groups)
        seconds = time.process_time() - start
    sets = model.log_set_prob(test)
    sequences = (
        model.log_prob(test) if model.ordered else sets + OrderTable.fit(train).log_prob(test)
    )
    return {"set": sets.mean(), "sequence": sequences.mean(), "seconds": seconds}


if __name__ == "__main__":
    main()
