"""Redundancy: clicked ads take weight from those that repeat them. Vectors and brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.clicks.mixture import MixturePages
from tests.golden.test_worked_example import GAMMA, pages
from tests.support.click_families import all_sequences, to_clicks

# Words: 1 {cheap .4, pizza .8}, 2 {pizza .8, fresh .6}, 3 {sushi .7}; a word seen is worth 1/e.
SEEN = 1 - np.exp(-1)
OVERLAP = np.zeros((3, 3))
OVERLAP[0, 1], OVERLAP[1, 0] = SEEN * 0.8 / 1.4, SEEN * 0.8 / 1.2


def luce_pages(kappa: float, count: int) -> ChoicePages:
    return ChoicePages(
        "luce",
        np.tile([1.5, 0.8, 0.4], count),
        np.tile([0.4, 0.6, 0.2], count),
        np.array([[1.0, 1.5, 2.0, 1.0]]),
        GAMMA[None],
        np.arange(count + 1) * 3,
        np.zeros(count, np.int64),
        kappa,
        np.tile(OVERLAP, (count, 1, 1)),
    )


def paper_pages(kappa: float, count: int) -> ChoicePages:
    overlap = np.tile(OVERLAP, (count, 1, 1))
    return replace(pages("paper", count), redundancy=kappa, overlap=overlap)


LUCE = {
    (): 0.444444444, (1,): 0.395598440, (2,): 0.062663500, (3,): 0.012054892,
    (1, 2): 0.052024241, (1, 3): 0.014531504, (2, 1): 0.005069880, (2, 3): 0.002870236,
    (3, 1): 0.002300034, (3, 2): 0.002964343, (1, 2, 3): 0.002329444, (1, 3, 2): 0.002183038,
    (2, 1, 3): 0.000178238, (2, 3, 1): 0.000329257, (3, 1, 2): 0.000249767,
    (3, 2, 1): 0.000208742,
}  # fmt: skip
PAPER = {
    (): 0.699, (1,): 0.229834407, (2,): 0.039889721, (3,): 0.011984, (1, 2): 0.010549086,
    (1, 3): 0.004203493, (2, 1): 0.001086406, (2, 3): 0.000976254, (3, 1): 0.000810499,
    (3, 2): 0.001151309, (1, 2, 3): 0.000206507, (1, 3, 2): 0.000206507, (2, 1, 3): 0.000015873,
    (2, 3, 1): 0.000031746, (3, 1, 2): 0.000029501, (3, 2, 1): 0.000024691,
}  # fmt: skip

LUCE_WITHOUT = {
    (): 0.444444444, (1,): 0.379327217, (2,): 0.060900285, (3,): 0.012054892,
    (1, 2): 0.068844037, (1, 3): 0.012715596, (2, 1): 0.007045745, (2, 3): 0.002488703,
    (3, 1): 0.002215139, (3, 2): 0.002880185, (1, 2, 3): 0.003082569, (1, 3, 2): 0.002697248,
    (2, 1, 3): 0.000247702, (2, 3, 1): 0.000428676, (3, 1, 2): 0.000334661,
    (3, 2, 1): 0.000292900,
}  # fmt: skip
PAPER_WITHOUT = {
    (): 0.699, (1,): 0.225155, (2,): 0.039312, (3,): 0.011984, (1, 2): 0.015138648,
    (1, 3): 0.004113648, (2, 1): 0.001655808, (2, 3): 0.000959616, (3, 1): 0.000797664,
    (3, 2): 0.001138368, (1, 2, 3): 0.000296352, (1, 3, 2): 0.000296352, (2, 1, 3): 0.000024192,
    (2, 3, 1): 0.000048384, (3, 1, 2): 0.000042336, (3, 2, 1): 0.000037632,
}  # fmt: skip


def test_the_overlap_of_the_example() -> None:
    assert OVERLAP[0, 1] == pytest.approx(0.361211748, abs=6e-10)
    assert OVERLAP[1, 0] == pytest.approx(0.421413706, abs=6e-10)


@pytest.mark.parametrize(
    ("make", "kappa", "expected", "clicked"),
    [
        (luce_pages, 0.0, LUCE_WITHOUT, (0.477231491, 0.149242711, 0.039438272)),
        (luce_pages, 1.0, LUCE, (0.475002585, 0.131070686, 0.040199495)),
        (paper_pages, 0.0, PAPER_WITHOUT, (0.247606016, 0.058949688, 0.019738544)),
        (paper_pages, 1.0, PAPER, (0.246998716, 0.054167602, 0.019640380)),
    ],
)
def test_every_sequence_to_the_printed_digits(
    make: Any, kappa: float, expected: Any, clicked: Any
) -> None:
    found = make(kappa, len(expected))
    chances = np.exp(found.log_prob(to_clicks(list(expected))))
    np.testing.assert_allclose(chances, list(expected.values()), rtol=0, atol=6e-10)
    np.testing.assert_allclose(found.click_prob()[:3], clicked, atol=6e-10)
    without = replace(found, overlap=None, redundancy=0.0)
    none = replace(found, redundancy=0.0)
    np.testing.assert_array_equal(without.click_prob(), none.click_prob())


@pytest.mark.parametrize("variant", ["paper", "examination", "normalised", "luce"])
def test_answers_are_sums_over_all_sequences(variant: Any) -> None:
    rng = np.random.default_rng(5)
    n, kappa = 4, 1.7
    overlap = rng.uniform(0, 0.6, (1, n, n))
    theta, rho, gamma = (
        rng.uniform(0.1, 0.5, n),
        rng.uniform(0.1, 0.6, n),
        rng.dirichlet(np.ones(n), n + 1),
    )
    stop = np.append(rng.uniform(0.1, 0.6, n), 1.0)
    page = ChoicePages(
        variant, theta, rho, stop[None], gamma[None], np.array([0, n]), np.zeros(1, np.int64),
        kappa, overlap,
    )  # fmt: skip
    sequences = list(all_sequences(n))
    expected = [plain_chance(variant, page, each) for each in sequences]
    both = list(zip(sequences, expected, strict=True))
    many = page.select(np.zeros(len(sequences), np.int64))
    np.testing.assert_allclose(np.exp(many.log_prob(to_clicks(sequences))), expected, atol=1e-12)
    assert sum(expected) == pytest.approx(1.0)
    marginal = [
        sum(p for c, p in zip(sequences, expected, strict=True) if j in c) for j in range(1, n + 1)
    ]
    np.testing.assert_allclose(page.click_prob(), marginal, atol=1e-12)
    sets = np.exp(many.log_set_prob(to_clicks(sequences)))
    for clicks, p in zip(sequences, sets, strict=True):
        same = [q for c, q in both if set(c) == set(clicks)]
        assert p == pytest.approx(sum(same), abs=1e-12)
    best = page.top_sequences(None, 5)
    np.testing.assert_allclose(best.probabilities[0], sorted(expected, reverse=True)[:5])
    order = np.array([[3, 1, 4]])
    moved = page.arrange(np.zeros(1, np.int64), order)
    assert moved.overlap is not None
    np.testing.assert_array_equal(moved.overlap[0], overlap[0][np.ix_(order[0] - 1, order[0] - 1)])


def test_a_mixture_has_redundancy_in_its_components() -> None:
    parts = luce_pages(1.0, 16), paper_pages(0.0, 16)
    mixed = MixturePages(parts, np.tile([0.4, 0.6], (16, 1)))
    clicks = to_clicks(list(LUCE))
    expected = 0.4 * np.exp(parts[0].log_prob(clicks)) + 0.6 * np.exp(parts[1].log_prob(clicks))
    np.testing.assert_allclose(np.exp(mixed.log_prob(clicks)), expected)
    best = mixed.select(np.zeros(1, np.int64)).top_sequences(None, 3).probabilities[0]
    np.testing.assert_allclose(best, sorted(expected, reverse=True)[:3])


def plain_chance(variant: str, page: ChoicePages, clicks: tuple[int, ...]) -> float:
    """P(clicks, then the end) click by click."""
    chance, last, done = 1.0, 0, list[int]()
    assert page.overlap is not None
    for goal in (*clicks, 0):
        free = [j for j in range(4) if j + 1 not in done]
        weight = {}
        for j in free:
            kept = np.prod([1 - page.overlap[0, i - 1, j] for i in done])
            attracts = page.theta[j] * np.exp(-page.redundancy * (1 - kept))
            weight[j] = attracts * page.gamma[0, last, j]
        total, stop = sum(weight.values()), page.stop[0, len(done)]
        outside = {
            "paper": 1 - total,
            "examination": sum(page.gamma[0, last, j] for j in free) - total,
            "normalised": 0.0,
            "luce": stop,
        }[variant]
        go = (1 - page.rho[last - 1] if last else 1.0) * (1.0 if variant == "luce" else 1 - stop)
        if not free:
            return chance
        moves = {j: go * w / (outside + total) for j, w in weight.items()}
        if not goal:
            return float(chance * (1 - sum(moves.values())))
        chance *= moves[goal - 1]
        last = goal
        done.append(goal)
    return chance
