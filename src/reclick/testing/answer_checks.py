"""Checks of answers: probabilities of clicks, rankings, samples, relevance."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow.parquet as pq

from reclick.errors import CannotAnswerError
from reclick.predictor import predict
from reclick.testing.cases import (
    ORACLE_PAGES,
    CheckSkipped,
    ClickSequence,
    Columns,
    ModelCase,
    all_sequences,
    assert_close,
    assert_valid,
    every_sequence,
    pages_table,
    relevance_or_reason,
)


def check_oracle(case: ModelCase) -> None:
    """Probabilities of click sequences and click sets equal those of the oracle."""
    if case.oracle is None:
        raise CheckSkipped(
            "no oracle. Pass oracle=…, a function of (model, query, ads) that returns "
            "{clicks: probability} for every click sequence, by brute force over the latent "
            "variables. Without it the formula is not checked, only its consistency."
        )
    for page in case.cut_pages(ORACLE_PAGES):
        truth = case.oracle(case.fitted, *page)
        sequences = all_sequences(len(page.ads))
        oracle_probabilities = [truth.get(clicks, 0.0) for clicks in sequences]
        sets = [
            sum(truth.get(order, 0.0) for order in itertools.permutations(clicks))
            for clicks in sequences
        ]
        total = sum(oracle_probabilities)
        assert abs(total - 1) < 1e-12, f"the oracle's probabilities add to {total} on {page}"
        log = every_sequence(page)
        for method, expected in (
            (case.fitted.log_prob, oracle_probabilities),
            (case.fitted.log_set_prob, sets),
        ):
            what = f"{method.__name__} of {page}, against the oracle"
            assert_close(np.exp(method(log)), expected, what, relative=1e-10, absolute=1e-12)


def check_sum(case: ModelCase) -> None:
    """The probabilities of all click sequences of a page sum to 1."""
    for page in case.pages:
        total = sum(case.probabilities(page).values())
        assert abs(total - 1) < 1e-9, f"they add to {total} on {page}"


def check_marginals(case: ModelCase) -> None:
    """A click probability is the sum over all sequences with that click."""
    for page in case.pages:
        chance = case.probabilities(page)
        sums = [sum(p for c, p in chance.items() if j + 1 in c) for j in range(len(page.ads))]
        click_prob = case.fitted.click_prob(pages_table([page]))[0]
        assert_close(click_prob, sums, f"click_prob of {page}", absolute=1e-9)
        expected = case.fitted.expected_clicks(pages_table([page]))[0]
        assert_close(expected, sum(sums), f"expected_clicks of {page}", absolute=1e-9)


def check_sets(case: ModelCase) -> None:
    """The probability of a click set is the sum over its orders."""
    for page in case.pages:
        chance = case.probabilities(page)
        sums = [
            sum(chance[order] for order in itertools.permutations(sorted(clicks)))
            for clicks in chance
        ]
        set_prob = np.exp(case.fitted.log_set_prob(every_sequence(page)))
        assert_close(set_prob, sums, f"log_set_prob of {page}", relative=1e-9, absolute=1e-12)


def check_next_click(case: ModelCase) -> None:
    """The probability of a next click is a ratio of sums over sequences with the same prefix."""
    for page in case.pages:
        chance = case.probabilities(page)
        prefix: dict[ClickSequence, float] = {}
        for clicks, p in chance.items():
            for size in range(len(clicks) + 1):
                prefix[clicks[:size]] = prefix.get(clicks[:size], 0.0) + p
        possible = [clicks for clicks in chance if prefix[clicks] > 1e-14]
        next_click_prob = case.fitted.next_click_prob(
            pages_table([page] * len(possible)), [list(clicks) for clicks in possible]
        )
        for clicks, row in zip(possible, next_click_prob, strict=True):
            ratios = [
                prefix.get((*clicks, j + 1), 0.0) / prefix[clicks] for j in range(len(page.ads))
            ]
            assert_close(row, ratios, f"next_click_prob of {page} after {clicks}", absolute=1e-7)


def check_ranking(case: ModelCase) -> None:
    """rank_sequences lists the most likely sequences, best first."""
    for page in case.pages:
        chance = case.probabilities(page)
        for length in (None, *range(len(page.ads) + 1)):
            ranking = case.fitted.rank_sequences(page.query, page.ads, length=length, top=5)
            best = sorted(
                (p for clicks, p in chance.items() if p > 0 and length in (None, len(clicks))),
                reverse=True,
            )[:5]
            what = f"rank_sequences of {page}, length {length}"
            assert_close([sequence.probability for sequence in ranking], best, what, relative=1e-9)
            assert_close(
                [chance[sequence.clicks] for sequence in ranking], best, what, relative=1e-9
            )
            assert len({sequence.clicks for sequence in ranking}) == len(ranking), (
                f"{what}: one twice"
            )


def check_samples(case: ModelCase) -> None:
    """The frequencies of sampled sequences agree with their probabilities."""
    page, n = case.cut_pages(ORACLE_PAGES)[0], 20_000
    sample = case.fitted.sample(pages_table([page] * n), np.random.default_rng(3)).to_pylist()
    frequency: dict[ClickSequence, int] = {}
    for clicks in map(tuple, sample):
        frequency[clicks] = frequency.get(clicks, 0) + 1
    for clicks, p in case.probabilities(page).items():
        error = abs(frequency.get(clicks, 0) / n - p)
        limit = 5 * math.sqrt(max(p * (1 - p), 0.0) / n) + 1e-9
        assert error <= limit, f"{clicks}: {frequency.get(clicks, 0)} of {n}, P = {p}"


def check_seed(case: ModelCase) -> None:
    """The same seed gives the same sample, another seed another sample."""
    first, again, other_seed = (case.fitted.sample(case.log, seed) for seed in (1, 1, 2))
    assert first.equals(again), "two samples with one seed differ"
    assert not first.equals(other_seed), "two seeds give the same sample"


def check_finite(case: ModelCase) -> None:
    """Answers are probabilities; log-probabilities are −inf only if the model declares it."""
    rare = every_sequence(case.pages[0]).to_pydict()
    assert_valid(case.fitted, {column: [*case.log[column], *rare[column]] for column in case.log})
    if not case.model.all_sets_possible:
        sets = case.fitted.log_set_prob(every_sequence(case.pages[0]))
        assert np.isneginf(sets).any(), "all_sets_possible = False, but all are: leave it out"


def check_order(case: ModelCase) -> None:
    """Backward clicks are possible for models with an order of clicks, and only for them."""
    upward = [
        p
        for page in case.pages
        for clicks, p in case.probabilities(page).items()
        if list(clicks) != sorted(clicks)
    ]
    possible = any(p > 0 for p in upward)
    assert possible == case.model.ordered, f"ordered = {case.model.ordered}, possible = {possible}"


def check_next_click_without_order(case: ModelCase) -> None:
    """For a model without an order of clicks, the order of the clicks so far has no effect."""
    if case.model.ordered:
        raise CheckSkipped("the order of clicks matters to it")
    if not case.model.all_sets_possible:
        raise CheckSkipped("it gives probabilities only after clicks that it considers possible")
    page = {"query": ["q"], "ads": [["a", "b", "c"]]}
    down, up = (case.fitted.next_click_prob(page, [clicks]) for clicks in ([1, 2], [2, 1]))
    assert (down == up).all(), f"after clicks 1, 2: {down}; after 2, 1: {up}"


def check_unseen(case: ModelCase) -> None:
    """Click probabilities of new queries and ads are between 0 and 1."""
    log: Columns = {
        "query": ["never", "q", "never"],
        "ads": [["never1", "never2"], ["a", "never"], ["a"]],
        "clicks": [[1], [1], []],
    }
    marginals = case.fitted.click_prob(log)
    inside = marginals[~np.isnan(marginals)]
    assert ((inside > 0) & (inside < 1)).all(), f"click_prob: {inside}"
    assert_valid(case.fitted, log)


def check_long_pages(case: ModelCase) -> None:
    """For long pages, predict writes the values of click_prob, or both raise."""
    pages = {"query": ["q"] * 3, "ads": [[f"a{i}" for i in range(14)]] * 3}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.parquet"
        try:
            expected = case.fitted.click_prob(pages)
        except CannotAnswerError:
            try:
                predict(case.fitted, pages, target, top=0)
            except CannotAnswerError as reason:
                raise CheckSkipped(f"pages of 14 ads are refused by both: {reason}") from None
            raise AssertionError("click_prob refuses a page that predict() answers") from None
        predict(case.fitted, pages, target, top=0)
        values_in_file = pq.read_table(target)["click_prob"].to_pylist()
    assert values_in_file == expected.tolist(), "predict() writes other values than click_prob"


def check_relevance(case: ModelCase) -> None:
    """Relevance has its columns, intervals contain the values, and support is that of the log."""
    table = relevance_or_reason(case.fitted)
    if isinstance(table, str):
        _skip_without_relevance(case, table)
    values = ["attractiveness", "satisfaction", "relevance"]
    bounds = [column for value in values for column in (value, f"{value}_low", f"{value}_high")]
    expected = ["query", "ad", *bounds, "impressions", "clicks"]
    assert table.column_names == expected, f"columns {table.column_names}, expected {expected}"
    has_satisfaction = table["satisfaction"].null_count == 0
    assert has_satisfaction == case.model.satisfaction, "satisfaction is not what is declared"
    for value in values if has_satisfaction else ("attractiveness", "relevance"):
        middle, low, high = (table[f"{value}{end}"].to_numpy() for end in ("", "_low", "_high"))
        holds = (low >= 0) & (low <= middle) & (middle <= high) & (high <= 1)
        assert holds.all(), f"an interval of {value} is outside [0, 1] or does not hold its value"
    for column, lists in (("impressions", case.log["ads"]), ("clicks", case.log["clicks"])):
        total, expected_total = sum(table[column].to_pylist()), sum(map(len, lists))
        assert total == expected_total, f"{column} add to {total}, expected {expected_total}"
    log_pairs = {
        (query, ad)
        for query, ads in zip(case.log["query"], case.log["ads"], strict=True)
        for ad in ads
    }
    pairs = set(zip(table["query"].to_pylist(), table["ad"].to_pylist(), strict=True))
    assert pairs == log_pairs, "the pairs are not those of the log"


def check_relevance_of_pairs(case: ModelCase) -> None:
    """Relevance of requested pairs is in their order, and includes pairs not in the log."""
    pairs = {"query": ["q", "never", "q"], "ad": ["b", "a", "never"]}
    try:
        table = case.fitted.relevance(pairs)
    except CannotAnswerError as error:
        _skip_without_relevance(case, str(error))
    for column, values in pairs.items():
        assert table[column].to_pylist() == values, f"{column} is in another order"
    assert table["impressions"].to_pylist()[1:] == [0, 0], "a pair not in the log has impressions"
    inside = [0 <= value <= 1 for value in table["attractiveness"].to_pylist()]
    assert all(inside), "an attractiveness is outside [0, 1]"


def _skip_without_relevance(case: ModelCase, reason: str) -> NoReturn:
    assert not case.model.attractiveness, f"no relevance, though attractiveness = True: {reason}"
    assert case.model.__name__ in reason, f"the reason does not name the model: {reason}"
    assert len(reason) > 30, f"the reason is too short: {reason}"
    raise CheckSkipped(reason)
