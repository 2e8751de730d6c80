"""The table of the worked example, all four rows, to the printed digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reclick.clicks import set_probability, step

THETA = np.array([0.5, 0.3, 0.2])
RHO = np.array([0.4, 0.6, 0.2])
ETA = np.array([0.3, 0.5, 0.6, 1.0])
OMEGA = np.array([0.5, 0.4, 0.3, math.nan])  # the last one is never used
GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
PAGES = {
    "leftover": (0, THETA, RHO, ETA, GAMMA),
    "examination": (1, THETA, RHO, ETA, GAMMA),
    "normalised": (2, THETA, RHO, ETA, GAMMA),
    "luce": (3, THETA, RHO, OMEGA, GAMMA),
}
SEQUENCES = ((), (1,), (1, 2), (2, 1), (3, 1, 2))
PROBABILITIES = {
    "leftover": (0.699, 0.225155, 0.015139, 0.001656, 0.000042),
    "examination": (0.699, 0.225155, 0.014941, 0.001599, 0.000060),
    "normalised": (0.3, 0.398837, 0.111674, 0.009279, 0.001302),
    "luce": (0.537634, 0.285347, 0.062687, 0.006452, 0.000839),
}
MARGINALS = {
    "leftover": (0.247606, 0.058950, 0.019739),
    "examination": (0.247775, 0.059095, 0.019993),
    "normalised": (0.590963, 0.251674, 0.102070),
    "luce": (0.388816, 0.147545, 0.054833),
}
PERPLEXITY = {
    "leftover": 4.119126,
    "examination": 4.115169,
    "normalised": 1.956378,
}  # of a session with clicks {1, 2}


def click_prob(reading: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    out = np.empty(3)
    set_probability.click_prob(*PAGES[reading], out)
    return out


@pytest.mark.parametrize("reading", PAGES)
def test_sequences_have_the_printed_probabilities(reading: str) -> None:
    got = [
        math.exp(step.log_prob(*PAGES[reading], np.array(clicks, np.int32))) for clicks in SEQUENCES
    ]
    assert [round(p, 6) for p in got] == list(PROBABILITIES[reading])


@pytest.mark.parametrize("reading", PAGES)
def test_positions_have_the_printed_marginals(reading: str) -> None:
    assert click_prob(reading).round(6).tolist() == list(MARGINALS[reading])


@pytest.mark.parametrize("reading", PERPLEXITY)
def test_a_session_has_the_printed_perplexity(reading: str) -> None:
    q = click_prob(reading)
    log_likelihood = np.log2([q[0], q[1], 1.0 - q[2]])
    assert round(2.0 ** -log_likelihood.mean(), 6) == PERPLEXITY[reading]


def test_a_sequence_by_hand() -> None:
    # leftover, clicks 2 then 1: (1−η0) θ2 γ02 · (1−ρ2)(1−η1) θ1 γ21 · (1 − (1−ρ1)(1−η2) θ3 γ13)
    by_hand = 0.7 * 0.3 * 0.2 * (0.4 * 0.5 * 0.5 * 0.4) * (1 - 0.6 * 0.4 * 0.2 * 0.3)
    assert math.exp(step.log_prob(*PAGES["leftover"], np.array([2, 1], np.int32))) == pytest.approx(
        by_hand, rel=1e-13
    )
    # luce, no click: ω0 / (ω0 + Σ θ γ0)
    assert math.exp(step.log_prob(*PAGES["luce"], np.array([], np.int32))) == pytest.approx(
        0.5 / (0.5 + 0.35 + 0.06 + 0.02), rel=1e-13
    )
