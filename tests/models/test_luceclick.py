"""LuceClick against its definition, what its climb promises, and what it recovers where counting is biased."""

from __future__ import annotations

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from brute import Clicks, Session, all_sequences, as_table, random_sessions
from luce_world import PLEASE, PULL, WHEN, WHERE, drawn

from reclick import pages as pg
from reclick.attractiveness import TokenLists
from reclick.batch import Float64
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import LuceClick, MultiClick, load
from reclick.models.luce.climbing import climb
from reclick.models.luce.parameters import Options
from reclick.models.luce.problem import Problem
from reclick.models.luce.text import LogLinear, chosen, log_linear, word_means
from reclick.pages import Pages
from reclick.sequences.readings import LUCE
from reclick.sessions import as_sessions
from reclick.simulation import simulate

THETA, RHO = (0.5, 0.3, 0.2), (0.4, 0.6, 0.2)
GAMMA = np.array([[0.7, 0.2, 0.1], [0.0, 0.7, 0.3], [0.4, 0.0, 0.6], [0.3, 0.7, 0.0]])
OMEGA = np.array([0.5, 0.4, 0.3, 0.2])
PLAIN: dict[str, Any] = {
    "attractiveness_strength": 1.0, "satisfaction_strength": 5.0, "query_strength": None, "transition_strength": 4.0, "kinds": 1
}  # fmt: skip
RICH: dict[str, Any] = {**PLAIN, "query_strength": 2.0, "kinds": 3, "kind_strength": 4.0, "mix_strength": 3.0, "taste_strength": 3.0}


def worked(kinds: int = 1, tasted: bool = True) -> LuceClick:
    """A model that was fitted, and then given the parameters of the worked example.

    A second kind of users goes up the page, stops late, and if `tasted` likes other ads than the first.
    """
    log = {"query": ["q"] * 3, "ads": [["a", "b", "c"]] * 3, "clicks": [[1], [], [2, 1]]}
    model = LuceClick(**{**PLAIN, "kinds": kinds}).fit(log)
    model.theta_, model.rho_ = np.array(THETA), np.array(RHO)
    model.gamma_ = np.stack([GAMMA, GAMMA[:, ::-1] + 0.1])[:kinds]
    model.omega_ = np.stack([OMEGA, OMEGA / 3])[:kinds]
    model.common_share_ = np.array([0.7, 0.3]) if kinds == 2 else np.ones(1)
    model.options_ = {**model.options_, "query": None, "mix": None, "taste": 1.0 if kinds > 1 and tasted else None}
    model.leaning_, model.taste_ = model.common_share_, np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]])
    return model


def page_of(sequences: list[Clicks]) -> pa.Table:
    return as_table([Session("q", ("a", "b", "c"), clicks) for clicks in sequences])


# ---- what it answers


def test_the_worked_example_comes_out_to_the_printed_digits() -> None:
    asked: list[Clicks] = [(), (1,), (1, 2), (2, 1), (3, 1, 2)]
    assert np.exp(worked().log_prob(page_of(asked))).round(6).tolist() == [0.537634, 0.285347, 0.062687, 0.006452, 0.000839]
    assert worked().click_prob(page_of([()]))[0].round(6).tolist() == [0.388816, 0.147545, 0.054833]


