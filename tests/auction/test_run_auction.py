"""Auctions with fitted models: against brute force, with rules, and with bad input."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.auction import MECHANISMS
from tests.auction.conftest import Run
from tests.support.auction_models import ADS, MODELS, QUERY, fit_model
from tests.support.enumeration import as_table, random_sessions

BIDS = {"a": 1.0, "b": 0.7, "c": 2.0, "d": 0.4, "e": 1.2, "new": 0.9}
every_model = pytest.mark.parametrize("name", MODELS)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


def highest_welfare(model: rc.ClickModel, bids: dict[str, float], slots: int) -> float:
    pages = list(itertools.permutations(bids, slots))
    clicks = model.click_prob({"query": [QUERY] * len(pages), "ads": pages})
    value = np.array([[bids[ad] for ad in page] for page in pages])
    return float(np.sum(clicks * value, axis=1).max())


@every_model
@pytest.mark.parametrize("reserve", [0.0, 0.5])
def test_vcg_prices_are_what_the_model_says_is_displaced(name: str, reserve: float) -> None:
    model = fit_model(name)
    result = rc.run_auction(model, QUERY, BIDS, slots=3, reserve=reserve)
    part = {ad: bid for ad, bid in BIDS.items() if bid >= reserve}
    best = highest_welfare(model, part, 3)
    assert result.exact
    assert result.welfare == pytest.approx(best)
    np.testing.assert_allclose(
        result.expected_clicks, model.click_prob((QUERY, list(result.slate)))[0]
    )
    for ad, price, clicks in zip(
        result.slate, result.price_per_click, result.expected_clicks, strict=True
    ):
        pivot = highest_welfare(model, {**part, ad: reserve}, 3)
        expected = (pivot - (best - part[ad] * clicks)) / clicks
        assert price == pytest.approx(expected, abs=1e-9)
    assert result.revenue == pytest.approx(result.price_per_click @ result.expected_clicks)
    if model.satisfaction:
        page = model.pages((QUERY, list(result.slate)))
        assert result.satisfaction == pytest.approx(page.satisfaction_prob()[0])
    else:
        assert math.isnan(result.satisfaction)


@every_model
@every_mechanism
def test_prices_are_between_the_reserve_and_the_bid(name: str, mechanism: str) -> None:
    result = rc.run_auction(fit_model(name), QUERY, BIDS, mechanism=mechanism, reserve=0.3)
    assert len(result.slate) == 4
    assert (result.price_per_click >= 0.3).all()
    assert (result.price_per_click <= result.bid).all()
    assert [BIDS[ad] for ad in result.slate] == result.bid.tolist()
    assert result.exact == (mechanism != "gsp")


@pytest.mark.parametrize("name", ["paper", "luce", "luce_components"])
def test_no_bidder_misreporters(name: str) -> None:
    model, rng = fit_model(name), np.random.default_rng(0)
    for _ in range(25):
        bids = dict(zip(ADS, rng.lognormal(0, 0.6, len(ADS)).tolist(), strict=True))
        ad, factor = str(rng.choice(ADS)), float(rng.choice([0.5, 0.9, 1.1, 2.0]))
        truthful, lie = (
            rc.run_auction(model, QUERY, {**bids, ad: bid}, slots=3, reserve=0.1)
            for bid in (bids[ad], factor * bids[ad])
        )
        assert gain(lie, ad, bids[ad]) <= gain(truthful, ad, bids[ad]) + 1e-9
        assert gain(truthful, ad, bids[ad]) >= 0


def gain(result: rc.AuctionResult, ad: str, value: float) -> float:
    if ad not in result.slate:
        return 0.0
    at = result.slate.index(ad)
    return float((value - result.price_per_click[at]) * result.expected_clicks[at])


@pytest.mark.parametrize("name", ["paper", "luce_components", "dbn"])
def test_the_reasons_of_vcg_prices_add_up(name: str) -> None:
    result = rc.run_auction(
        fit_model(name), QUERY, BIDS, slots=2, reserve=0.2, satisfaction_weight=0.5,
        bidder_weights={"a": 2.0, "c": 0.5},
    )  # fmt: skip
    for at, reason in enumerate(result.reasons):
        payment = result.price_per_click[at] * result.expected_clicks[at]
        parts = reason.reserve + reason.satisfaction + sum(each.value for each in reason.displaced)
        assert parts == pytest.approx(payment, abs=1e-9)
        assert reason.ad == result.slate[at]
        assert reason.ad not in [each.ad for each in reason.displaced]
        assert str(reason).startswith(f"{reason.ad} pays {reason.price_per_click:.4g} per click: ")
    assert "it takes" in " ".join(map(str, result.reasons))
    assert result.slate[0] in str(result)


@every_mechanism
def test_other_mechanisms_explain_their_prices(mechanism: str) -> None:
    result = rc.run_auction(fit_model("paper"), QUERY, BIDS, slots=2, mechanism=mechanism)
    because = {"vcg": "displaced clicks", "gsp_model": "threshold", "gsp": "next rank"}
    expected = because.get(mechanism, "bid")
    assert {reason.because for reason in result.reasons} <= {expected, "reserve"}
    assert all(str(reason).endswith(".") for reason in result.reasons)


def test_gsp_ranks_by_bid_and_click_probability_alone_on_the_page() -> None:
    model = fit_model("luce")
    result = rc.run_auction(model, QUERY, BIDS, mechanism="gsp", slots=3)
    quality = {ad: model.click_prob((QUERY, [ad]))[0, 0] for ad in BIDS}
    ranked = sorted(BIDS, key=lambda ad: -BIDS[ad] * quality[ad])
    assert result.slate == tuple(ranked[:3])
    for at, ad in enumerate(result.slate):
        following = ranked[at + 1]
        expected = BIDS[following] * quality[following] / quality[ad]
        assert result.price_per_click[at] == pytest.approx(expected)
    assert not result.exact


@pytest.mark.parametrize("mechanism", ["vcg", "gsp"])
def test_a_satisfaction_weight_raises_satisfaction(mechanism: str) -> None:
    plain, weighted = (
        rc.run_auction(
            fit_model("paper"), QUERY, BIDS, mechanism=mechanism, slots=2, satisfaction_weight=each
        )
        for each in (0.0, 50.0)
    )
    assert weighted.satisfaction > plain.satisfaction
    assert weighted.welfare < plain.welfare


def test_at_most_one_ad_of_an_advertiser_is_shown() -> None:
    owners = {"a": "A", "c": "A", "e": "A"}
    for mechanism in MECHANISMS:
        result = rc.run_auction(
            fit_model("luce"), QUERY, BIDS, mechanism=mechanism, advertisers=owners
        )
        assert len(set(result.slate) & set(owners)) == 1
        assert len(result.slate) == 4
    one = rc.run_auction(fit_model("luce"), QUERY, BIDS, advertisers=dict.fromkeys(BIDS, "A"))
    assert len(one.slate) == 1
    assert one.price_per_click.tolist() == [0.0]


def test_a_bid_per_satisfied_click_is_worth_its_satisfaction() -> None:
    model = fit_model("luce")
    others = {ad: bid for ad, bid in BIDS.items() if ad != "b"}
    result = rc.run_auction(model, QUERY, others, satisfaction_bids={"b": 9.0})
    satisfaction = model.relevance((QUERY, ["b"]))["satisfaction"][0].as_py()
    same = rc.run_auction(model, QUERY, {**others, "b": 9.0 * satisfaction})
    assert result.slate == same.slate
    np.testing.assert_allclose(result.price_per_click, same.price_per_click)
    with pytest.raises(rc.CannotAnswerError, match="UBM does not say which clicks satisfy"):
        rc.run_auction(fit_model("ubm"), QUERY, others, satisfaction_bids={"b": 9.0})


def test_who_cannot_pay_its_bid_takes_no_part() -> None:
    result = rc.run_auction(
        fit_model("luce"), QUERY, BIDS, reserve=0.5, budgets={"c": 1.9, "a": 1.0}
    )
    assert result.excluded == {"c": "budget below the bid", "d": "bid below the reserve"}
    assert not {"c", "d"} & set(result.slate)
    assert "a" in result.slate


@every_mechanism
def test_a_reserve_above_all_bids_leaves_the_page_empty(mechanism: str) -> None:
    result = rc.run_auction(fit_model("luce"), QUERY, BIDS, reserve=99.0, mechanism=mechanism)
    assert result.slate == ()
    assert len(result.price_per_click) == len(result.expected_clicks) == 0
    assert result.revenue == result.welfare == result.satisfaction == 0.0
    assert set(result.excluded) == set(BIDS)
    assert "no ad is shown" in str(result)


@every_mechanism
@pytest.mark.parametrize("name", ["paper", "luce"])
def test_zero_bids_and_equal_bids_are_fine(mechanism: str, name: str) -> None:
    zero = rc.run_auction(fit_model(name), QUERY, dict.fromkeys(ADS, 0), mechanism=mechanism)
    assert len(zero.slate) == 4
    assert not zero.price_per_click.any()
    equal = rc.run_auction(fit_model(name), QUERY, dict.fromkeys(ADS, 1.5), mechanism=mechanism)
    again = rc.run_auction(fit_model(name), QUERY, dict.fromkeys(ADS, 1.5), mechanism=mechanism)
    assert equal.slate == again.slate
    assert (equal.price_per_click <= 1.5).all()


def test_a_single_ad_pays_the_reserve() -> None:
    for mechanism in ("vcg", "gsp_model", "gsp"):
        result = rc.run_auction(
            fit_model("luce"), "a new query", {"x": 2.0}, reserve=0.1, mechanism=mechanism
        )
        assert result.slate == ("x",)
        assert result.price_per_click.tolist() == [0.1]
        assert result.reasons[0].because == "reserve"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bids": {}}, "bids: got {}, expected at least one ad with a bid"),
        ({"bids": [1.0]}, "expected a dict"),
        ({"bids": {"a": -1.0}}, r"bids: got {'a': -1.0}, expected a number of 0 or more"),
        ({"bids": {"a": math.nan}}, r"bids: got {'a': nan}, expected a number of 0 or more"),
        ({"bids": {"a": math.inf}}, r"bids: got {'a': inf}, expected a number of 0 or more"),
        ({"bids": {"a": "1"}}, r"bids: got {'a': '1'}, expected a number of 0 or more"),
        ({"bids": {"a": True}}, r"bids: got {'a': True}, expected a number of 0 or more"),
        ({"bids": {1: 1.0}}, "expected the id of an ad"),
        ({"query": None}, "query: got None, expected text"),
        ({"mechanism": "gfp"}, "mechanism: got 'gfp', expected one of 'vcg', 'gsp_model'"),
        ({"reserve": -0.1}, "reserve: got -0.1, expected a number of 0 or more"),
        ({"reserve": math.nan}, "reserve: got nan, expected a number"),
        ({"slots": 0}, "slots: got 0, expected a whole number of 1 or more"),
        ({"satisfaction_weight": -1}, "satisfaction_weight: got -1, expected a number of 0"),
        ({"squashing": -1}, "squashing: got -1, expected a number of 0 or more"),
        ({"bidder_weights": {"a": 0}}, r"bidder_weights: got {'a': 0}, expected a number above 0"),
        ({"bidder_weights": {"z": 1}}, "bidder_weights has 'z', which takes no part"),
        ({"advertisers": {"z": "A"}}, "advertisers has 'z', which takes no part"),
        ({"budgets": {"a": -1.0}}, "budgets: got {'a': -1.0}, expected a number of 0 or more"),
        ({"budgets": {"z": 1.0}}, "budgets has 'z', which takes no part"),
        ({"satisfaction_bids": {"a": 1.0}}, "bids per click and per satisfied click: keep one"),
        (
            {"advertisers": {"a": "A", "b": "A"}, "bidder_weights": {"a": 2.0}},
            "a weight is of the advertiser",
        ),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    values = {"query": QUERY, "bids": {"a": 1.0, "b": 2.0}, **arguments}
    with pytest.raises(rc.ReclickError, match=message.replace("{", r"\{").replace("[", r"\[")):
        rc.run_auction(fit_model("luce"), values.pop("query"), values.pop("bids"), **values)


def test_models_whose_clicks_ignore_the_ads_are_refused() -> None:
    log = as_table(random_sessions(np.random.default_rng(3), 50))
    with pytest.raises(rc.CannotAnswerError, match="the same whatever ads are shown"):
        rc.run_auction(rc.MultiClick(variant="normalised").fit(log), QUERY, BIDS)
    for model in (rc.PM(), rc.AM()):
        with pytest.raises(rc.CannotAnswerError, match="same number of clicks whatever ads"):
            rc.run_auction(model.fit(log), QUERY, BIDS)
    with pytest.raises(rc.CannotAnswerError, match="UBM does not estimate satisfaction"):
        rc.run_auction(fit_model("ubm"), QUERY, BIDS, satisfaction_weight=1.0)


# many auctions


def bid_rows(**columns: list[Any]) -> dict[str, list[Any]]:
    return {
        "query": ["q", "q", "q", "r", "r", "new"],
        "ad": ["a", "b", "c", "c", "d", "x"],
        "bid": [1.0, 2.0, 0.5, 1.0, 0.7, 0.01],
        **columns,
    }


@every_mechanism
def test_a_batch_runs_the_same_auctions(mechanism: str) -> None:
    model = fit_model("luce")
    table = rc.run_auctions(model, bid_rows(), slots=2, mechanism=mechanism, reserve=0.05)
    rows = table.to_pylist()
    assert {row["query"] for row in rows} == {"q", "r"}  # the only bid of `new` is too low
    for query, bids in (("q", {"a": 1.0, "b": 2.0, "c": 0.5}), ("r", {"c": 1.0, "d": 0.7})):
        result = rc.run_auction(model, query, bids, slots=2, mechanism=mechanism, reserve=0.05)
        own = [row for row in rows if row["query"] == query]
        assert tuple(row["ad"] for row in own) == result.slate
        assert [row["position"] for row in own] == [1, 2]
        assert [row["price_per_click"] for row in own] == result.price_per_click.tolist()
        assert [row["expected_clicks"] for row in own] == result.expected_clicks.tolist()
        displaced = [[tuple(each.values()) for each in row["displaced"]] for row in own]
        assert displaced == [[*map(tuple, each.displaced)] for each in result.reasons]


def test_a_query_may_have_several_auctions() -> None:
    rows = bid_rows(auction=["1", "1", "2", "2", "2", "3"])
    table = rc.run_auctions(fit_model("luce"), rows, slots=1)
    assert table["auction"].to_pylist() == ["1", "2", "2", "3"]
    assert table["query"].to_pylist() == ["q", "q", "r", "new"]


def test_budgets_cap_participation_over_a_batch() -> None:
    model = fit_model("luce")
    count = 40
    rows = {
        "auction": [str(i) for i in range(count) for _ in range(2)],
        "query": ["q"] * (2 * count),
        "ad": ["a", "b"] * count,
        "bid": [2.0, 1.0] * count,
        "budget": [3.0, math.inf] * count,
    }
    table = rc.run_auctions(model, rows, slots=1, mechanism="first_price")
    winners = table["ad"].to_pylist()
    spent = sum(
        row["price_per_click"] * row["expected_clicks"]
        for row in table.to_pylist()
        if row["ad"] == "a"
    )
    assert winners[0] == "a"
    assert winners[-1] == "b"
    assert 3.0 - 2.0 <= spent <= 3.0
    with pytest.raises(rc.UsageError, match="'a' has budgets of 3 and 4: give the same"):
        rc.run_auctions(model, {**rows, "budget": [3.0, 1.0, 4.0, 1.0] * (count // 2)})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"bid": [1.0, -1.0, math.nan, 1.0, 1.0, 1.0]}, "2 bad bid"),
        ({"ad": ["a", "a", "c", "c", "d", "x"]}, "1 ad listed twice in one auction"),
        ({"weight": [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]}, "1 bad weight"),
        ({"budget": [1.0, -1.0, 1.0, 1.0, 1.0, 1.0]}, "1 bad budget"),
        ({"ad": ["a", "", "c", "c", "d", "x"]}, "1 no ad"),
        ({"satisfaction_bid": [1.0] * 6}, "6 bad bid"),
    ],
)
def test_bad_rows_of_bids_are_counted(columns: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(rc.BadRowsError, match=message):
        rc.run_auctions(fit_model("luce"), bid_rows(**columns))


def test_a_table_without_bids_is_refused() -> None:
    with pytest.raises(rc.LogError, match="has no column bid"):
        rc.run_auctions(fit_model("luce"), {"query": ["q"], "ad": ["a"]})


def test_the_auction_command_writes_prices_or_nothing(tmp_path: Path, run: Run) -> None:
    fit_model("luce").save(tmp_path / "model")
    bids, to = tmp_path / "bids.csv", tmp_path / "prices.parquet"
    bids.write_text("query,ad,bid\nq,a,1.0\nq,b,2.0\nr,c,0.5\n")
    auction = ("auction", "model", "bids.csv", "--to", "prices.parquet", "--reserve", "0.05")
    code, out, _ = run(*auction, "--mechanism", "vcg", "--slots", "1")
    assert code == 0
    assert "revenue" in out
    prices = pq.read_table(to)
    assert prices["query"].to_pylist() == ["q", "r"]
    assert prices["price_per_click"].to_pylist()[1] == 0.05
    bids.write_text("query,ad,bid\nq,a,1.0\nq,b,-2.0\n")
    before = to.read_bytes()
    code, _, err = run(*auction)
    assert code == 2
    assert "bad bid" in err
    assert to.read_bytes() == before
    code, _, err = run(*auction, "--mechanism", "gfp")
    assert code == 2
    assert "--mechanism: got 'gfp'" in err


@pytest.mark.parametrize("command", ["auction", "rank"])
def test_the_table_that_is_read_is_not_replaced(command: str, tmp_path: Path, run: Run) -> None:
    fit_model("paper").save(tmp_path / "model")
    table = pa.table({"query": [QUERY] * 2, "ad": list(ADS[:2]), "bid": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "input.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "input.parquet")
    for to in ("input.parquet", "link.parquet"):
        code, _, err = run(command, "model", "input.parquet", "--to", to)
        assert code == 2
        assert "one of the inputs" in err
    assert pq.read_table(tmp_path / "input.parquet").equals(table)
