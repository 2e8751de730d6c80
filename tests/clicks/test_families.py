"""Every family of click distributions against enumeration of all sequences of small pages."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.clicks.distribution import Clicks, PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.errors import CannotAnswerError, SettingError
from tests.support.click_families import (
    FAMILIES,
    PlainChain,
    PlainScan,
    PlainWalk,
    Sequence_,
    all_sequences,
    build,
    random_walk,
    to_clicks,
)

CLOSE = 1e-12
NO_SATISFACTION = ("walk", "mixture")
SIZES = [(n, m) for n in range(1, 6) for m in range(1, min(n, 4) + 1)]  # of pages, and clicks
any_family = st.sampled_from(list(FAMILIES))
seeds, sizes = st.integers(0, 2**32), st.integers(1, 4)
extremes = st.sampled_from([0.0, 0.3, 0.9])
every_family = pytest.mark.parametrize("family", FAMILIES)


def random_page(family: str, seed: int, n: int, extremes: float = 0.2) -> Any:
    return FAMILIES[family](np.random.default_rng(seed), n, extremes)


def repeat(page: Any, times: int) -> PageDistribution:
    return build([page]).select(np.zeros(times, np.int64))


@settings(derandomize=True, max_examples=150)
@given(family=any_family, seed=seeds, n=sizes, extremes=extremes)
def test_sequences_sets_and_marginals_equal_enumeration(
    family: str, seed: int, n: int, extremes: float
) -> None:
    page = random_page(family, seed, n, extremes)
    expected = page.distribution()
    assert sum(expected.values()) == pytest.approx(1.0, abs=CLOSE)
    pages, clicks = repeat(page, len(expected)), to_clicks(list(expected))
    chances = np.array(list(expected.values()))
    np.testing.assert_allclose(np.exp(pages.log_prob(clicks)), chances, atol=CLOSE, rtol=0)
    sets: dict[frozenset[int], float] = {}
    for sequence, chance in expected.items():
        sets[frozenset(sequence)] = sets.get(frozenset(sequence), 0.0) + chance
    in_any_order = [sets[frozenset(sequence)] for sequence in expected]
    np.testing.assert_allclose(np.exp(pages.log_set_prob(clicks)), in_any_order, atol=CLOSE, rtol=0)
    marginals = build([page]).click_prob()
    np.testing.assert_allclose(marginals, page.click_prob(), atol=CLOSE, rtol=0)


@settings(derandomize=True, max_examples=100)
@given(family=any_family, seed=seeds, n=sizes, extremes=extremes)
def test_the_next_click_is_a_ratio_of_probabilities(
    family: str, seed: int, n: int, extremes: float
) -> None:
    page = random_page(family, seed, n, extremes)
    possible = [c for c in all_sequences(n) if page.prefix_prob(c) > 1e-9]
    pages = repeat(page, len(possible))
    following, end = pages.next_click_prob(to_clicks(possible))
    for s, clicks in enumerate(possible):
        chance = following[s * n : (s + 1) * n]
        expected = page.next_click(clicks)
        np.testing.assert_allclose(
            chance, [expected.get(j, 0.0) for j in range(1, n + 1)], atol=1e-10, rtol=0
        )
        assert end[s] + chance.sum() == pytest.approx(1.0, abs=CLOSE)
        assert all(chance[c - 1] == 0.0 for c in clicks)


@settings(derandomize=True, max_examples=100)
@given(
    family=any_family,
    seed=seeds,
    n=sizes,
    length=st.sampled_from([None, 0, 1, 2, 3, 4]),
    top=st.sampled_from([1, 3, 10, 200]),
)
def test_the_most_likely_sequences_are_those_of_a_full_sort(
    family: str, seed: int, n: int, length: int | None, top: int
) -> None:
    page = random_page(family, seed, n)
    chances = page.distribution()
    listed = sorted((p for c, p in chances.items() if length in (None, len(c))), reverse=True)
    best = build([page]).top_sequences(length, top)
    real = best.probabilities[0] > 1e-13  # 1 − Σ in the enumeration leaves dust, not 0
    np.testing.assert_allclose(
        best.probabilities[0][real], [p for p in listed if p > 1e-13][:top], atol=CLOSE, rtol=0
    )
    seen = set()
    for sequence, m, chance in zip(*(values[0] for values in best), strict=True):
        if chance > 0:
            clicks = tuple(sequence[:m].tolist())
            assert chances[clicks] == pytest.approx(chance, abs=CLOSE)
            assert not sequence[m:].any()
            assert length in (None, m)
            seen.add(clicks)
        else:
            assert m == -1
    assert len(seen) == np.count_nonzero(best.probabilities)
    assert (np.diff(best.probabilities[0]) <= 0).all()


@settings(derandomize=True, max_examples=60)
@given(seed=seeds, n=sizes, extremes=extremes)
@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in NO_SATISFACTION])
def test_satisfaction_equals_enumeration(family: str, seed: int, n: int, extremes: float) -> None:
    page = random_page(family, seed, n, extremes)
    got = build([page, page]).satisfaction_prob()
    np.testing.assert_allclose(got, [page.satisfaction_prob()] * 2, atol=CLOSE, rtol=0)


def test_a_family_without_satisfaction_says_so() -> None:
    for family in NO_SATISFACTION:
        with pytest.raises(CannotAnswerError, match="no satisfaction"):
            build([random_page(family, 0, 3)]).satisfaction_prob()


@every_family
def test_samples_come_as_often_as_they_are_likely(family: str) -> None:
    page, draws = random_page(family, 5, 3, 0.0), 100_000
    pages = repeat(page, draws)
    drawn = pages.sample(np.random.default_rng(1))
    seen: dict[Sequence_, int] = {}
    for s in range(draws):
        made = tuple(drawn.click[drawn.starts[s] : drawn.starts[s + 1]].tolist())
        seen[made] = seen.get(made, 0) + 1
    for made, chance in page.distribution().items():
        tolerance = 5 * math.sqrt(draws * max(chance * (1 - chance), 0.0)) + 1e-6
        assert abs(seen.get(made, 0) - draws * chance) <= tolerance
    again = pages.sample(np.random.default_rng(1))
    assert (again.click == drawn.click).all()


@every_family
def test_a_batch_gives_the_answers_of_each_page(family: str) -> None:
    rng = np.random.default_rng(9)
    each = [FAMILIES[family](rng, n, 0.1) for n in (3, 1, 5, 4)]
    if family in ("walk", "scan", "mixture"):  # which have parameters common to all pages
        each = [with_shared_parameters(each, page) for page in each]
    made: list[Sequence_] = [(1, 2), (), (1, 3, 5), (4,)]
    batch, clicks = build(each), to_clicks(made)
    log_prob, log_set_prob = batch.log_prob(clicks), batch.log_set_prob(clicks)
    marginal, (following, end) = batch.click_prob(), batch.next_click_prob(clicks)
    best, rows = batch.top_sequences(None, 4), np.array([0, 2, 3])
    ranks = batch.ranks(clicks, rows)
    for s, page in enumerate(each):
        one, own = build([page]), to_clicks([made[s]])
        here = slice(batch.starts[s], batch.starts[s + 1])
        assert log_prob[s] == pytest.approx(one.log_prob(own)[0], rel=1e-14)
        assert log_set_prob[s] == pytest.approx(one.log_set_prob(own)[0], rel=1e-14)
        np.testing.assert_allclose(marginal[here], one.click_prob(), rtol=1e-14)
        np.testing.assert_allclose(following[here], one.next_click_prob(own)[0], rtol=1e-13)
        assert end[s] == pytest.approx(one.next_click_prob(own)[1][0], rel=1e-13)
        alone = one.top_sequences(None, 4)
        assert (best.sequences[s, :, : page.size] == alone.sequences[0]).all()
        assert (best.lengths[s] == alone.lengths[0]).all()
        np.testing.assert_allclose(best.probabilities[s], alone.probabilities[0], rtol=1e-14)
        if s in rows:
            (at,) = np.flatnonzero(rows == s)
            assert [x[at] for x in ranks] == [x[0] for x in one.ranks(own, np.array([0]))]
    again = batch.select(np.array([3, 0, 3]))
    assert len(again) == 3
    selected = np.concatenate([marginal[slice(*batch.starts[s : s + 2])] for s in (3, 0, 3)])
    np.testing.assert_allclose(again.click_prob(), selected, rtol=1e-14)


def with_shared_parameters(pages: list[Any], page: Any) -> Any:
    """The page with the steps of the first page's walk, or the tables of the widest scan."""
    if isinstance(page, PlainWalk):
        return replace(page, forward=pages[0].forward, back=pages[0].back)
    if isinstance(page, PlainScan):
        widest, n = max(pages, key=lambda each: each.size), page.size
        return replace(page, gamma=widest.gamma[: n + 1, :n], down=widest.down[: n + 1])
    components = list(page.components)
    for t in (1, 2):  # the walk and the scan of a random mixture
        same = [each.components[t] for each in pages]
        components[t] = with_shared_parameters(same, components[t])
    return replace(page, components=tuple(components))


