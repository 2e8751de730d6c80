"""POM: a worked example, brute force over the walks, EM, THCM as a special case, and recovery."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.models import POM, THCM
from reclick.models.pom import POMParameters, e_step, extend_moves, prior_moves
from tests.support.cascades import assert_never_falls, drawn, random_pages, spread, with_values
from tests.support.enumeration import Clicks, Session, as_table, random_sessions

THETA = np.array([0.5, 0.3, 0.2])
MOVES = np.array(
    [[0.7, 0.15, 0.05, 0.1], [0, 0.6, 0.1, 0.3], [0.2, 0, 0.5, 0.3], [0.1, 0.3, 0, 0.6]]
)
SEQUENCES: dict[Clicks, float] = {
    (): 0.427469997,
    (1,): 0.269633904,
    (2,): 0.096107847,
    (3,): 0.038893422,
    (1, 2): 0.077918698,
    (1, 3): 0.025944879,
    (2, 1): 0.017696987,
    (2, 3): 0.015149281,
    (3, 1): 0.003139005,
    (3, 2): 0.004843599,
    (1, 2, 3): 0.01308712,
    (1, 3, 2): 0.004195937,
    (2, 1, 3): 0.002201118,
    (2, 3, 1): 0.001764108,
    (3, 1, 2): 0.001011029,
    (3, 2, 1): 0.000943068,
}


def page(clicks: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), each) for each in clicks])


def the_model() -> POM:
    model = POM(max_iterations=1).fit(page([()]))
    model.theta_, model.moves_ = THETA, MOVES
    return model


def test_sequences_have_the_probabilities_of_the_worked_example() -> None:
    model, every = the_model(), list(SEQUENCES)
    got = np.exp(model.log_prob(page(every)))
    np.testing.assert_allclose(got, list(SEQUENCES.values()), atol=6e-10)
    assert got.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(
        model.click_prob(("q", list("abc")))[0], [0.417535854, 0.234918794, 0.111172566], atol=6e-10
    )


def test_on_one_ad_it_is_worked_out_by_hand() -> None:
    # Examined with .7, or the walk goes off this page or ends; then clicked with .5, or it ends.
    np.testing.assert_allclose(the_model().click_prob(("q", ["a"])), [[0.35]])


def walks(clicks: Clicks) -> tuple[float, Float64, Float64]:
    """P(clicks), expected moves and expected skips: all walks, until 1e-15 of them still go on.

    A state is (position, clicks so far); it carries its probability, and the moves and skips on
    the way times that.
    """
    size = len(THETA)
    zero = np.zeros(1 + MOVES.size + size)
    going: dict[tuple[int, Clicks], Float64] = {(0, ()): zero.copy()}
    going[0, ()][0] = 1.0
    done = zero.copy()
    while sum(each[0] for each in going.values()) > 1e-15:
        then: dict[tuple[int, Clicks], Float64] = defaultdict(zero.copy)
        for (position, so_far), carried in going.items():
            for to in range(size + 1):
                moved = carried * MOVES[position, to]
                moved[1 + position * (size + 1) + to] += moved[0]
                if to == size:
                    if so_far == clicks:
                        done += moved
                    continue
                ad = to + 1
                if ad in so_far:
                    then[ad, so_far] += moved
                    continue
                then[ad, (*so_far, ad)] += moved * THETA[to]
                skipped = moved * (1 - THETA[to])
                skipped[1 + MOVES.size + to] += skipped[0]
                then[ad, so_far] += skipped
        going = dict(then)
    expected = done[1:] / done[0]
    return done[0], expected[: MOVES.size].reshape(MOVES.shape), expected[MOVES.size :]


@pytest.mark.parametrize("clicks", [(), (1,), (3, 1), (2, 3, 1), (1, 2, 3)])
def test_the_expectations_are_those_of_brute_force(clicks: Clicks) -> None:
    probability, moves, skips = walks(clicks)
    assert probability == pytest.approx(SEQUENCES[clicks], abs=6e-10)
    found = e_step(POMParameters(THETA, MOVES), as_grouped(page([clicks])).whole)
    assert found.log_likelihood == pytest.approx(np.log(probability), rel=1e-12)
    np.testing.assert_allclose(found.totals["moves"], moves, atol=1e-12)
    np.testing.assert_allclose(found.pairs["skips"], skips, atol=1e-12)


def test_with_single_steps_it_is_thcm() -> None:
    log = page(list(SEQUENCES))
    thcm = THCM(max_iterations=1).fit(log)
    model = the_model()
    model.theta_ = thcm.theta_
    forward, back = thcm.forward_, thcm.back_
    stop = 1 - forward - back
    model.moves_ = np.array(
        [
            [1, 0, 0, 0],
            [0, forward, 0, stop + back],
            [back, 0, forward, stop],
            [0, back, 0, stop + forward],
        ]
    )
    np.testing.assert_allclose(model.log_prob(log), thcm.log_prob(log), rtol=1e-10)
    np.testing.assert_allclose(model.click_prob(log), thcm.click_prob(log), rtol=1e-10)


@pytest.mark.parametrize("strength", [0, 3])
def test_the_objective_never_falls(strength: float) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 80))
    model = POM(
        attractiveness_strength=strength, transition_strength=strength, max_iterations=3000
    ).fit(log)
    assert_never_falls(model.objective_)
    assert model.converged_
    assert not POM(max_iterations=2, tolerance=0).fit(log).converged_


def test_a_fit_is_where_one_more_step_changes_nothing() -> None:
    log = as_table(random_sessions(np.random.default_rng(4), 120))
    model = POM(
        attractiveness_prior=0.3,
        attractiveness_strength=3,
        max_iterations=5000,
        tolerance=1e-13,
    ).fit(log)
    sessions = as_grouped(log)
    found = e_step(POMParameters(model.theta_, model.moves_), sessions.whole)
    clicks, moves = sessions.counts.clicks, found.totals["moves"]
    theta = (clicks + 3 * 0.3) / (clicks + found.pairs["skips"] + 3)
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-3)
    rows = moves.sum(axis=1, keepdims=True)
    means = prior_moves(sessions.max_ads)
    np.testing.assert_allclose(model.moves_, (moves + 5 * means) / (rows + 5), atol=1e-3)


def test_the_distribution_is_recovered_from_its_own_samples() -> None:
    # Tolerance: 0.01 for marginals, 0.03 for P(next click). θ and V are not identified apart.
    pages = random_pages(40_000, 6, 3, seed=1)
    truth = with_values(POM(), pages, theta_=spread(6, 0.2, 0.7), moves_=MOVES)
    model = POM(max_iterations=500, tolerance=1e-7).fit(drawn(truth, pages, 2))
    some = pages[:40]
    np.testing.assert_allclose(model.click_prob(some), truth.click_prob(some), atol=0.01)
    for clicks in ([1], [2], [3, 1]):
        got, true = (each.next_click_prob(some, [clicks] * 40) for each in (model, truth))
        np.testing.assert_allclose(got, true, atol=0.03)


def test_a_page_longer_than_any_in_the_log_is_answered() -> None:
    table = extend_moves(MOVES, 6)
    np.testing.assert_allclose(table.sum(axis=1), 1)
    assert (np.diag(table[1:, :-1]) == 0).all()
    model, ads = the_model(), list("abcabcabcabcabc")
    chances = model.click_prob(("q", ads))[0]
    pages = {"query": ["q"] * 20_000, "ads": [ads] * 20_000}
    rates = np.bincount(np.asarray(model.sample(pages, 2).values) - 1, minlength=15) / 20_000
    np.testing.assert_allclose(rates, chances, atol=0.02)  # more than five standard deviations
