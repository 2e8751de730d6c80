"""The simulated market under a mechanism: a fitted model chooses its pages and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.auction.candidates import Candidates, CandidateSet, look_up_candidates
from reclick.auction.mechanisms import MECHANISMS, AuctionInput
from reclick.auction.run import AuctionRules
from reclick.auction.slates import LazySlates
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.parallel import parallel_map
from reclick.runtime.progress import report_progress
from reclick.simulation import Simulation, simulate
from reclick.simulation.page_rule import Offer, PricedPages


@dataclass(frozen=True, slots=True, eq=False)
class AuctionSimulation:
    """Weeks of the simulated market under a mechanism."""

    simulation: Simulation  # its weeks have the bids and the prices per click of every page
    weeks: pa.Table  # week, sessions, clicks, satisfied, welfare, revenue: totals of each week
    mechanism: str

    def __str__(self) -> str:
        head = (
            f"{'week':>4}{'sessions':>12}{'clicks':>12}{'satisfied':>12}{'welfare':>14}"
            f"{'revenue':>14}"
        )
        rows = [
            f"{row['week']:>4}{row['sessions']:>12,}{row['clicks']:>12,}{row['satisfied']:>12,}"
            f"{row['welfare']:>14,.2f}{row['revenue']:>14,.2f}"
            for row in self.weeks.to_pylist()
        ]
        return "\n".join([head, *rows])


@check_arguments
def simulate_auctions(
    model: ClickModel,
    sessions: int = 100_000,
    *,
    mechanism: str = "vcg",
    satisfaction_weight: float = 0.0,
    squashing: float = 1.0,
    refit: bool = False,
    **market: Any,
) -> AuctionSimulation:
    """Simulate weeks in which a model chooses the pages and sets the prices.

    The market, its users and its bids are those of `simulate` with the same arguments (`weeks`,
    `queries`, `ads_per_query`, `page`, `bots`, `seed`): users follow no model. Fit the model to a
    week of that market. The bids of a query vary between a few auctions per week; the page size,
    the query and the user of a session do not depend on the mechanism. Advertisers bid the same
    under every mechanism. With `refit` the model is fitted again after each week, to that week.

    >>> from reclick.models import MultiClick
    >>> log = simulate(300, weeks=1, queries=5, seed=1).weeks[0]
    >>> model = MultiClick().fit(log)
    >>> simulate_auctions(model, 300, weeks=2, queries=5, seed=1).weeks.column_names
    ['week', 'sessions', 'clicks', 'satisfied', 'welfare', 'revenue']
    """
    longest = max(market.get("page", (1, 4)))
    rules = AuctionRules(longest, mechanism, 0.0, satisfaction_weight, squashing).check(model)
    rule = MechanismRule(model, rules, refit=refit)
    simulation = simulate(sessions, page_rule=rule, **market)
    return AuctionSimulation(simulation, _total_weeks(simulation), mechanism)


class MechanismRule:
    """A `PageRule` for the simulated market: a model and a mechanism choose the pages."""

    def __init__(self, model: ClickModel, rules: AuctionRules, *, refit: bool = False) -> None:
        self.model = model
        self._rules = rules
        self._refit = refit

    def choose(self, offers: Sequence[Offer]) -> list[PricedPages]:
        """Choose the pages of each offer, in order."""
        sets = [CandidateSet(offer.query, offer.ads) for offer in offers]
        all_candidates = look_up_candidates(self.model, sets, slots=self._rules.slots)
        pages = []
        for page in parallel_map(self._choose_one, zip(all_candidates, offers, strict=True)):
            pages.append(page)
            report_progress("auctions", len(pages), len(offers))
        return pages

    def learn(self, week: pa.Table, ads: pa.Table) -> None:
        """Fit the model to the week, if `refit` is set."""
        if self._refit:
            self.model = self.model.clone().fit(week, ads=ads, progress=False)

    def _choose_one(self, item: tuple[Candidates, Offer]) -> PricedPages:
        """Choose the pages for all variations of the bids, from one table of slates."""
        candidates, offer = item
        slots = min(offer.slots, len(offer.ads))
        advertisers = np.arange(len(offer.ads))
        auction = AuctionInput(
            LazySlates(replace(candidates, slots=slots)),
            offer.bids[0],
            np.ones(len(advertisers)),
            advertisers,
            0.0,
            self._rules.satisfaction_weight,
            self._rules.squashing,
        )
        mechanism = MECHANISMS[self._rules.mechanism]
        if self._rules.mechanism == "gsp":
            auction = auction.with_quality()
        outcomes = [mechanism(replace(auction, bid=bid), None) for bid in offer.bids]
        return PricedPages(
            np.stack([outcome.slate.ads for outcome in outcomes]),
            np.stack([outcome.price for outcome in outcomes]),
        )


def _total_weeks(simulation: Simulation) -> pa.Table:
    """Clicks, satisfied users, welfare and revenue of each week."""
    satisfied = simulation.truth.sessions["satisfied"].to_numpy()
    rows, first = [], 0
    for number, week in enumerate(simulation.weeks, start=1):
        is_satisfied = satisfied[first : first + len(week)]
        first += len(week)
        clicks = pc.sum(pc.list_value_length(week["clicks"])).as_py()
        money = (_sum_over_clicks(week, name) for name in ("bids", "prices"))
        rows.append((number, len(week), clicks, int(is_satisfied.sum()), *money))
    names = ("week", "sessions", "clicks", "satisfied", "welfare", "revenue")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _sum_over_clicks(week: pa.Table, name: str) -> float:
    """Sum the bids, or the prices, of the ads that were clicked."""
    values, clicks = week[name].combine_chunks(), week["clicks"].combine_chunks()
    page_start = np.asarray(values.offsets)[:-1]
    session = np.repeat(np.arange(len(week)), np.diff(np.asarray(clicks.offsets)))
    impression = page_start[session] + np.asarray(clicks.values) - 1
    return float(np.asarray(values.values)[impression].sum())
