"""The best page of fitted models against all pages, one by one."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.auction import slates
from tests.auction.conftest import Run
from tests.support.auction_models import ADS, MODELS, QUERY, fit_model
from tests.support.enumeration import as_table, random_sessions

VALUES = {"a": 1.0, "b": 0.2, "c": 3.0, "d": 0.0, "e": 1.5, "new": 2.0}


def list_pages(slots: int) -> list[tuple[str, ...]]:
    return list(itertools.permutations(ADS, slots))


def worth_of_pages(
    model: rc.ClickModel, pages: list[tuple[str, ...]], objective: object
) -> np.ndarray:
    log = {"query": [QUERY] * len(pages), "ads": pages}
    if objective == "satisfaction":
        return np.asarray(model.pages(log).satisfaction_prob())
    value = [[1.0 if objective == "clicks" else VALUES[ad] for ad in page] for page in pages]
    return np.asarray(np.sum(model.click_prob(log) * np.array(value), axis=1))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("objective", ["clicks", "satisfaction", {"value": VALUES}])
def test_no_page_is_better_than_the_best(name: str, slots: int, objective: Any) -> None:
    model = fit_model(name)
    if objective == "satisfaction" and not model.satisfaction:
        with pytest.raises(rc.CannotAnswerError, match="does not estimate satisfaction"):
            rc.best_page(model, QUERY, ADS, slots=slots, objective=objective)
        return
    pages = list_pages(slots)
    worth = worth_of_pages(model, pages, objective)
    best = rc.best_page(model, QUERY, ADS, slots=slots, objective=objective)
    assert best.exact
    assert best.value == pytest.approx(worth.max(), abs=1e-12)
    assert worth[pages.index(best.ads)] == pytest.approx(worth.max(), abs=1e-12)
    clicks = model.click_prob((QUERY, list(best.ads)))[0]
    np.testing.assert_allclose(best.expected_clicks, clicks, atol=1e-12)


@pytest.mark.parametrize("name", ["paper", "luce_components", "dbn"])
def test_values_may_be_a_list_in_the_order_of_the_ads(name: str) -> None:
    model = fit_model(name)
    by_name = rc.best_page(model, QUERY, ADS, objective={"value": VALUES})
    in_order = rc.best_page(model, QUERY, ADS, objective={"value": list(VALUES.values())})
    assert by_name.ads == in_order.ads


@pytest.mark.parametrize("name", ["paper", "examination", "luce", "luce_components", "ubm"])
def test_fewer_ads_than_slots_are_all_shown(name: str) -> None:
    best = rc.best_page(fit_model(name), QUERY, ["a", "b"], slots=4)
    assert sorted(best.ads) == ["a", "b"]
    unknown = rc.best_page(fit_model(name), "a query in no log", ["x"], slots=4)
    assert unknown.ads == ("x",)
    assert unknown.expected_clicks[0] > 0


def test_a_normalised_model_ranks_though_it_runs_no_auction() -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 100))
    model = rc.MultiClick(variant="normalised").fit(log)
    pages = list_pages(2)
    best = rc.best_page(model, QUERY, ADS, slots=2, objective={"value": VALUES})
    assert best.value == pytest.approx(worth_of_pages(model, pages, "value").max())


def test_many_ads_are_searched_by_branch_and_bound() -> None:
    ads = [f"ad{i}" for i in range(300)] + ADS
    best = rc.best_page(fit_model("paper"), QUERY, ads)
    assert best.value >= rc.best_page(fit_model("paper"), QUERY, ADS).value - 1e-12


@pytest.mark.parametrize("name", ["luce", "ubm"])
def test_too_many_slates_are_an_error_that_says_how_many_ads_to_give(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slates, "MAX_SLATES", 100)
    monkeypatch.setattr(slates, "MAX_MODEL_SLATES", 100)
    with pytest.raises(rc.CannotAnswerError, match=r"at most 5 ads for slots=3, or fewer slots"):
        rc.best_page(fit_model(name), QUERY, ADS, slots=3)
    assert len(rc.best_page(fit_model(name), QUERY, ADS[:5], slots=3).ads) == 3


def test_text_describes_ads_that_the_model_does_not_know() -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 200))
    model = rc.MultiClick().fit(log, ads={ad: f"word{ad}" for ad in "abcdef"})
    text = {"new": "worda", "newer": "wordb"}
    best = rc.best_page(model, "other", ["new", "newer"], slots=1, text=text)
    clicks = [model.click_prob(("other", [ad]), text=text)[0, 0] for ad in ("new", "newer")]
    assert best.ads[0] == ("new", "newer")[int(np.argmax(clicks))]
    assert best.value == pytest.approx(max(clicks))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ads": []}, "expected a list of one or more ads"),
        ({"ads": "abc"}, "ads: got 'abc', expected a list"),
        ({"ads": ["a", "a"]}, "The ad 'a' is listed twice for the query 'q': keep one"),
        ({"ads": ["a", None]}, "expected the id of an ad"),
        ({"query": ""}, "expected the text of a query"),
        ({"slots": 0}, "slots: got 0, expected a whole number of 1 or more"),
        ({"slots": 13}, "slots: got 13, expected at most 12"),
        ({"objective": "money"}, "expected 'clicks', 'satisfaction' or"),
        ({"objective": {"value": {"a": 1.0}}}, "a value for every ad; 'b' has none"),
        ({"objective": {"value": [1.0, math.nan]}}, "one value per ad, each a number of 0 or"),
        ({"objective": {"value": [1.0, -1.0]}}, "one value per ad, each a number of 0 or more"),
        ({"objective": {"value": [1.0]}}, "one value per ad, each a number of 0 or more"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    values = {"query": QUERY, "ads": ["a", "b"], **arguments}
    with pytest.raises(rc.ReclickError, match=message):
        rc.best_page(fit_model("luce"), values.pop("query"), values.pop("ads"), **values)


def test_a_model_must_be_fitted() -> None:
    with pytest.raises(rc.NotFittedError):
        rc.best_page(rc.LuceClick(), QUERY, ADS)


# many queries


@pytest.mark.parametrize("objective", ["clicks", "satisfaction", "value"])
def test_ranked_pages_are_the_best_page_of_each_query(objective: str) -> None:
    model = fit_model("luce")
    table: dict[str, list[Any]] = {
        "query": ["q"] * 4 + ["r"] * 3 + ["unknown"],
        "ad": ["a", "b", "c", "d", "b", "c", "e", "new"],
        "value": [1.0, 2.0, 0.5, 0.1, 1.0, 1.0, 3.0, 1.0],
    }
    pages = rc.rank_pages(model, table, slots=3, objective=objective).to_pylist()
    assert [page["query"] for page in pages] == ["q", "r", "unknown"]
    for page in pages:
        rows = [i for i, query in enumerate(table["query"]) if query == page["query"]]
        ads = [str(table["ad"][i]) for i in rows]
        goal: Any = objective
        if objective == "value":
            goal = {"value": [table["value"][i] for i in rows]}
        best = rc.best_page(model, page["query"], ads, slots=3, objective=goal)
        assert tuple(page["ads"]) == best.ads
        assert page["expected_clicks"] == best.expected_clicks.tolist()
        assert page["value"] == best.value


def test_candidates_may_be_lists() -> None:
    model = fit_model("paper")
    lists = rc.rank_pages(model, {"query": ["q", "r"], "ads": [["a", "b", "c"], ["d"]]})
    rows = rc.rank_pages(model, {"query": ["q"] * 3 + ["r"], "ad": ["a", "b", "c", "d"]})
    assert lists.equals(rows)


def test_values_are_needed_for_the_objective_value() -> None:
    with pytest.raises(rc.UsageError, match="needs a column `value` of the candidates; 'a' has"):
        rc.rank_pages(fit_model("paper"), {"query": ["q"], "ad": ["a"]}, objective="value")


def test_a_pair_twice_among_candidates_is_a_bad_row() -> None:
    with pytest.raises(rc.BadRowsError, match="ad listed twice in one auction"):
        rc.rank_pages(fit_model("paper"), {"query": ["q", "q"], "ad": ["a", "a"]})


def test_the_rank_command_writes_pages(tmp_path: Path, run: Run) -> None:
    model = fit_model("luce")
    model.save(tmp_path / "model")
    (tmp_path / "candidates.csv").write_text("query,ad\nq,a\nq,b\nr,a\n")
    rank = ("rank", "model", "candidates.csv", "--slots", "1", "--objective", "satisfaction")
    code, out, _ = run(*rank, "--to", "pages.parquet")
    assert (code, out) == (0, "2 pages, each the exact maximum of satisfaction\npages.parquet\n")
    pages = pq.read_table(tmp_path / "pages.parquet").to_pylist()
    best = rc.best_page(model, "q", ["a", "b"], slots=1, objective="satisfaction")
    assert [page["ads"] for page in pages] == [list(best.ads), ["a"]]
    code, _, err = run(*rank, "--to", "pages.csv")
    assert code == 2
    assert "written as Parquet" in err
