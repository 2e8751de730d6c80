"""Every vector of models.md: pages of three ads (two, in TCM), all sequences to twelve digits.

Some are of models that Reclick does not have, after papers that it reviews: their numbers come from
its families of pages with the probabilities of the paper, or from the definition, step by step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pytest

from reclick.clicks.chain import ChainPages
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.enumerated import EnumeratedPages, SequenceList
from reclick.clicks.mixture import MixturePages
from reclick.clicks.walk import WalkPages
from reclick.data.batch import Float64, Int64
from reclick.models.kernels.cascade import _fill_cascade_chain
from reclick.models.tcm import TCMParameters, TwoAdPages, pattern_probabilities
from tests.clicks.test_redundancy import luce_pages, paper_pages
from tests.golden.test_worked_example import pages as worked_pages
from tests.models.test_crf import the_pages as crf_page
from tests.models.test_dbn_initiation import the_model as dbn_model
from tests.models.test_examination_mixture import of_components
from tests.models.test_noise import noise_pages
from tests.models.test_pom import the_model as pom_model
from tests.models.test_scan import the_model as scan_model
from tests.support.click_families import all_sequences, to_clicks
from tests.support.oracles import choosing, logistic

Clicks = tuple[int, ...]
VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
ONE = np.array([0, 3])
THETA = np.array([0.5, 0.3, 0.2])


class Answers(NamedTuple):
    """P(clicks) of sequences, and P(click) of each position."""

    chances: Callable[[list[Clicks]], Float64]
    click_prob: Float64


def of_pages(page: PageDistribution) -> Answers:
    def chances(sequences: list[Clicks]) -> Float64:
        many = page.select(np.zeros(len(sequences), np.int64))
        return np.exp(many.log_prob(to_clicks(sequences)))

    return Answers(chances, page.select(np.zeros(1, np.int64)).click_prob())


def of_model(model: Any) -> Answers:
    def chances(sequences: list[Clicks]) -> Float64:
        n = len(sequences)
        shown = {"query": ["q"] * n, "ads": [list("abc")] * n}
        return np.asarray(np.exp(model.log_prob({**shown, "clicks": [*map(list, sequences)]})))

    return Answers(chances, model.click_prob(("q", list("abc")))[0])


@dataclass(frozen=True, slots=True)
class StepPages(EnumeratedPages):
    """Pages of three ads, by P(next click | clicks so far)."""

    following: Callable[[Clicks], dict[int, float]]
    starts: Int64

    def list_sequences(self, size: int) -> SequenceList:
        return SequenceList.of(iter(all_sequences(size)), size)

    def probabilities(self, page: int) -> Float64:
        found = choosing(self.following)
        return np.array([found.get(each, 0.0) for each in all_sequences(3)])

    def select(self, rows: Int64) -> Self:
        return type(self)(self.following, np.arange(len(rows) + 1) * 3)


def by_steps(following: Callable[[Clicks], dict[int, float]]) -> Answers:
    return of_pages(StepPages(following, ONE))


def tcm(upper: float, lower: float) -> Answers:
    """Posteriors that are sure: of five values the second and the third are .3 and .5."""
    common = TCMParameters(attending=0.6, second=0.4, externality=0.1)
    sure = np.eye(5)[[round(upper * 5 - 0.5), round(lower * 5 - 0.5)]]
    return of_pages(TwoAdPages(sure, common, pattern_probabilities(common, 5), np.array([0, 2])))


def tcm_following(clicks: Clicks) -> dict[int, float]:
    """From the first free ad the eye may move to each later one that is better than the best."""
    relevance, attending, second, externality = (0.3, 0.5, 0.2), 0.6, 0.4, 0.1
    free = [j for j in (1, 2, 3) if j not in clicks]
    if not free:
        return {}
    at = {free[0]: 1.0}
    for j in free[1:]:
        moved = {i: p * max(relevance[j - 1] - relevance[i - 1], 0) for i, p in at.items()}
        at = {i: p - moved[i] for i, p in at.items()} | {j: sum(moved.values())}
    factor = dict.fromkeys(free, attending)
    if clicks:
        last = relevance[clicks[-1] - 1]
        factor = {j: second - externality * (last - relevance[j - 1]) for j in free}
    return {j: p * relevance[j - 1] * factor[j] for j, p in at.items()}


def by_first_click(odds: float, examination: float) -> Answers:
    """Examination 1, .7, .5; after a click the odds of relevance and the examination change."""
    examined = np.array([1, 0.7, 0.5])
    later = THETA * odds / (1 - THETA + THETA * odds)
    table, end = np.zeros((1, 4, 3)), np.zeros((1, 4))
    for last in range(4):
        chance = examined * THETA if last == 0 else examined * examination * later
        none = 1.0
        for j in range(last, 3):
            table[0, last, j] = none * chance[j]
            none *= 1 - chance[j]
        end[0, last] = none
    return of_pages(ChainPages(table, end, ONE, np.zeros(1, np.int64)))


WORDS = ({"cheap", "pizza"}, {"pizza", "fresh"}, {"sushi"})
WORTH = {"cheap": 0.4, "pizza": 0.8, "fresh": 0.6, "sushi": 0.7}
BASE = (-1.0, -1.2, -1.5)


def attracts(ad: int, others: Clicks) -> float:
    """θ = σ(base + what the words of an ad gain over those of others), each word less each time."""
    times = {word: sum(word in WORDS[i - 1] for i in others) for word in WORDS[ad - 1]}
    gain = sum(WORTH[word] * (1 - math.exp(-1)) * math.exp(-n) for word, n in times.items())
    return logistic(BASE[ad - 1] + gain)


def gain_over_clicked(clicks: Clicks) -> dict[int, float]:
    """A cascade that goes on with .9 after no click and with .6 after one."""
    found, examined = {}, 0.6 if clicks else 1.0
    for j in range(max(clicks, default=0) + 1, 4):
        found[j] = examined * attracts(j, clicks)
        examined *= (1 - attracts(j, clicks)) * 0.9
    return found


def gain_over_examined() -> Answers:
    theta = np.array([attracts(j, tuple(range(1, j))) for j in (1, 2, 3)])
    table, end = np.zeros((1, 4, 3)), np.zeros((1, 4))
    one = np.ones(1)
    _fill_cascade_chain(ONE, theta, np.ones(3), one, 0.6 * one, 0.9 * one, table, end)
    return of_pages(ChainPages(table, end, ONE, np.zeros(1, np.int64)))


def thcm_that_stops(start: float, clicks: Clicks) -> dict[int, float]:
    """A click ends the session with the ad's own θ; the first ad is examined with `start`."""
    walk = WalkPages(THETA, 0.6, 0.2, ONE)
    following, _ = walk.next_click_prob(to_clicks([clicks]))
    go = 1 - THETA[clicks[-1] - 1] if clicks else start
    return {j: go * following[j - 1] for j in (1, 2, 3) if j not in clicks}


