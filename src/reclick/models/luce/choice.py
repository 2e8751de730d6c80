"""What LuceClick decides by itself: strengths of priors and additions, by the likelihood of sessions held out of the training log.

Sessions are dealt into folds by their own content, so the order of the log's rows does not matter and nothing is drawn at random. Of the strengths of
a prior that are within a standard error of the best the strongest is taken (of attractiveness the nearest to moderate), and of its means the best. So
drift, which held-out sessions of the same days do not show, is met with the stronger prior. An addition is taken where it gains enough a session to
be worth its cost, and tastes where they gain more, as small gains of theirs did not last to the next week. Whether a gain is sure is not asked: a
small log is sure of nothing, and users and queries do differ.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.data.grouped_sessions import Sessions
from reclick.models.luce.climbing import Fit, climb
from reclick.models.luce.e_step import marks
from reclick.models.luce.initial_values import Counted, count_sessions, counted_start
from reclick.models.luce.objective import Problem
from reclick.models.luce.parameters import Options, Parameters
from reclick.runtime.progress import tell

logger = logging.getLogger("reclick")
FOLDS = 3
FEWEST = 200  # sessions from which a log is asked at all
PAGES = 100  # distinct pages from which whole pages are held out
AGAIN = 30  # sessions of a page from which it is held to come again
MOST = 20_000  # distinct sessions that decisions are made on; of a longer log, whole queries drawn by their content
QUICK: dict[str, Any] = {
    "max_iterations": 100,
    "tolerance": 1e-5,
    "quiet": True,
}  # how far a fit goes that only decides
FIRST: dict[str, Any] = {
    "max_iterations": 25,
    "tolerance": 1e-4,
    "quiet": True,
}  # … and one that only gives prior means
SATISFIED = 0.3  # where the common satisfaction of the first stage starts, and its prior mean there
DECISIONS = (
    "query_strength",
    "attractiveness_strength",
    "satisfaction_prior",
    "satisfaction_strength",
    "satisfaction_prior",
    "transition_strength",
    "components",
    "mixing_strength",
    "component_strength",
    "component_appeal_strength",
    "position_effect_strength",
)
GRIDS: dict[str, tuple[Any, ...]] = {  # from the strongest; None is one value common to all
    "query_strength": (None, 8.0, 4.0, 2.0, 1.0, 0.5),
    "attractiveness_strength": (8.0, 4.0, 2.0, 1.0, 0.5),
    "mixing_strength": (None, 10.0, 3.0),
    "component_strength": (16.0, 4.0),
    "component_appeal_strength": (None, 20.0, 8.0, 3.0),
    "position_effect_strength": (None, 100.0, 30.0, 10.0),
    "satisfaction_strength": (None, 30.0, 10.0, 5.0, 2.0),
    "transition_strength": (16.0, 4.0, 1.0),
}
TENTHS = (
    1,
    3,
    5,
    7,
    9,
)  # that the prior mean of satisfaction is tried at before its strength is decided; then between them
WORTHWHILE = 0.0003  # what an addition has to gain a session: less is not worth what it costs
LASTING = 0.002  # … and tastes: less does not last to the next week, and first clicks pay for it
SAME = 1e-9  # a session, by which log-likelihoods differ through rounding
DEFAULTS = Options(
    attractiveness_strength=2.0, satisfaction_strength=5.0, query_strength=None, transition_strength=4.0, components=1, component_strength=4.0, mixing_strength=10.0
)
MOST_KINDS = 6
TASTE = 8.0  # the strength that tastes are tried with at first


class Tried(NamedTuple):
    """Options and how well they explain held-out sessions."""

    options: Options
    held_out: Float64  # [session] log-likelihood of each held-out session, fold after fold
    weight: Float64  # [session]

    @property
    def mean(self) -> float:
        """Log-likelihood a session."""
        return float(np.average(self.held_out, weights=self.weight))

    def sureness(self, other: Tried) -> float:
        """The gain over the other, in standard errors of it."""
        gain = self.held_out - other.held_out
        mean = float(np.average(gain, weights=self.weight))
        error = float(np.sqrt(np.sum(self.weight * (gain - mean) ** 2)) / self.weight.sum())
        return mean / error if error > 0 else 0.0


def _earns(more: Tried, less: Tried, least: float = WORTHWHILE) -> bool:
    """Whether an addition earns its place: whether it gains so much a session, surely or not, for a small log is sure of nothing."""
    return more.mean - less.mean >= least


def _top(before: float, at: float, after: float) -> float:
    """Where the parabola through the values at −1, 0 and 1 has its top; the value at 0 is the highest."""
    return (after - before) / (2 * max(2 * at - before - after, SAME))


def _from_moderate(options: Options) -> float:
    """How many times θ's prior is stronger or weaker than by default; a log too small to tell would else have it ever stronger."""
    return abs(math.log(options.attractiveness_strength / DEFAULTS.attractiveness_strength))