@pytest.mark.parametrize("tasted", [False, True])
def test_kinds_of_users_are_summed_in_every_answer(tasted: bool) -> None:
    model, sequences = worked(2, tasted), list(all_sequences(3))
    theta, taste = np.array(THETA), np.array([[1.0, 0.2], [0.5, 3.0], [2.0, 1.0]]) if tasted else np.ones((3, 2))
    weights = theta[:, None] * taste / (taste @ [0.7, 0.3])[:, None]  # [ad, kind]
    gone = [weights[:, t] @ model.gamma_[t, 0] for t in (0, 1)]
    empty = sum(share * omega / (omega + each) for share, omega, each in zip((0.7, 0.3), model.omega_[:, 0], gone, strict=True))
    assert np.exp(model.log_prob(page_of([()])))[0] == pytest.approx(empty)
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    marginals = [sum(p for clicks, p in chance.items() if j in clicks) for j in (1, 2, 3)]
    np.testing.assert_allclose(model.click_prob(page_of([()]))[0], marginals, rtol=1e-10)
    sets = [sum(chance[order] for order in itertools.permutations(clicks)) for clicks in sequences]
    np.testing.assert_allclose(np.exp(model.log_set_prob(page_of(sequences))), sets, rtol=1e-10)
    begun = [sum(p for clicks, p in chance.items() if clicks[: len(start)] == start) for start in ((2,), (2, 1), (2, 3))]
    following = model.next_click_prob(page_of([(2,)]))[0]
    np.testing.assert_allclose(following, [begun[1] / begun[0], 0, begun[2] / begun[0]], rtol=1e-10, atol=1e-15)
    listed = model.rank_sequences("q", ["a", "b", "c"], top=16)
    assert [each.probability for each in listed] == pytest.approx(sorted(chance.values(), reverse=True), rel=1e-10)
    assert [chance[each.clicks] for each in listed] == pytest.approx([each.probability for each in listed], rel=1e-10)


def test_a_session_is_ranked_among_the_sequences_of_its_length_under_several_kinds() -> None:
    model, sequences = worked(2), [clicks for clicks in all_sequences(3) if clicks]
    chance = dict(zip(sequences, np.exp(model.log_prob(page_of(sequences))).tolist(), strict=True))
    rows = np.arange(len(sequences))
    ((standing),) = model.answers(page_of(sequences), lambda part, pages: pg.standings(pages, part.click, part.clicks, rows), clicks=True)
    for i, clicks in enumerate(sequences):
        rivals = [p for other, p in chance.items() if len(other) == len(clicks)]
        assert standing.likelier[i] == sum(p > chance[clicks] * (1 + 1e-8) for p in rivals)
        best = [other for other, p in chance.items() if len(other) == len(clicks) and p >= max(rivals) * (1 - 1e-8)]
        assert standing.likeliest[i] == len(best)
        assert standing.same_set[i] == sum(set(other) == set(clicks) for other in best)


def test_samples_of_several_kinds_come_as_often_as_they_are_likely() -> None:
    model, many = worked(2), 20_000
    drawn = [tuple(clicks) for clicks in model.sample(page_of([()] * many), 1).to_pylist()]
    for clicks, logs in zip(all_sequences(3), model.log_prob(page_of(list(all_sequences(3)))), strict=True):
        p = float(np.exp(logs))
        assert abs(drawn.count(clicks) / many - p) < 5 * np.sqrt(p * (1 - p) / many) + 1e-9


def test_a_page_of_many_ads_has_no_exact_marginals_and_says_so() -> None:
    long = {"query": ["q"], "ads": [[str(i) for i in range(13)]], "clicks": [[13, 1]]}
    with pytest.raises(CannotAnswerError, match="12"):
        worked().click_prob(long)
    assert np.isfinite(worked(2).log_prob(long)[0])


# ---- the climb


@pytest.mark.parametrize(
    "settings", [PLAIN, RICH, {**RICH, "satisfaction_strength": None, "mix_strength": None}, {**PLAIN, "attractiveness_strength": 0}]
)
def test_the_objective_never_falls_and_convergence_is_told_truly(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 150))
    model = LuceClick(max_iterations=3000, tolerance=1e-8, **settings).fit(log)
    assert model.converged_
    assert model.iterations_ == len(model.objective_) < 3000
    assert (np.diff(model.objective_) > -1e-9 * 150).all()
    with caplog.at_level(logging.WARNING):
        short = LuceClick(max_iterations=3, tolerance=1e-8, **settings).fit(log)
    assert not short.converged_
    assert "not converged" in short.message_
    assert short.message_ in caplog.text


def problem(sessions: list[Session], options: Options) -> Problem:
    grouped = as_sessions(as_table(sessions))
    return Problem(grouped, options, np.ones(len(grouped.counts.impressions)), 0.3, np.full(options.kinds, 1 / options.kinds))


