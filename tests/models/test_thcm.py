"""THCM against hidden walks followed one step at a time, and what EM promises."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.errors import SettingError
from reclick.logs import read_sessions
from reclick.models import THCM, ClickModel, load
from reclick.models.thcm import THCMParameters, e_step
from tests.support.enumeration import (
    Clicks,
    Session,
    ads_table,
    all_sequences,
    as_table,
    random_sessions,
)
from tests.support.generative import walked

THETA = (0.5, 0.2, 0.7)
WALKS = [(0.6, 0.2), (0.45, 0.54), (0.05, 0.9), (0.9, 0.02), (0.5, 0.5)]


def made(theta: tuple[float, ...], forward: float, back: float) -> tuple[THCM, tuple[str, ...]]:
    """A model with these parameters, and the page of them."""
    ads = tuple("abcdefghijklmnop"[: len(theta)])
    model = THCM(max_iterations=1, tolerance=1e9).fit(as_table([Session("q", ads, ())]))
    model.theta_, model.forward_, model.back_ = np.array(theta), forward, back
    return model, ads


def test_a_worked_example_of_two_ads() -> None:
    """From the top: looks at 1 and 2 without a click are ½ and ⅗ of all; 1 → 2 with ½, 2 → 1 with
    ¼, so the walk goes round with ½ ⅗ ½ ¼ = 3/80."""
    model, ads = made((0.5, 0.4), 0.5, 0.25)
    look1 = 1 / (1 - 3 / 80)  # expected looks at 1 with no click yet
    look2 = look1 * 0.5 * 0.5
    none = (
        look1 * 0.5 * 0.5 + look2 * 0.6 * 0.75
    )  # stops at 1 or leaves above it; stops at 2 or leaves below it
    np.testing.assert_allclose(
        np.exp(model.log_prob(as_table([Session("q", ads, ())]))), none, rtol=1e-12
    )
    second = (
        look2 * 0.4 * 0.25 * 0.5 * (1 / (1 - 0.5 * 0.5 * 0.25))
    )  # a click at 2, back to 1, clicked at one of the looks; then all is clicked
    np.testing.assert_allclose(
        np.exp(model.log_prob(as_table([Session("q", ads, (2, 1))]))), second, rtol=1e-12
    )


def test_every_sequence_of_three_ads_to_the_printed_digits() -> None:
    expected = {
        (): 0.347103727, (1,): 0.381454237, (2,): 0.074697221, (3,): 0.025893985,
        (1, 2): 0.094036723, (1, 3): 0.028846789, (2, 1): 0.010871358, (2, 3): 0.014014488,
        (3, 1): 0.000355109, (3, 2): 0.001705214, (1, 2, 3): 0.016994588,
        (1, 3, 2): 0.002241978, (2, 1, 3): 0.001099351, (2, 3, 1): 0.000350362,
        (3, 1, 2): 0.000098036, (3, 2, 1): 0.000236835,
    }  # fmt: skip
    model, ads = made((0.5, 0.3, 0.2), 0.6, 0.2)
    table = as_table([Session("q", ads, clicks) for clicks in expected])
    got = np.exp(model.log_prob(table))
    np.testing.assert_allclose(got, list(expected.values()), rtol=0, atol=6e-10)
    clicked = model.click_prob(("q", list(ads)))[0]
    np.testing.assert_allclose(clicked, [0.536585366, 0.216346154, 0.091836735], atol=6e-10)


@pytest.mark.parametrize(("forward", "back"), WALKS)
def test_every_verb_equals_the_walks_followed_step_by_step(forward: float, back: float) -> None:
    for size in (1, 2, 3):
        model, ads = made(THETA[:size], forward, back)
        chances, every = walked(THETA[:size], forward, back), list(all_sequences(size))
        table = as_table([Session("q", ads, clicks) for clicks in every])
        got = np.exp(model.log_prob(table))
        np.testing.assert_allclose(got, [chances[clicks] for clicks in every], atol=1e-12)
        assert got.sum() == pytest.approx(1, abs=1e-12)
        sets = [
            sum(chances[other] for other in every if set(other) == set(clicks)) for clicks in every
        ]
        np.testing.assert_allclose(np.exp(model.log_set_prob(table)), sets, atol=1e-12)
        marginal = [
            sum(p for clicks, p in chances.items() if j in clicks) for j in range(1, size + 1)
        ]
        np.testing.assert_allclose(model.click_prob(table)[0], marginal, atol=1e-12)
        beginnings = [
            sum(p for clicks, p in chances.items() if clicks[: len(begun)] == begun)
            for begun in every
        ]
        begun_then = [
            [
                sum(p for c, p in chances.items() if c[: len(b) + 1] == (*b, j))
                for j in range(1, size + 1)
            ]
            for b in every
        ]
        np.testing.assert_allclose(
            model.next_click_prob(table) * np.array(beginnings)[:, None], begun_then, atol=1e-12
        )


def test_click_probabilities_of_pages_of_all_lengths_equal_the_sums_over_sets() -> None:
    rng = np.random.default_rng(0)
    pages = {
        "query": ["q"] * 9,
        "ads": [list(rng.permutation(list("abcdefgh"))[: 1 + i % 8]) for i in range(9)],
    }
    model, _ = made(tuple(rng.random(8)), 0.55, 0.4)
    np.testing.assert_allclose(
        model.click_prob(pages), ClickModel.click_prob(model, pages), rtol=1e-12
    )


def test_a_page_of_forty_ads_has_click_probabilities_that_samples_confirm() -> None:
    """20,000 samples: within 0.02, more than five standard deviations."""
    model, _ = made((0.4, 0.1, 0.6), 0.7, 0.25)
    ads = list("abc") * 13 + ["a"]
    pages = {"query": ["q"] * 20_000, "ads": [ads] * 20_000}
    drawn = model.sample(pages, 2)
    rates = np.bincount(np.asarray(drawn.values) - 1, minlength=40) / 20_000
    np.testing.assert_allclose(
        rates, model.click_prob({"query": ["q"], "ads": [ads]})[0], atol=0.02
    )


def hidden_walks(
    theta: tuple[float, ...], forward: float, back: float, clicks: Clicks
) -> tuple[float, Float64, Float64]:
    """P(clicks), and the expected looks without a click at free positions [position] and steps by
    kind [3], walks followed look after look."""
    size = len(theta)
    nothing = np.zeros(1 + size + 3)  # mass, and mass times looks and steps so far
    going: dict[tuple[int, Clicks], Float64] = {(1, ()): np.eye(1 + size + 3)[0]}
    ended = nothing
    while sum(walks[0] for walks in going.values()) > 1e-14:
        then: dict[tuple[int, Clicks], Float64] = defaultdict(lambda: nothing)
        for (position, done), walks in going.items():
            passed = walks.copy()
            passed[position] += walks[0]
            options = [(done, walks)]
            if position not in done:
                options = [
                    (done, passed * (1 - theta[position - 1])),
                    ((*done, position), walks * theta[position - 1]),
                ]
            for after, looked in options:
                for kind, (to, step) in enumerate(
                    ((position + 1, forward), (position - 1, back), (0, 1 - forward - back))
                ):
                    walked = looked * step
                    walked[1 + size + kind] += walked[0]
                    if 1 <= to <= size:
                        then[to, after] = then[to, after] + walked
                    elif after == clicks:
                        ended = ended + walked
        going = dict(then)
    return float(ended[0]), ended[1 : 1 + size] / ended[0], ended[1 + size :] / ended[0]


@pytest.mark.parametrize("clicks", [(), (1,), (2,), (3, 1), (2, 1, 3)])
@pytest.mark.parametrize(("forward", "back"), WALKS)
def test_expected_looks_and_steps_equal_those_of_the_walks_followed(
    forward: float, back: float, clicks: Clicks
) -> None:
    chance, looks, steps = hidden_walks(THETA, forward, back, clicks)
    sessions = as_grouped(as_table([Session("q", ("a", "b", "c"), clicks)]))
    steps_and_stop = np.array([forward, back, 1 - forward - back])
    found = e_step(THCMParameters(np.array(THETA), steps_and_stop), sessions.whole)
    np.testing.assert_allclose(found.log_likelihood, np.log(chance), rtol=1e-9)
    np.testing.assert_allclose(found.pairs["skips"], looks, rtol=1e-8)
    np.testing.assert_allclose(found.totals["steps"], steps, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{}, {"attractiveness_prior": "words"}, {"attractiveness_strength": 0, "step_strength": 0}],
)
def test_the_objective_never_falls_and_convergence_is_told_truly(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 80))
    model = THCM(max_iterations=2000, tolerance=1e-9, **settings).fit(log)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 2000
    assert (np.diff(model.objective_) > -1e-9).all()
    with caplog.at_level(logging.WARNING):
        short = THCM(max_iterations=3, tolerance=1e-9, **settings).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_
    assert short.message_ in caplog.text
    assert short.objective_[-1] < model.objective_[-1]


def test_the_end_is_a_stationary_point_of_the_objective() -> None:
    """Moving any parameter by 1e-3 either way loses: the last objective is the likelihood of
    log_prob and the priors."""
    sessions = random_sessions(np.random.default_rng(5), 60, queries="q", ads="abc")
    log = as_table(sessions)
    model = THCM(
        tolerance=1e-12, max_iterations=5000, attractiveness_strength=2.0, step_strength=3.0
    ).fit(log)

    def objective() -> float:
        theta, steps = (
            model.theta_,
            np.array([model.forward_, model.back_, 1 - model.forward_ - model.back_]),
        )
        prior = 2.0 * float(
            np.sum(model.prior_mean_ * np.log(theta) + (1 - model.prior_mean_) * np.log(1 - theta))
        )
        return (
            float(model.log_prob(log).sum())
            + prior
            + 3.0 * float(np.array([0.6, 0.2, 0.2]) @ np.log(steps))
        )

    best = objective()
    assert best == pytest.approx(model.objective_[-1], abs=1e-8)
    for by in (1e-3, -1e-3):
        for pair in range(len(model.theta_)):
            model.theta_[pair] += by
            assert objective() < best
            model.theta_[pair] -= by
        for name in ("forward_", "back_"):
            setattr(model, name, getattr(model, name) + by)
            assert objective() < best
            setattr(model, name, getattr(model, name) - by)


def test_parameters_are_recovered_from_own_samples() -> None:
    """20,000 pages of 1 to 6 ads: α and γ within 0.02, θ within 0.03."""
    rng = np.random.default_rng(0)
    pages = {
        "query": ["q"] * 20_000,
        "ads": [list(rng.permutation(list("abcdef"))[: rng.integers(1, 7)]) for _ in range(20_000)],
    }
    truth, _ = made((0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 0.65, 0.25)
    again = THCM(tolerance=1e-7, max_iterations=500).fit(
        {**pages, "clicks": truth.sample(pages, 1)}
    )
    assert again.converged_
    np.testing.assert_allclose([again.forward_, again.back_], [0.65, 0.25], atol=0.02)
    np.testing.assert_allclose(again.theta_, truth.theta_, atol=0.03)


def test_a_weight_of_two_equals_the_row_twice() -> None:
    sessions = random_sessions(np.random.default_rng(1), 40, weights=True)
    repeated = [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
    weighted, plain = THCM().fit(as_table(sessions, weights=True)), THCM().fit(as_table(repeated))
    np.testing.assert_allclose(weighted.theta_, plain.theta_, rtol=1e-10)
    np.testing.assert_allclose(
        [weighted.forward_, weighted.back_], [plain.forward_, plain.back_], rtol=1e-10
    )


def test_reverse_clicks_raise_the_chance_of_a_step_back() -> None:
    down = THCM().fit(
        as_table(
            [Session("q", ("a", "b", "c"), clicks) for clicks in ((1, 2), (1,), (2, 3), (1, 3))]
            * 10
        )
    )
    up = THCM().fit(
        as_table(
            [Session("q", ("a", "b", "c"), clicks) for clicks in ((2, 1), (1,), (3, 2), (3, 1))]
            * 10
        )
    )
    assert up.back_ > down.back_
    backward = as_table([Session("q", ("a", "b", "c"), (3, 1))])
    assert up.log_prob(backward) > down.log_prob(backward) > -np.inf


def test_an_unseen_query_gets_the_overall_rate_or_what_the_words_say() -> None:
    sessions = [Session("q", ("a", "b"), clicks) for clicks in ((1,), (1,), (), (1, 2))]
    asked = {"query": ["unseen"], "ads": [["x"]]}
    assert THCM().fit(as_table(sessions)).click_prob(asked)[0, 0] == pytest.approx(0.75, rel=1e-12)
    log = read_sessions(as_table(sessions), ads=ads_table({"a": "good", "b": "poor"}))
    model = THCM(attractiveness_prior="words").fit(log)
    pages = read_sessions(
        {"query": ["unseen"] * 2, "ads": [["x"], ["y"]]},
        ads=ads_table({"x": "good", "y": "poor"}),
        clicks_required=False,
    )
    good, poor = model.click_prob(pages)[:, 0]
    assert good > poor


def test_without_priors_nothing_crashes_and_nothing_is_impossible() -> None:
    for clicks in itertools.chain(all_sequences(2), [(3, 2, 1)]):
        log = as_table([Session("q", ("a", "b", "c"), clicks)] * 2)
        model = THCM(attractiveness_strength=0, step_strength=0).fit(log)
        every = as_table([Session("q", ("a", "b", "c"), other) for other in all_sequences(3)])
        got = model.log_prob(every)
        assert np.isfinite(got).all()
        assert np.exp(got).sum() == pytest.approx(1, abs=1e-9)


def test_a_saved_model_answers_the_same_to_the_last_bit(tmp_path: Path) -> None:
    sessions = as_table(random_sessions(np.random.default_rng(2), 60, longest=6))
    for prior in ("auto", "overall", "words"):
        model = THCM(attractiveness_prior=prior).fit(sessions)
        model.save(tmp_path / prior)
        loaded = load(tmp_path / prior)
        asked = as_table(random_sessions(np.random.default_rng(7), 30, queries="qrz", ads="abcdxy"))
        np.testing.assert_array_equal(loaded.log_prob(asked), model.log_prob(asked))
        assert loaded.relevance().equals(model.relevance())


def test_relevance_has_narrower_intervals_after_more_sessions() -> None:
    sessions = [Session("q", ("a", "b", "c"), clicks) for clicks in ((1,), (), (2,), (1, 3), (3,))]
    few, many = (THCM().fit(as_table(sessions * times)).relevance() for times in (1, 16))
    width = [
        np.asarray(table["attractiveness_high"]) - np.asarray(table["attractiveness_low"])
        for table in (few, many)
    ]
    assert few["satisfaction"].null_count == 3
    assert (width[1] > 0).all()
    assert (width[1] < width[0] / 2).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"forward_prior": 0.7, "back_prior": 0.4},
        {"back_prior": 0},
        {"step_strength": -1},
        {"max_iterations": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        THCM(**settings)  # type: ignore[arg-type]
