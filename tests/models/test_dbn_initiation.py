"""DBN with initiation and a continuation per query: by hand, by brute force, and recovery."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.engines import as_grouped
from reclick.errors import SettingError, StoreError
from reclick.models import DBN
from reclick.models.dbn import DBNParameters, e_step
from reclick.models.kernels.cascade import as_cascade_block
from tests.support.cascades import (
    assert_keeps_its_promises,
    assert_never_falls,
    drawn,
    random_pages,
    small_log,
    spread,
    with_values,
)
from tests.support.enumeration import Clicks
from tests.support.generative import enumerated, satisfied_or_tired, scanned

THETA, RHO, CONTINUATION, INITIATION = (0.5, 0.3, 0.2), (0.4, 0.6, 0.2), 0.8, 0.6
SET_PROBABILITIES: dict[Clicks, float] = {
    (): 0.601120,
    (1,): 0.240672,
    (2,): 0.067392,
    (3,): 0.026880,
    (1, 2): 0.0404352,
    (1, 3): 0.016128,
    (2, 3): 0.004608,
    (1, 2, 3): 0.0027648,
}
# initiated; examinations; satisfied clicks; continued; continuable
EXPECTATIONS: dict[Clicks, tuple[float, list[float], float, float, float]] = {
    (): (0.334575, [0.334575, 0.234762, 0.178866], 0, 0.413628, 0.569337),
    (1,): (1, [1, 0.351815, 0.268049], 0.498604, 0.619864, 0.853211),
    (2,): (1, [1, 1, 0.273504], 0.641026, 1.273504, 1.358974),
    (1, 3): (1, [1, 1, 1], 0.2, 2, 2),
}


def page(clicks: list[Clicks]) -> dict[str, list[object]]:
    size = len(clicks)
    return {"query": ["q"] * size, "ads": [list("abc")] * size, "clicks": [*map(list, clicks)]}


def the_model() -> DBN:
    model = DBN(continuation="query", initiation="query").fit(page([(1,), ()]))
    model.theta_, model.rho_ = np.array(THETA), np.array(RHO)
    model.query_continuation_, model.query_initiation_ = np.array([0.8]), np.array([0.6])
    return model


def test_sets_have_the_probabilities_of_the_hand_worked_example() -> None:
    model, sets = the_model(), list(SET_PROBABILITIES)
    np.testing.assert_allclose(
        np.exp(model.log_set_prob(page(sets))), list(SET_PROBABILITIES.values()), atol=5e-8
    )
    np.testing.assert_allclose(model.click_prob(("q", list("abc")))[0], [0.3, 0.1152, 0.0503808])


@pytest.mark.parametrize("clicks", EXPECTATIONS)
def test_expectations_are_those_of_the_hand_worked_example(clicks: Clicks) -> None:
    parameters = DBNParameters(
        np.array(THETA),
        np.array(RHO),
        np.array([CONTINUATION]),
        initiation=np.array([INITIATION]),
    )
    found = e_step(parameters, as_cascade_block(as_grouped(page([clicks])).whole))
    initiated, examinations, satisfied, continued, continuable = EXPECTATIONS[clicks]
    sums = found.pairs
    assert np.exp(found.log_likelihood) == pytest.approx(SET_PROBABILITIES[clicks], abs=5e-8)
    np.testing.assert_allclose(sums["examinations"], examinations, atol=5e-7)
    assert sums["satisfied"].sum() == pytest.approx(satisfied, abs=5e-7)
    assert sums["initiated"] == pytest.approx(initiated, abs=5e-7)
    assert sums["continued"] == pytest.approx(continued, abs=5e-7)
    assert sums["continuable"] == pytest.approx(continuable, abs=5e-7)


def test_the_likelihood_is_that_of_brute_force_over_the_latents() -> None:
    chances = [(t, r, CONTINUATION) for t, r in zip(THETA, RHO, strict=True)]
    scans = enumerated(chances, lambda world: scanned(world, satisfied_or_tired))
    sets = [s for size in range(4) for s in itertools.combinations((1, 2, 3), size)]
    expected = [INITIATION * scans[s] + (1 - INITIATION) * (s == ()) for s in sets]
    assert sum(expected) == pytest.approx(1)
    np.testing.assert_allclose(np.exp(the_model().log_prob(page(sets))), expected, rtol=1e-7)


@pytest.mark.parametrize("continuation", ["query", 0.8])
@pytest.mark.parametrize("initiation", ["one", "query"])
@pytest.mark.parametrize("strength", [0, 20])
def test_the_objective_never_falls(
    continuation: str | float, initiation: str, strength: float
) -> None:
    model = DBN(
        continuation=continuation,
        initiation=initiation,
        query_strength=strength,
        max_iterations=400,
    ).fit(small_log(3))
    assert_never_falls(model.objective_)
    assert model.converged_
    assert (model.query_initiation_ is None) == (initiation == "one")
    assert (model.query_continuation_ is None) == (continuation != "query")


def test_one_initiation_is_the_share_of_sessions_that_initiated() -> None:
    log = small_log(4)
    model = DBN(continuation=0.8, initiation="one", max_iterations=3000, tolerance=1e-13).fit(log)
    parameters = DBNParameters(model.theta_, model.rho_, 0.8, initiation=model.initiation_)
    found = e_step(parameters, as_cascade_block(as_grouped(log).whole))
    # one pseudo-session, of which 0.9 initiated
    share = (found.totals["moves"][0] + 0.9) / (as_grouped(log).weight.sum() + 1)
    assert model.initiation_ == pytest.approx(share, rel=1e-4)
    assert 0 < model.initiation_ < 1


def test_parameters_are_recovered_from_its_own_samples() -> None:
    # Tolerance: 0.03 for θ, μ and λ, 0.1 for ρ, which is seen only by what is not clicked below.
    n, ads = 40_000, 6
    truth = {"initiation": np.array([0.9, 0.5]), "continuation": np.array([0.7, 0.95])}
    theta = np.concatenate([spread(ads, 0.3, 0.8), spread(ads, 0.7, 0.4)])
    rho = np.concatenate([spread(ads, 0.3, 0.1), spread(ads, 0.1, 0.3)])
    pages = pa.concat_tables(
        random_pages(n, ads, 5, seed).set_column(0, "query", pa.array([name] * n))
        for seed, name in enumerate("ab")
    )
    model = with_values(
        DBN(continuation="query", initiation="query"),
        pages,
        theta_=theta,
        rho_=rho,
        query_initiation_=truth["initiation"],
        query_continuation_=truth["continuation"],
    )
    found = DBN(
        continuation="query",
        initiation="query",
        attractiveness_prior="overall",
        max_iterations=1000,
        tolerance=1e-9,
    ).fit(drawn(model, pages, 2))
    assert found.query_initiation_ is not None
    assert found.query_continuation_ is not None
    np.testing.assert_allclose(found.query_initiation_, truth["initiation"], atol=0.03)
    np.testing.assert_allclose(found.query_continuation_, truth["continuation"], atol=0.03)
    np.testing.assert_allclose(found.theta_, theta, atol=0.03)
    np.testing.assert_allclose(found.rho_, rho, atol=0.1)


def test_a_query_with_few_sessions_is_drawn_to_the_mean_of_all() -> None:
    clicks: list[list[int]] = [[1], [], [], [2]] * 10 + [[1, 2, 3], [2, 3], [1, 3], [1]] * 10
    log = {"query": ["few"] * 40 + ["many"] * 40, "ads": [list("abc")] * 80, "clicks": clicks}
    loose, strong = (
        DBN(continuation="query", initiation="query", query_strength=s).fit(log) for s in (1, 1e6)
    )
    for name in ("initiation", "continuation"):
        own, overall = getattr(strong, f"query_{name}_"), getattr(strong, f"{name}_")
        np.testing.assert_allclose(own, overall, atol=1e-3)
        few, many = getattr(loose, f"query_{name}_")
        assert few < many - 0.01


@pytest.mark.parametrize("initiation", [None, "one", "query"])
def test_promises_are_kept(initiation: str | None, tmp_path: Path) -> None:
    def make() -> DBN:
        return DBN(continuation="query", initiation=initiation)

    assert_keeps_its_promises(make, tmp_path)


@pytest.mark.parametrize("wrong", [{"initiation": "many"}, {"initiation": 0.5}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="initiation"):
        DBN(**wrong)


def test_a_folder_with_altered_probabilities_is_refused() -> None:
    model = the_model()
    values, tables = model._to_tables()
    columns = {name: tables["queries"][name] for name in tables["queries"].column_names}
    for altered in (
        pa.table({**columns, "query_initiation_": [1.5]}),
        pa.table({"query_initiation_": [0.5, 0.5]}),
        pa.table({**columns, "other_": [0.5]}),
    ):
        with pytest.raises(StoreError, match="queries is damaged"):
            DBN()._from_tables(values, {**tables, "queries": altered})