@pytest.mark.parametrize("options", [Options(), Options(query=2.0), Options(kinds=2, mix=3.0, query=1.0), Options(kinds=2, taste=2.0)])
def test_where_the_climb_ends_the_objective_is_flat_in_every_weight(options: Options) -> None:
    made = problem(random_sessions(np.random.default_rng(5), 120), options)
    top = climb(made, made.fresh(), max_iterations=20_000, tolerance=1e-13, quiet=True).parameters
    with ThreadPoolExecutor(1) as pool:

        def objective(at: Any) -> float:
            return made.passes.expect(at, pool).log_likelihood + made.log_prior(at)

        for name in ("theta", "eye", "out", *(["spread"] if options.query else []), *(["taste"] if options.taste else [])):
            values = getattr(top, name)
            for i in range(0, values.size, max(1, values.size // 7)):
                here = (np.arange(values.size) == i).reshape(values.shape)
                moved = [top._replace(**{name: values * np.where(here, factor, 1.0)}) for factor in (1.001, 1 / 1.001)]
                assert abs(objective(moved[0]) - objective(moved[1])) / 0.002 < 2e-2, (name, i)


def test_a_pass_pulls_each_weight_by_its_chance_where_the_user_still_chooses() -> None:
    made = problem([Session("q", ("a", "b", "c"), (2,))], Options())
    eye, out = np.ones(made.eye.starts[-1]), np.ones(made.out.starts[-1])
    now = made.fresh()._replace(theta=np.array(THETA), rho=np.array(RHO), eye=eye, out=out)
    with ThreadPoolExecutor(1) as pool:
        found = made.passes.expect(now, pool)
    first, second = 1 + 1.0, 1 + 0.7  # the sum of weights at the start, and with b gone
    leave = 0.4 / second  # unsatisfied and out
    still = leave / (0.6 + leave)
    assert found.log_likelihood == pytest.approx(np.log(0.3 / first) + np.log(0.6 + leave))
    np.testing.assert_allclose(found.pulled_by_all, [0.5 / first + still * 0.5 / second, 0.3 / first, 0.2 / first + still * 0.2 / second])
    np.testing.assert_allclose(found.satisfied, [0, 1 - still, 0])
    np.testing.assert_allclose(found.out_chosen[0, :2], [0, still])


# ---- recovery


def test_attractiveness_transitions_and_satisfaction_are_recovered_where_counting_is_biased() -> None:
    log = drawn(PULL, PLEASE, WHERE, WHEN, 60_000, 1)
    model = LuceClick(**{**PLAIN, "satisfaction_strength": 1.0}, tolerance=1e-8, max_iterations=2000).fit(log)
    scale = model.theta_.mean() / PULL.mean()  # weights are known up to a factor: the scale of gamma_ takes it
    np.testing.assert_allclose(model.theta_ / scale, PULL, rtol=0.08)
    assert np.abs(model.rho_ - PLEASE).max() < 0.08
    free = np.arange(1, 5)[:, None] != np.arange(1, 5)
    shares = [(table[1:] * free / (table[1:] * free).sum(axis=1, keepdims=True)) for table in (model.gamma_[0], WHERE[0])]
    assert np.abs(shares[0] - shares[1]).max() < 0.03
    counted = MultiClick(reading="normalised", pooling="global").fit(log)
    assert np.abs(counted.gamma_[1:] - shares[1]).max() > 0.06  # an attractive ad that is gone makes the others look nearer
    satisfied = np.array(counted.relevance({"query": ["q"] * 6, "ad": [f"ad{i}" for i in range(6)]})["satisfaction"])
    assert (satisfied - PLEASE).min() > 0.15  # every stop counts as satisfaction


def test_position_bias_does_not_enter_attractiveness_but_does_enter_click_rates() -> None:
    # Two ads that attract alike, one nearly always on top: counting finds it more than twice as attractive.
    rng, count = np.random.default_rng(2), 40_000
    top = rng.random(count) < 0.9
    theta, rho = np.full(2 * count, 0.6), np.zeros(2 * count)
    gamma = np.array([[[1.0, 0.25], [0.5, 0.5], [0.5, 0.5]]])
    click, clicks = pg.samples(Pages(LUCE, theta, rho, np.ones((1, 3)), gamma, np.arange(count + 1) * 2, np.zeros(count, np.int64)), rng)
    ads = [["a", "b"] if first else ["b", "a"] for first in top]
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": lists})
    model, counted = LuceClick(**PLAIN, tolerance=1e-8).fit(log), MultiClick().fit(log)
    assert model.theta_[0] / model.theta_[1] == pytest.approx(1, abs=0.1)
    rates = np.array(counted.relevance({"query": ["q", "q"], "ad": ["a", "b"]})["attractiveness"])
    assert rates[0] / rates[1] > 1.5


# ---- intervals


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_hold_the_truth_as_often_as_they_say(level: float) -> None:
    # θ of each ad from the prior itself, ρ likewise; 150 ads of 40 queries, some hundred impressions each. Tolerance: 0.06 on shares of 150 and more.
    rng = np.random.default_rng(8)
    queries, ads, count = 40, 6, 24_000
    theta = rng.gamma(2.0, 0.5, (queries, ads))
    rho = rng.beta(3.0, 5.0, (queries, ads))
    query = rng.integers(0, queries, count)
    shown = np.argsort(rng.random((count, ads)), axis=1)[:, :4]
    pages = Pages(
        LUCE,
        theta[query[:, None], shown].ravel(),
        rho[query[:, None], shown].ravel(),
        WHEN,
        WHERE,
        np.arange(count + 1) * 4,
        np.zeros(count, np.int64),
    )
    click, clicks = pg.samples(pages, rng)
    log = pa.table(
        {
            "query": [f"q{q:02}" for q in query],
            "ads": pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * 4), pa.array([f"ad{i}" for i in shown.ravel()])),
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    )
    model = LuceClick(**{**PLAIN, "attractiveness_strength": 2.0, "satisfaction_strength": 8.0}, tolerance=1e-7, max_iterations=1000).fit(log)
    asked = {"query": [f"q{q:02}" for q in range(queries) for _ in range(ads)], "ad": [f"ad{i}" for _ in range(queries) for i in range(ads)]}
    table = model.relevance(asked, level=level)
    scale = float(np.exp(np.mean(np.log(model.theta_) - np.log(theta.ravel()))))
    odds = theta.ravel() * scale
    for name, truth in (("attractiveness", odds / (1 + odds)), ("satisfaction", rho.ravel())):
        low, high = np.array(table[f"{name}_low"]), np.array(table[f"{name}_high"])
        assert abs(float(((low <= truth) & (truth <= high)).mean()) - level) < 0.08, name


# ---- text


def headlines(rng: np.random.Generator, ads: int, words: int, spread: float) -> tuple[TokenLists, Float64]:
    """Ads of eight words each, and their true rates: the product of what each word does."""
    text = np.stack([rng.choice(words, 8, replace=False) for _ in range(ads)])
    effect = rng.normal(0, spread, words)
    tokens = TokenLists(np.arange(ads + 1) * 8, text.ravel().astype(np.int32), np.ones(8 * ads, np.int32))
    return tokens, np.exp(effect[text].sum(axis=1) - 1)


def test_a_log_linear_text_model_finds_the_effects_of_words_and_is_chosen_where_they_multiply() -> None:
    rng = np.random.default_rng(11)
    tokens, rate = headlines(rng, 3_000, 200, 0.3)
    exposure = rng.uniform(20, 200, 3_000)
    clicks = rng.poisson(exposure * rate).astype(np.float64)
    model = chosen(tokens, exposure, clicks, 200, np.arange(3_000))
    assert isinstance(model, LogLinear)
    means = word_means(tokens, exposure, clicks, 200)
    errors = [np.log(each.rate(tokens)) - np.log(rate) for each in (model, means)]
    assert np.std(errors[0]) < 0.1 < np.std(errors[1])


def test_where_words_say_nothing_the_text_models_say_the_overall_rate() -> None:
    rng = np.random.default_rng(12)
    tokens, _ = headlines(rng, 500, 400, 0.0)
    exposure = rng.uniform(1, 5, 500)
    clicks = rng.poisson(exposure * 0.4).astype(np.float64)
    rate = chosen(tokens, exposure, clicks, 400, np.arange(500)).rate(tokens)
    assert np.abs(rate / (clicks.sum() / exposure.sum()) - 1).max() < 0.35
    nothing = TokenLists(np.array([0, 1]), np.array([-1], np.int32), np.ones(1, np.int32))
    for model in (word_means(tokens, exposure, clicks, 400), log_linear(tokens, exposure, clicks, 400, 1e9)):
        assert model.rate(nothing)[0] == pytest.approx(clicks.sum() / exposure.sum(), rel=0.01)


def test_the_slope_of_the_log_linear_objective_is_zero_where_it_is_fitted() -> None:
    rng = np.random.default_rng(13)
    tokens, rate = headlines(rng, 300, 50, 0.4)
    exposure = np.full(300, 40.0)
    clicks = rng.poisson(exposure * rate).astype(np.float64)
    model = log_linear(tokens, exposure, clicks, 50, 5.0)
    left = (clicks - exposure * model.rate(tokens)) / np.sqrt(8)
    slope = np.bincount(tokens.words, np.repeat(left, 8), 50) - 5.0 * model.weights
    assert np.abs(slope).max() < 0.05
    assert abs(left.sum()) < 1e-6


def test_words_are_the_prior_of_ads_never_seen_without_the_bias_of_where_they_stood(tmp_path: Path) -> None:
    # Words are equally good; "low" ads stand below, where nobody looks. Click rates blame the word, exposure does not.
    rng, count = np.random.default_rng(14), 12_000
    gamma = np.array([[[1.0, 0.2], [0.5, 0.5], [0.5, 0.5]]])
    pages = Pages(LUCE, np.full(2 * count, 0.6), np.zeros(2 * count), np.ones((1, 3)), gamma, np.arange(count + 1) * 2, np.zeros(count, np.int64))
    click, clicks = pg.samples(pages, rng)
    low = rng.random(count) < 0.85  # … most of the time
    ads = [[f"h{i % 9}", f"l{i % 7}"] if below else [f"l{i % 7}", f"h{i % 9}"] for i, below in enumerate(low)]
    text = {"ad": [f"h{i}" for i in range(9)] + [f"l{i}" for i in range(7)] + ["new-h", "new-l"]}
    text["title"] = [("high" if "h" in ad else "low") + f" {ad[-1]}" for ad in text["ad"]]
    text |= {"description": [""] * 18, "display_url": [""] * 18}
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": lists})
    model = LuceClick(**PLAIN, attractiveness_prior="words").fit(log, ads=text)
    asked = {"query": ["q", "q"], "ad": ["new-h", "new-l"]}
    ours, counted = (each.relevance(asked, text=text)["attractiveness"].to_numpy() for each in (model, MultiClick().fit(log, ads=text)))
    assert ours[0] / ours[1] == pytest.approx(1, abs=0.15)
    assert counted[0] / counted[1] > 1.25
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").relevance(asked, text=text) == model.relevance(asked, text=text)


# ---- life with it


def test_a_weight_of_two_equals_the_row_twice_with_every_addition() -> None:
    sessions = random_sessions(np.random.default_rng(6), 120)
    twice = LuceClick(**RICH).fit(as_table([each for each in sessions for _ in range(2)]))
    weighted = LuceClick(**RICH).fit(as_table([Session(s.query, s.ads, s.clicks, 2.0) for s in sessions], weights=True))
    np.testing.assert_allclose(weighted.theta_, twice.theta_, rtol=1e-9)
    np.testing.assert_allclose(weighted.gamma_, twice.gamma_, rtol=1e-9)


def test_a_saved_model_with_every_addition_answers_the_same_to_the_last_bit_and_can_be_updated(tmp_path: Path) -> None:
    log, day = (as_table(random_sessions(np.random.default_rng(seed), 150)) for seed in (7, 8))
    model = LuceClick(**RICH).fit(log)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.log_prob(day).tobytes() == model.log_prob(day).tobytes()
    assert again.relevance() == model.relevance()
    assert again.update(day).log_prob(log).tobytes() == model.update(day).log_prob(log).tobytes()


def test_an_update_comes_near_to_a_fit_of_both_days_in_fewer_iterations() -> None:
    one, two = drawn(PULL, PLEASE, WHERE, WHEN, 8_000, 5), drawn(PULL, PLEASE, WHERE, WHEN, 8_000, 6)
    whole = LuceClick(**PLAIN).fit(pa.concat_tables([one, two]))
    updated = LuceClick(**PLAIN).fit(one).update(two)
    assert updated.iterations_ <= whole.iterations_
    probe = drawn(PULL, PLEASE, WHERE, WHEN, 4_000, 7)
    alone = LuceClick(**PLAIN).fit(one).log_prob(probe).mean()
    assert updated.log_prob(probe).mean() > whole.log_prob(probe).mean() - 5e-4
    assert updated.log_prob(probe).mean() > alone - 1e-4
    assert updated.relevance()["impressions"].to_numpy().sum() == pytest.approx(16_000 * 4)


def test_an_update_lets_old_days_fade_and_takes_in_new_queries_ads_and_longer_pages() -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1]] * 40}
    new = {"query": ["q", "r"] * 20, "ads": [["a", "b", "c"]] * 40, "clicks": [[2]] * 40}
    kept, faded = (LuceClick(**{**PLAIN, "query_strength": 2.0}).fit(old).update(new, decay=decay) for decay in (1.0, 0.05))
    page = {"query": ["q"], "ads": [["a", "b", "c"]]}
    assert faded.click_prob(page)[0, 0] < kept.click_prob(page)[0, 0]
    assert faded.click_prob(page)[0, 1] > kept.click_prob(page)[0, 1]
    assert set(kept.relevance()["ad"].to_pylist()) == {"a", "b", "c"}
    with pytest.raises(CannotAnswerError, match="fade"):
        kept.update(new, forget=old)


