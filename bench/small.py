"""LuceClick on small logs: 300, 1,000 and 3,000 sessions of the training parts of two real logs.

The logs are those of `bench.real`; their test parts are not used here. LuceClick with its defaults
is compared with its best rival on other sessions, metric by metric. It must not be significantly
behind in likelihood or in the perplexity over all positions. The accuracy of first clicks has no
limit.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import print_row
from bench.real import CUTS, LOGS, data_folder, first_hits, part, surprisal
from reclick.data.batch import Float64

SIZES, DRAWS, TEST_SESSIONS = (
    (300, 1_000, 3_000),
    3,
    6_000,
)  # training sessions; samples; test sessions
RIVALS = ("ubm", "bbm", "ccm", "dbn", "dcm", "pbm", "thcm")
HIGHER, WITHOUT_LIMIT = (
    {"in order": True, "click set": True, "perplexity": False, "first click": True},
    "first click",
)


def main() -> bool:
    """Print a row per log, size and metric; return whether the limits hold or logs are missing."""
    results = [
        _log(data_folder() / f"{name}.parquet", longest) for longest, name in product(CUTS, LOGS)
    ]
    return all(results)


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
    results = [_size(log, size, path.stem) for size in SIZES]
    return all(results)


def _size(log: Any, size: int, name: str) -> bool:
    """Compare models on logs of one size, over all samples together."""
    draws = [np.random.default_rng(seed).permutation(len(log)) for seed in range(DRAWS)]
    figures_by_model = {
        model: [
            _score_model(model, log.take(d[:size]), log.take(d[size : size + TEST_SESSIONS]))
            for d in draws
        ]
        for model in ("luceclick", *RIVALS)
    }
    good = True
    for figure, higher in HIGHER.items():
        values = {
            model: np.concatenate([draw_figures[figure] for draw_figures in figures_of_draws])
            for model, figures_of_draws in figures_by_model.items()
        }
        values = {
            model: figures if higher else -figures
            for model, figures in values.items()
            if not np.isneginf(figures).any()
        }
        luce_values = values.pop("luceclick")
        rival = max(values, key=lambda model: float(np.nanmean(values[model])))
        gain = (luce_values - values[rival])[~np.isnan(luce_values)]
        error = float(gain.std() / np.sqrt(len(gain)))
        means = _format_mean(luce_values, higher), _format_mean(values[rival], higher)
        row = f"{name} {size:,}, {figure} {means[0]}, {rival} {means[1]}"
        limit, is_within_limit = (
            ("(no limit)", True)
            if figure == WITHOUT_LIMIT
            else ("≥ −2 errors", gain.mean() >= -2 * error)
        )
        good &= print_row(row, f"{gain.mean():+.4f} ± {error:.4f}", limit, is_within_limit)
    return good


def _format_mean(values: Float64, higher: bool) -> str:
    """Format a mean; a mean of bits is shown as a perplexity."""
    return f"{np.nanmean(values):.4f}" if higher else f"{2 ** -np.nanmean(values):.4f}"


def _score_model(name: str, train: Any, test: Any) -> dict[str, Float64]:
    """Every metric of each test session; for perplexity, the bits per position."""
    from reclick.models import MODELS

    model, clicks = MODELS[name]().fit(train), test["clicks"].to_pylist()
    return {
        "in order": model.log_prob(test),
        "click set": model.log_set_prob(test),
        "perplexity": np.nanmean(surprisal(model.click_prob(test), clicks), axis=1),
        "first click": first_hits(model.next_click_prob(test, [[]] * len(test)), clicks),
    }
