"""The kernels against a brute force written straight from the table of the model, on every sequence of small pages."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.clicks import choice, set_probability, step
from reclick.clicks import distribution as pg
from reclick.errors import CannotAnswerError, SettingError

Float64 = npt.NDArray[np.float64]
Clicks = tuple[int, ...]
READINGS = tuple(choice.READINGS)
CLOSE = 1e-12


class Page(NamedTuple):
    theta: Float64
    rho: Float64
    stop: Float64
    gamma: Float64


def all_sequences(n: int) -> Iterator[Clicks]:
    """Every click sequence of a page of n ads: shorter first, then lexicographic."""
    return itertools.chain.from_iterable(
        itertools.permutations(range(1, n + 1), m) for m in range(n + 1)
    )


def next_click(reading: str, page: Page, clicks: Clicks) -> dict[int, float]:
    """P(next click is j given the clicks so far), free j only, as the table of the model says it."""
    theta, rho, stop, gamma = page
    k, last = len(clicks), clicks[-1] if clicks else 0
    free = [j for j in range(1, len(theta) + 1) if j not in clicks]
    if not free:
        return {}
    unsatisfied = 1.0 - (rho[last - 1] if last else 0.0)
    propensity = {j: theta[j - 1] * gamma[last, j - 1] for j in free}
    below = {
        "leftover": 1.0,
        "examination": sum(gamma[last, j - 1] for j in free),
        "normalised": sum(propensity.values()),
        "luce": stop[k] + sum(propensity.values()),
    }[reading]
    go_on = unsatisfied if reading == "luce" else unsatisfied * (1.0 - stop[k])
    return {j: go_on * w / below if below > 0 else 0.0 for j, w in propensity.items()}


def probability(reading: str, page: Page, clicks: Clicks) -> float:
    chance = 1.0
    for k, click in enumerate(clicks):
        chance *= next_click(reading, page, clicks[:k])[click]
    return chance * (1.0 - sum(next_click(reading, page, clicks).values()))


def distribution(reading: str, page: Page) -> dict[Clicks, float]:
    return {clicks: probability(reading, page, clicks) for clicks in all_sequences(len(page.theta))}


def random_page(rng: np.random.Generator, n: int, extremes: float = 0.2) -> Page:
    """A page where a fifth of all parameters, if not told otherwise, is exactly 0 or 1."""

    def rates(size: int) -> Float64:
        plain = rng.random(size)
        return np.where(rng.random(size) < extremes, np.round(plain), plain)

    gamma = rng.random((n + 1, n)) * (rng.random((n + 1, n)) > extremes)
    gamma /= np.maximum(gamma.sum(axis=1, keepdims=True), 1e-300)  # a row of zeros stays one
    return Page(rates(n), rates(n), rates(n + 1), gamma)


def pages_of(reading: str, pages: list[Page]) -> pg.Pages:
    """Many pages in one, each with its own stop and gamma, wider than the page as a fitted model's are."""
    widest = max(len(page.theta) for page in pages)
    stop = np.full((len(pages), widest + 1), 0.77)
    gamma = np.full((len(pages), widest + 1, widest), 0.77)
    for s, page in enumerate(pages):
        n = len(page.theta)
        stop[s, : n + 1], gamma[s, : n + 1, :n] = page.stop, page.gamma
    starts = np.cumsum([0] + [len(page.theta) for page in pages])
    theta, rho = (np.concatenate([page[i] for page in pages]) for i in (0, 1))
    return pg.Pages(
        choice.READINGS[reading], theta, rho, stop, gamma, starts, np.arange(len(pages))
    )


def copies(reading: str, page: Page, times: int) -> pg.Pages:
    """The same page many times."""
    one = pages_of(reading, [page])
    n = len(page.theta)
    return one._replace(
        theta=np.tile(page.theta, times),
        rho=np.tile(page.rho, times),
        page=np.arange(times + 1) * n,
        table=np.zeros(times, np.int64),
    )