@pytest.mark.parametrize("settings", [{}, {"kinds": 2, "mix_strength": 3.0}])
@pytest.mark.parametrize("seed", range(3))
def test_an_update_climbs_though_pairs_and_queries_become_more_frequent_ones(seed: int, settings: dict[str, Any], tmp_path: Path) -> None:
    weeks = simulate(600, weeks=3, queries=20, seed=seed).weeks
    given = {**PLAIN, "query_strength": 2.0, "satisfaction_prior": 0.5, **settings}
    model = LuceClick(**given).fit(weeks[0])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, LuceClick)
    for each in (model, loaded):
        for week in weeks[1:]:
            each.update(week, decay=0.9)  # the class whose prior mean is 1 would change: it stays
        assert each.rare_[model.largest_[0]] == 1.0
        assert each.seldom_[model.largest_[1]] == 1.0
        assert (np.diff(each.objective_) > -1e-9 * 600).all()


def test_what_an_update_remembers_of_queries_adds_up_when_there_was_one_query_and_now_are_more() -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1], [], [1, 2], [2]] * 10}
    new = {"query": ["q", "r", "s", "r"] * 10, "ads": [["a", "b", "c"]] * 40, "clicks": [[2], [], [3, 1], [1]] * 10}
    model = LuceClick(**{**PLAIN, "query_strength": 2.0, "kinds": 2, "mix_strength": 2.0}).fit(old).update(new, decay=0.5)
    memory = model._memory
    assert memory.query_chosen.shape == (3,)
    assert memory.query_chosen.sum() == pytest.approx(memory.out_chosen.sum(), rel=1e-9)
    assert memory.kind_chosen.sum(axis=1) == pytest.approx([40 * 0.5 + 10, 20, 10], rel=1e-9)


