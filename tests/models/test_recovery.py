"""Draw sessions from known parameters, fit, and compare what counting can recover; and how often
intervals hold the truth.

Counting credits every stop to satisfaction and to fatigue at once, so it does not in general
recover η and ρ. What it converges to is known: η̂_k → P(end | k clicks), γ̂_lj → P(j | a click
follows one at l), ρ̂ → P(a click is the last). Where users are never satisfied, find all ads
equally attractive and click at most twice, these are η and γ themselves (with two clicks at most, a
click at l is followed by any position but l: nothing else is taken). Otherwise the limits are
worked out here by enumeration. Tolerances: four standard errors of each share, as some twenty are
compared at once: right code fails one seed in a thousand, and seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from reclick.clicks.choice import ChoicePages, Variant
from reclick.models import MultiClick
from reclick.simulation import simulate
from tests.support.click_families import PlainChoice
from tests.support.enumeration import all_sequences

Float64 = npt.NDArray[np.float64]
GAMMA = np.array(
    [
        [0.5, 0.3, 0.15, 0.05],
        [0.0, 0.6, 0.3, 0.1],
        [0.3, 0.0, 0.5, 0.2],
        [0.4, 0.3, 0.0, 0.3],
        [0.6, 0.3, 0.1, 0.0],
    ]
)
AT_MOST_TWO = np.array([0.3, 0.55, 1.0, 1.0, 1.0])
ADS = ["a", "b", "c", "d"]


def drawn(
    variant: Variant, theta: Float64, rho: Float64, eta: Float64, count: int, seed: int
) -> pa.Table:
    pages = ChoicePages(
        variant,
        np.tile(theta, count),
        np.tile(rho, count),
        eta[None],
        GAMMA[None],
        np.arange(count + 1) * 4,
        np.zeros(count, np.int64),
    )
    click, clicks = pages.sample(np.random.default_rng(seed))
    return pa.table(
        {
            "query": ["q"] * count,
            "ads": pa.ListArray.from_arrays(
                pa.array(np.arange(count + 1, dtype=np.int32) * 4), pa.array(ADS * count)
            ),
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    )


def limits(
    variant: str, theta: Float64, rho: Float64, eta: Float64
) -> tuple[Float64, Float64, Float64, float]:
    """P(exactly k clicks), P(more than k), expected transitions a session, and P(a click is the
    last), by enumeration."""
    exactly, moves, clicks = np.zeros(5), np.zeros((5, 4)), 0.0
    for sequence in all_sequences(4):
        chance = PlainChoice(variant, theta, rho, eta, GAMMA).probability(sequence)
        exactly[len(sequence)] += chance
        clicks += chance * len(sequence)
        for last, to in zip((0, *sequence), sequence, strict=False):
            moves[last, to - 1] += chance
    return exactly, 1 - np.cumsum(exactly), moves, float((1 - exactly[0]) / clicks)


def assert_within_four_errors(got: Float64, share: Float64, trials: Float64) -> None:
    seen = trials > 50
    error = np.sqrt(np.maximum(share * (1 - share), 1e-12) / np.maximum(trials, 1))
    assert seen.any()
    assert (np.abs(got - share) <= 4 * error + 1e-5)[seen].all()


def test_where_counting_is_consistent_fatigue_and_transitions_are_recovered() -> None:
    size = 100_000
    theta, rho = np.full(4, 0.4), np.zeros(4)
    model = MultiClick(pooling="global").fit(drawn("normalised", theta, rho, AT_MOST_TWO, size, 1))
    exactly, more, moves, last = limits("normalised", theta, rho, AT_MOST_TWO)
    assert_within_four_errors(
        model.eta_[:3], AT_MOST_TWO[:3], size * (exactly + more)[:3]
    )  # η itself, not only the limit
    assert_within_four_errors(
        model.gamma_, GAMMA, size * moves.sum(axis=1, keepdims=True) * np.ones((1, 4))
    )
    # … and yet users who are never satisfied are counted as satisfied whenever they stop:
    assert last > 0.6
    assert model.satisfaction_ == pytest.approx(last, abs=3 * np.sqrt(0.25 / size))


@pytest.mark.parametrize("variant", ["paper", "examination", "normalised"])
def test_counting_converges_to_the_expectation_of_its_counts(variant: Variant) -> None:
    size = 60_000
    theta, rho, eta = (
        np.array([0.8, 0.5, 0.6, 0.9]),
        np.array([0.2, 0.5, 0.3, 0.4]),
        np.array([0.2, 0.3, 0.4, 0.5, 1.0]),
    )
    model = MultiClick(variant=variant, pooling="global").fit(
        drawn(variant, theta, rho, eta, size, 2)
    )
    exactly, more, moves, last = limits(variant, theta, rho, eta)
    reached = exactly + more
    share = exactly[:4] / reached[:4]
    assert_within_four_errors(model.eta_[:4], share, size * reached[:4])
    assert (
        share[1:] > eta[1:4] + 0.1
    ).all()  # every stop is credited to fatigue, also those of the satisfied
    left = moves.sum(axis=1, keepdims=True)
    assert_within_four_errors(model.gamma_, moves / left, size * left * np.ones((1, 4)))
    assert model.satisfaction_ == pytest.approx(last, abs=3 * np.sqrt(0.25 / size))
    # satisfaction of an ad converges to the share of its clicks after which the session ends, above
    # its true value
    by_ad = model.relevance()
    assert (np.array(by_ad["satisfaction"]) > rho).all()


def test_a_constant_satisfaction_and_fatigue_are_known_only_together() -> None:
    # Stopping after the first click has probability r + (1 − r) η_1: two users with different r and
    # η_1 leave the same counts.
    size, theta = 60_000, np.full(4, 0.5)
    patient = drawn(
        "normalised", theta, np.full(4, 0.5), np.array([0.2, 0.2, 1.0, 1.0, 1.0]), size, 3
    )
    satisfied = drawn(
        "normalised", theta, np.full(4, 0.2), np.array([0.2, 0.5, 1.0, 1.0, 1.0]), size, 4
    )
    one, two = (
        MultiClick(pooling="global").fit(patient),
        MultiClick(pooling="global").fit(satisfied),
    )
    for model in (one, two):
        assert_within_four_errors(model.eta_[1:2], np.array([0.6]), np.array([0.8 * size]))
    assert one.satisfaction_ == pytest.approx(two.satisfaction_, abs=0.01)


def test_attractive_ads_of_a_simulated_market_are_found() -> None:
    # Words are shared by ads and positions are not corrected for, so the level is not recovered;
    # the order within a query is, mostly.
    market = simulate(60_000, weeks=1, queries=15, page=(4, 4), seed=5)
    model = MultiClick().fit(market.weeks[0], ads=market.ads)
    truth = market.truth.pairs
    table = model.relevance(truth.select(["query", "ad"]))
    seen = np.array(table["impressions"]) >= 300
    query = np.array(truth["query"])[seen]
    true, got = np.array(truth["attractiveness"])[seen], np.array(table["attractiveness"])[seen]
    agree = np.sign(true[:, None] - true) * np.sign(got[:, None] - got)
    assert seen.sum() > 60
    assert (
        agree[query[:, None] == query].sum() / (agree[query[:, None] == query] != 0).sum() > 0.4
    )  # 0 would be chance, 1 perfect order


# ---- intervals


def rates_log(clicks: npt.NDArray[np.int64], impressions: npt.NDArray[np.int64]) -> pa.Table:
    """One query and one ad each, shown alone: clicked sessions and others, as two weighted rows."""
    names = [str(i) for i in range(len(clicks))] * 2
    weight = np.concatenate([clicks, impressions - clicks]).astype(float)
    lists = pa.array([[1]] * len(clicks) + [[]] * len(clicks), pa.list_(pa.int64()))
    table = pa.table(
        {
            "query": names,
            "ads": [[f"ad{name}"] for name in names],
            "clicks": lists,
            "weight": weight,
        }
    )
    return table.filter(pa.array(weight > 0))


def covered(table: pa.Table, name: str, truth: Float64) -> float:
    low, high = np.array(table[f"{name}_low"]), np.array(table[f"{name}_high"])
    return float(((low <= truth) & (truth <= high)).mean())


def asked(model: MultiClick, count: int, level: float = 0.9) -> pa.Table:
    return model.relevance(
        pa.table({"query": [str(i) for i in range(count)], "ad": [f"ad{i}" for i in range(count)]}),
        level=level,
    )


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_of_attractiveness_hold_the_click_rate_as_often_as_they_say(level: float) -> None:
    rng = np.random.default_rng(6)
    rate, impressions = rng.uniform(0.02, 0.9, 4_000), rng.integers(5, 300, 4_000)
    model = MultiClick().fit(rates_log(rng.binomial(impressions, rate), impressions))
    assert abs(covered(asked(model, 4_000, level), "attractiveness", rate) - level) < 0.05


@pytest.mark.parametrize("strength", [2.0, 10.0])
def test_intervals_of_satisfaction_hold_the_truth_as_often_as_they_say(strength: float) -> None:
    # ρ of each ad from the prior itself: mean 1/2, as in a history where every clicked session has
    # two clicks.
    rng = np.random.default_rng(7)
    size = 3_000
    rho, clicks = rng.beta(strength / 2, strength / 2, size), rng.integers(1, 60, size)
    last = rng.binomial(clicks, rho)
    names = [str(i) for i in range(size)] * 2
    lists = pa.array([[1]] * size + [[1, 2]] * size, pa.list_(pa.int64()))
    weight = np.concatenate([last, clicks - last]).astype(float)
    log = pa.table(
        {
            "query": names,
            "ads": [[f"ad{name}", "next"] for name in names],
            "clicks": lists,
            "weight": weight,
        }
    )
    history = {"query": ["h"], "ads": [["x", "y"]], "clicks": [[1, 2]]}
    model = MultiClick(satisfaction_strength=strength).fit(
        log.filter(pa.array(weight > 0)), history=history
    )
    assert 0.87 < covered(asked(model, size), "satisfaction", rho) < 0.93


def test_intervals_of_ads_of_many_words_hold_what_their_words_average_to() -> None:
    # The truth here is what the formula estimates: the mean over the ad's words of the click rate
    # of the impressions that show the word.
    rng = np.random.default_rng(8)
    ads, words, length = 1_500, 300, 5
    text = np.array([rng.choice(words, length, replace=False) for _ in range(ads)])
    rate, impressions = rng.uniform(0.02, 0.4, ads), rng.integers(5, 100, ads)
    shown, clicked = np.zeros(words), np.zeros(words)
    for place in range(length):
        np.add.at(shown, text[:, place], impressions)
        np.add.at(clicked, text[:, place], impressions * rate)
    truth = (clicked / np.maximum(shown, 1))[text].mean(axis=1)
    titles = [" ".join(f"word{w}" for w in row) for row in text]
    copy = pa.table({"ad": [f"ad{i}" for i in range(ads)], "title": titles})
    model = MultiClick(min_query_sessions=1e9).fit(
        rates_log(rng.binomial(impressions, rate), impressions), ads=copy
    )
    assert covered(asked(model, ads), "attractiveness", truth) >= 0.88