def positions(clicks: Clicks) -> npt.NDArray[np.int32]:
    return np.array(clicks, np.int32)


def flatten(lists: list[Clicks]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    return positions(tuple(itertools.chain.from_iterable(lists))), np.cumsum(
        [0] + [len(clicks) for clicks in lists]
    )


def marginals(reading: str, page: Page) -> Float64:
    out = np.empty(len(page.theta))
    set_probability.click_prob(choice.READINGS[reading], *page, out)
    return out


small_pages = st.builds(
    lambda seed, n, extremes: random_page(np.random.default_rng(seed), n, extremes),
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 0.9]),
)
any_reading = st.sampled_from(READINGS)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_probability_of_every_sequence_equals_the_brute_force_and_they_add_to_one(
    reading: str, n: int
) -> None:
    rng = np.random.default_rng(n)
    for _ in range(5):
        page = random_page(rng, n)
        expected = distribution(reading, page)
        got = {
            c: math.exp(step.log_prob(choice.READINGS[reading], *page, positions(c)))
            for c in expected
        }
        assert sum(got.values()) == pytest.approx(1.0, abs=CLOSE)
        assert max(abs(got[c] - expected[c]) for c in expected) < CLOSE


@settings(deadline=None, derandomize=True, max_examples=150)
@given(reading=any_reading, page=small_pages)
def test_sequences_sets_and_marginals_agree_with_the_brute_force_whatever_the_page(
    reading: str, page: Page
) -> None:
    code, n = choice.READINGS[reading], len(page.theta)
    expected = distribution(reading, page)
    assert sum(expected.values()) == pytest.approx(1.0, abs=CLOSE)
    sets: dict[frozenset[int], float] = {}
    marginal = np.zeros(n)
    for clicks, chance in expected.items():
        assert math.exp(step.log_prob(code, *page, positions(clicks))) == pytest.approx(
            chance, abs=CLOSE
        )
        sets[frozenset(clicks)] = sets.get(frozenset(clicks), 0.0) + chance
        marginal[[c - 1 for c in clicks]] += chance
    for clicks in expected:
        assert math.exp(
            set_probability.log_set_prob(code, *page, positions(clicks))
        ) == pytest.approx(sets[frozenset(clicks)], abs=CLOSE)
    np.testing.assert_allclose(marginals(reading, page), marginal, atol=CLOSE, rtol=0)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(reading=any_reading, page=small_pages, data=st.data())
def test_the_next_click_is_the_ratio_of_brute_force_probabilities(
    reading: str, page: Page, data: st.DataObject
) -> None:
    n = len(page.theta)
    clicks = data.draw(st.sampled_from(list(all_sequences(n))))
    out = np.full(n, np.nan)
    end = step.next_click_prob(choice.READINGS[reading], *page, positions(clicks), out)
    expected = next_click(reading, page, clicks)
    np.testing.assert_allclose(
        out, [expected.get(j, 0.0) for j in range(1, n + 1)], atol=CLOSE, rtol=0
    )
    assert end + out.sum() == pytest.approx(1.0, abs=CLOSE)
    assert all(out[c - 1] == 0.0 for c in clicks)


@pytest.mark.parametrize("reading", READINGS)
def test_the_next_click_is_consistent_with_sequence_probabilities(reading: str) -> None:
    code, page = choice.READINGS[reading], random_page(np.random.default_rng(3), 4, extremes=0.0)
    out, after = np.empty(4), np.empty(4)
    end = step.next_click_prob(code, *page, positions((3,)), out)
    for j in (1, 2, 4):
        ended = step.next_click_prob(code, *page, positions((3, j)), after)
        ratio = math.exp(
            step.log_prob(code, *page, positions((3, j)))
            - step.log_prob(code, *page, positions((3,)))
        )
        assert ratio == pytest.approx(out[j - 1] * ended / end, rel=1e-12)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("n", [5, 6])
