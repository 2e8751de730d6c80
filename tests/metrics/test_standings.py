"""The rank kernel against sorting all sequences, on pages full of ties and impossible sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reclick.clicks import choice, ranks, step
from reclick.clicks import distribution as pg
from reclick.data.batch import Float64
from reclick.errors import CannotAnswerError
from tests.support.plain_metrics import tied

Parameters = tuple[int, Float64, Float64, Float64, Float64]
SIZES = [
    (n, m) for n in range(1, 7) for m in range(1, min(n, 4) + 1)
]  # of pages, and of sessions on them


def coarse_page(rng: np.random.Generator, reading: int, n: int) -> Parameters:
    """Parameters of few values, zeros among them, so that many sequences are equally likely or impossible; now and then all are alike."""
    theta, rho, stop = (
        rng.choice([0.0, 0.3, 0.3, 0.6], n),
        rng.choice([0.0, 0.5, 0.5], n),
        rng.choice([0.2, 0.2, 1.0], n + 1),
    )
    gamma = rng.choice([0.0, 1.0, 1.0, 2.0], (n + 1, n))
    if rng.random() < 0.3:
        theta[:], rho[:], stop[:], gamma[:] = 0.3, 0.5, 0.2, 1.0
    gamma /= np.maximum(gamma.sum(axis=1, keepdims=True), 1e-300)
    if reading == choice.CHAIN:  # down the page only, and the rest ends the session
        gamma = np.where(np.arange(n) >= np.arange(n + 1)[:, None], gamma * 0.7, 0.0)
        return reading, np.ones(n), np.zeros(n), 1 - gamma.sum(axis=1), gamma
    if reading == choice.WALK:
        return reading, theta, rho, np.array([0.6, 0.3]), gamma
    return reading, theta, rho, stop, gamma


def chances_of(page: Parameters, m: int) -> dict[tuple[int, ...], float]:
    sequences = itertools.permutations(range(1, len(page[1]) + 1), m)
    with np.errstate(divide="ignore"):
        return {
            clicks: float(np.exp(step.log_prob(*page, np.array(clicks, np.int32))))
            for clicks in sequences
        }


@pytest.mark.parametrize(
    "reading",
    [
        choice.LEFTOVER,
        choice.EXAMINATION,
        choice.NORMALISED,
        choice.LUCE,
        choice.CHAIN,
        choice.WALK,
    ],
)
def test_standings_are_those_of_the_sorted_sequences(reading: int) -> None:
    rng = np.random.default_rng(reading)
    impossible = all_impossible = ties = 0
    for n, m in SIZES * 3:
        page = coarse_page(rng, reading, n)
        chances = chances_of(page, m)
        for place in rng.choice(len(chances), min(len(chances), 6), replace=False):
            clicks = list(chances)[place]
            mine, top = chances[clicks], max(chances.values())
            best = [each for each, p in chances.items() if tied(p, top)]
            expected = [
                sum(p > mine and not tied(p, mine) for p in chances.values()),
                sum(tied(p, mine) for p in chances.values()),
                len(best),
                sum(set(each) == set(clicks) for each in best),
            ]
            out = np.zeros(4, np.int64)
            ranks.standing(*page, np.array(clicks, np.int32), out)
            assert out.tolist() == expected, (page, clicks)
            impossible += mine == 0
            all_impossible += top == 0
            ties += expected[1] > 1 and mine > 0
    assert impossible > 10
    assert ties > 10 or reading == choice.WALK  # a walk tells all positions apart
    assert all_impossible > 0 or reading in (choice.LUCE, choice.WALK, choice.NORMALISED)


def test_rounding_breaks_no_tie() -> None:
    """Three ads alike in all but the order in which their products are rounded."""
    theta, gamma = (
        np.array([0.7, 0.07, 0.35]),
        np.array([[0.1, 1.0, 0.2], [0.0] * 3, [0.0] * 3, [0.0] * 3]),
    )
    assert len({float(t * g) for t, g in zip(theta, gamma[0], strict=True)}) > 1
    out = np.zeros(4, np.int64)
    for click in (1, 2, 3):
        ranks.standing(
            choice.LEFTOVER,
            theta,
            np.zeros(3),
            np.zeros(4),
            gamma,
            np.array([click], np.int32),
            out,
        )
        assert out.tolist() == [0, 3, 3, 1]


def long_page(n: int, m: int) -> tuple[pg.Pages, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    gamma = rng.random((n + 1, n)) / n
    pages = pg.Pages(
        choice.LEFTOVER,
        rng.random(n),
        rng.random(n),
        np.full((1, n + 1), 0.1),
        gamma[None],
        np.array([0, n]),
        np.zeros(1, np.int64),
    )
    return pages, np.arange(m, 0, -1, dtype=np.int32), np.array([0, m])


def test_pages_of_ten_are_ranked_among_all_5040_sequences() -> None:
    pages, click, clicks = long_page(10, 4)
    found = pg.standings(pages, click, clicks, np.array([0]))
    chances = chances_of((pages.reading, pages.theta, pages.rho, pages.stop[0], pages.gamma[0]), 4)
    mine = chances[4, 3, 2, 1]
    assert found.likelier.tolist() == [
        sum(p > mine and not tied(p, mine) for p in chances.values())
    ]
    assert found.tied.tolist() == [1]


def test_a_page_with_too_many_sequences_is_refused_with_what_to_do() -> None:
    pages, click, clicks = long_page(34, 4)
    with pytest.raises(
        CannotAnswerError,
        match=r"rank of 4 clicks on a page of 34 ads: there are 1,113,024 sequences.*Cut the pages",
    ):
        pg.standings(pages, click, clicks, np.array([0]))
    assert len(pg.standings(pages, click, clicks, np.zeros(0, np.int64)).tied) == 0
