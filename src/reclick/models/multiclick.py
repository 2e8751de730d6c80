"""MultiClick, the click model of arXiv 1401.0255, fitted by counting.

After k clicks, the last at position l, the user is satisfied by it with probability ρ(q, d_l), or
tired with probability η_k, or else clicks a position j not clicked yet with propensity
θ(q, d_j) · γ(l, j). reclick.clicks.choice describes the variants of "propensity".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages, Variant
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.counts_checks import COUNT_ROUNDING
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.pair_index import PairLookup
from reclick.data.stored_tables import read_numbers, table_error
from reclick.engines import as_grouped
from reclick.errors import StoreError, check_whole
from reclick.fitting.outcomes import CountedSatisfaction, count_satisfied, mean_satisfaction
from reclick.fitting.posterior import PairPosteriors, word_posterior
from reclick.fitting.rates import RateTable
from reclick.models.base import ClickModel, cannot_fit_in_buckets, get_counts
from reclick.models.base.storage import PROBABILITY_ROUNDING
from reclick.models.batching import open_pages, pad_pages, stack_padded
from reclick.models.kernels.stops_and_transitions import (
    DEFAULT_STRENGTH,
    PriorStrengths,
    QueryTransitionCounts,
    StopsAndTransitions,
    estimate,
    smooth_transitions,
)
from reclick.models.redundancy import find_overlap, learn_redundancy
from reclick.models.settings import setting
from reclick.models.text_pair_index import counts_from_tables
from reclick.runtime.arguments import check_arguments
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

VARIANTS = ("paper", "examination", "normalised")


class MultiClick(ClickModel):
    """Several clicks in any order: attractiveness, satisfaction, fatigue and transitions.

    Attractiveness θ comes from words; after a click the user may be satisfied (ρ); after k clicks
    the user may be tired (η_k); else the next click depends on θ and on the transition γ(l, j) from
    the last click. All of it is estimated by counting, so new sessions can be added with `update`.

    Where the log has outcomes of clicks, not every last click counts as satisfied, and sessions
    that ended satisfied do not count as fatigue (`count_satisfied` in `reclick.fitting.outcomes`).

    >>> log = {"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[1], [], [2, 1]]}
    >>> MultiClick().fit(log).click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.237, 0.121]])
    """

    name: ClassVar[str] = "multiclick"
    assumes: ClassVar[str] = "clicks in any order; words attract; a click may satisfy; users tire"
    reference: ClassVar[str] = "Govindaraj, Wang, Vishwanathan 2014, arXiv 1401.0255"
    fits_from_counts: ClassVar[bool] = True
    fits_in_buckets: ClassVar[bool] = True
    updates: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    satisfaction: ClassVar[bool] = True
    table_rows: ClassVar[Mapping[str, str]] = {"satisfied": "pair"}

    variant: str = setting(
        default="paper",
        choices=VARIANTS,
        spellings={"normalized": "normalised"},
        help="how the propensities θγ are interpreted: see docs/models/multiclick.md",
    )
    pooling: str = setting(
        default="query",
        choices=("query", "global"),
        help='fatigue and transitions: "query" (estimated for each query, shrunk towards those of '
        'all queries), or "global" (the same for all queries)',
    )
    strength: str | float = setting(
        default=10.0,
        choices=("auto",),
        low=0,
        help="strength of the prior of fatigue and transitions, in sessions: a number for both, or "
        '"auto" (two strengths, by maximum evidence; the transitions of all queries are then '
        "also shrunk, towards one weight per distance and direction)",
    )
    satisfaction_strength: float = setting(
        default=10.0,
        low=0,
        help="strength of the prior of satisfaction, in clicks; 0 gives the paper's formula",
    )
    outcome_weight: float = setting(default=1.0, low=0, high=1)
    min_query_sessions: float = setting(default=50, low=0)
    word_strength: float = setting(default=0.0, low=0)
    floor: float = setting(default=1e-6, low=1e-12, high=0.1)
    redundancy: str | float = setting(default=0.0, choices=("auto",), low=0, high=1e6)

    # fitting

    def _check_buckets(self) -> None:
        if self.strength == "auto":
            raise cannot_fit_in_buckets(self, "strength", DEFAULT_STRENGTH)
        super()._check_buckets()

    def _collect(self, sessions: object) -> Any:
        """Return counts, or grouped sessions if redundancy is learnt."""
        if self.redundancy == "auto":
            grouped = as_grouped(sessions, engine=self._engine)
            self._check_length(grouped.counts.max_ads)
            return grouped
        return super()._collect(sessions)

    def _fit(
        self, data: Counts | GroupedSessions, history: Counts | None, text: AdTokens | None
    ) -> None:
        prior = None
        if history is not None:
            common, mean = self._prior(history)
            prior = (self._smooth(history, common), mean)
        self._set_counts(get_counts(data), prior, text)
        if not isinstance(self.redundancy, str):
            self.redundancy_ = self.redundancy
        elif isinstance(data, GroupedSessions):
            self.redundancy_ = learn_redundancy(self, data)

    def _continue(
        self,
        last: Self,
        new: Counts | GroupedSessions | None,
        old: Counts | GroupedSessions | None,
        decay: float,
        text: AdTokens | None,
    ) -> None:
        """Add and subtract counts. The redundancy does not change."""
        counts = last.counts_ if decay == 1.0 else last.counts_.decay(decay)
        counts = counts if new is None else counts + get_counts(new)
        counts = counts if old is None else counts - get_counts(old)
        self._set_counts(counts, last._history, text)

    def _set_counts(
        self,
        counts: Counts,
        history: tuple[StopsAndTransitions, float] | None,
        text: AdTokens | None,
    ) -> Self:
        """Set everything that follows from the counts, the prior and the text."""
        log = self._whole_log(counts)
        prior, mean = history or self._prior(log)
        satisfaction = self._count_satisfied(counts, mean)
        n_ended = _count_ended(counts, satisfaction)
        strength = DEFAULT_STRENGTH if isinstance(self.strength, str) else self.strength
        shrinkage: dict[str, Any] = {"prior": prior, "strength": strength, "floor": self.floor}
        base = prior if self.pooling == "query" else estimate(log, **shrinkage, satisfied=n_ended)
        if history is None:
            base = self._smooth(log, base)
        return self._set_queries(counts, history, text, base, mean, satisfaction)

    def _smooth(self, counts: Counts, base: StopsAndTransitions) -> StopsAndTransitions:
        """Smooth the values common to all queries with these counts, if `strength` is "auto"."""
        return smooth_transitions(counts, base) if self.strength == "auto" else base

    def _set_queries(
        self,
        counts: Counts,
        history: tuple[StopsAndTransitions, float] | None,
        text: AdTokens | None,
        base: StopsAndTransitions,
        mean: float,
        satisfaction: CountedSatisfaction | None,
        strengths: PriorStrengths | None = None,
    ) -> Self:
        """Set everything, given the values common to all queries. Fits and loads both end here."""
        self._history = history
        self.counts_ = counts
        self.satisfaction_ = mean
        self._counted_satisfaction = satisfaction
        self._satisfied = (  # [pair]
            counts.last_clicks if satisfaction is None else satisfaction.satisfied
        )
        self.eta_, self.gamma_ = base.eta, base.gamma
        self._base = base
        self._transition_counts = (
            QueryTransitionCounts.build(counts, _count_ended(counts, satisfaction))
            if self.pooling == "query"
            else QueryTransitionCounts.none(len(counts.queries))
        )
        self.strengths_ = strengths or self._choose_strengths()
        self._pairs = self._index(counts, text)
        self._theta = np.ascontiguousarray(self._pairs.words.pair_rates()[:, 0])  # [pair]
        strength = self.satisfaction_strength
        self._rates = RateTable.count(self._satisfied, counts.clicks, mean, strength)
        self._rho = self._rates.mean  # [pair]
        return self

    def _choose_strengths(self) -> PriorStrengths:
        """Return the strengths of the setting, or those of highest evidence."""
        if not isinstance(self.strength, str):
            return PriorStrengths(float(self.strength), float(self.strength))
        return self._transition_counts.choose_strengths(self._base)

    def _prior(self, counts: Counts) -> tuple[StopsAndTransitions, float]:
        """η, γ and the share of clicks that satisfied, pooled over all queries.

        Without outcomes, the last click of each session counts as satisfied. If all clicks are last
        clicks, or none, half a click is added to both counts.
        """
        options: dict[str, Any] = {"prior": None, "strength": 0.0, "floor": self.floor}
        if counts.outcomes is not None and self.outcome_weight > 0:
            mean = mean_satisfaction(counts, self.outcome_weight)
            n_ended = _count_ended(counts, self._count_satisfied(counts, mean))
            return estimate(counts, **options, satisfied=n_ended), mean
        last, clicks = float(counts.last_clicks.sum()), float(counts.clicks.sum())
        mean = last / clicks if 0 < last < clicks else (last + 0.5) / (clicks + 1)
        return estimate(counts, **options), mean

    def _count_satisfied(self, counts: Counts, mean: float) -> CountedSatisfaction | None:
        """Count satisfied last clicks by outcomes; None, for all last clicks, without outcomes."""
        outcomes, weight = counts.outcomes, self.outcome_weight
        if outcomes is None or weight == 0:
            return None
        strength = self.satisfaction_strength
        return count_satisfied(counts, outcomes.last, counts.clicks, mean, strength, weight)

    # answers

    @property
    def advice(self) -> str:
        """A caution about the click probabilities of this variant."""
        if self.variant == "normalised":
            return (
                "variant=normalised: the probability of a first click is that of the query, "
                "whatever ads are on the page; only which ad is clicked depends on them. "
                "luceclick weighs the ads against no click."
            )
        return (
            f"variant={self.variant} gives click probabilities far too low, though well ordered; "
            "those of variant=normalised are near the log's."
        )

    @check_arguments
    def fatigue_and_transitions(self, query: str, length: int | None = None) -> StopsAndTransitions:
        """Fatigue η and transitions γ of one query, for pages of up to `length` ads.

        A query that is not in the log gets `eta_` and `gamma_`.
        """
        self.check_fitted()
        length = None if length is None else check_whole("length", length, 1)
        model = cast(MultiClick, self._gather_queries(pa.array([query])))
        code = np.array([model._pairs.query_code(query)])
        eta, gamma = model._transition_counts.estimate_queries(
            code, self._base, self.strengths_, length or self.gamma_.shape[1]
        )
        return StopsAndTransitions(eta[0], gamma[0])

    def instantaneous_attractiveness(
        self,
        pages: object,
        clicks: Sequence[Sequence[int]] | Sequence[int] | None = None,
        *,
        text: object = None,
    ) -> Float64:
        """θ (1 − η_k) (1 − ρ) of the ads not clicked yet, after k clicks [session, position].

        ρ is that of the last click: the externality of the clicked ad. With redundancy, θ is
        reduced by the clicks so far. Users who click at random are left out. Other entries are nan.
        """
        log = open_pages(pages, text, clicks)
        return stack_padded(self.map_pages(log, _instantaneous))

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """Return the posterior of θ from the words of the ad, and that of ρ, a Beta."""
        return PairPosteriors(word_posterior(pairs.words), self._rates.posterior(pairs.row))

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        lookup = self._pairs.find(batch)
        query = lookup.query
        theta = self._pairs.lookup_or_words(self._theta, batch, lookup, text)
        rho = self._pairs.take_or(self._rho, lookup.row, self.satisfaction_)
        np.maximum(theta, self.floor, out=theta)
        np.minimum(rho, 1 - self.floor, out=rho)

        overlap = find_overlap(self, batch, text)

        def pages(start: int, end: int) -> ChoicePages:
            first, last = batch.page[start], batch.page[end]
            length = int(np.diff(batch.page[start : end + 1]).max(initial=1))
            queries, table = query[start:end], np.zeros(1, np.int64)
            if end - start > 1:
                queries, table = np.unique(queries, return_inverse=True)
            eta, gamma = self._transition_counts.estimate_queries(
                queries.astype(np.int64), self._base, self.strengths_, length
            )
            offsets = batch.page[start : end + 1] - first
            return ChoicePages(
                cast(Variant, self.variant),
                theta[first:last],
                rho[first:last],
                eta,
                gamma,
                offsets,
                table.astype(np.int64),
                self.redundancy_,
                overlap(start, end),
            )

        return pages

    # saving

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        _, tables = super()._to_tables()
        satisfaction = self._counted_satisfaction
        values = {
            "history": None if self._history is None else _prior_to_dict(*self._history),
            "common": _prior_to_dict(self._base, self.satisfaction_),
            "by_outcome": None if satisfaction is None else satisfaction.by_outcome.tolist(),
            "strengths": list(self.strengths_),
        }
        if satisfaction is not None:
            tables["satisfied"] = pa.table({"clicks": satisfaction.satisfied})
        return values, tables

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        counts, text = counts_from_tables(tables)
        history = None if values["history"] is None else _prior_from_dict(values["history"])
        base, mean = _prior_from_dict(values["common"])
        satisfaction = None
        if values["by_outcome"] is not None:
            satisfied = _read_satisfied(tables, counts)
            by_outcome = _read_probabilities(values, "by_outcome")
            satisfaction = CountedSatisfaction(satisfied, by_outcome, mean)
        strengths = PriorStrengths(*(float(each) for each in values["strengths"]))
        return self._set_queries(counts, history, text, base, mean, satisfaction, strengths)

    def _describe_fit(self) -> str:
        first = ", ".join(f"{value:.3f}" for value in self.gamma_[0][:4])
        stops = ", ".join(f"{value:.3f}" for value in self.eta_[:4])
        return (
            f"\n  fitted on {self._pairs.counts!r}"
            f"\n  eta_ = [{stops}, …]  gamma_[0] = [{first}, …]  "
            f"satisfaction_ = {self.satisfaction_:.3f}"
        )


def _count_ended(counts: Counts, satisfaction: CountedSatisfaction | None) -> Float64 | None:
    """Count the sessions that ended with a satisfied click [visit]; None without outcomes."""
    if counts.outcomes is None or satisfaction is None:
        return None
    has_click = np.diff(counts.sequence_starts)[counts.visit_sequence] > 0
    return np.where(has_click, counts.outcomes.visits @ satisfaction.by_outcome, 0.0)


def _read_satisfied(tables: dict[str, pa.Table], counts: Counts) -> Float64:
    """Read the expected satisfied clicks [pair], which are among the last clicks."""
    size = len(counts.last_clicks)
    satisfied = read_numbers(tables, "satisfied", "clicks", length=size, low=0).copy()
    if (satisfied > counts.last_clicks * (1 + COUNT_ROUNDING) + COUNT_ROUNDING).any():
        raise table_error("satisfied", "clicks has more than the last clicks of a pair")
    return satisfied


def _prior_to_dict(prior: StopsAndTransitions, satisfaction: float) -> dict[str, Any]:
    return {
        "eta": prior.eta.tolist(),
        "gamma": prior.gamma.tolist(),
        "satisfaction": satisfaction,
    }


def _prior_from_dict(saved: dict[str, Any]) -> tuple[StopsAndTransitions, float]:
    eta, gamma = (_read_probabilities(saved, name) for name in ("eta", "gamma"))
    return StopsAndTransitions(eta, gamma), float(_read_probabilities(saved, "satisfaction"))


def _read_probabilities(saved: dict[str, Any], name: str) -> Float64:
    """Read saved probabilities; raises `StoreError` if a value is not between 0 and 1."""
    values = np.array(saved[name], np.float64)
    if not ((values >= -PROBABILITY_ROUNDING) & (values <= 1 + PROBABILITY_ROUNDING)).all():
        raise StoreError(
            f"The folder has {name} = {saved[name]!r:.100}, expected probabilities: it was "
            "altered. Fit again, and save to a new folder."
        )
    return values


def _instantaneous(part: SessionBatch, pages: PageDistribution) -> Float64:
    if isinstance(pages, MixturePages):  # of users, and of noise
        pages = pages.components[0]
    assert isinstance(pages, ChoicePages)  # noqa: S101
    theta, rho = pad_pages(part.page, pages.theta), pad_pages(part.page, pages.rho)
    n_clicks = np.diff(part.clicks)
    has_click = n_clicks > 0
    last = part.click[part.clicks[1:][has_click] - 1]
    unsatisfied = np.ones(len(part))
    unsatisfied[has_click] = 1 - rho[has_click, last - 1]
    session = np.repeat(np.arange(len(part)), n_clicks)
    if pages.overlap is not None:
        log_remaining = np.zeros(theta.shape)
        np.add.at(log_remaining, session, np.log1p(-pages.overlap[session, part.click - 1]))
        theta *= np.exp(pages.redundancy * np.expm1(log_remaining))
    theta[session, part.click - 1] = np.nan
    return theta * ((1 - pages.stop[pages.table, n_clicks]) * unsatisfied)[:, None]
