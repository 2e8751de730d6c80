"""A mixture: the user of a session is of one component, from the first click to the last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks, PageDistribution, StepwisePages
from reclick.clicks.step import StepTables, draw_clicks
from reclick.data.batch import Float64, Int64
from reclick.data.ragged import read_only, starts_from_sizes
from reclick.errors import CannotAnswerError


def mix_choices(pages: ChoicePages, weights: Float64) -> PageDistribution:
    """Pages whose component t uses table t: a mixture, or the pages of the only component."""
    tables = [np.full(len(pages.starts) - 1, t) for t in range(len(pages.stop))]
    components = tuple(replace(pages, table=each) for each in tables)
    return components[0] if len(components) == 1 else MixturePages(components, weights)


@dataclass(frozen=True, slots=True)
class MixturePages(StepwisePages):
    """Pages whose clicks follow one of several distributions: P(clicks) = Σ_t weight_t P_t(clicks).

    The components are distributions of the same pages, of any family; each page has its own
    mixing weights. Sequences can be searched and ranked if all components are of Reclick's own
    families.
    """

    components: tuple[PageDistribution, ...]
    weights: Float64  # [page, component] mixing weights, which add up to 1

    @property
    def starts(self) -> Int64:  # type: ignore[override]
        """Where each page starts among the impressions [page + 1]."""
        return self.components[0].starts

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        return _log_mean(self.weights, [each.log_prob(clicks) for each in self.components])

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        return _log_mean(self.weights, [each.log_set_prob(clicks) for each in self.components])

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        weights = np.repeat(self.weights, np.diff(self.starts), axis=0)  # [impression, component]
        parts = (weights[:, t] * each.click_prob() for t, each in enumerate(self.components))
        return np.asarray(sum(parts))

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """P(next click), P(end), and log P(the first clicks are these).

        Each component is weighted by its posterior probability given these clicks, or by its mixing
        weight if they are impossible under all components.
        """
        each = [_follow(component, clicks) for component in self.components]
        logs = [log for _, _, log in each]
        log_prefix = _log_mean(self.weights, logs)
        possible = np.isfinite(log_prefix)
        relative = np.stack(logs, axis=1) - np.where(possible, log_prefix, 0.0)[:, None]
        posterior = self.weights * np.where(possible[:, None], np.exp(relative), 1.0)
        impression_posterior = np.repeat(posterior, np.diff(self.starts), axis=0)
        following = sum(
            impression_posterior[:, t] * chance for t, (chance, _, _) in enumerate(each)
        )
        end = sum(posterior[:, t] * ends for t, (_, ends, _) in enumerate(each))
        return np.asarray(following), np.asarray(end), log_prefix

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        parts = (
            self.weights[:, t] * each.satisfaction_prob() for t, each in enumerate(self.components)
        )
        return np.asarray(sum(parts))

    def sample(self, rng: np.random.Generator) -> Clicks:
        """Draw one session for each page."""
        if _is_stepwise(self):
            return draw_clicks(self.step_tables(), rng)
        last = len(self.components) - 1
        component = (rng.random(len(self))[:, None] > np.cumsum(self.weights, axis=1)).sum(axis=1)
        rows = [np.flatnonzero(np.minimum(component, last) == t) for t in range(last + 1)]
        samples = [
            each.select(component_rows).sample(rng)
            for each, component_rows in zip(self.components, rows, strict=True)
        ]
        clicks_by_component = Clicks(
            np.concatenate([sample.click for sample in samples]),
            starts_from_sizes(np.concatenate([sample.counts for sample in samples])),
        )
        return clicks_by_component.select(np.argsort(np.concatenate(rows)))

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        components = tuple(component.select(rows) for component in self.components)
        return type(self)(components, self.weights[rows])

    def step_tables(self) -> StepTables:
        """The components' tables, one after the other; mixtures of mixtures are flattened."""
        tables = [_step_tables(component) for component in self.components]
        stop, gamma, steps, first_row = _stack_tables(tables)
        rows = [each.row + row for each, row in zip(tables, first_row, strict=True)]
        weights = [self.weights[:, [t]] * each.weights for t, each in enumerate(tables)]
        return StepTables(
            family=read_only(np.concatenate([each.family for each in tables])),
            theta=read_only(np.concatenate([each.theta for each in tables])),
            rho=read_only(np.concatenate([each.rho for each in tables])),
            stop=read_only(stop),
            gamma=read_only(gamma),
            steps=None if steps is None else read_only(steps),
            row=read_only(np.concatenate(rows)),
            starts=tables[0].starts,
            weights=read_only(np.concatenate(weights, axis=1)),
        )