@every_family
def test_no_page_at_all_is_no_answer_at_all(family: str) -> None:
    none = build([random_page(family, 0, 3)]).select(np.zeros(0, np.int64))
    clicks = none.sample(np.random.default_rng(0))
    assert len(none) == 0
    assert clicks.starts.tolist() == [0]
    answers = none.log_prob(clicks), none.log_set_prob(clicks), none.click_prob()
    assert [len(answer) for answer in answers] == [0, 0, 0]
    assert len(none.top_sequences(None, 3).lengths) == 0
    assert len(none.ranks(clicks, np.zeros(0, np.int64)).tied) == 0


@every_family
def test_settings_that_make_no_sense_are_refused(family: str) -> None:
    with pytest.raises(SettingError, match="top: got 0"):
        build([random_page(family, 0, 3)]).top_sequences(None, 0)


@every_family
def test_impossible_lengths_have_no_sequences(family: str) -> None:
    assert not build([random_page(family, 0, 3)]).top_sequences(4, 5).probabilities.any()


def test_clicks_are_selected_by_session() -> None:
    clicks = to_clicks([(2, 1), (), (3,)])
    assert clicks.counts.tolist() == [2, 0, 1]
    assert clicks.session.tolist() == [0, 0, 2]
    chosen = clicks.select(np.array([2, 0, 0, 1]))
    assert (chosen.click.tolist(), chosen.starts.tolist()) == ([3, 2, 1, 2, 1], [0, 1, 3, 5, 5])


