"""TCM, the temporal click model: of two ads the better one may be examined first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.distribution import PageDistribution
from reclick.clicks.enumerated import EnumeratedPages, SequenceList
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import Float64, Int64, run_indices
from reclick.data.stored_tables import read_numbers, table_error
from reclick.errors import CannotAnswerError, LogError
from reclick.fitting.beta import BetaPrior
from reclick.fitting.posterior import PairPosteriors, Posterior
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.text.word_rates import TextIndex

PATTERNS = ((), (1,), (2,), (1, 2), (2, 1))  # the click sequences of two ads
CASES = 12  # patterns of the upper ad, of the lower ad, and of an ad alone (no click, click)
# P(a click) / P(attending) for pages of one and of two ads of uniform relevances
CLICK_PER_ATTENDING = (1 / 2, 7 / 12)
UNKNOWN_ATTENDING = 6 / 7  # without sessions
GRID = 201  # number of values of α and of β on the grid
WHY_TWO = (
    "TCM is a model of pages of one or two ads: its relevances are integrated out of the "
    "probabilities of two ads, and there is no such form for more"
)


class TCMParameters(NamedTuple):
    """The parameters common to all ads."""

    attending: float  # γ
    second: float  # β
    externality: float  # α


class TCM(ClickModel):
    """The user compares two ads, and takes the better one first where it is better by a threshold.

    With γ the user attends to the ads at all. Their perceived relevances are R1 and R2; the lower
    ad comes first with h = max(R2 − R1, 0). The first is clicked with its R; if it is not, the
    session ends. After a click on a, the other, b, is clicked with R_b (β − α (R_a − R_b)):

        P(1 first) = γ (1 − h) R1, P(2 first) = γ h R2,
        P(1, 2) = P(1 first) R2 (β − α (R1 − R2)), P(2, 1) = P(2 first) R1 (β − α (R2 − R1)).

    A relevance is not a number but a posterior: uniform at first, on `bins` values, multiplied for
    each session of the pair by the probability of its clicks with the other ad integrated out over
    a uniform relevance. γ and (α, β) are those of the clicks of the whole log. Answers integrate
    over the posteriors of both ads.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [1, 2]]}
    >>> model = TCM().fit(log)
    >>> bool(model.log_prob({"query": ["pizza"], "ads": [["a", "b"]], "clicks": [[2, 1]]})[0] > -6)
    True
    """

    name: ClassVar[str] = "tcm"
    assumes: ClassVar[str] = (
        "of two ads the user examines the better one first, if it is much better; one or two ads"
    )
    reference: ClassVar[str] = "after Xu, Manavoglu, Cantú-Paz 2010, SIGIR (two ads)"
    ordered: ClassVar[bool] = True
    uses_history: ClassVar[bool] = False
    max_page_ads: ClassVar[int | None] = 2
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_",)
    table_rows: ClassVar[Mapping[str, str]] = {"cases": "pair"}
    global_parameters: ClassVar[tuple[str, ...]] = ("attending_", "second_", "externality_")

    bins: int = setting(
        default=60, low=2, high=1000, integer=True, help="number of grid points for the relevance"
    )

    def _estimate(self, sessions: GroupedSessions, prior: BetaPrior, history: Counts) -> None:
        block = sessions.whole
        longest = int(np.diff(block.page).max(initial=0))
        if longest > 2:
            raise LogError(
                f"The log has a page of {longest} ads. {WHY_TWO}. Keep the first two ads of each "
                "page and the clicks on them, or fit another model."
            )
        pattern = find_patterns(block)
        common = fit_common(*(sum_patterns(block, pattern, size) for size in (2, 1)))
        self.attending_, self.second_, self.externality_ = common
        self._cases = count_cases(block, pattern)
        self._set_posteriors()

    def _set_posteriors(self) -> None:
        """Set the posterior of each pair, and its mean, from the counts of the pair."""
        log_posterior = self._cases @ np.log(case_likelihoods(self._common, self.bins))
        log_posterior -= log_posterior.max(axis=1, keepdims=True)
        weight = np.exp(log_posterior)
        self._posterior = weight / weight.sum(axis=1, keepdims=True)
        self.theta_ = self._posterior @ relevance_values(self.bins)

    @property
    def _common(self) -> TCMParameters:
        return TCMParameters(float(self.attending_), float(self.second_), float(self.externality_))

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        longest = int(np.diff(batch.page).max(initial=0))
        if longest > 2:
            raise CannotAnswerError(
                f"a page of {longest} ads. {WHY_TWO}. Keep the first two ads, or use another model."
            )
        row = self._pairs.find(batch).row
        posterior = np.full((len(row), self.bins), 1 / self.bins)
        posterior[row >= 0] = self._posterior[row[row >= 0]]
        joint = pattern_probabilities(self._common, self.bins)

        def pages(start: int, end: int) -> TwoAdPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            return TwoAdPages(posterior[first:last], self._common, joint, starts)

        return pages

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """Betas with the mean and the variance of each posterior."""
        values, is_known = relevance_values(self.bins), pairs.row >= 0
        posterior = np.full((len(pairs.row), self.bins), 1 / self.bins)
        posterior[is_known] = self._posterior[pairs.row[is_known]]
        mean = posterior @ values
        variance = posterior @ values**2 - mean**2 + (1 / self.bins) ** 2 / 12
        return PairPosteriors(Posterior(mean, mean, mean * (1 - mean) / variance - 1))

    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        values, tables = super()._to_tables()
        columns = {f"case{i}": self._cases[:, i] for i in range(CASES)}
        return values, {**tables, "cases": pa.table(columns)}

    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        super()._from_tables(values, tables)
        if not is_possible(self._common):
            raise table_error("values", "γ, β and α are not those of a fit")
        size = len(self._pairs.counts.impressions)
        cases = [read_numbers(tables, "cases", f"case{i}", length=size) for i in range(CASES)]
        self._cases = np.column_stack(cases)
        if (self._cases < 0).any():
            raise table_error("cases", "a count is negative")
        self._set_posteriors()
        return self


@dataclass(frozen=True, slots=True)
class TwoAdPages(EnumeratedPages):
    """Pages of one or two ads, whose relevances have posteriors on a grid."""

    posterior: Float64  # [impression, bin]
    common: TCMParameters
    joint: Float64  # [pattern, bin of the upper ad, bin of the lower ad]
    starts: Int64  # [page + 1]

    def list_sequences(self, size: int) -> SequenceList:
        """The click sequences of one or two ads."""
        return two_ad_sequences(size)

    def probabilities(self, page: int) -> Float64:
        """P(each pattern), with the relevances integrated over their posteriors."""
        first, end = self.starts[page], self.starts[page + 1]
        upper = self.posterior[first]
        if end - first == 1:
            click = self.common.attending * upper @ relevance_values(len(upper))
            return np.array([1 - click, click])
        return np.asarray(self.joint @ self.posterior[first + 1] @ upper)

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        return replace(self, posterior=self.posterior[index], starts=starts)


@cache
def two_ad_sequences(size: int) -> SequenceList:
    """The click sequences of a page of one or two ads, in the order of `PATTERNS`."""
    return SequenceList.of(iter(PATTERNS if size == 2 else PATTERNS[:2]), size)


@cache
def relevance_values(bins: int) -> Float64:
    """The middles of the bins."""
    return (np.arange(bins) + 0.5) / bins


def is_possible(common: TCMParameters) -> bool:
    """Whether all probabilities are between 0 and 1: |α| ≤ min(β, 1 − β)."""
    attending, second, externality = common
    limit = min(second, 1 - second) + 1e-12
    return bool(0 < attending <= 1 and 0 <= second <= 1 and abs(externality) <= limit)


def pattern_probabilities(common: TCMParameters, bins: int) -> Float64:
    """P(pattern | R1, R2) [pattern, bin of R1, bin of R2]."""
    attending, second, externality = common
    upper, lower = np.meshgrid(relevance_values(bins), relevance_values(bins), indexing="ij")
    return np.stack(two_ad_patterns(upper, lower, attending, second, externality))


def two_ad_patterns(
    upper: Float64, lower: Float64, attending: float, second: float, externality: float
) -> tuple[Float64, ...]:
    """P(pattern) of two relevances, in the order of `PATTERNS`."""
    lower_first = np.maximum(lower - upper, 0.0)
    first1, first2 = attending * (1 - lower_first) * upper, attending * lower_first * lower
    both12 = first1 * lower * (second - externality * (upper - lower))
    both21 = first2 * upper * (second - externality * (lower - upper))
    return 1 - first1 - first2, first1 - both12, first2 - both21, both12, both21


def case_likelihoods(common: TCMParameters, bins: int) -> Float64:
    """P(clicks | the relevance of one ad) with the other integrated out [case, bin].

    Cases are the patterns of the upper ad, those of the lower ad, and no click and click of an ad
    alone. The polynomials are the integrals of `two_ad_patterns` over a uniform relevance.
    """
    g, b, a = common
    x = relevance_values(bins)
    upper12 = g * (x * (b / 6 + a / 12) + x**2 * (b / 2 + a / 6) - x**3 * a / 2
                   - x**4 * b / 6 + x**5 * a / 12)  # fmt: skip
    upper21 = g * (x * (b / 3 - a / 4) + x**2 * (2 * a / 3 - b / 2) - x**3 * a / 2
                   + x**4 * b / 6 + x**5 * a / 12)  # fmt: skip
    upper1 = g * (x / 2 + x**2 - x**3 / 2) - upper12  # first is ad 1, with or without ad 2
    upper2 = g * (1 / 3 - x / 2 + x**3 / 6) - upper21
    lower12 = g * (x * (b / 2 - a / 3) + x**2 * a / 2 - x**4 * b / 6 - x**5 * a / 12)
    lower21 = g * (x**4 * b / 6 - x**5 * a / 12)
    lower1 = g * (1 / 2 - x**3 / 6) - lower12
    lower2 = g * x**3 / 2 - lower21
    cases = [
        1 - upper1 - upper2 - upper12 - upper21, upper1, upper2, upper12, upper21,
        1 - lower1 - lower2 - lower12 - lower21, lower1, lower2, lower12, lower21,
        1 - g * x, g * x,
    ]  # fmt: skip
    return np.maximum(np.stack(cases), np.finfo(np.float64).tiny)


def find_patterns(block: QueryBlock) -> Int64:
    """The number of the pattern of each session among `PATTERNS` [session]."""
    counts = np.diff(block.clicks)
    first = np.zeros(len(block), np.int64)
    has_click = counts > 0
    first[has_click] = block.click[block.clicks[:-1][has_click]]
    return np.where(counts < 2, first, first + 2)


def count_cases(block: QueryBlock, pattern: Int64) -> Float64:
    """How often each pair was in each case of `case_likelihoods` [pair, case]."""
    size, start = np.diff(block.page), block.page[:-1]
    two, alone = size == 2, size == 1
    counts = np.zeros((block.n_pairs, CASES))
    for offset, rows, case in (
        (0, two, pattern),
        (1, two, pattern + len(PATTERNS)),
        (0, alone, pattern + 2 * len(PATTERNS)),
    ):
        pair = block.pair[start[rows] + offset]
        np.add.at(counts, (pair, case[rows]), block.weight[rows])
    return counts


def sum_patterns(block: QueryBlock, pattern: Int64, size: int) -> Float64:
    """Sum the sessions with pages of this size by pattern [pattern]."""
    rows = np.diff(block.page) == size
    return np.bincount(pattern[rows], block.weight[rows], len(PATTERNS)).astype(np.float64)


def fit_common(patterns: Float64, patterns_alone: Float64) -> TCMParameters:
    """γ, β and α of the clicks of the whole log, by the patterns of uniform relevances.

    γ is the number of sessions with a click relative to that of attending users: 12/7 of the click
    rate of pages of two ads, twice that of pages of one ad. β and α are those of a grid with the
    highest likelihood of the patterns of two ads.
    """
    clicked = patterns[1:].sum() + patterns_alone[1:].sum()
    most = CLICK_PER_ATTENDING[0] * patterns_alone.sum() + CLICK_PER_ATTENDING[1] * patterns.sum()
    attending = float(np.clip(clicked / most, 1e-6, 1.0)) if most > 0 else UNKNOWN_ATTENDING
    second, externality = np.meshgrid(
        np.linspace(0, 1, GRID)[1:-1], np.linspace(-0.5, 0.5, GRID), indexing="ij"
    )
    both12 = 13 * second / 60 - externality / 72
    both21 = second / 30 - externality / 72
    expected = np.stack(
        [11 / 24 - both12, 1 / 8 - both21, both12, both21]  # as shares of γ
    )
    possible = (np.abs(externality) <= np.minimum(second, 1 - second)) & (expected > 0).all(axis=0)
    log_likelihood = np.tensordot(
        patterns[1:] + 1e-3, np.log(np.maximum(expected, 1e-12)), axes=(0, 0)
    )
    best = np.unravel_index(np.where(possible, log_likelihood, -np.inf).argmax(), second.shape)
    return TCMParameters(attending, float(second[best]), float(externality[best]))
