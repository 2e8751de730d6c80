"""LuceClick on small logs: 300, 1,000 and 3,000 sessions of the training parts of two real logs.

The logs are those of `bench.real`, whose test parts are not read here. LuceClick with its defaults
is compared with the best of its rivals on other sessions, metric by metric. It may nowhere be
significantly behind in likelihood, or in perplexity over all positions. First clicks are printed.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import print_row
from bench.real import CUTS, LOGS, data_folder, first_hits, part, surprisal
from reclick.data.batch import Float64

SIZES, DRAWS, TEST_SESSIONS = (300, 1_000, 3_000), 3, 6_000  # of training; samples; of test
RIVALS = ("ubm", "bbm", "ccm", "dbn", "dcm", "pbm", "thcm")
HIGHER, WITHOUT_LIMIT = (
    {"in order": True, "click set": True, "perplexity": False, "first click": True},
    "first click",
)


def main() -> bool:
    """Print a row for each log, size and metric; whether every limit holds, or logs are missing."""
    held = [
        _log(data_folder() / f"{name}.parquet", longest) for longest, name in product(CUTS, LOGS)
    ]
    return all(held)


def _log(path: Path, longest: int) -> bool:
    if not path.exists():
        print(
            f"\nSmall logs of {path.stem}: skipped, {path} does not exist "
            "(set RECLICK_DATA to its folder)"
        )
        return True
    print(
        f"\nSmall logs of {path.stem}, pages of {longest} results: LuceClick, the best of its "
        "rivals, and the difference with its standard error\n"
    )
    log = part(str(path), "train", longest)
    held = [_size(log, size, path.stem) for size in SIZES]
    return all(held)


def _size(log: Any, size: int, name: str) -> bool:
    """One size of log: figures of all draws together."""
    draws = [np.random.default_rng(seed).permutation(len(log)) for seed in range(DRAWS)]
    scored = {
        model: [
            _score_model(model, log.take(d[:size]), log.take(d[size : size + TEST_SESSIONS]))
            for d in draws
        ]
        for model in ("luceclick", *RIVALS)
    }
    good = True
    for figure, higher in HIGHER.items():
        values = {
            model: np.concatenate([each[figure] for each in found])
            for model, found in scored.items()
        }
        values = {
            model: each if higher else -each
            for model, each in values.items()
            if not np.isneginf(each).any()
        }
        ours = values.pop("luceclick")
        rival = max(values, key=lambda model: float(np.nanmean(values[model])))
        gain = (ours - values[rival])[~np.isnan(ours)]
        error = float(gain.std() / np.sqrt(len(gain)))
        means = _format_mean(ours, higher), _format_mean(values[rival], higher)
        row = f"{name} {size:,}, {figure} {means[0]}, {rival} {means[1]}"
        limit, held = (
            ("(no limit)", True)
            if figure == WITHOUT_LIMIT
            else ("≥ −2 errors", gain.mean() >= -2 * error)
        )
        good &= print_row(row, f"{gain.mean():+.4f} ± {error:.4f}", limit, held)
    return good


def _format_mean(values: Float64, higher: bool) -> str:
    """A mean; bits as a perplexity."""
    return f"{np.nanmean(values):.4f}" if higher else f"{2 ** -np.nanmean(values):.4f}"


def _score_model(name: str, train: Any, test: Any) -> dict[str, Float64]:
    """Every metric of each test session; of perplexity, the bits per position."""
    from reclick.models import MODELS

    model, clicks = MODELS[name]().fit(train), test["clicks"].to_pylist()
    return {
        "in order": model.log_prob(test),
        "click set": model.log_set_prob(test),
        "perplexity": np.nanmean(surprisal(model.click_prob(test), clicks), axis=1),
        "first click": first_hits(model.next_click_prob(test, [[]] * len(test)), clicks),
    }