def test_sets_and_marginals_of_longer_pages_are_sums_over_all_sequences(
    reading: str, n: int
) -> None:
    page = random_page(np.random.default_rng(n), n)
    marginal = np.zeros(n)
    sets: dict[frozenset[int], float] = {}
    for clicks in all_sequences(n):
        chance = math.exp(step.log_prob(choice.READINGS[reading], *page, positions(clicks)))
        marginal[[c - 1 for c in clicks]] += chance
        sets[frozenset(clicks)] = sets.get(frozenset(clicks), 0.0) + chance
    np.testing.assert_allclose(marginals(reading, page), marginal, atol=CLOSE, rtol=0)
    for chosen, chance in sets.items():
        got = math.exp(
            set_probability.log_set_prob(choice.READINGS[reading], *page, positions(tuple(chosen)))
        )
        assert got == pytest.approx(chance, abs=CLOSE)


@pytest.mark.parametrize("reading", READINGS)
def test_pages_without_any_propensity_end_at_once(reading: str) -> None:
    page = Page(np.zeros(3), np.full(3, 0.5), np.full(4, 0.5), np.full((4, 3), 1 / 3))
    assert step.log_prob(choice.READINGS[reading], *page, positions(())) == 0.0
    assert step.log_prob(choice.READINGS[reading], *page, positions((2,))) == -math.inf
    assert not marginals(reading, page).any()
    nowhere = Page(np.ones(3), np.full(3, 0.5), np.zeros(4), np.zeros((4, 3)))
    assert step.log_prob(choice.READINGS[reading], *nowhere, positions(())) == 0.0


def test_a_user_who_never_stops_clicks_everything() -> None:
    page = Page(np.ones(4), np.zeros(4), np.zeros(5), np.full((5, 4), 0.25))
    for reading in ("examination", "normalised", "luce"):
        np.testing.assert_allclose(marginals(reading, page), 1.0, rtol=1e-14)
        assert set_probability.log_set_prob(
            choice.READINGS[reading], *page, positions((1, 2, 3, 4))
        ) == pytest.approx(0.0, abs=1e-14)
        assert step.log_prob(choice.READINGS[reading], *page, positions((1, 2, 3))) == -math.inf


def test_a_satisfying_ad_or_a_tired_user_ends_the_session() -> None:
    page = Page(np.full(3, 0.5), np.ones(3), np.zeros(4), np.full((4, 3), 1 / 3))
    tired = page._replace(rho=np.zeros(3), stop=np.array([0.0, 1.0, 1.0, 1.0]))
    for reading in ("leftover", "examination", "normalised"):
        for one in (page, tired):
            assert step.log_prob(choice.READINGS[reading], *one, positions((2, 1))) == -math.inf
            assert marginals(reading, one).sum() == pytest.approx(
                1.0 - math.exp(step.log_prob(choice.READINGS[reading], *one, positions(())))
            )


def test_what_gamma_says_about_staying_and_what_lies_beyond_the_page_is_not_used() -> None:
    page = random_page(np.random.default_rng(0), 3, extremes=0.0)
    wide = np.full((6, 5), 0.9)
    wide[:4, :3] = page.gamma
    wide[np.arange(1, 4), np.arange(3)] = 7.0
    other = page._replace(gamma=wide, stop=np.append(page.stop, [0.9, 0.9]))
    for reading in READINGS:
        np.testing.assert_allclose(marginals(reading, other), marginals(reading, page), rtol=1e-13)


def test_tiny_ends_keep_their_logarithm() -> None:
    page = Page(np.ones(2), np.zeros(2), np.full(3, 1e-30), np.full((3, 2), 0.5))
    for reading in ("normalised", "examination", "luce"):
        assert step.log_prob(choice.READINGS[reading], *page, positions(())) == pytest.approx(
            math.log(1e-30), rel=1e-12
        )


@pytest.mark.parametrize("reading", READINGS)
def test_sets_do_not_underflow(reading: str) -> None:
    n = 14
    page = Page(np.full(n, 1e-30), np.full(n, 0.5), np.full(n + 1, 0.5), np.full((n + 1, n), 1 / n))
    clicks = positions(tuple(range(1, n + 1)))
    got = set_probability.log_set_prob(choice.READINGS[reading], *page, clicks)
    assert got == pytest.approx(
        step.log_prob(choice.READINGS[reading], *page, clicks) + math.lgamma(n + 1), rel=1e-12
    )


