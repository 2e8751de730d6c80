"""Which headline wins? Text models on the Upworthy archive, split 80/20 by A/B test.

The archive is not part of the project: it is searched in the same folder as the logs of
`bench.real`. A text model learns from the clicks of the training tests. The figure is the share of
pairs of headlines that it orders correctly, among pairs of one test whose click rates differ
significantly; ties count half. Exposure is impressions times the click rate of the whole test, so
that the topic of a test has no effect on the rates of its words. The plain mean of word rates (as
in the paper) is over impressions, and without stop words.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measure import print_row
from reclick.data.string_index import Interner
from reclick.text.poisson_regression import (
    PRIOR_STRENGTHS,
    fit_word_rates,
    regularisation_path,
    select_text_model,
)
from reclick.text.tokens import STOP_WORDS, tokenise
from reclick.text.word_rates import TextIndex, TextModel, TokenLists

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
SEEDS = (0, 1, 2)
Z_SCORE = 1.96  # of the difference between the rates of a pair
MIN_WORD_RATES, MIN_SELECTED = 0.545, 0.575  # share of pairs ordered correctly


def main() -> bool:
    """Print a table, and return whether every limit holds; True without the archive."""
    path = (
        Path(os.environ.get("RECLICK_DATA", Path(__file__).parents[2] / "shared" / "data"))
        / "upworthy.parquet"
    )
    if not path.exists():
        print(f"\nHeadlines: skipped, {path} is not there (set RECLICK_DATA to its folder)")
        return True
    table = pq.read_table(path)
    shares = np.array([_score_split(table, seed) for seed in SEEDS]).mean(axis=0)
    print(
        f"\nHeadlines: pairs ordered correctly, mean of {len(SEEDS)} random splits of the tests\n"
    )
    good = print_row(
        "mean of word rates over impressions",
        f"{shares[0]:.1%}",
        f"≥ {MIN_WORD_RATES:.1%}",
        shares[0] >= MIN_WORD_RATES,
    )
    print(f"{'mean of word rates over exposure':<70} {shares[1]:>10.1%}")
    for strength, share in zip(PRIOR_STRENGTHS, shares[3:], strict=True):
        print(f"{f'Poisson regression, strength {strength:g}':<70} {share:>10.1%}")
    return good & print_row(
        "the text model selected inside the training tests",
        f"{shares[2]:.1%}",
        f"≥ {MIN_SELECTED:.1%}",
        shares[2] >= MIN_SELECTED,
    )


def _score_split(table: pa.Table, seed: int) -> list[float]:
    """The share of pairs that each model orders correctly, on one split.

    The models are word rates over impressions and over exposure, the selected model, and each
    Poisson regression.
    """
    tests, test = np.unique(table["test"].to_numpy(), return_inverse=True)
    train = (np.random.default_rng(seed).random(len(tests)) < 0.8)[test]
    impressions, clicks = (
        table[name].to_numpy().astype(np.float64) for name in ("impressions", "clicks")
    )
    exposure = impressions * (np.bincount(test, clicks) / np.bincount(test, impressions))[test]
    without_stop_words, n_plain_words = _tokens(table, STOP_WORDS)
    tokens, words = _tokens(table, ())
    train_impressions, train_clicks = exposure * train, clicks * train
    first, second = _pairs(test, impressions, clicks, ~train)
    paper = _share_ordered(
        fit_word_rates(without_stop_words, impressions * train, train_clicks, n_plain_words).rate(
            without_stop_words
        ),
        clicks / impressions,
        first,
        second,
    )
    models: list[TextModel] = [fit_word_rates(tokens, train_impressions, train_clicks, words)]
    models.append(
        select_text_model(
            _rows(tokens, np.flatnonzero(train)), exposure[train], clicks[train], words, test[train]
        )
    )
    models += regularisation_path(tokens, train_impressions, train_clicks, words)
    return [
        paper,
        *(
            _share_ordered(model.rate(tokens), clicks / impressions, first, second)
            for model in models
        ),
    ]


def _tokens(table: pa.Table, stop_words: Collection[str]) -> tuple[TokenLists, int]:
    """The tokens of all headlines without the stop words, and the number of distinct tokens."""
    columns = {name: pc.fill_null(table[name], "") for name in ("ad", "title", "description")}
    text = tokenise(
        pa.table({**columns, "display_url": pa.array([""] * len(table))}), stop_words=stop_words
    )
    index, vocabulary = TextIndex(text), Interner()
    codes, rows = vocabulary.codes(text.vocabulary), index.rows(table["ad"].combine_chunks())
    lists = [
        np.unique(codes[text.token[text.offsets[row] : text.offsets[row + 1]]], return_counts=True)
        for row in rows
    ]
    starts = np.concatenate([[0], np.cumsum([len(words) for words, _ in lists])]).astype(np.int64)
    tokens = TokenLists(
        starts,
        np.concatenate([w for w, _ in lists]).astype(np.int32),
        np.concatenate([m for _, m in lists]).astype(np.int32),
    )
    return tokens, vocabulary.size


def _rows(tokens: TokenLists, rows: Int64) -> TokenLists:
    sizes = np.diff(tokens.starts)[rows]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    at = np.repeat(tokens.starts[rows] - starts[:-1], sizes) + np.arange(starts[-1])
    return TokenLists(starts, tokens.words[at], tokens.multiplicity[at])


def _pairs(
    test: Int64, impressions: Float64, clicks: Float64, is_test: npt.NDArray[np.bool_]
) -> tuple[Int64, Int64]:
    """Pairs of held-out headlines of one test whose click rates differ significantly."""
    pairs = []
    for rows in np.split(np.argsort(test, kind="stable"), np.cumsum(np.bincount(test))[:-1]):
        if is_test[rows[0]]:
            one, two = np.triu_indices(len(rows), 1)
            pairs.append(np.stack([rows[one], rows[two]]))
    first, second = np.concatenate(pairs, axis=1)
    rate = clicks / impressions
    mean_rate = (clicks[first] + clicks[second]) / (impressions[first] + impressions[second])
    error = np.sqrt(
        mean_rate * (1 - mean_rate) * (1 / impressions[first] + 1 / impressions[second])
    )
    significant = np.abs(rate[first] - rate[second]) > Z_SCORE * error
    return first[significant], second[significant]


def _share_ordered(guess: Float64, rate: Float64, first: Int64, second: Int64) -> float:
    """The share of pairs in the same order as their click rates; a tie counts half."""
    agree = np.sign(guess[first] - guess[second]) * np.sign(rate[first] - rate[second])
    return float(np.mean((agree + 1) / 2))