class Pooled(NamedTuple):
    """A fit where satisfaction and the kinds' shares are common to all."""

    parameters: Parameters
    iterations: int

    def moved(self, by: Float64) -> Pooled:
        """The same but for θ, times `by` [pair]."""
        return self._replace(parameters=self.parameters._replace(theta=self.parameters.theta * by))


def pool(sessions: Sessions, options: Options, means: Float64, counted: Counted) -> Pooled:
    """The first stage of a fit: what is common to all, which then is the prior mean of each pair's and each query's own."""
    shares = np.full(options.components, 1 / options.components)
    problem = Problem(
        sessions,
        options._replace(satisfaction_strength=None, mixing_strength=None, component_appeal_strength=None, position_effect_strength=None),
        means,
        SATISFIED,
        shares,
    )
    done = climb(problem, counted_start(problem, counted), **FIRST)
    return Pooled(done.parameters, len(done.objective))


def fit(
    sessions: Sessions,
    options: Options,
    means: Float64,
    counted: Counted,
    first: Pooled,
    **loop: Any,
) -> Fit:
    """The second stage of a fit."""
    common = first.parameters
    satisfied = (
        float(common.rho[0])
        if isinstance(options.satisfaction_prior, str)
        else options.satisfaction_prior
    )
    problem = Problem(sessions, options, means, satisfied, common.share[0])
    return climb(problem, _second_start(problem, counted, common), **loop)


def _second_start(problem: Problem, counted: Counted, first: Parameters) -> Parameters:
    """Where the first stage ended; what was common there and now is each pair's or query's own: as it was counted, or as nothing is known."""
    fresh, strength = problem.fresh(), problem.options.satisfaction_strength
    # Of pairs that only a history may tell of, ρ is its prior mean and stays so.
    rho = (
        first.rho
        if strength is None
        else np.where(
            problem.told(), counted.satisfaction(problem.satisfied, strength), problem.satisfied
        )
    )
    return first._replace(
        rho=rho,
        spread=first.spread if len(first.spread) == len(fresh.spread) else fresh.spread,
        share=first.share if first.share.shape == fresh.share.shape else fresh.share,
        taste=fresh.taste,
        loose=problem.loose(rho),
        worth=fresh.worth,
    )


