"""The table of the worked example, all four rows, to the printed digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from reclick.clicks.choice import ChoicePages, Variant
from reclick.clicks.distribution import Clicks

THETA = np.array([0.5, 0.3, 0.2])
RHO = np.array([0.4, 0.6, 0.2])
ETA = np.array([0.3, 0.5, 0.6, 1.0])
OMEGA = np.array([0.5, 0.4, 0.3, math.nan])  # the last one is never used
GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
STOP = {"paper": ETA, "examination": ETA, "normalised": ETA, "luce": OMEGA}
SEQUENCES = ((), (1,), (1, 2), (2, 1), (3, 1, 2))
PROBABILITIES = {
    "paper": (0.699, 0.225155, 0.015139, 0.001656, 0.000042),
    "examination": (0.699, 0.225155, 0.014941, 0.001599, 0.000060),
    "normalised": (0.3, 0.398837, 0.111674, 0.009279, 0.001302),
    "luce": (0.537634, 0.285347, 0.062687, 0.006452, 0.000839),
}
MARGINALS = {
    "paper": (0.247606, 0.058950, 0.019739),
    "examination": (0.247775, 0.059095, 0.019993),
    "normalised": (0.590963, 0.251674, 0.102070),
    "luce": (0.388816, 0.147545, 0.054833),
}
PERPLEXITY = {
    "paper": 4.119126,
    "examination": 4.115169,
    "normalised": 1.956378,
}  # of a session with clicks {1, 2}


def pages(variant: Variant, count: int = 1) -> ChoicePages:
    """The page of the example, so many times."""
    return ChoicePages(
        variant,
        np.tile(THETA, count),
        np.tile(RHO, count),
        STOP[variant][None],
        GAMMA[None],
        np.arange(count + 1) * 3,
        np.zeros(count, np.int64),
    )


def sequence_prob(variant: Variant, sequences: Sequence[tuple[int, ...]]) -> list[float]:
    click = np.array([position for clicks in sequences for position in clicks], np.int32)
    starts = np.cumsum([0, *map(len, sequences)])
    log_prob = pages(variant, len(sequences)).log_prob(Clicks(click, starts))
    return [float(p) for p in np.exp(log_prob)]


@pytest.mark.parametrize("variant", STOP)
def test_sequences_have_the_printed_probabilities(variant: Variant) -> None:
    got = sequence_prob(variant, SEQUENCES)
    assert [round(p, 6) for p in got] == list(PROBABILITIES[variant])


@pytest.mark.parametrize("variant", STOP)
def test_positions_have_the_printed_marginals(variant: Variant) -> None:
    assert pages(variant).click_prob().round(6).tolist() == list(MARGINALS[variant])


@pytest.mark.parametrize("variant", PERPLEXITY)
def test_a_session_has_the_printed_perplexity(variant: Variant) -> None:
    q = pages(variant).click_prob()
    log_likelihood = np.log2([q[0], q[1], 1.0 - q[2]])
    assert round(2.0 ** -log_likelihood.mean(), 6) == PERPLEXITY[variant]


def test_a_sequence_by_hand() -> None:
    # paper, clicks 2 then 1: (1−η0) θ2 γ02 · (1−ρ2)(1−η1) θ1 γ21 · (1 − (1−ρ1)(1−η2) θ3 γ13)
    by_hand = 0.7 * 0.3 * 0.2 * (0.4 * 0.5 * 0.5 * 0.4) * (1 - 0.6 * 0.4 * 0.2 * 0.3)
    assert sequence_prob("paper", [(2, 1)]) == pytest.approx([by_hand], rel=1e-13)
    # luce, no click: ω0 / (ω0 + Σ θ γ0)
    no_click = 0.5 / (0.5 + 0.35 + 0.06 + 0.02)
    assert sequence_prob("luce", [()]) == pytest.approx([no_click], rel=1e-13)
