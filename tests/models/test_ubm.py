"""UBM: hand-worked cells, and recovery of what simulated data were made with. Brute force is in
tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.models import UBM
from tests.support.enumeration import Session, as_table

EXACT = {
    "attractiveness_strength": 0.0,
    "examination_strength": 0.0,
    "tolerance": 1e-12,
    "max_iterations": 20_000,
}


def test_the_cell_that_is_trained_is_the_cell_that_is_read() -> None:
    # Position 2 after a click at 1: clicked 3 of 6; without: 1 of 4. Maximum likelihood gives each
    # cell its own rate; reading another would show.
    rows = [(1, 2)] * 3 + [(1,)] * 3 + [(2,)] + [()] * 3
    log = as_table([Session("q", ("a", "b"), clicks) for clicks in rows])
    model = UBM(**EXACT).fit(log)  # type: ignore[arg-type]
    following = model.next_click_prob({"query": ["q"] * 2, "ads": [["a", "b"]] * 2}, [[], [1]])
    np.testing.assert_allclose(following, [[0.6, 0.4 * 0.25], [0.0, 0.5]], atol=1e-4)
    assert np.exp(model.log_set_prob(log)[[0, 3, 6, 7]]) == pytest.approx(
        [0.3, 0.3, 0.1, 0.3], abs=1e-4
    )


def test_what_follows_a_click_depends_on_which_click_it_was() -> None:
    # Position 3 after 1, after 2 (whether 1 was clicked too or not), and after nothing.
    rows = [(1, 3)] * 1 + [(1,)] * 3 + [(1, 2, 3)] * 3 + [(2,)] * 1 + [(3,)] * 2 + [()] * 2
    model = UBM(**EXACT).fit(as_table([Session("q", ("a", "b", "c"), clicks) for clicks in rows]))  # type: ignore[arg-type]
    following = model.next_click_prob(
        {"query": ["q"] * 3, "ads": [["a", "b", "c"]] * 3}, [[1], [2], [1, 2]]
    )
    np.testing.assert_allclose(following[:, 2], [4 / 7 * 1 / 4, 3 / 4, 3 / 4], atol=1e-4)


def test_the_parameters_of_simulated_sessions_are_recovered() -> None:
    """Products θγ, which is what can be learnt, within 0.02 on average, and γ as a share of its
    first within 0.06, from 60,000 sessions."""
    rng = np.random.default_rng(0)
    queries, ads = [f"q{i}" for i in range(10)], list("abcdef")
    pages = {"query": [], "ads": [], "clicks": []}  # type: dict[str, list[object]]
    for i in range(60_000):
        pages["query"].append(queries[i % 10])
        pages["ads"].append(rng.permutation(ads)[:4].tolist())
        pages["clicks"].append([])
    truth = UBM(max_iterations=1).fit(pages)
    truth.theta_ = rng.uniform(0.1, 0.9, len(truth.theta_))
    truth.gamma_ = np.triu(
        np.array([1.0, 0.8, 0.6, 0.5, 0.4])[:, None]
        * np.array([1.0, 0.7, 0.5, 0.3]) ** np.array([[1.0]] + [[0.5]] * 4),
        k=0,
    )
    learnt = UBM(tolerance=1e-6, max_iterations=2000).fit(
        {**pages, "clicks": truth.sample(pages, 1).to_pylist()}
    )
    scale = learnt.gamma_[0, 0] / truth.gamma_[0, 0]
    for last in range(4):
        for position in range(last, 4):
            made, found = (
                truth.theta_ * truth.gamma_[last, position],
                learnt.theta_ * learnt.gamma_[last, position],
            )
            assert np.abs(made - found).mean() < 0.02
            assert learnt.gamma_[last, position] / scale == pytest.approx(
                truth.gamma_[last, position], abs=0.06
            )
