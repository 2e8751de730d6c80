"""PBM: a hand-worked example, its posterior, and recovery of what simulated data were made with.
Brute force is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from reclick.models import PBM
from tests.support.enumeration import Session, as_table


def test_two_ads_that_change_places_by_hand() -> None:
    # θ_a = 0.8, θ_b = 0.4 and γ_2 / γ_1 = 0.5 fit these rates exactly: a on top 8 of 10, b below it
    # 2 of 10, b on top 4 of 10, a below it 4 of 10.
    above = [(1, 2)] * 2 + [(1,)] * 6 + [()] * 2
    below = [(1, 2)] * 4 + [()] * 6
    log = [Session("q", ("a", "b"), clicks) for clicks in above] + [
        Session("q", ("b", "a"), clicks) for clicks in below
    ]
    model = PBM(
        attractiveness_strength=0, examination_strength=0, tolerance=1e-12, max_iterations=20_000
    ).fit(as_table(log))
    np.testing.assert_allclose(
        model.click_prob({"query": ["q"] * 2, "ads": [["a", "b"], ["b", "a"]]}),
        [[0.8, 0.2], [0.4, 0.4]],
        atol=1e-4,
    )
    assert model.gamma_[1] / model.gamma_[0] == pytest.approx(0.5, abs=1e-3)
    assert model.theta_[1] / model.theta_[0] == pytest.approx(0.5, abs=1e-3)


def test_intervals_hold_their_share_of_the_posterior_by_numerical_integration() -> None:
    rows = [
        Session("q", ("a", "b", "c"), clicks) for clicks in [(1,), (1, 2), (3,), (), (1,), (2,)]
    ] + [Session("q", ("c", "a"), ())] * 2
    model = PBM(attractiveness_strength=2.0, attractiveness_prior=0.3).fit(as_table(rows))
    table = model.relevance(level=0.8).to_pydict()
    for ad, low, high in zip(
        table["ad"], table["attractiveness_low"], table["attractiveness_high"], strict=True
    ):
        places = [(s.ads.index(ad), s.ads.index(ad) + 1 in s.clicks) for s in rows if ad in s.ads]
        clicks = sum(clicked for _, clicked in places)

        def rest(x: float, places: list[tuple[int, bool]] = places) -> float:
            return float(
                np.prod([1 - model.gamma_[place] * x for place, clicked in places if not clicked])
            )

        a = 0.6 + clicks - 1
        whole = integrate.quad(rest, 0, 1, weight="alg", wvar=(a, 0.4))[0]
        for x, share in ((low, 0.1), (high, 0.9)):
            part = (
                x ** (a + 1)
                * integrate.quad(
                    lambda t, x=x: rest(t * x) * (1 - t * x) ** 0.4, 0, 1, weight="alg", wvar=(a, 0)
                )[0]
            )
            assert part / whole == pytest.approx(share, abs=1e-6)


def test_the_parameters_of_simulated_sessions_are_recovered() -> None:
    """Products θγ, which is what can be learnt, within 0.02 on average, and γ as a share of its
    first within 0.05, from 30,000 sessions."""
    rng = np.random.default_rng(0)
    pages = {
        "query": [f"q{i % 10}" for i in range(30_000)],
        "ads": [rng.permutation(list("abcdef"))[:4].tolist() for _ in range(30_000)],
    }
    truth = PBM(max_iterations=1).fit({**pages, "clicks": [[]] * 30_000})
    truth.theta_ = rng.uniform(0.1, 0.9, len(truth.theta_))
    truth.gamma_ = np.array([1.0, 0.7, 0.5, 0.2])
    learnt = PBM(tolerance=1e-6, max_iterations=2000).fit(
        {**pages, "clicks": truth.sample(pages, 1).to_pylist()}
    )
    np.testing.assert_allclose(learnt.gamma_ / learnt.gamma_[0], truth.gamma_, atol=0.05)
    assert (
        np.abs(np.outer(truth.theta_, truth.gamma_) - np.outer(learnt.theta_, learnt.gamma_)).mean()
        < 0.02
    )