def test_one_new_ad_without_a_click_does_not_speak_for_all_that_were_never_seen() -> None:
    log = {"query": ["q"] * 400, "ads": [["a", "b"]] * 400, "clicks": [[1], [], [2], [2, 1]] * 100}
    model = LuceClick(**PLAIN).fit(log)
    before = model.relevance({"query": ["q"], "ad": ["never"]})["attractiveness"][0].as_py()
    model.update({"query": ["q"], "ads": [["a", "new"]], "clicks": [[]]})
    assert model.relevance({"query": ["q"], "ad": ["never"]})["attractiveness"][0].as_py() == pytest.approx(before, rel=0.2)


def test_words_say_the_same_of_a_new_ad_after_many_updates_with_days_that_are_alike() -> None:
    rng = np.random.default_rng(12)
    ads = {"ad": [f"a{i}" for i in range(12)] + ["new"], "title": [f"{'cheap' if i % 2 else 'fine'} w{i}" for i in range(12)] + ["cheap new"]}

    def day() -> dict[str, list[Any]]:
        shown = [rng.permutation(12)[:3] for _ in range(600)]
        clicks = [[int(j) + 1 for j, i in enumerate(page) if rng.random() < (0.3 if i % 2 else 0.05)][:1] for page in shown]
        return {"query": ["q"] * 600, "ads": [[f"a{i}" for i in page] for page in shown], "clicks": clicks}

    model = LuceClick(attractiveness_prior="words", **PLAIN).fit(day(), ads=ads)
    said = [model.relevance({"query": ["q"], "ad": ["new"]})["attractiveness"][0].as_py()]
    for _ in range(3):
        said.append(model.update(day()).relevance({"query": ["q"], "ad": ["new"]})["attractiveness"][0].as_py())
    assert max(said) < 1.5 * min(said)


