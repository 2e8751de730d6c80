"""What is special to choices: extreme parameters, underflow, equal pages, exchanging ads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reclick.clicks import choice
from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import PageDistribution
from reclick.errors import CannotAnswerError
from tests.support.click_families import (
    CHOICES,
    PlainChoice,
    Sequence_,
    all_sequences,
    build,
    random_choice,
    to_clicks,
)

CLOSE = 1e-12
every_variant = pytest.mark.parametrize("variant", CHOICES)


def log_prob(page: PlainChoice, clicks: Sequence_) -> float:
    return float(build([page]).log_prob(to_clicks([clicks]))[0])


def log_set_prob(page: PlainChoice, clicks: Sequence_) -> float:
    return float(build([page]).log_set_prob(to_clicks([clicks]))[0])


def repeat(page: PlainChoice, times: int) -> PageDistribution:
    return build([page]).select(np.zeros(times, np.int64))


@every_variant
@pytest.mark.parametrize("n", [5, 6])
def test_sets_and_marginals_of_longer_pages_are_sums_over_all_sequences(
    variant: str, n: int
) -> None:
    page = random_choice(np.random.default_rng(n), n, variant=variant)
    sequences = list(all_sequences(n))
    chances = np.exp(repeat(page, len(sequences)).log_prob(to_clicks(sequences)))
    assert chances.sum() == pytest.approx(1.0, abs=CLOSE)
    marginal, sets = np.zeros(n), dict[frozenset[int], float]()
    for clicks, chance in zip(sequences, chances.tolist(), strict=True):
        marginal[[c - 1 for c in clicks]] += chance
        sets[frozenset(clicks)] = sets.get(frozenset(clicks), 0.0) + chance
    np.testing.assert_allclose(build([page]).click_prob(), marginal, atol=CLOSE, rtol=0)
    got = repeat(page, len(sets)).log_set_prob(to_clicks([tuple(chosen) for chosen in sets]))
    np.testing.assert_allclose(np.exp(got), list(sets.values()), atol=CLOSE, rtol=0)


@every_variant
def test_pages_without_any_weight_end_at_once(variant: str) -> None:
    half = np.full(4, 0.5)
    page = PlainChoice(variant, np.zeros(3), half[:3], half, np.full((4, 3), 1 / 3))
    assert log_prob(page, ()) == 0.0
    assert log_prob(page, (2,)) == -math.inf
    assert not build([page]).click_prob().any()
    nowhere = PlainChoice(variant, np.ones(3), half[:3], np.zeros(4), np.zeros((4, 3)))
    assert log_prob(nowhere, ()) == 0.0


@pytest.mark.parametrize("variant", ["examination", "normalised", "luce"])
def test_a_user_who_never_stops_clicks_everything(variant: str) -> None:
    page = PlainChoice(variant, np.ones(4), np.zeros(4), np.zeros(5), np.full((5, 4), 0.25))
    np.testing.assert_allclose(build([page]).click_prob(), 1.0, rtol=1e-14)
    assert log_set_prob(page, (1, 2, 3, 4)) == pytest.approx(0.0, abs=1e-14)
    assert log_prob(page, (1, 2, 3)) == -math.inf


@pytest.mark.parametrize("variant", ["paper", "examination", "normalised"])
def test_a_satisfying_ad_or_a_tired_user_ends_the_session(variant: str) -> None:
    satisfying = PlainChoice(
        variant, np.full(3, 0.5), np.ones(3), np.zeros(4), np.full((4, 3), 1 / 3)
    )
    tired = replace(satisfying, rho=np.zeros(3), stop=np.array([0.0, 1.0, 1.0, 1.0]))
    for page in (satisfying, tired):
        assert log_prob(page, (2, 1)) == -math.inf
        clicked = 1.0 - math.exp(log_prob(page, ()))
        assert build([page]).click_prob().sum() == pytest.approx(clicked)
    assert build([satisfying]).satisfaction_prob()[0] == pytest.approx(
        1.0 - math.exp(log_prob(satisfying, ()))
    )
    assert build([tired]).satisfaction_prob()[0] == 0.0


@every_variant
def test_gamma_of_the_last_click_itself_is_not_used(variant: str) -> None:
    page = random_choice(np.random.default_rng(0), 3, 0.0, variant)
    other = replace(page, gamma=page.gamma.copy())
    other.gamma[np.arange(1, 4), np.arange(3)] = 7.0
    np.testing.assert_allclose(build([other]).click_prob(), build([page]).click_prob(), rtol=1e-13)


@pytest.mark.parametrize("variant", ["normalised", "examination", "luce"])
def test_tiny_ends_have_their_logarithm(variant: str) -> None:
    page = PlainChoice(variant, np.ones(2), np.zeros(2), np.full(3, 1e-30), np.full((3, 2), 0.5))
    assert log_prob(page, ()) == pytest.approx(math.log(1e-30), rel=1e-12)


@every_variant
def test_sets_do_not_underflow(variant: str) -> None:
    n = 14
    page = PlainChoice(
        variant, np.full(n, 1e-30), np.full(n, 0.5), np.full(n + 1, 0.5), np.full((n + 1, n), 1 / n)
    )
    clicks = tuple(range(1, n + 1))
    expected = log_prob(page, clicks) + math.lgamma(n + 1)
    assert log_set_prob(page, clicks) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("nearly", [0.0, 1e-300])
def test_a_set_has_its_probability_when_the_given_order_is_impossible(nearly: float) -> None:
    gamma = np.array([[1.0, nearly], [0.0, 1.0], [nearly, 0.0]])
    page = PlainChoice("paper", np.full(2, 0.5), np.zeros(2), np.zeros(3), gamma)
    assert log_prob(page, (2, 1)) < -690
    assert log_set_prob(page, (2, 1)) == pytest.approx(log_prob(page, (1, 2)))


@every_variant
@pytest.mark.parametrize("length", [None, 2, 3])
def test_ties_are_broken_by_length_and_then_lexicographically(
    variant: str, length: int | None
) -> None:
    stop = np.array([0.5, 0.25, 0.5, 0.0, 1.0])
    half = np.full(4, 0.5)
    page = PlainChoice(variant, half, half, stop, np.full((5, 4), 0.25))  # exact in float64
    best = build([page]).top_sequences(length, 1000)
    listed = [
        (tuple(sequence[:m].tolist()), p)
        for sequence, m, p in zip(*(values[0] for values in best), strict=True)
        if p > 0
    ]
    assert len({p for _, p in listed}) < len(listed)
    assert listed == sorted(listed, key=lambda pair: (-pair[1], len(pair[0]), pair[0]))


def test_impossible_sequences_are_not_listed() -> None:
    page = PlainChoice("paper", np.zeros(3), np.zeros(3), np.full(4, 0.5), np.full((4, 3), 1 / 3))
    best = build([page]).top_sequences(None, 5)
    assert best.lengths.tolist() == [[0, -1, -1, -1, -1]]
    assert best.probabilities.tolist() == [[1.0, 0, 0, 0, 0]]
    assert not build([page]).top_sequences(1, 5).probabilities.any()


def test_a_flat_long_page_is_refused_with_advice() -> None:
    flat = PlainChoice("normalised", np.ones(12), np.zeros(12), np.zeros(13), np.ones((13, 12)))
    with pytest.raises(
        CannotAnswerError, match=r"of 12 ads: more than 5,000,000 prefixes .* Ask for fewer"
    ):
        build([flat]).top_sequences(None, 1)


@every_variant
def test_equal_pages_are_distinguished_from_nearly_equal_ones(variant: str) -> None:
    rng, n = np.random.default_rng(12), choice.DEDUPLICATED_ADS + 1
    long, other, short = (random_choice(rng, m, 0.0, variant) for m in (n, n - 1, 3))
    nudge = np.where(np.arange(n) == 2, 1 - 1e-9, 1.0)
    each = [
        long,
        short,
        other,
        long,
        replace(long, theta=long.theta * nudge),
        replace(long, gamma=long.gamma * 0.9),
        other,
        replace(long, rho=long.rho * nudge),
        long,
        short,
    ]
    batch = build(each)
    marginal = batch.click_prob()
    parts = [marginal[batch.starts[s] : batch.starts[s + 1]] for s in range(len(each))]
    for part, page in zip(parts, each, strict=True):
        assert (part == build([page]).click_prob()).all()
    assert len({parts[s].tobytes() for s in (0, 3, 4, 5, 7, 8)}) == 4


@every_variant
def test_pages_of_twelve_are_exact_and_longer_ones_are_refused(variant: str) -> None:
    rng = np.random.default_rng(12)
    page = random_choice(rng, 12, 0.0, variant)
    page = replace(page, theta=page.theta * 0.2)
    marginal = build([page]).click_prob()
    assert all(marginal[j - 1] >= p - CLOSE for j, p in page.next_click(()).items())
    drawn = repeat(page, 100_000).sample(np.random.default_rng(0))
    seen = np.bincount(drawn.click, minlength=13)[1:] / 100_000
    assert (np.abs(seen - marginal) <= 5 * np.sqrt(marginal * (1 - marginal) / 100_000)).all()
    with pytest.raises(CannotAnswerError, match="page of 13 ads: exact up to 12"):
        build([random_choice(rng, 13, variant=variant)]).click_prob()
    with pytest.raises(CannotAnswerError, match="set of 17 clicks: exact up to 16"):
        log_set_prob(random_choice(rng, 20, variant=variant), tuple(range(1, 18)))


@every_variant
def test_sequences_of_long_pages_have_a_probability(variant: str) -> None:
    page, clicks = random_choice(np.random.default_rng(30), 300, 0.0, variant), range(60, 0, -1)
    made = tuple(clicks)
    expected = math.log(1.0 - sum(page.next_click(made).values()))
    expected += sum(math.log(page.next_click(made[:k])[click]) for k, click in enumerate(made))
    assert log_prob(page, made) == pytest.approx(expected, rel=1e-12)
    assert log_prob(page, (5, 5)) == -math.inf


@every_variant
def test_ads_can_be_exchanged(variant: str) -> None:
    """New pages of the ads of old ones: each ad with its θ and ρ, tables as they were."""
    rng = np.random.default_rng(4)
    candidates = build([random_choice(rng, 5, 0.0, variant) for _ in range(2)])
    assert isinstance(candidates, ChoicePages)
    rows, ads = np.array([1, 0, 1]), np.array([[5, 1, 3], [2, 4, 1], [1, 2, 3]])
    slates = candidates.arrange(rows, ads)
    for i, (row, shown) in enumerate(zip(rows, ads, strict=True)):
        own = 5 * row + shown - 1
        page = PlainChoice(
            variant,
            candidates.theta[own],
            candidates.rho[own],
            candidates.stop[row, :4],
            candidates.gamma[row, :4, :3],
        )
        here = slice(3 * i, 3 * i + 3)
        np.testing.assert_allclose(slates.click_prob()[here], page.click_prob(), atol=CLOSE)
        assert slates.satisfaction_prob()[i] == pytest.approx(page.satisfaction_prob(), abs=CLOSE)
    doubled = replace(slates, rho=np.zeros(9))
    assert not doubled.satisfaction_prob().any()


def test_kernels_are_cached_between_processes(tmp_path: Path) -> None:
    script = (
        "import numpy as np; from reclick.clicks.choice import ChoicePages; "
        "from reclick.clicks import sequence_search, set_probability; "
        "half = np.full(2, 0.5); one = np.zeros(1, np.int64); "
        "stop, gamma = np.full((1, 3), 0.5), np.full((1, 3, 2), 0.5); "
        "p = ChoicePages('paper', half, half, stop, gamma, np.array([0, 2]), one); "
        "p.click_prob(); p.top_sequences(None, 2); "
        "kernels = set_probability.choice_marginals, sequence_search._search_each; "
        "assert all(sum(k.stats.cache_hits.values()) for k in kernels) or {first}"
    )
    environment = {**os.environ, "RECLICK_CACHE_DIR": str(tmp_path)}
    tmp_path.chmod(0o700)
    for first in (True, False):
        command = [sys.executable, "-c", script.replace("{first}", str(first))]
        subprocess.run(command, check=True, env=environment)


def test_each_kernel_is_compiled_for_one_signature() -> None:
    """Read-only and writable arrays, literals and variables: all meet the same kernels."""
    script = """
import numpy as np
from tests.support.click_families import FAMILIES, build, to_clicks
from reclick.clicks import sequence_search, set_probability, step
rng, rows, made = np.random.default_rng(0), np.arange(2), to_clicks([(1, 2), (2,)])
made.click.flags.writeable = False
for family in ("paper", "luce", "luce mixture", "chain"):
    pages = build([FAMILIES[family](rng, 3, 0.0)] * 2)
    for each in (pages, pages.select(rows)):
        each.log_prob(made), each.log_set_prob(made), each.next_click_prob(made)
        each.click_prob(), each.sample(rng), each.top_sequences(None, 2), each.ranks(made, rows)
modules = sequence_search, set_probability, step
kernels = {k for m in modules for k in vars(m).values() if hasattr(k, "signatures")}
assert len(kernels) > 8
twice = [k.py_func.__name__ for k in kernels if len(k.signatures) > 1]
assert not twice, twice
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])
