"""LuceClick on small logs: 300, 1,000 and 3,000 sessions of the training parts of two real logs.

The logs are those of `bench.real`; their test parts are not used here. LuceClick with its defaults
is compared with its best rival on other sessions, metric by metric. It must not be significantly
behind in likelihood or in the perplexity over all positions. The accuracy of first clicks has no
limit.

`python -m bench small --beside CHECKOUT` compares it with the default LuceClick of another checkout
in place of its rivals: both are fitted to the same samples (`--samples`) and scored on the same
sessions, in order and as a click set. There are two standard errors of the mean gain. One is over
test sessions, and says how well the gain of these fits is known. One is over samples, and includes
that another sample would have given other fits. The limit uses both (`estimate_errors`). The scores
of a checkout are kept in `bench/work/small`, by the hash of its sources.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from bench.checkouts import THIS_CHECKOUT, Checkout, open_checkout
from bench.measure import WORK, print_row
from bench.real import CUTS, LOGS, data_folder, first_hits, part, surprisal
from reclick.data.batch import Float64, Int64

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
SAMPLES = 8  # training samples for the comparison with another checkout
SCORES = {"in order": "log_prob", "click set": "log_set_prob"}  # figure → method of a model
PROGRAM = """
import logging, numpy as np, pyarrow.parquet as pq
from reclick.models import MODELS
logging.disable()
model, test = MODELS["luceclick"]().fit(pq.read_table({train!r})), pq.read_table({test!r})
np.savez({to!r}, **{{name: getattr(model, name)(test) for name in {methods!r}}})
"""


class Sample(NamedTuple):
    """A training sample of a real log, and the sessions that its models are scored on."""

    path: Path
    longest: int  # page length that pages are cut to
    size: int
    seed: int

    def split_rows(self, n_sessions: int) -> tuple[Int64, Int64]:
        """The rows of the training sessions and of the test sessions."""
        order = np.random.default_rng(self.seed).permutation(n_sessions)
        return order[: self.size], order[self.size : self.size + TEST_SESSIONS]


def main(other_checkout: str | None = None, samples: int = SAMPLES) -> bool:
    """Print a row per log, size and metric; return whether the limits hold or logs are missing."""
    compare_log = (
        _compare_with_rivals
        if other_checkout is None
        else partial(_compare_with_checkout, open_checkout(other_checkout), samples)
    )
    results = []
    for longest, name in product(CUTS, LOGS):
        path = data_folder() / f"{name}.parquet"
        if path.exists():
            results.append(compare_log(path, longest))
        else:
            print(
                f"\nSmall logs of {name}: skipped, {path} does not exist "
                "(set RECLICK_DATA to its folder)"
            )
    return all(results)


def _compare_with_checkout(other: Checkout, samples: int, path: Path, longest: int) -> bool:
    """Compare the default LuceClick of this and of another checkout on all sizes of a log."""
    print(
        f"\nSmall logs of {path.stem}, pages of {longest} results, {samples} samples: LuceClick, "
        f"that of {other.folder}, and the gain; its errors over sessions, samples, and both\n"
    )
    log, good = part(str(path), "train", longest), True
    for size in SIZES:
        entries = [Sample(path, longest, size, seed) for seed in range(samples)]
        sessions = np.array([entry.split_rows(len(log))[1] for entry in entries])
        scores_here, scores_there = (
            _score_samples(checkout, entries, log) for checkout in (THIS_CHECKOUT, other)
        )
        for figure, method in SCORES.items():
            here, there = scores_here[method], scores_there[method]  # [sample, session]
            gain = float((here - there).mean())
            by_session, by_sample, error = estimate_errors(here - there, sessions)
            row = (
                f"{path.stem} {size:,}, {figure} {here.mean():.4f}, {there.mean():.4f}; "
                f"errors {by_session:.4f}, {by_sample:.4f}"
            )
            limit = f"≥ −2 × {error:.4f}"
            good &= print_row(row, f"{gain:+.4f}", limit, gain >= -2 * error)
    return good


def estimate_errors(gains: Float64, sessions: Int64) -> tuple[float, float, float]:
    """Standard errors of the mean of `gains` [sample, session]: over sessions, samples, and both.

    `sessions` has the number of each session, as samples share test sessions. A sum of deviations
    per session, or per sample, keeps what its gains have in common. The variance over both is the
    sum of the two minus that of single gains, which is in each of them (Cameron, Gelbach and Miller
    2011).
    """
    deviations, n_samples = gains - gains.mean(), len(gains)
    by_session = np.bincount(sessions.ravel(), deviations.ravel())
    by_sample = deviations.sum(axis=1) * np.sqrt(n_samples / (n_samples - 1))
    of_sessions, of_samples, of_single = (
        float((sums**2).sum()) / gains.size**2 for sums in (by_session, by_sample, deviations)
    )
    of_both = max(of_sessions + of_samples - of_single, of_sessions, of_samples)
    return of_sessions**0.5, of_samples**0.5, of_both**0.5


def _score_samples(checkout: Checkout, samples: list[Sample], log: Any) -> dict[str, Float64]:
    """The scores [sample, session] of the default LuceClick of a checkout, by method."""
    revision = checkout.find_revision()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = list(pool.map(lambda entry: _score_sample(checkout, revision, entry, log), samples))
    return {name: np.array([np.load(file)[name] for file in files]) for name in SCORES.values()}


def _score_sample(checkout: Checkout, revision: str | None, sample: Sample, log: Any) -> Path:
    """Write the scores of a sample to a file, unless they are there; changed code runs always."""
    path, longest, size, seed = sample
    data = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    name = f"{path.stem}-{data}-{longest}-{size}-{seed}-{revision or 'changed'}.npz"
    file = WORK / "small" / name
    if revision is not None and file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        train, test, to = (str(Path(folder, name)) for name in ("train", "test", "scores.npz"))
        for rows, part_file in zip(sample.split_rows(len(log)), (train, test), strict=True):
            pq.write_table(log.take(rows), part_file)
        methods = list(SCORES.values())
        checkout.run(PROGRAM.format(train=train, test=test, to=to, methods=methods))
        file.write_bytes(Path(to).read_bytes())
    return file


def _compare_with_rivals(path: Path, longest: int) -> bool:
    """Compare LuceClick with its best rival on all sizes of a log, metric by metric."""
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