# ---- what is special to a mixture


@settings(derandomize=True, max_examples=50)
@given(seed=seeds, n=sizes)
def test_a_mixture_of_equal_components_is_the_component(seed: int, n: int) -> None:
    from reclick.clicks.mixture import MixturePages

    rng = np.random.default_rng(seed)
    one = build([random_page("luce", seed, n)])
    mixture = MixturePages((one, one, one), rng.dirichlet([1.0] * 3)[None])
    clicks = one.sample(rng)
    np.testing.assert_allclose(mixture.click_prob(), one.click_prob(), atol=CLOSE)
    assert mixture.log_prob(clicks)[0] == pytest.approx(one.log_prob(clicks)[0], abs=1e-10)
    best, alone = mixture.top_sequences(None, 5), one.top_sequences(None, 5)
    np.testing.assert_allclose(best.probabilities, alone.probabilities, atol=CLOSE)


def test_clicks_impossible_to_all_components_leave_their_weights() -> None:
    from reclick.clicks.chain import ChainPages
    from reclick.clicks.mixture import MixturePages

    def chain(first: float) -> ChainPages:
        chances = np.array([[[first, 0.0], [0.0, 0.0], [0.0, 0.0]]])
        ends = 1.0 - chances.sum(axis=2)
        return ChainPages(chances, ends, np.array([0, 2]), np.zeros(1, np.int64))

    mixture = MixturePages((chain(0.2), chain(0.4)), np.array([[0.5, 0.5]]))
    following, end = mixture.next_click_prob(to_clicks([(2,)]))
    assert (following.tolist(), end.tolist()) == ([0.0, 0.0], [1.0])
    assert mixture.log_prob(to_clicks([(2,)]))[0] == -math.inf