def _is_stepwise(pages: PageDistribution) -> bool:
    """Whether the kernels know the family of the pages, or all families of a mixture."""
    if isinstance(pages, MixturePages):
        return all(map(_is_stepwise, pages.components))
    return isinstance(pages, StepwisePages)


def _step_tables(component: PageDistribution) -> StepTables:
    if isinstance(component, StepwisePages):
        return component.step_tables()
    raise CannotAnswerError(
        f"sequences of a mixture with {type(component).__name__}, which is not of Reclick's own "
        "families: a search needs their tables. log_prob, next_click_prob and sample work."
    )


def _follow(component: PageDistribution, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
    """`StepwisePages.follow` of any distribution: P(first clicks) is the product of next clicks."""
    if isinstance(component, StepwisePages):
        return component.follow(clicks)
    log_prefix = np.zeros(len(component))
    for k in range(int(clicks.counts.max(initial=0))):
        rows = np.flatnonzero(clicks.counts > k)
        so_far = Clicks(
            clicks.click[(clicks.starts[rows, None] + np.arange(k)).reshape(-1)],
            np.arange(len(rows) + 1) * k,
        )
        pages = component.select(rows)
        chance, _ = pages.next_click_prob(so_far)
        following = pages.starts[:-1] + clicks.click[clicks.starts[rows] + k] - 1
        with np.errstate(divide="ignore"):
            log_prefix[rows] += np.log(chance[following])
    return (*component.next_click_prob(clicks), log_prefix)


def _log_mean(weights: Float64, logs: list[Float64]) -> Float64:
    """Logarithm of Σ_t weight_t exp(log_t) [page]."""
    with np.errstate(divide="ignore"):
        terms = np.log(weights) + np.stack(logs, axis=1)
        top = np.maximum(terms.max(axis=1, initial=-np.inf), -1e300)
        return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


def _stack_tables(
    tables: list[StepTables],
) -> tuple[Float64, Float64, Float64 | None, list[int]]:
    """The stop, gamma and steps of all tables, and the first row of each.

    Tables that all share the same memory are not repeated.
    """
    first_tables = tables[0]
    if first_tables.steps is None and all(
        each.steps is None
        and _is_same(each.stop, first_tables.stop)
        and _is_same(each.gamma, first_tables.gamma)
        for each in tables
    ):
        return first_tables.stop, first_tables.gamma, None, [0] * len(tables)
    first = [0, *np.cumsum([len(each.stop) for each in tables]).tolist()]
    stop = np.zeros((first[-1], max(each.stop.shape[1] for each in tables)))
    last, position = (max(each.gamma.shape[axis] for each in tables) for axis in (1, 2))
    gamma = np.zeros((first[-1], last, position))
    width = max((each.steps.shape[1] for each in tables if each.steps is not None), default=0)
    steps = np.zeros((first[-1], width))
    for each, row in zip(tables, first, strict=False):
        rows = slice(row, row + len(each.stop))
        stop[rows, : each.stop.shape[1]] = each.stop
        gamma[rows, : each.gamma.shape[1], : each.gamma.shape[2]] = each.gamma
        if each.steps is not None:
            steps[rows, : each.steps.shape[1]] = each.steps
    walks = any(each.steps is not None for each in tables)
    return stop, gamma, steps if walks else None, first[:-1]


def _is_same(a: Float64, b: Float64) -> bool:
    """Whether two arrays are the same memory."""
    return a.shape == b.shape and a.ctypes.data == b.ctypes.data