def test_unseen_queries_and_ads_get_what_is_common_to_all() -> None:
    model = LuceClick(**{**RICH, "taste_strength": None}).fit(as_table(random_sessions(np.random.default_rng(9), 200)))
    strange = {"query": ["never", "never"], "ads": [["x", "y"], ["a", "x"]], "clicks": [[2], [1, 2]]}
    assert np.isfinite(model.log_prob(strange)).all()
    table = model.relevance({"query": ["never"], "ad": ["x"]})
    assert table["attractiveness"][0].as_py() == pytest.approx(model.unseen_ / (1 + model.unseen_))
    assert table["satisfaction"][0].as_py() == pytest.approx(model.satisfaction_)


def test_rare_queries_and_pairs_have_prior_means_of_their_own() -> None:
    # Frequent queries are given up half the time, rare ones hardly ever: a query never seen is taken for a rare one.
    often = [Session(f"often{i % 3}", ("a", "b"), (1,) if i % 2 else ()) for i in range(300)]
    rare = [Session(f"rare{i}", ("c", "d"), (1,) if i % 9 else ()) for i in range(100)]
    model = LuceClick(**{**PLAIN, "query_strength": 2.0}, tolerance=1e-7).fit(as_table([*often, *rare]))
    plenty = model.click_prob({"query": ["often0"], "ads": [["a", "b"]]})[0, 0]
    assert model.click_prob({"query": ["never"], "ads": [["e", "f"]]})[0, 0] > plenty + 0.15


def test_a_number_as_prior_is_the_attractiveness_of_an_ad_never_seen() -> None:
    model = LuceClick(**PLAIN, attractiveness_prior=0.2).fit(as_table(random_sessions(np.random.default_rng(10), 100)))
    assert model.relevance({"query": ["never"], "ad": ["x"]})["attractiveness"][0].as_py() == pytest.approx(0.2)


@pytest.mark.parametrize(
    "settings", [{"kinds": 0}, {"kinds": 1.5}, {"attractiveness_strength": None}, {"query_strength": "much"}, {"mix_strength": -1}]
)
def test_a_wrong_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        LuceClick(**settings)