# ---- ranks: pages full of ties and of impossible sequences


def coarse_page(family: str, rng: np.random.Generator, n: int) -> Any:
    """Parameters of few values, zeros among them; now and then all are alike."""
    from tests.support.click_families import PlainChain, PlainChoice, PlainMixture

    if family == "mixture":
        parts = tuple(coarse_page(name, rng, n) for name in ("paper", "luce", "chain"))
        return PlainMixture(parts, (0.5, 0.25, 0.25))
    theta, rho = rng.choice([0.0, 0.3, 0.3, 0.6], n), rng.choice([0.0, 0.5, 0.5], n)
    stop = rng.choice([0.2, 0.2, 1.0], n + 1)
    gamma = rng.choice([0.0, 1.0, 1.0, 2.0], (n + 1, n))
    if rng.random() < 0.3:
        theta[:], rho[:], stop[:], gamma[:] = 0.3, 0.5, 0.2, 1.0
    gamma /= np.maximum(gamma.sum(axis=1, keepdims=True), 1e-300)
    if family == "chain":
        return PlainChain(np.where(np.arange(n) >= np.arange(n + 1)[:, None], gamma * 0.7, 0.0))
    if family == "walk":
        return PlainWalk(theta, 0.6, 0.3)
    return PlainChoice(family, theta, rho, stop, gamma)


def is_tied(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(a, b)


@pytest.mark.parametrize(
    "family", ["paper", "examination", "normalised", "luce", "chain", "walk", "mixture"]
)
def test_ranks_are_those_of_the_sorted_sequences(family: str) -> None:
    rng = np.random.default_rng(len(family))
    impossible = ties = 0
    for n, m in SIZES * 3:
        page = build([coarse_page(family, rng, n)])
        sequences = list(itertools.permutations(range(1, n + 1), m))
        with np.errstate(divide="ignore"):
            logs = page.select(np.zeros(len(sequences), np.int64)).log_prob(to_clicks(sequences))
        chances = dict(zip(sequences, np.exp(logs).tolist(), strict=True))
        for at in rng.choice(len(chances), min(len(chances), 6), replace=False):
            clicks = sequences[at]
            mine, top = chances[clicks], max(chances.values())
            best = [each for each, p in chances.items() if is_tied(p, top)]
            expected = [
                sum(p > mine and not is_tied(p, mine) for p in chances.values()),
                sum(is_tied(p, mine) for p in chances.values()),
                len(best),
                sum(set(each) == set(clicks) for each in best),
            ]
            ranks = page.ranks(to_clicks([clicks]), np.array([0]))
            assert [int(x[0]) for x in ranks] == expected, clicks
            impossible += mine == 0
            ties += expected[1] > 1 and mine > 0
    assert impossible > 10 or family == "mixture"
    assert ties > 5 or family == "walk"  # a walk tells all positions apart


def test_rounding_breaks_no_tie() -> None:
    """Three ads alike in all but the order in which their products are rounded."""
    from tests.support.click_families import PlainChoice

    theta, gamma = np.array([0.7, 0.07, 0.35]), np.zeros((4, 3))
    gamma[0] = 0.1, 1.0, 0.2
    assert len({float(t * g) for t, g in zip(theta, gamma[0], strict=True)}) > 1
    pages = build([PlainChoice("paper", theta, np.zeros(3), np.zeros(4), gamma)] * 3)
    ranks = pages.ranks(to_clicks([(1,), (2,), (3,)]), np.arange(3))
    assert [x.tolist() for x in ranks] == [[0] * 3, [3] * 3, [3] * 3, [1] * 3]


def test_a_page_with_too_many_sequences_to_rank_is_refused_with_what_to_do() -> None:
    pages = build([random_page("paper", 34, 34)])
    with pytest.raises(
        CannotAnswerError,
        match=r"rank of 4 clicks on a page of 34 ads: there are 1,113,024 sequences.*Cut the pages",
    ):
        pages.ranks(to_clicks([(4, 3, 2, 1)]), np.array([0]))


def test_a_walk_is_exact_on_long_pages() -> None:
    page = random_walk(np.random.default_rng(3), 60, 0.0)
    marginal = build([page]).click_prob()
    drawn = repeat(page, 50_000).sample(np.random.default_rng(0))
    seen = np.bincount(drawn.click, minlength=61)[1:] / 50_000
    assert (np.abs(seen - marginal) <= 5 * np.sqrt(marginal * (1 - marginal) / 50_000)).all()
    assert isinstance(drawn, Clicks)


class OwnPages:
    """Pages of a family that the kernels do not know: only what PageDistribution asks for."""

    def __init__(self, pages: PageDistribution) -> None:
        self._pages, self.starts = pages, pages.starts

    def __len__(self) -> int:
        return len(self._pages)

    def select(self, rows: Any) -> OwnPages:
        return OwnPages(self._pages.select(rows))

    def __getattr__(self, name: str) -> Any:
        if name in {"step_tables", "follow"}:
            raise AttributeError(name)
        return getattr(self._pages, name)


def test_a_mixture_draws_each_page_from_its_own_component() -> None:
    sizes = [1 + i % 4 for i in range(400)]
    tables = [np.zeros((n + 1, n)) for n in sizes]
    never = build([PlainChain(table) for table in tables])
    for table in tables:
        table[0, -1] = 1.0  # the last ad is clicked, then the session ends
    always = build([PlainChain(table) for table in tables])
    weights = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]] * 200)[:400]
    drawn = MixturePages((OwnPages(always), never), weights).sample(np.random.default_rng(2))
    assert drawn.counts.tolist() == weights[:, 0].tolist()
    assert drawn.click.tolist() == np.array(sizes)[weights[:, 0] == 1].tolist()