class Chooser:
    """Folds of the training sessions, and the search over options; those given by the user are not touched."""

    def __init__(self, sessions: Sessions, means: Float64, fixed: dict[str, Any]) -> None:
        some, kept = _some(sessions)
        self.means = means[kept]
        self.fixed = (
            fixed if len(some.counts.queries) > 1 else {"query_strength": None, "mixing_strength": None} | fixed
        )  # one query does not differ from others
        self.folds = _dealt(some) if sessions.weight.sum() >= FEWEST else []
        self.counted = [count_sessions(train) for train, _ in self.folds]
        self.trials: dict[Options, Tried] = {}
        self._pooled: dict[tuple[int, int], Pooled] = {}

    def choose(self) -> Options:
        """The options that the training log itself speaks for."""
        now = DEFAULTS._replace(**self.fixed)
        if len(self.folds) > 1:
            for name in DECISIONS:
                if name not in self.fixed and (
                    now.components > 1 or name not in ("mixing_strength", "component_strength", "component_appeal_strength")
                ):
                    now = self._decided(name, now)
            if now.components > 1 and "satisfaction_prior" not in self.fixed:
                now = self._decided("satisfaction_prior", now)  # once more, as kinds of users differ in it
        return now

    def _decided(self, name: str, now: Options) -> Options:
        if name == "components":
            return self._kinds(now)
        if name == "component_appeal_strength":
            return self._taste(now)
        if name == "satisfaction_prior":
            return self._satisfied(now) if isinstance(now.satisfaction_prior, str) else self._satisfied_finely(now)
        return self._along(name, now)

    def _satisfied(self, now: Options) -> Options:
        """The best of a few prior means of satisfaction, if each pair has its own and the log can tell."""
        if now.satisfaction_strength is None:
            return now
        trials = sorted(
            (self.tried(now._replace(satisfaction_prior=tenths / 10)) for tenths in TENTHS),
            key=lambda trial: trial.mean,
        )
        return trials[-1].options if trials[-1].mean - trials[0].mean > SAME else now

    def _satisfied_finely(self, now: Options) -> Options:
        """The best prior mean of satisfaction with the strength that it has now: a tenth up or down as long as that gains, then between tenths."""
        if isinstance(now.satisfaction_prior, str) or now.satisfaction_strength is None:
            return now

        def gain(tenths: int) -> float:
            return self.tried(now._replace(satisfaction_prior=tenths / 10)).mean

        best = round(10 * now.satisfaction_prior)
        while (
            better := max(range(max(best - 1, TENTHS[0]), min(best + 1, TENTHS[-1]) + 1), key=gain)
        ) != best:
            best = better
        inside = TENTHS[0] < best < TENTHS[-1]
        return now._replace(
            satisfied=round(
                (best + _top(gain(best - 1), gain(best), gain(best + 1)) if inside else best) / 10,
                3,
            )
        )

    def _along(self, name: str, now: Options) -> Options:
        """Of what is not surely worse than the best of a grid the strongest, or the nearest to moderate; an addition only if it is worth its cost."""
        trials = [self.tried(now._replace(**{name: value})) for value in GRIDS[name]]
        best = max(trials, key=lambda trial: trial.mean)
        if GRIDS[name][0] is None:
            none, least = trials[0], LASTING if name == "component_appeal_strength" else WORTHWHILE
            if not _earns(best, none, least):
                return none.options
            trials = [trial for trial in trials[1:] if _earns(trial, none, least)]
        fair = [trial.options for trial in trials if best.sureness(trial) <= 1]
        return min(fair, key=_from_moderate) if name == "attractiveness_strength" else fair[0]

    def _taste(self, now: Options) -> Options:
        """Tastes of the kinds of users that there are; where they have them, it may take more kinds to tell them.

        Kinds were taken before their shares, strength and tastes were decided: in the end they have to earn their place with these.
        """
        then = self._along("component_appeal_strength", now)
        if "components" in self.fixed:
            return then
        if then.component_appeal_strength is not None:
            then = self._kinds(then)
        alone = then._replace(components=1)
        return (
            then
            if _earns(
                self.tried(then), self.tried(alone), WORTHWHILE if then.component_appeal_strength is None else LASTING
            )
            else alone
        )

    def _kinds(self, now: Options) -> Options:
        """More kinds of users as long as one more, or two, are worth it; two that differ in their tastes, where they differ in nothing else."""
        while more := next(
            (
                components
                for components in self._more_kinds(now)
                if _earns(self.tried(components), self.tried(now))
            ),
            None,
        ):
            now = more
        tasting = now._replace(components=2, component_appeal_strength=TASTE)
        if (
            now.components == 1
            and "component_appeal_strength" not in self.fixed
            and _earns(self.tried(tasting), self.tried(now), LASTING)
        ):
            return tasting
        return now

    @staticmethod
    def _more_kinds(now: Options) -> list[Options]:
        """One kind of users more, and two: a third may have to part from two others at once."""
        return [
            now._replace(components=components)
            for components in (now.components + 1, now.components + 2)
            if components <= MOST_KINDS
        ]

    def tried(self, options: Options) -> Tried:
        """How well the options explain each fold, learnt from the others."""
        if options not in self.trials:
            parts = [self._held_out(k, options) for k in range(len(self.folds))]
            self.trials[options] = Tried(
                options,
                np.concatenate(parts),
                np.concatenate([test.weight for _, test in self.folds]),
            )
            logger.debug("%s: %.5f", options, self.trials[options].mean)
            tell("settings tried", len(self.trials))
        return self.trials[options]

    def _held_out(self, k: int, options: Options) -> Float64:
        train, test = self.folds[k]
        if (k, options.components) not in self._pooled:
            self._pooled[k, options.components] = pool(train, options, self.means, self.counted[k])
        done = fit(
            train, options, self.means, self.counted[k], self._pooled[k, options.components], **QUICK
        )
        return done.problem.score(done.parameters, test)