def with_noise() -> Answers:
    parts = worked_pages("paper"), noise_pages([0.2, 0.5, 0.2, 0.1])
    return of_pages(MixturePages(parts, np.array([[0.9, 0.1]])))


def two_components() -> Answers:
    return of_model(of_components([0.5, 0.3, 0.2], np.log([0.5, 3.0]).tolist(), [0.7, 0.3]))


BUILDERS: dict[str, Callable[[], Answers]] = {
    "dbn with initiation": lambda: of_model(dbn_model()),
    "tcm .3 .5": partial(tcm, 0.3, 0.5),
    "tcm .5 .3": partial(tcm, 0.5, 0.3),
    "tcm on three ads": partial(by_steps, tcm_following),  # Reclick's TCM has two ads
    "crf": lambda: of_pages(crf_page()),
    "relevance changes": partial(by_first_click, 2, 1),  # Srikant et al. 2010, top down
    "relevance and examination change": partial(by_first_click, 2, 0.8),
    "two components": two_components,
    "gain over clicked": partial(by_steps, gain_over_clicked),  # Ahmed et al. 2012
    "gain over examined": gain_over_examined,
    "luceclick without redundancy": lambda: of_pages(luce_pages(0.0, 1)),
    "luceclick with redundancy": lambda: of_pages(luce_pages(1.0, 1)),
    "multiclick without redundancy": lambda: of_pages(paper_pages(0.0, 1)),
    "multiclick with redundancy": lambda: of_pages(paper_pages(1.0, 1)),
    "multiclick with noise": with_noise,
    "scan": lambda: of_model(scan_model()),
    "pom": lambda: of_model(pom_model()),
    "thcm": lambda: of_pages(WalkPages(THETA, 0.6, 0.2, ONE)),
    "thcm that stops": lambda: by_steps(partial(thcm_that_stops, 1.0)),  # as its authors' code
    "thcm that stops and starts late": lambda: by_steps(partial(thcm_that_stops, 0.6)),
}


def test_no_vector_is_left_out() -> None:
    assert set(BUILDERS) == set(VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_every_sequence_and_marginal_has_the_value_of_the_vector(name: str) -> None:
    found = BUILDERS[name]()
    expected = {tuple(map(int, key)): p for key, p in VECTORS[name].items() if key != "click_prob"}
    chances = found.chances(list(expected))
    np.testing.assert_allclose(chances, list(expected.values()), rtol=2e-9, atol=1e-15)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-11)
    if "click_prob" in VECTORS[name]:
        np.testing.assert_allclose(found.click_prob, VECTORS[name]["click_prob"], rtol=2e-9)