@pytest.mark.parametrize("nearly", [0.0, 1e-300])
def test_the_set_is_found_even_when_the_given_order_is_impossible(nearly: float) -> None:
    gamma = np.array([[1.0, nearly], [0.0, 1.0], [nearly, 0.0]])
    page = Page(np.full(2, 0.5), np.zeros(2), np.zeros(3), gamma)
    assert step.log_prob(0, *page, positions((2, 1))) < -690
    assert set_probability.log_set_prob(0, *page, positions((2, 1))) == pytest.approx(
        step.log_prob(0, *page, positions((1, 2)))
    )


def likeliest(
    reading: str, page: Page, length: int, top: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Float64]:
    """The most likely sequences of one page: as many as asked, or as are possible if fewer."""
    found, lengths, probs = pg.top_sequences_of_pages(
        pages_of(reading, [page]), np.array([length]), top
    )
    listed = int(np.count_nonzero(probs))
    return found[0, :listed], lengths[0, :listed], probs[0, :listed]


def brute_top(reading: str, page: Page, length: int, top: int) -> list[tuple[Clicks, float]]:
    """The kernels' own probabilities, sorted: a stable sort keeps shorter first, then lexicographic."""
    listed = [
        (c, probability(reading, page, c))
        for c in all_sequences(len(page.theta))
        if length in (-1, len(c))
    ]
    return [pair for pair in sorted(listed, key=lambda pair: -pair[1]) if pair[1] > 1e-13][:top]


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    reading=any_reading,
    page=small_pages,
    length=st.integers(-1, 5),
    top=st.sampled_from([1, 3, 10, 200]),
)
def test_the_most_likely_sequences_are_those_of_a_full_sort(
    reading: str, page: Page, length: int, top: int
) -> None:
    expected = brute_top(reading, page, length, top)
    found, lengths, probs = likeliest(reading, page, length, top)
    real = probs > 1e-13  # 1 − Σ in the brute force leaves dust where the kernel has 0
    assert len(expected) == real.sum()
    np.testing.assert_allclose(probs[real], [chance for _, chance in expected], atol=CLOSE, rtol=0)
    for sequence, m, chance in zip(found, lengths, probs, strict=True):
        clicks = tuple(int(c) for c in sequence[:m])
        assert probability(reading, page, clicks) == pytest.approx(chance, abs=CLOSE)
        assert not sequence[m:].any()
        assert length in (-1, m)
    assert len({(tuple(sequence), m) for sequence, m in zip(found, lengths, strict=True)}) == len(
        found
    )
    assert (np.diff(probs) <= 0).all()


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("length", [-1, 2, 3])
def test_ties_are_broken_by_length_and_then_lexicographically(reading: str, length: int) -> None:
    page = Page(
        np.full(4, 0.5),
        np.full(4, 0.5),
        np.array([0.5, 0.25, 0.5, 0.0, 1.0]),
        np.full((5, 4), 0.25),
    )  # exact in float64
    expected = [c for c, _ in brute_top(reading, page, length, 1000)]
    found, lengths, probs = likeliest(reading, page, length, 1000)
    got = [tuple(int(c) for c in sequence[:m]) for sequence, m in zip(found, lengths, strict=True)]
    assert len(np.unique(probs)) < len(probs)
    assert set(got) == set(expected)
    order = sorted(range(len(got)), key=lambda i: (-probs[i], len(got[i]), got[i]))
    assert order == list(range(len(got)))
    if reading == "leftover":  # the only one whose every number is a dyadic fraction
        assert got == expected


