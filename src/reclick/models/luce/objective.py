"""What a fit of LuceClick is to explain: sessions, under priors and what is remembered of earlier ones. Their objective."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reclick.clicks.chain import EDGE
from reclick.data.batch import Float64, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.models.luce.parameters import Evidence, Found, Memory, Options, Parameters
from reclick.models.luce.passes import Passes, clicks_of_pairs, how_often
from reclick.models.luce.readiness import SIDES, log_mean, unsure_of
from reclick.models.luce.satisfaction import (
    EXACT,
    as_if_alike,
    known_before,
    known_of,
    log_belief,
    satisfaction_of,
)
from reclick.models.luce.spots import NONE
from reclick.runtime.jit import kernel

POOLED = 1.0  # clicks that the prior of a satisfaction common to all is worth
AS_ALL = 1.0  # pairs, or queries, that are added to each class with the mean of the largest: else a few without a click would speak for all unseen
OFTEN = (
    1.5,
    4.5,
    20.5,
    100.5,
)  # impressions of a pair, or sessions of a query, that part the rare from the frequent


class Problem:
    """Sessions to be explained, options, and prior means."""

    def __init__(
        self,
        sessions: Sessions,
        options: Options,
        means: Float64,
        satisfied: float,
        shares: Float64,
        earlier: Int64 = NONE,
    ) -> None:
        """`means` [pair] are prior means of θ; `satisfied` is that of ρ; `shares` [kind] those of the kinds; `earlier` are keys of old spots."""
        self.options = options if options.components > 1 else options._replace(mixing_strength=None, component_appeal_strength=None)
        self.means, self.satisfied, self.shares = means, satisfied, shares
        self.least_known = known_before(
            self.options.satisfaction_strength or 0.0, satisfied
        )  # of the logit of a ρ
        self.passes = Passes(sessions, self.options, earlier)
        self.eye, self.out, self.worth, self.queries = (
            self.passes.eye,
            self.passes.out,
            self.passes.worth,
            self.passes.queries,
        )
        self.pair_query = sessions.counts.pair_query
        self.total = float(sessions.weight.sum())
        self.clicks, self.followed = clicks_of_pairs(sessions)
        self.spot_clicks = self.passes.clicks_of_spots(sessions)
        self.part(*how_often(sessions))
        self.clickers = shares  # [kind] the kinds' shares of all clicks
        self.remember(self.forgotten())

    # priors

    def part(
        self, impressions: Float64, volumes: Float64, largest: tuple[int, int] | None = None
    ) -> None:
        """Part the pairs by how often they were shown, and the queries by how often they were asked.

        The largest class of each has prior mean 1; an update gives those of the first fit, as its memory is on their scale.
        """
        self.pair_class, self.query_class = (
            np.searchsorted(OFTEN, impressions),
            np.searchsorted(OFTEN, volumes),
        )
        self.pair_sizes, self.query_sizes = (
            np.bincount(each, minlength=len(OFTEN) + 1)
            for each in (self.pair_class, self.query_class)
        )
        weights = (
            np.bincount(self.pair_class, self.clicks, len(OFTEN) + 1),
            np.bincount(self.query_class, volumes, len(OFTEN) + 1),
        )
        self.largest = largest or (int(weights[0].argmax()), int(weights[1].argmax()))

    def rate(self, now: Parameters) -> Float64:
        """The rate of the Gamma prior of each θ [pair], the memory included."""
        return np.asarray(self.prior_rate(now) + self.old.exposure)

    def prior_rate(self, now: Parameters) -> Float64:
        """The rate of the Gamma prior of each θ [pair], without the memory."""
        return np.asarray(self.options.attractiveness_strength / (self.means * now.rare[self.pair_class]))

    def query_rate(self, now: Parameters) -> Float64:
        """The rate of the Gamma prior of each f [query], likewise."""
        return np.asarray(
            (self.options.query_strength or 0.0) / now.seldom[self.query_class] + self.old.query_exposure
        )

    def _satisfied_before(self) -> tuple[Float64, Float64]:
        """What the prior and the memory say of ρ: pseudo-clicks that satisfied, and that did not [pair]; if it is common, the first has them."""
        old, strength = self.old, self.options.satisfaction_strength
        if strength is None:
            yes, no = np.zeros((2, len(self.followed)))
            yes[0] = POOLED * self.satisfied + old.satisfied.sum()
            no[0] = POOLED * (1 - self.satisfied) + (old.followed - old.satisfied).sum()
            return yes, no
        known = (strength or 0.0) * self.told()  # elsewhere ρ stays at its prior mean
        return known * self.satisfied + old.satisfied, known * (
            1 - self.satisfied
        ) + old.followed - old.satisfied

    def told(self) -> NDArray[np.bool_]:
        """Whether sessions tell of ρ [pair]."""
        return np.asarray((self.followed > 0) | (self.old.followed > 0))

    def mixed_before(self) -> Float64:
        """What the prior and the memory say of the shares, in pseudo-sessions [query or 1, kind]."""
        return (
            self.old.kind_chosen
            + (1.0 if self.options.mixing_strength is None else self.options.mixing_strength) * self.shares
        )

    def tasted_before(self) -> tuple[Float64, Float64]:
        """What the prior and the memory say of tastes: strengths and rates of their Gamma priors [pair, kind]."""
        strength = self.options.component_appeal_strength or 0.0
        return strength + self.old.taste_chosen, strength + self.old.taste_exposure

    def log_prior(self, now: Parameters) -> float:
        """Log-density of the parameters under their priors, but for a constant: with the log-likelihood it is the objective."""
        options = self.options
        old, eye, out = self.old, self.eye.table(now.eye), self.out.table(now.out)
        value = _log_gamma(
            now.theta, self.strength, self.rate(now)
        ) - options.attractiveness_strength * _log_means(now.rare, self.pair_sizes)
        value += self.eye.log_prior(now.eye) + self.out.log_prior(now.out)
        value += _log_memory(old.eye_chosen, old.eye_exposure, eye) + _log_memory(
            old.out_chosen, old.out_exposure, out
        )
        value += self._log_satisfaction(now)
        if self.passes.eased:
            value += options.component_strength * float(np.sum(np.log(now.ease) - now.ease)) + _log_memory(
                old.ease_chosen, old.ease_exposure, now.ease
            )
        if options.position_effect_strength is not None:
            value += self.worth.log_prior(now.worth) + _log_memory(
                old.spot_chosen, old.spot_exposure, self.worth.table(now.worth)
            )
        if options.query_strength is not None:
            value += _log_gamma(now.spread, options.query_strength + old.query_chosen, self.query_rate(now))
            value -= options.query_strength * _log_means(now.seldom, self.query_sizes)
        if options.components > 1:
            value += float(np.sum(self.mixed_before() * np.log(now.share)))
        if options.component_appeal_strength is not None:
            value += _log_gamma(
                now.taste.ravel(), *(before.ravel() for before in self.tasted_before())
            )
        return value

    def _log_satisfaction(self, now: Parameters) -> float:
        if self.options.satisfaction_strength is None:
            return float(self.yes[0] * np.log(now.rho[0]) + self.no[0] * np.log(1 - now.rho[0]))
        return log_belief(now.rho, now.loose, self.yes, self.no, self.told(), self.old.doubt)

    def levelled(self, now: Parameters, found: Found) -> Parameters:
        """The same, with the mean of log ς over the clicks, which are counted anew, at 0: what all ς have in common is put into ρ."""
        clicks = self._clicks_of_kinds(found)
        if not self.passes.eased or clicks.sum() == 0:
            return now
        self.clickers = clicks / clicks.sum()
        level = np.exp(self.clickers @ np.log(now.ease))
        rho = np.clip(satisfaction_of(now.rho, level), EDGE, 1 - EDGE)
        return now._replace(ease=now.ease / level, rho=np.where(self.told(), rho, now.rho))

    def _clicks_of_kinds(self, found: Found) -> Float64:
        """Clicks that left another ad to click [kind], old ones included."""
        return np.asarray(found.asked.sum(axis=0) + self.old.asked)

    def known_satisfaction(self, now: Parameters, found: Found) -> Float64:
        """What is known of the logit of each ρ [pair]."""
        asked = found.asked if self.passes.eased else self.followed[:, None]
        return known_of(
            now.rho,
            self.yes,
            self.no,
            asked,
            now.ease,
            found.doubt + self.old.doubt,
            self.least_known,
        )

    # what is not known

    def unsure(self, now: Parameters, told: Evidence) -> Float64:
        """The deviation of log f of each query, where queries have their own, and these sessions told so much [query]."""
        return unsure_of(told.end.sum(axis=1), self.pair_query, self.known_readiness(now))

    def known_readiness(self, now: Parameters) -> Float64:
        """What the prior tells of log f [query]."""
        return np.asarray((self.options.query_strength or 0.0) / now.seldom[self.query_class] * now.spread)

    def told_of_pairs(self, now: Parameters) -> Evidence:
        """What sessions told of each pair, old ones included."""
        return Evidence(
            *(
                new + old
                for new, old in zip(self.passes.information(now), self.old.told, strict=True)
            )
        )

    def score(self, now: Parameters, sessions: Sessions) -> Float64:
        """The log-likelihood of each of other sessions of the same pairs [session], as the model would answer."""
        if self.options.query_strength is None:
            return self.passes.score(now, sessions)
        unsure = self.unsure(now, self.told_of_pairs(now))
        return log_mean(
            [
                self.passes.score(now._replace(spread=now.spread * np.exp(side * unsure)), sessions)
                for side in SIDES
            ]
        )

    # memory

    def remember(self, memory: Memory) -> None:
        """Take what earlier sessions said into account."""
        self.old = memory
        self.strength = self.options.attractiveness_strength + memory.chosen
        self.yes, self.no = self._satisfied_before()

    def forgotten(self) -> Memory:
        """A memory of nothing."""
        none = self.passes.nothing(len(self.means), self.queries, len(self.spot_clicks))
        chosen, exposure, followed, satisfied, doubt = np.zeros((5, len(self.means)))
        queries = np.zeros((2, len(none.query_chosen)))
        tastes = np.zeros((2, *none.taste_chosen.shape))
        told = Evidence(*np.zeros((2, len(self.means), self.passes.tastes)))
        spots, eases = np.zeros((2, len(self.spot_clicks))), np.zeros((3, self.options.components))
        tables = chosen, exposure, followed, satisfied, doubt, *none[4:8]
        return Memory._make([*tables, *queries, none.kind_chosen, *tastes, *spots, *eases, told])

    def remembered(self, now: Parameters, found: Found, told: Evidence) -> Memory:
        """What this fit leaves for the next, the memory that it began with included, as it is in `told`."""
        old, eye, out = self.old, self.eye.table(now.eye), self.out.table(now.out)
        pulled = self.passes.of_pairs(found.pulled)
        alike = self.followed, np.zeros(len(self.followed))
        followed, more = (
            as_if_alike(now.rho, now.loose, found.asked, now.ease) if self.passes.eased else alike
        )
        return Memory(
            self.clicks + old.chosen, pulled.sum(axis=1) / now.theta + old.exposure,
            followed + old.followed, found.satisfied + old.satisfied, found.doubt + more + old.doubt,
            found.eye_chosen + old.eye_chosen, found.eye_pulled / eye + old.eye_exposure,
            found.out_chosen + old.out_chosen, found.out_pulled / out + old.out_exposure,
            found.query_chosen + old.query_chosen, found.query_pulled / now.spread + old.query_exposure, found.kind_chosen + old.kind_chosen,
            found.taste_chosen + old.taste_chosen, pulled / now.taste + old.taste_exposure if self.passes.tasted else old.taste_exposure,
            self.spot_clicks + old.spot_chosen, self.spot_exposure(now, found) + old.spot_exposure,
            found.ease_chosen + old.ease_chosen, found.ease_pulled / now.ease + old.ease_exposure, self._clicks_of_kinds(found), told,
        )  # fmt: skip

    def spot_exposure(self, now: Parameters, found: Found) -> Float64:
        """What a unit of each spot's worth was pulled [spot]."""
        return (
            np.asarray(found.pulled.sum(axis=1) / self.worth.table(now.worth))
            if self.passes.placed
            else np.zeros(0)
        )

    # parameters

    def fresh(self) -> Parameters:
        """Where nothing is known; kinds of users start apart: the first leave soon, and the third, fifth … go up rather than down."""
        options = self.options
        eye, out = np.ones(self.eye.starts[-1]), np.ones(self.out.starts[-1])
        if options.components > 1:
            longest = self.eye.shape[2]
            patience = np.geomspace(2.0, 0.5, options.components)
            out[self.out.starts[2] : self.out.starts[3]] = np.repeat(patience, 2)
            jumps = eye[self.eye.starts[3] : self.eye.starts[4]].reshape(options.components, -1)
            jumps[2::2, longest : 2 * longest] *= 2.0
        spread = np.ones(self.queries if options.query_strength is not None else 1)
        share = np.tile(self.shares, (self.queries if options.mixing_strength is not None else 1, 1))
        alike, taste = (
            np.ones(len(OFTEN) + 1),
            np.ones((len(self.means) if self.passes.tasted else 1, self.passes.tastes)),
        )
        rho = np.full(len(self.means), self.satisfied)
        worth, ease = np.ones(self.worth.starts[-1]), np.ones(options.components)
        return Parameters(
            self.means.copy(),
            rho,
            eye,
            out,
            spread,
            share,
            alike,
            alike,
            taste,
            self.loose(rho),
            worth,
            ease,
        )

    def loose(self, rho: Float64) -> Float64:
        """The variance of the logit of each ρ [pair], nothing being in doubt; none if ρ is common to all, or was never told of."""
        if self.options.satisfaction_strength is None:
            return np.full(len(rho), EXACT)
        known = known_of(
            rho,
            self.yes,
            self.no,
            self.followed[:, None],
            np.ones(1),
            np.zeros(len(rho)),
            self.least_known,
        )
        return np.where(self.told(), 1 / known, EXACT)


def _log_means(means: Float64, sizes: Int64) -> float:
    """What the means of classes cost, each of so many values and of `AS_ALL` that are 1."""
    return float((sizes + AS_ALL) @ np.log(means) + AS_ALL * np.sum(1 / means))


def _log_memory(chosen: Float64, exposure: Float64, weight: Float64) -> float:
    """What remembered sessions say of weights, if there are any."""
    return 0.0 if not exposure.any() else float(np.sum(chosen * np.log(weight) - exposure * weight))


@kernel
def _log_gamma(value: Float64, strength: Float64, rate: Float64) -> float:
    """Σ s log x − rate x: the Gamma prior of x, on the scale of its logarithm."""
    total = 0.0
    for i in range(len(value)):
        total += strength[i] * np.log(value[i]) - rate[i] * value[i]
    return total