def _some(sessions: Sessions) -> tuple[Sessions, Int64]:
    """The sessions, or whole queries of them that come to about `MOST`; and the pairs they have, which then are numbered anew."""
    if len(sessions) <= MOST:
        return sessions, np.arange(len(sessions.counts.impressions))
    query = sessions.counts.pair_query[sessions.pair[sessions.page[:-1]]]
    drawn = query.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)
    some = sessions.select(np.flatnonzero(drawn < MOST / len(sessions) * 2**31))
    kept, pair = np.unique(some.pair.astype(np.int64), return_inverse=True)
    asked, code = np.unique(sessions.counts.pair_query[kept], return_inverse=True)
    counts = replace(
        sessions.counts,
        queries=sessions.counts.queries.take(pa.array(asked)),
        pair_query=code.astype(np.int32),
        pair_ad=sessions.counts.pair_ad[kept],
        **{
            name: getattr(sessions.counts, name)[kept]
            for name in ("impressions", "clicks", "last_clicks")
        },
    )  # but for the visits, which are not needed here
    return replace(some, counts=counts, pair=pair.astype(np.int32)), kept


def _dealt(sessions: Sessions) -> list[tuple[Sessions, Sessions]]:
    """(train, test) of each fold. A page that came seldom is held out whole, as tomorrow's seldom pages will be new.

    One that came often will come again, so its sessions are dealt, and so are all of a log with few distinct pages: of a session that came w times
    ⌊w / folds⌋ to each fold, and the rest one a fold.
    """
    page = marks(
        sessions.pair, sessions.page, sessions.click[:0], np.zeros(len(sessions) + 1, np.int64)
    )
    pages, which = np.unique(page, return_inverse=True)
    often = (np.bincount(which, sessions.weight)[which] >= AGAIN) | (
        len(pages) < PAGES
    )  # [session]
    first = marks(sessions.pair, sessions.page, sessions.click, sessions.clicks) % FOLDS
    folds = []
    for k in range(FOLDS):
        dealt = np.floor(sessions.weight / FOLDS) + np.clip(
            sessions.weight % FOLDS - (k - first) % FOLDS, 0, 1
        )
        out = np.where(
            often, dealt, np.where(page % FOLDS == k, sessions.weight, 0.0)
        )  # [session] of its weight
        if 0 < out.sum() < sessions.weight.sum():
            folds.append((_weighted(sessions, sessions.weight - out), _weighted(sessions, out)))
    return folds


def _weighted(sessions: Sessions, weight: Float64) -> Sessions:
    """The same sessions with other weights, without those of no weight."""
    chosen: Int64 = np.flatnonzero(weight > 0)
    return replace(sessions, weight=weight).select(chosen)
