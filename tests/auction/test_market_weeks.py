"""The simulated market with a model and a mechanism in charge of pages and prices."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.auction.market_weeks import MechanismRule
from reclick.auction.run import AuctionRules
from reclick.simulation.page_rule import Offer
from tests.auction.conftest import Run


@cache
def market() -> rc.Simulation:
    return rc.simulate(600, weeks=2, queries=12, seed=5)


@cache
def model() -> rc.ClickModel:
    return rc.LuceClick(tune="off").fit(market().weeks[0], ads=market().ads)


@cache
def outcome(mechanism: str) -> rc.AuctionSimulation:
    return rc.simulate_auctions(model(), 600, mechanism=mechanism, weeks=2, queries=12, seed=5)


@pytest.mark.parametrize("mechanism", ["vcg", "gsp_model", "gsp", "first_price"])
def test_weeks_are_totals_of_the_log(mechanism: str) -> None:
    found = outcome(mechanism)
    satisfied = found.simulation.truth.sessions["satisfied"].to_numpy()
    for number, row in enumerate(found.weeks.to_pylist()):
        week = found.simulation.weeks[number].to_pylist()
        assert row["week"] == number + 1
        assert row["sessions"] == len(week) == 600
        assert row["clicks"] == sum(len(each["clicks"]) for each in week)
        paid = sum(each["prices"][click - 1] for each in week for click in each["clicks"])
        assert row["revenue"] == pytest.approx(paid)
        value = sum(each["bids"][click - 1] for each in week for click in each["clicks"])
        assert row["welfare"] == pytest.approx(value)
        assert paid <= value
        assert row["satisfied"] == satisfied[600 * number : 600 * (number + 1)].sum()
    assert f"{found.weeks['clicks'][0].as_py():,}" in str(found)


def test_the_mechanism_changes_pages_and_nothing_else_of_the_market() -> None:
    vcg, gsp = outcome("vcg").simulation, outcome("gsp").simulation
    for one, other, own in zip(vcg.weeks, gsp.weeks, market().weeks, strict=True):
        for name in ("session_id", "query"):
            assert one[name].equals(other[name])
            assert one[name].equals(own[name])
        sizes = [[len(ads) for ads in week["ads"].to_pylist()] for week in (one, other, own)]
        assert sizes[0] == sizes[1] == sizes[2]
        assert not one["ads"].equals(other["ads"])
    assert vcg.bids.equals(market().bids)


def test_first_prices_are_the_highest_and_slates_those_of_vcg() -> None:
    vcg, first = outcome("vcg").simulation, outcome("first_price").simulation
    assert vcg.weeks[0]["ads"].equals(first.weeks[0]["ads"])
    assert (
        outcome("vcg").weeks["revenue"][0].as_py()
        < outcome("first_price").weeks["revenue"][0].as_py()
    )
    assert outcome("vcg").weeks["clicks"].equals(outcome("first_price").weeks["clicks"])


def test_a_rule_shows_what_an_auction_would() -> None:
    rng = np.random.default_rng(0)
    ads = tuple(market().ads["ad"].to_pylist()[:6])
    query = market().weeks[0]["query"][0].as_py()
    offers = [Offer(query, ads, rng.lognormal(size=(3, 6)), slots) for slots in (1, 3)]
    for mechanism in ("vcg", "gsp"):
        rules = AuctionRules(4, mechanism, satisfaction_weight=0.5)
        for offer, pages in zip(offers, MechanismRule(model(), rules).choose(offers), strict=True):
            for bids, slate, price in zip(offer.bids, pages.ads, pages.prices, strict=True):
                result = rc.run_auction(
                    model(), query, dict(zip(ads, bids.tolist(), strict=True)),
                    slots=offer.slots, mechanism=mechanism, satisfaction_weight=0.5,
                )  # fmt: skip
                assert tuple(ads[ad] for ad in slate) == result.slate
                np.testing.assert_allclose(price, result.price_per_click)


def test_a_model_can_be_fitted_again_to_its_own_weeks() -> None:
    plain = outcome("vcg").simulation
    refit = rc.simulate_auctions(model(), 600, refit=True, weeks=2, queries=12, seed=5).simulation
    assert plain.weeks[0].equals(refit.weeks[0])
    assert not plain.weeks[1]["ads"].equals(refit.weeks[1]["ads"])
    assert model().fitted  # the given model is not touched


def test_satisfied_users_clicked() -> None:
    truth = market().truth.sessions
    clicks = [len(each) for week in market().weeks for each in week["clicks"].to_pylist()]
    satisfied = truth["satisfied"].to_numpy()
    assert satisfied.any()
    assert (np.array(clicks)[satisfied] > 0).all()
    kinds = np.array(truth["kind"].to_pylist())
    assert set(kinds[satisfied]) == {"one_click", "scanner", "comparer"}


def test_a_better_landing_page_satisfies_more_users() -> None:
    log = rc.simulate(20_000, weeks=1, queries=30, seed=2)
    pairs = {(row["query"], row["ad"]): row["satisfaction"] for row in log.truth.pairs.to_pylist()}
    satisfied = log.truth.sessions["satisfied"].to_pylist()
    expected, got = [], []
    for row, happy in zip(log.weeks[0].to_pylist(), satisfied, strict=True):
        if len(row["clicks"]) == 1:
            expected.append(pairs[row["query"], row["ads"][row["clicks"][0] - 1]])
            got.append(happy)
    order = np.argsort(expected)
    halves = np.array_split(np.array(got)[order], 2)
    assert halves[1].mean() > halves[0].mean() + 0.1


def test_models_that_cannot_run_an_auction_are_refused() -> None:
    normalised = rc.MultiClick(variant="normalised").fit(market().weeks[0])
    with pytest.raises(rc.CannotAnswerError, match="whatever ads are shown"):
        rc.simulate_auctions(normalised, 100, queries=5)


def test_the_command_simulates_under_a_mechanism(tmp_path: Path, run: Run) -> None:
    model().save(tmp_path / "model")
    simulate = ("simulate", "--sessions", "200", "--weeks", "1", "--queries", "5", "--to", "logs")
    code, out, _ = run(*simulate, "--auction", "vcg", "--model", "model")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "week",
        "sessions",
        "clicks",
        "satisfied",
        "welfare",
        "revenue",
    ]
    week = pq.read_table(tmp_path / "logs" / "week1.parquet")
    assert week.column_names[-2:] == ["bids", "prices"]
    code, _, err = run(*simulate, "--auction", "vcg")
    assert code == 2
    assert "--auction needs --model" in err
    code, _, err = run(*simulate, "--auction", "gfp", "--model", "model")
    assert code == 2
    assert "got 'gfp'" in err