def test_impossible_sequences_are_not_listed() -> None:
    page = Page(np.zeros(3), np.zeros(3), np.full(4, 0.5), np.full((4, 3), 1 / 3))
    found, lengths, probs = likeliest("leftover", page, -1, 5)
    assert (found.tolist(), lengths.tolist(), probs.tolist()) == ([[0, 0, 0]], [0], [1.0])
    assert len(likeliest("leftover", page, 1, 5)[2]) == 0
    assert len(likeliest("leftover", page, 4, 5)[2]) == 0


def test_a_flat_long_page_is_refused_with_advice() -> None:
    page = Page(np.ones(12), np.zeros(12), np.zeros(13), np.full((13, 12), 1 / 12))
    with pytest.raises(
        CannotAnswerError, match=r"of 12 ads: more than 5,000,000 prefixes .* Ask for fewer"
    ):
        likeliest("normalised", page, -1, 1)
    with pytest.raises(SettingError, match="top = 0"):
        likeliest("leftover", page, -1, 0)


@pytest.mark.parametrize("reading", READINGS)
def test_samples_have_the_probabilities_of_the_model(reading: str) -> None:
    page = random_page(np.random.default_rng(5), 3, extremes=0.0)
    draws = 200_000
    many = copies(reading, page, draws)
    click, clicks = pg.samples(many, np.random.default_rng(1))
    seen: dict[Clicks, int] = {}
    for s in range(draws):
        made = tuple(click[clicks[s] : clicks[s + 1]].tolist())
        seen[made] = seen.get(made, 0) + 1
    for made, chance in distribution(reading, page).items():
        assert (
            abs(seen.get(made, 0) - draws * chance)
            <= 5 * math.sqrt(draws * chance * (1 - chance)) + 1e-9
        )
    again, _ = pg.samples(many, np.random.default_rng(1))
    assert (again == click).all()


@pytest.mark.parametrize("reading", READINGS)
def test_many_pages_give_the_answers_of_each(reading: str) -> None:
    rng = np.random.default_rng(9)
    each = [random_page(rng, n, extremes=0.1) for n in (3, 1, 5, 4)]
    made: list[Clicks] = [(2, 1), (), (5, 1, 3), (4,)]
    code, many, (click, clicks) = choice.READINGS[reading], pages_of(reading, each), flatten(made)
    with np.errstate(all="raise"):
        log_probs, log_sets = (
            pg.log_probs(many, click, clicks),
            pg.log_set_probs(many, click, clicks),
        )
        marginal, (following, end) = pg.click_probs(many), pg.next_click_probs(many, click, clicks)
        found, lengths, probs = pg.top_sequences_of_pages(many, np.array([-1, -1, 2, 9]), 4)
    for s, page in enumerate(each):
        here = slice(many.page[s], many.page[s + 1])
        out = np.empty(len(page.theta))
        assert log_probs[s] == step.log_prob(code, *page, positions(made[s]))
        assert log_sets[s] == set_probability.log_set_prob(code, *page, positions(made[s]))
        assert end[s] == step.next_click_prob(code, *page, positions(made[s]), out)
        assert (following[here] == out).all()
        assert (marginal[here] == marginals(reading, page)).all()
        one, m, chance = likeliest(reading, page, [-1, -1, 2, 9][s], 4)
        assert (found[s, : len(one), : len(page.theta)] == one).all()
        assert lengths[s].tolist() == m.tolist() + [-1] * (4 - len(m))
        assert probs[s].tolist() == chance.tolist() + [0.0] * (4 - len(m))


@pytest.mark.parametrize("reading", READINGS)
def test_pages_that_are_equal_are_told_from_those_that_nearly_are(reading: str) -> None:
    rng = np.random.default_rng(12)
    long, other, short = (
        random_page(rng, pg.AGAIN + 1, extremes=0.0),
        random_page(rng, pg.AGAIN, extremes=0.0),
        random_page(rng, 3),
    )
    nudged = [
        long._replace(
            **{name: getattr(long, name) * np.where(np.arange(pg.AGAIN + 1) == 2, 1 - 1e-9, 1.0)}
        )
        for name in ("theta", "rho")
    ]
    wandering = long._replace(gamma=long.gamma * 0.9)
    each = [long, short, other, long, nudged[0], wandering, other, nudged[1], long, short]
    many = pages_of(reading, each)
    marginal = pg.click_probs(many)
    for s, page in enumerate(each):
        assert (marginal[many.page[s] : many.page[s + 1]] == marginals(reading, page)).all()
    assert (
        len({marginal[many.page[s] : many.page[s + 1]].tobytes() for s in (0, 3, 4, 5, 7, 8)}) == 4
    )


