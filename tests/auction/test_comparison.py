"""Incentives, best responses, mechanisms side by side, intervals, and their report."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.auction.incentives import measure_incentives, respond
from reclick.auction.mechanisms import MECHANISMS
from tests.auction.conftest import Run
from tests.support.auction_markets import SmallAuction, random_auction
from tests.support.auction_models import fit_model

BIDS: dict[str, list[Any]] = {
    "query": ["q"] * 5 + ["r"] * 4 + ["s"] * 3,
    "ad": [*"abcde", *"abcd", *"cde"],
    "bid": [1.0, 2.0, 0.5, 0.8, 1.1, 0.4, 0.9, 1.3, 0.7, 2.0, 1.0, 0.3],
}


@pytest.fixture(scope="module")
def comparison() -> rc.MechanismComparison:
    return rc.compare_mechanisms(fit_model("luce"), BIDS, slots=3, reserve=0.1, resamples=100)


# incentives


def small_auctions(variant: str) -> list[SmallAuction]:
    drawn = [random_auction(np.random.default_rng([9, i]), variant, most_ads=5) for i in range(12)]
    return [replace(each, advertiser=np.arange(each.ads)) for each in drawn]


@pytest.mark.parametrize("variant", ["paper", "luce"])
def test_vcg_has_no_regret_and_gsp_has(variant: str) -> None:
    found = {
        name: [
            measure_incentives(each.open(), MECHANISMS[name]) for each in small_auctions(variant)
        ]
        for name in ("vcg", "gsp")
    }
    assert max(each.regret.max() for each in found["vcg"]) < 1e-9
    assert max(each.clicks_fall.max() for each in found["vcg"]) < 1e-9
    assert max(each.regret.max() for each in found["gsp"]) > 1e-3
    for each in found["vcg"]:
        assert (each.gain >= -1e-12).all()


def test_regret_is_what_the_best_other_bid_adds() -> None:
    small = small_auctions("paper")[2]
    auction, gsp = small.open(), MECHANISMS["gsp"]
    found = measure_incentives(auction, gsp)
    for ad, value in enumerate(small.bid.tolist()):
        gains = []
        for bid in (value, found.best_bid[ad]):
            if bid < small.reserve:
                gains.append(0.0)
                continue
            slate, price, _ = gsp(auction.change_bid(ad, bid), None)
            gains.append(float(np.sum(((value - price) * slate.clicks)[slate.ads == ad])))
        assert gains[0] == pytest.approx(found.gain[ad], abs=1e-12)
        assert gains[1] - gains[0] == pytest.approx(found.regret[ad], abs=1e-9)


@pytest.mark.parametrize("name", MECHANISMS)
def test_after_best_responses_nobody_gains_by_a_lower_bid(name: str) -> None:
    for small in small_auctions("paper"):
        auction = small.open()
        response = respond(auction, MECHANISMS[name])
        assert (response.bid <= small.bid + 1e-12).all()
        if name == "vcg":
            np.testing.assert_array_equal(response.bid, small.bid)
            assert response.converged
        if response.converged:  # no bid of the grid is better
            again = respond(replace(auction, bid=small.bid), MECHANISMS[name])
            np.testing.assert_array_equal(again.bid, response.bid)


def test_the_incentives_of_a_mechanism_are_a_table() -> None:
    model = fit_model("luce")
    vcg, gsp = (
        rc.incentive_report(model, BIDS, mechanism=name, slots=2, reserve=0.35)
        for name in ("vcg", "gsp")
    )
    assert len(vcg) == len(gsp) == 11  # one bid is below the reserve
    assert max(vcg["regret"].to_pylist()) == 0.0
    assert max(gsp["regret"].to_pylist()) > 0.0
    for row in vcg.to_pylist():
        shown = row["clicks"] > 0
        assert math.isnan(row["price_per_click"]) != shown
        if shown:
            assert 0.35 <= row["price_per_click"] <= row["value"]
            expected = (row["value"] - row["price_per_click"]) * row["clicks"]
            assert row["gain"] == pytest.approx(expected)
    assert len(rc.incentive_report(model, BIDS, reserve=99.0)) == 0


# side by side


def test_the_comparison_adds_up(comparison: rc.MechanismComparison) -> None:
    model = fit_model("luce")
    prices = rc.run_auctions(model, BIDS, slots=3, reserve=0.1).to_pylist()
    scores = {
        (row["mechanism"], row["bids"], row["metric"]): row for row in comparison.scores.to_pylist()
    }
    revenue = sum(row["price_per_click"] * row["expected_clicks"] for row in prices) / 3
    welfare = sum(row["bid"] * row["expected_clicks"] for row in prices) / 3
    assert scores["vcg", "values", "revenue"]["value"] == pytest.approx(revenue)
    assert scores["vcg", "values", "welfare"]["value"] == pytest.approx(welfare)
    for row in scores.values():
        assert row["low"] <= row["value"] <= row["high"]
        base = scores["gsp", row["bids"], row["metric"]]["value"]
        assert row["change"] == pytest.approx(row["value"] / base - 1)
    assert scores["vcg", "values", "welfare"]["change"] >= -1e-12
    assert scores["first_price", "values", "revenue"]["value"] == pytest.approx(welfare)
    for metric in ("welfare", "revenue", "clicks", "satisfaction"):  # vcg bids stay
        pair = [scores["vcg", bids, metric]["value"] for bids in ("values", "best responses")]
        assert pair[0] == pytest.approx(pair[1])


def test_incentives_are_summarised(comparison: rc.MechanismComparison) -> None:
    rows = {row["mechanism"]: row for row in comparison.incentives.to_pylist()}
    assert set(rows) == set(MECHANISMS)
    assert (
        rows["vcg"]["gain_by_misreporting"]
        == rows["vcg"]["lose"]
        == rows["vcg"]["clicks_fall"]
        == 0
    )
    assert rows["vcg"]["converged"] == 1
    assert rows["first_price"]["gain_by_misreporting"] > 0.3
    assert all(row["bidders"] == 12 for row in rows.values())


def test_the_frontier_starts_at_gsp_and_gains_satisfaction(
    comparison: rc.MechanismComparison,
) -> None:
    rows = {
        (row["mechanism"], row["satisfaction_weight"]): row
        for row in comparison.frontier.to_pylist()
    }
    assert rows["gsp", 0.0]["welfare"] == rows["gsp", 0.0]["satisfaction"] == 0.0
    weights = [weight for name, weight in rows if name == "vcg"]
    satisfaction = [rows["vcg", weight]["satisfaction"] for weight in weights]
    assert np.all(np.diff(satisfaction) >= -1e-12)
    assert np.all(np.diff([rows["vcg", weight]["welfare"] for weight in weights]) <= 1e-12)


def test_the_gains_of_advertisers_are_sorted(comparison: rc.MechanismComparison) -> None:
    rows = comparison.advertisers.to_pylist()
    changes = [row["change"] for row in rows]
    assert changes == sorted(changes)
    assert {row["advertiser"] for row in rows} == set("abcde")
    assert sum(row["auctions"] for row in rows) == 12


def test_few_auctions_are_drawn_from_many() -> None:
    found = rc.compare_mechanisms(
        fit_model("paper"), BIDS, auctions=2, mechanisms=("vcg",), resamples=10
    )
    assert (found.details["auctions"], found.details["listed"]) == (2, 3)
    assert set(found.scores["mechanism"].to_pylist()) == {"vcg", "gsp"}


def test_a_model_without_satisfaction_has_no_frontier() -> None:
    found = rc.compare_mechanisms(fit_model("ubm"), BIDS, auctions=1, resamples=10)
    assert len(found.frontier) == 0
    assert "The price of satisfaction" not in _render(found)


def test_a_reserve_above_all_bids_is_refused() -> None:
    with pytest.raises(rc.SettingError, match="a reserve that some bids reach"):
        rc.compare_mechanisms(fit_model("paper"), BIDS, reserve=50.0)


def test_bids_are_sampled_for_queries_of_the_log() -> None:
    model = fit_model("paper")
    table = rc.sample_bids(model, auctions=2, ads=3, seed=1)
    assert len(set(table["query"].to_pylist())) == 2
    assert len(table) == 6
    assert (table["bid"].to_numpy() > 0).all()
    assert table.equals(rc.sample_bids(model, auctions=2, ads=3, seed=1))
    one = rc.DCTR().fit({"query": ["q"], "ads": [["a"]], "clicks": [[1]]})
    with pytest.raises(rc.CannotAnswerError, match="No query of the training log has two ads"):
        rc.sample_bids(one)


# the report


def _render(comparison: rc.MechanismComparison) -> str:
    from reclick.report import render_comparison

    return render_comparison(comparison)


def test_the_report_has_every_figure(comparison: rc.MechanismComparison, tmp_path: Path) -> None:
    path = comparison.to_html(tmp_path / "auctions.html")
    page = Path(str(path)).read_text(encoding="utf-8")
    assert page == _render(comparison)
    for text in ("Auction mechanisms compared", "Incentives", "Largest", "best responses", "VCG"):
        assert text in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    value = comparison.scores.to_pylist()[0]["value"]
    assert f"{value:.4f}" in page
    assert "0.0\u00a0% under VCG" in page
    assert "vcg" in str(comparison)


def test_names_of_advertisers_are_escaped(comparison: rc.MechanismComparison) -> None:
    hostile = "<script>alert(1)</script>"
    rows = comparison.advertisers.to_pylist()
    rows[0]["advertiser"], rows[0]["change"] = hostile, -1.0
    import pyarrow as pa

    page = _render(replace(comparison, advertisers=pa.Table.from_pylist(rows)))
    assert hostile not in page
    assert html.escape(hostile) in page


# uncertainty


@pytest.mark.parametrize("name", ["paper", "luce", "luce_components"])
def test_intervals_hold_the_draws(name: str) -> None:
    bids = {"a": 1.0, "b": 0.8, "c": 0.9, "d": 0.7}
    found = rc.price_intervals(fit_model(name), "q", bids, slots=2, draws=60, reserve=0.1)
    again = rc.price_intervals(fit_model(name), "q", bids, slots=2, draws=60, reserve=0.1)
    own = rc.run_auction(fit_model(name), "q", bids, slots=2, reserve=0.1)
    assert found.result.slate == own.slate
    assert found.price_per_click == again.price_per_click
    assert 0 <= found.slate_share <= 1
    assert sum(share for _, share in found.slates) <= 1 + 1e-12
    for at, ad in enumerate(own.slate):
        price = found.price_per_click[at]
        assert price.value == own.price_per_click[at]
        if found.shown_share[at]:
            assert 0.1 <= price.low <= price.high <= bids[ad]
    assert found.revenue.low < found.revenue.high
    assert f"wins in {found.slate_share:.0%} of 60 draws" in str(found)


def test_more_sessions_make_narrower_intervals() -> None:
    log: dict[str, list[Any]] = {
        "query": ["q"] * 6,
        "ads": [["a", "b", "c"]] * 6,
        "clicks": [[1], [], [2, 1], [3], [1], []],
    }
    width = []
    for times in (5, 500):
        model = rc.MultiClick().fit({name: each * times for name, each in log.items()})
        found = rc.price_intervals(model, "q", {"a": 1.0, "b": 0.9, "c": 0.8}, slots=2, draws=80)
        width.append(found.welfare.high - found.welfare.low)
    assert width[1] < 0.4 * width[0]


def test_draws_are_around_the_posterior() -> None:
    model = fit_model("luce")
    drawn = model.sample_relevance(("q", ["a", "b"]), 20_000, 0)
    table = model.relevance(("q", ["a", "b"]), level=0.9)
    assert drawn.satisfaction is not None
    for name, values in (
        ("attractiveness", drawn.attractiveness),
        ("satisfaction", drawn.satisfaction),
    ):
        ends = np.quantile(values, [0.05, 0.95], axis=0)
        np.testing.assert_allclose(ends[0], table[f"{name}_low"].to_numpy(), atol=0.02)
        np.testing.assert_allclose(ends[1], table[f"{name}_high"].to_numpy(), atol=0.02)


def test_models_without_draws_say_so() -> None:
    with pytest.raises(rc.CannotAnswerError, match="DBN has no draws of its parameters"):
        rc.price_intervals(fit_model("dbn"), "q", {"a": 1.0})
    with pytest.raises(rc.SettingError, match="draws: got 0"):
        rc.price_intervals(fit_model("luce"), "q", {"a": 1.0}, draws=0)
    with pytest.raises(TypeError):
        rc.price_intervals(fit_model("luce"), "q", {"a": 1.0}, reserves=0.1)


def test_a_batch_has_intervals_too() -> None:
    model = fit_model("luce")
    table = rc.run_auctions(model, BIDS, slots=2, draws=20)
    found = rc.price_intervals(
        model, "q", dict(zip(BIDS["ad"][:5], BIDS["bid"][:5], strict=True)), slots=2, draws=20
    )
    rows = [row for row in table.to_pylist() if row["query"] == "q"]
    assert [row["price_low"] for row in rows] == [price.low for price in found.price_per_click]
    assert {row["slate_share"] for row in rows} == {found.slate_share}
    plain = rc.run_auctions(model, BIDS, slots=2)
    assert plain.equals(table.select(plain.column_names))
    with pytest.raises(rc.UsageError, match="Budgets and draws do not go together"):
        rc.run_auctions(model, {**BIDS, "budget": [1.0] * 12}, draws=5)


# the command


def test_the_command_compares_and_draws(tmp_path: Path, run: Run) -> None:
    fit_model("paper").save(tmp_path / "model")
    rows = zip(*BIDS.values(), strict=True)
    lines = ["query,ad,bid", *(f"{query},{ad},{bid}" for query, ad, bid in rows)]
    (tmp_path / "bids.csv").write_text("\n".join(lines))
    compare = ("auction", "model", "--compare", "--auctions", "2", "--to")
    code, out, _ = run(*compare, "own.html", "bids.csv")
    assert code == 0
    assert "gsp_model" in out
    assert "with your bids" in (tmp_path / "own.html").read_text()
    code, _, _ = run(*compare, "sampled.html")
    assert code == 0
    assert "with sampled bids" in (tmp_path / "sampled.html").read_text()
    code, _, err = run(*compare, "own.parquet", "bids.csv")
    assert code == 2
    assert "written as HTML" in err
    code, _, err = run("auction", "model", "--to", "prices.parquet")
    assert code == 2
    assert "Give a table of bids" in err
    code, _, _ = run("auction", "model", "bids.csv", "--draws", "5", "--to", "prices.parquet")
    assert code == 0
    prices = pq.read_table(tmp_path / "prices.parquet")
    assert all(not math.isnan(share) for share in prices["slate_share"].to_pylist())
