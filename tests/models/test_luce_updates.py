"""LuceClick from day to day: saved, loaded, and continued with new sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.errors import CannotAnswerError, StoreError
from reclick.models import LuceClick, load
from reclick.simulation import simulate
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import GAMMA, OMEGA, PLAIN, RHO, RICH, THETA, draw


def test_a_saved_model_with_every_addition_answers_the_same_to_the_last_bit_and_can_be_updated(
    tmp_path: Path,
) -> None:
    log, day = (as_table(random_sessions(np.random.default_rng(seed), 150)) for seed in (7, 8))
    model = LuceClick(**RICH).fit(log)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.log_prob(day).tobytes() == model.log_prob(day).tobytes()
    assert again.relevance() == model.relevance()
    assert again.update(day).log_prob(log).tobytes() == model.update(day).log_prob(log).tobytes()


def test_a_model_saved_with_other_statistics_is_refused() -> None:
    model = LuceClick(**PLAIN).fit(as_table(random_sessions(np.random.default_rng(7), 20)))
    values, tables = model._to_tables()
    for other in (
        {name: table for name, table in tables.items() if name != "luce_cells"},
        tables | {"luce_information": tables["luce_information"].select([0])},
    ):
        with pytest.raises(StoreError, match="Fit it again"):
            LuceClick(**PLAIN)._from_tables(values, other)


def test_an_update_comes_near_to_a_fit_of_both_days_in_fewer_iterations() -> None:
    one, two = (
        draw(THETA, RHO, GAMMA, OMEGA, 8_000, 5),
        draw(THETA, RHO, GAMMA, OMEGA, 8_000, 6),
    )
    whole = LuceClick(**PLAIN).fit(pa.concat_tables([one, two]))
    updated = LuceClick(**PLAIN).fit(one).update(two)
    assert updated.iterations_ <= whole.iterations_
    probe = draw(THETA, RHO, GAMMA, OMEGA, 4_000, 7)
    alone = LuceClick(**PLAIN).fit(one).log_prob(probe).mean()
    assert updated.log_prob(probe).mean() > whole.log_prob(probe).mean() - 5e-4
    assert updated.log_prob(probe).mean() > alone - 1e-4
    assert updated.relevance()["impressions"].to_numpy().sum() == pytest.approx(16_000 * 4)


def test_an_update_decays_old_days_and_takes_in_new_queries_ads_and_longer_pages() -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1]] * 40}
    new = {"query": ["q", "r"] * 20, "ads": [["a", "b", "c"]] * 40, "clicks": [[2]] * 40}
    kept, decayed = (
        LuceClick(**{**PLAIN, "query_strength": 2.0}).fit(old).update(new, decay=decay)
        for decay in (1.0, 0.05)
    )
    page = {"query": ["q"], "ads": [["a", "b", "c"]]}
    assert decayed.click_prob(page)[0, 0] < kept.click_prob(page)[0, 0]
    assert decayed.click_prob(page)[0, 1] > kept.click_prob(page)[0, 1]
    assert set(kept.relevance()["ad"].to_pylist()) == {"a", "b", "c"}
    with pytest.raises(CannotAnswerError, match="decay"):
        kept.update(new, forget=old)


@pytest.mark.parametrize("settings", [{}, {"components": 2, "mixing_strength": 3.0}])
@pytest.mark.parametrize("seed", range(3))
def test_an_update_never_falls_though_pairs_and_queries_become_more_frequent(
    seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    weeks = simulate(600, weeks=3, queries=20, seed=seed).weeks
    given = {**PLAIN, "query_strength": 2.0, "satisfaction_prior": 0.5, **settings}
    model = LuceClick(**given).fit(weeks[0])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, LuceClick)
    for each in (model, loaded):
        for week in weeks[1:]:
            each.update(week, decay=0.9)  # the class whose prior mean is 1 would change: it stays
        assert each._pair_class_mean[model._reference_classes[0]] == 1.0
        assert each._query_class_mean[model._reference_classes[1]] == 1.0
        assert (np.diff(each.objective_) > -1e-9 * 600).all()


def test_past_statistics_of_queries_add_up_when_there_was_one_query_and_now_are_more() -> None:
    old = {"query": ["q"] * 40, "ads": [["a", "b"]] * 40, "clicks": [[1], [], [1, 2], [2]] * 10}
    new = {
        "query": ["q", "r", "s", "r"] * 10,
        "ads": [["a", "b", "c"]] * 40,
        "clicks": [[2], [], [3, 1], [1]] * 10,
    }
    model = (
        LuceClick(**{**PLAIN, "query_strength": 2.0, "components": 2, "mixing_strength": 2.0})
        .fit(old)
        .update(new, decay=0.5)
    )
    past = model._past
    assert past.query_observed.shape == (3,)
    assert past.query_observed.sum() == pytest.approx(past.outside_observed.sum(), rel=1e-9)
    assert past.component_sessions.sum(axis=1) == pytest.approx([40 * 0.5 + 10, 20, 10], rel=1e-9)


def test_one_new_ad_without_a_click_does_not_decide_for_all_unseen_ones() -> None:
    log = {"query": ["q"] * 400, "ads": [["a", "b"]] * 400, "clicks": [[1], [], [2], [2, 1]] * 100}
    model = LuceClick(**PLAIN).fit(log)
    before = model.relevance({"query": ["q"], "ad": ["never"]})["attractiveness"][0].as_py()
    model.update({"query": ["q"], "ads": [["a", "new"]], "clicks": [[]]})
    assert model.relevance({"query": ["q"], "ad": ["never"]})["attractiveness"][
        0
    ].as_py() == pytest.approx(before, rel=0.2)
