"""LuceClick from day to day: saved, loaded, and continued with new sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.errors import CannotAnswerError, StoreError
from reclick.fitting.attractiveness_prior import AdRecord, PairPrior
from reclick.models import LuceClick, load
from reclick.models.luce.parameters import Hyperparameters
from reclick.simulation import simulate
from tests.support.enumeration import ads_table, as_table, random_sessions
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, RHO, RICH, THETA, draw, draw_queries


@pytest.mark.parametrize("settings", [RICH, {"tune": "off"}])
def test_a_saved_model_answers_the_same_to_the_last_bit_and_can_be_updated(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    log, day = (as_table(random_sessions(np.random.default_rng(seed), 150)) for seed in (7, 8))
    model = LuceClick(**settings).fit(log)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, LuceClick)
    assert again.log_prob(day).tobytes() == model.log_prob(day).tobytes()
    assert again.relevance() == model.relevance()
    assert again.prior_report_ == model.prior_report_
    assert again.hyperparameters_ == model.hyperparameters_
    assert again.update(day).log_prob(log).tobytes() == model.update(day).log_prob(log).tobytes()
    assert again.relevance() == model.relevance()


def test_a_model_saved_by_another_version_is_refused() -> None:
    model = LuceClick(**PLAIN).fit(as_table(random_sessions(np.random.default_rng(7), 20)))
    values, tables = model._to_tables()
    del values["mixing_prior_"]
    with pytest.raises(StoreError, match="Fit it again"):
        LuceClick(**PLAIN)._from_tables(values, tables)


@pytest.mark.parametrize("settings", [PLAIN, {**PLAIN, "query_strength": 2.0}, RICH])
def test_an_update_comes_near_to_a_fit_of_both_days(
    settings: dict[str, Any],
) -> None:
    rng = np.random.default_rng(5)
    theta, rho = rng.gamma(2.0, 0.5, (30, 6)), rng.beta(3.0, 5.0, (30, 6))
    one, two, probe = (draw_queries(theta, rho, GAMMA, OMEGA, 5_000, rng) for _ in range(3))
    whole, alone = LuceClick(**settings).fit(pa.concat_tables([one, two])), LuceClick(**settings)
    updated = alone.fit(one).clone().fit(one).update(two)
    assert updated.iterations_ <= 60
    scores = [model.log_prob(probe).mean() for model in (alone, updated, whole)]
    assert scores[1] > scores[2] - 1e-3
    assert scores[1] > scores[0]
    np.testing.assert_allclose(updated.theta_, whole.theta_, rtol=0.25)
    assert np.std(np.log(updated.theta_ / whole.theta_)) < 0.06
    off = np.abs(updated.theta_information_ / whole.theta_information_ - 1)
    assert np.quantile(off, 0.95) < 0.2
    ratio = np.median(updated.rho_information_ / whole.rho_information_)
    assert ratio == pytest.approx(1, abs=0.1)
    assert updated.relevance()["impressions"].to_numpy().sum() == pytest.approx(10_000 * 4)


def test_an_update_decays_old_days_and_takes_in_new_queries_ads_and_longer_pages() -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1]] * 40}
    new = {"query": ["q", "r"] * 20, "ads": [["a", "b", "c"]] * 40, "clicks": [[2]] * 40}
    full, faded = (
        LuceClick(**{**PLAIN, "query_strength": 2.0}).fit(old).update(new, decay=decay)
        for decay in (1.0, 0.05)
    )
    page = {"query": ["q"], "ads": [["a", "b", "c"]]}
    assert faded.click_prob(page)[0, 0] < full.click_prob(page)[0, 0]
    assert faded.click_prob(page)[0, 1] > full.click_prob(page)[0, 1]
    assert set(full.relevance()["ad"].to_pylist()) == {"a", "b", "c"}
    with pytest.raises(CannotAnswerError, match="decay"):
        full.update(new, forget=old)


def test_the_prior_of_an_update_is_from_decayed_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1], [], [2], [1, 2]] * 10}
    new = {"query": ["r"] * 8, "ads": [["a", "c"]] * 8, "clicks": [[1], []] * 4}
    model = LuceClick(**{**PLAIN, "attractiveness_prior": "auto"}).fit(old)
    records: list[AdRecord] = []
    before = model._state.ad_record()
    set_prior = LuceClick._set_prior

    def keep_record(model: LuceClick, record: AdRecord, hyper: Hyperparameters) -> PairPrior:
        records.append(record)
        return set_prior(model, record, hyper)

    monkeypatch.setattr(LuceClick, "_set_prior", keep_record)
    model.update(new, decay=0.25)
    first, after = records
    assert before.choices is not None
    assert first.choices is not None
    zeros = [0.0, 0.0]  # of the new pairs, (r, a) and (r, c)
    np.testing.assert_allclose(first.clicks, [*0.25 * before.clicks, *zeros])
    np.testing.assert_allclose(first.exposure, [*0.25 * before.exposure, *zeros])
    np.testing.assert_allclose(first.choices.number, [*0.25 * before.choices.number, *zeros])
    np.testing.assert_allclose(first.choices.rivals, [*before.choices.rivals, *zeros])
    np.testing.assert_allclose(after.clicks[:2], first.clicks[:2])


def test_past_choices_are_added_up_for_each_pair_at_each_position() -> None:
    old = {
        "query": ["q"] * 60,
        "ads": [["a", "b"], ["b", "a"]] * 30,
        "clicks": [[1], [], [2], [2, 1], [1], [1]] * 10,
    }
    new = {
        "query": ["q", "r"] * 20,
        "ads": [["c", "b", "a"], ["a", "b", "c"]] * 20,
        "clicks": [[2], [3], [], [1, 3]] * 10,
    }
    given = {**PLAIN, "position_effect_strength": 2.0, "components": 2, "mixing_strength": 2.0}
    model = LuceClick(**given).fit(old)
    assert past_clicks(model) == {
        ("q", "a", 0): 20, ("q", "a", 1): 10, ("q", "b", 0): 20, ("q", "b", 1): 10,
    }  # fmt: skip
    model.update(new, decay=0.5)
    assert past_clicks(model) == {
        ("q", "a", 0): 10, ("q", "a", 1): 5, ("q", "a", 2): 0,
        ("q", "b", 0): 10, ("q", "b", 1): 5 + 10, ("q", "c", 0): 0,
        ("r", "a", 0): 10, ("r", "b", 1): 0, ("r", "c", 2): 20,
    }  # fmt: skip
    state = model._state
    ends = state.parameters.outside.past.observed.sum()
    assert state.parameters.query_outside.past.observed.sum() == pytest.approx(ends)
    assert state.parameters.mixing.members.sum(axis=1) == pytest.approx([60 * 0.5 + 20, 20])


def past_clicks(model: LuceClick) -> dict[tuple[str, str, int], float]:
    counts, layout = model._pairs.counts, model._state.layout
    query, ad = counts.queries.to_pylist(), counts.ads.to_pylist()
    names = [
        (query[counts.pair_query[pair]], ad[counts.pair_ad[pair]], int(position))
        for pair, position in zip(layout.cells.pair, layout.cells.position, strict=True)
    ]
    return dict(zip(names, model._state.parameters.appeal.past.observed.tolist(), strict=True))


@pytest.mark.parametrize("settings", [{}, {"components": 2, "mixing_strength": 3.0}])
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_of_an_update_never_falls(
    seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    weeks = simulate(600, weeks=3, queries=20, seed=seed).weeks
    model = LuceClick(**{**PLAIN, "query_strength": 2.0, **settings}).fit(weeks[0])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, LuceClick)
    for each in (model, loaded):
        for week in weeks[1:]:
            each.update(week, decay=0.9)
            assert (np.diff(each.objective_) > -1e-9 * 600).all()
            assert each.converged_


@pytest.mark.parametrize("seed", range(3))
def test_updates_with_every_addition_and_pages_that_show_an_ad_twice(seed: int) -> None:
    days = [as_table(random_sessions(np.random.default_rng([seed, i]), 80)) for i in range(3)]
    model = LuceClick(**RICH, tolerance=1e-9, max_iterations=200).fit(days[0])
    for day in days[1:]:
        model.update(day, decay=0.8)
        assert (np.diff(model.objective_) > -1e-9 * 80).all()


def test_an_update_with_days_that_are_alike_changes_little() -> None:
    days = [draw(THETA, RHO, GAMMA, OMEGA, 8_000, seed) for seed in range(5)]
    model = LuceClick(**PLAIN).fit(days[0])
    for day in days[1:]:
        model.update(day, decay=0.9)
    np.testing.assert_allclose(model.theta_, THETA, rtol=0.25)
    assert np.abs(model.rho_ - RHO).max() < 0.15


def test_one_new_ad_without_a_click_does_not_decide_for_all_unseen_ones() -> None:
    log = {"query": ["q"] * 400, "ads": [["a", "b"]] * 400, "clicks": [[1], [], [2], [2, 1]] * 100}
    model = LuceClick(**PLAIN).fit(log)
    asked = {"query": ["q"], "ad": ["never"]}
    before = model.relevance(asked)["attractiveness"][0].as_py()
    model.update({"query": ["q"], "ads": [["a", "new"]], "clicks": [[]]})
    after = model.relevance(asked)["attractiveness"][0].as_py()
    assert after == pytest.approx(before, rel=0.2)


def test_an_ad_of_the_new_day_is_known_on_other_queries() -> None:
    rng = np.random.default_rng(2)

    def day(ads: list[str]) -> dict[str, list[Any]]:
        pages = [(f"q{i % 8}", ads[int(j)]) for i, j in enumerate(rng.integers(0, len(ads), 800))]
        rate = [0.7 if ad.startswith("good") else 0.1 for _, ad in pages]
        return {
            "query": [query for query, _ in pages],
            "ads": [[ad] for _, ad in pages],
            "clicks": [[1] if rng.random() < p else [] for p in rate],
        }

    model = LuceClick(tune="off").fit(
        day([f"{kind}{i}" for kind in ("good", "bad") for i in (1, 2)])
    )
    model.update(day(["good3", "bad3"]))
    asked = {"query": ["never", "never"], "ad": ["good3", "bad3"]}
    good, bad = model.relevance(asked)["attractiveness"].to_pylist()
    assert good > 0.5 > 0.25 > bad


def test_loading_does_not_estimate_the_prior_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 200))
    model = LuceClick(tune="off").fit(log, ads=ads_table({"a": "red shoes", "b": "blue shoes"}))
    model.save(tmp_path / "model")
    monkeypatch.setattr("reclick.models.base.click_model.fit_ad_prior", None)
    loaded = load(tmp_path / "model")
    pages = {"query": ["never", "q"], "ads": [["a", "never"], ["b", "a"]]}
    np.testing.assert_array_equal(loaded.click_prob(pages), model.click_prob(pages))
    assert loaded.relevance().equals(model.relevance())