def test_no_page_at_all_is_no_answer_at_all() -> None:
    none = pg.Pages(
        0,
        np.empty(0),
        np.empty(0),
        np.empty((0, 1)),
        np.empty((0, 1, 0)),
        np.zeros(1, np.int64),
        np.empty(0, np.int64),
    )
    click, clicks = pg.samples(none, np.random.default_rng(0))
    assert (
        len(pg.log_probs(none, click, clicks))
        == len(pg.log_set_probs(none, click, clicks))
        == len(pg.click_probs(none))
        == 0
    )
    assert len(pg.top_sequences_of_pages(none, np.empty(0, np.int64), 3)[2]) == 0


@pytest.mark.parametrize("reading", READINGS)
def test_pages_of_twelve_are_exact_and_longer_ones_are_refused(reading: str) -> None:
    rng = np.random.default_rng(12)
    page = random_page(rng, 12, extremes=0.0)
    page = page._replace(theta=page.theta * 0.2)
    first = next_click(reading, page, ())
    marginal = marginals(reading, page)
    assert all(marginal[j - 1] >= chance - CLOSE for j, chance in first.items())
    click, _ = pg.samples(copies(reading, page, 100_000), np.random.default_rng(0))
    seen = np.bincount(click, minlength=13)[1:] / 100_000
    assert (np.abs(seen - marginal) <= 5 * np.sqrt(marginal * (1 - marginal) / 100_000)).all()
    with pytest.raises(CannotAnswerError, match="page of 13 ads: exact up to 12"):
        pg.click_probs(pages_of(reading, [random_page(rng, 13)]))
    long, many_clicks = random_page(rng, 20), (positions(tuple(range(1, 18))), np.array([0, 17]))
    with pytest.raises(CannotAnswerError, match="set of 17 clicks: exact up to 16"):
        pg.log_set_probs(pages_of(reading, [long]), *many_clicks)


@pytest.mark.parametrize("reading", READINGS)
def test_sequences_of_long_pages_have_a_probability(reading: str) -> None:
    page = random_page(np.random.default_rng(30), 300, extremes=0.0)
    clicks = tuple(range(60, 0, -1))
    expected = math.log(1.0 - sum(next_click(reading, page, clicks).values()))
    expected += sum(
        math.log(next_click(reading, page, clicks[:k])[click]) for k, click in enumerate(clicks)
    )
    assert step.log_prob(choice.READINGS[reading], *page, positions(clicks)) == pytest.approx(
        expected, rel=1e-12
    )
    assert step.log_prob(choice.READINGS[reading], *page, positions((5, 5))) == -math.inf


def test_the_codes_the_kernels_know_are_those_of_the_readings() -> None:
    assert {name: getattr(choice, name.upper()) for name in READINGS} == choice.READINGS


def test_kernels_are_kept_on_disk_between_processes() -> None:
    script = (
        "import numpy as np; from reclick import pages as pg; "
        "half, one = np.full(2, 0.5), np.zeros(1, np.int64); "
        "p = pg.Pages(0, half, half, np.full((1, 3), 0.5), np.full((1, 3, 2), 0.5), np.array([0, 2]), one); "
        "pg.samples(p, np.random.default_rng(0)); pg.click_probs(p); "
        "assert all(sum(k.stats.cache_hits.values()) for k in (pg._each_sample, pg._each_click_prob)) or {first}"
    )
    for first in (True, False):
        subprocess.run([sys.executable, "-c", script.replace("{first}", str(first))], check=True)