@pytest.mark.parametrize("names", [("paper", "chain"), ("chain", "walk")])
def test_a_mixture_may_have_components_of_any_class(names: tuple[str, str]) -> None:
    parts = [repeat(random_page(name, 3 + i, 3), 16) for i, name in enumerate(names)]
    weights = np.tile([0.3, 0.7], (16, 1))
    known = MixturePages(tuple(parts), weights)
    nested = MixturePages((known, OwnPages(parts[0])), weights)
    own = MixturePages((parts[0], OwnPages(parts[1])), weights)
    clicks = to_clicks(list(all_sequences(3)))
    for method in ("log_prob", "log_set_prob"):
        got, expected = (getattr(pages, method)(clicks) for pages in (own, known))
        np.testing.assert_allclose(np.exp(got), np.exp(expected), atol=CLOSE)
    np.testing.assert_allclose(own.click_prob(), known.click_prob(), atol=CLOSE)
    possible = np.flatnonzero(np.isfinite(known.follow(clicks)[2]))
    after = clicks.select(possible)
    for got, expected in zip(
        own.select(possible).next_click_prob(after),
        known.select(possible).next_click_prob(after),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, atol=CLOSE)
    for pages in (own, nested):
        with pytest.raises(CannotAnswerError, match="a mixture with OwnPages"):
            pages.top_sequences(None, 3)
        with pytest.raises(CannotAnswerError, match="a mixture with OwnPages"):
            pages.ranks(clicks, np.array([1]))
        many = pages.select(np.zeros(20_000, np.int64))
        drawn = many.sample(np.random.default_rng(1))
        chances = np.exp(pages.log_prob(clicks))
        frequency: dict[Sequence_, int] = {}
        for clicked in np.split(drawn.click, drawn.starts[1:-1]):
            key = tuple(clicked.tolist())
            frequency[key] = frequency.get(key, 0) + 1
        for sequence, chance in zip(all_sequences(3), chances, strict=True):
            limit = 5 * math.sqrt(max(chance * (1 - chance), 0.0) / 20_000) + 1e-9
            assert abs(frequency.get(sequence, 0) / 20_000 - chance) <= limit
