"""CRF: a conditional random field over the sets of clicked ads, with effects of pairs of ads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar, NamedTuple, Self

import numpy as np

from reclick.clicks.chain import PROBABILITY_MARGIN
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.enumerated import EnumeratedPages, SequenceList, falling_sets
from reclick.clicks.set_probability import MAX_PAGE_ADS, check_page_length
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions, QueryBlock
from reclick.data.pair_index import PairLookup
from reclick.data.ragged import Float64, Int32, Int64, run_indices, starts_from_sizes
from reclick.errors import LogError
from reclick.fitting.beta import BetaPrior
from reclick.fitting.em import FitResult, PairSums, Statistics
from reclick.fitting.posterior import PairPosteriors, Posterior
from reclick.models.base import ClickModel
from reclick.models.settings import setting
from reclick.runtime.jit import kernel, subkernel
from reclick.runtime.progress import report_progress
from reclick.text.similarity import AdSimilarity
from reclick.text.word_rates import TextIndex

logger = logging.getLogger("reclick")
MEMORY = 10  # steps that L-BFGS remembers
LEAST_GAIN = 1e-4  # of a step, as a share of what its slope promises
MOST_HALVINGS = 40


class CRFParameters(NamedTuple):
    """What is estimated. All have Gaussian priors: v around the mean log-odds, others around 0."""

    appeal: Float64  # a [pair] log-odds, beside those of the position
    position: Float64  # v [position]
    pairs: Float64  # W [upper position, lower position]; 0 elsewhere
    similarity: Float64  # κ [1]

    def flatten(self) -> Float64:
        """All as one vector."""
        return np.concatenate([each.ravel() for each in self])

    def unflatten(self, vector: Float64) -> CRFParameters:
        """A vector in the shape of these."""
        ends = np.cumsum([each.size for each in self])[:-1]
        parts = np.split(vector, ends)
        return CRFParameters(*(x.reshape(y.shape) for x, y in zip(parts, self, strict=True)))


class CRFBlock(NamedTuple):
    """The distinct pages of a block, and what was clicked on them."""

    first_pair: int
    n_pairs: int
    pair: Int32  # [impression of a page]
    page: Int64  # [page + 1]
    weight: Float64  # [page] sessions
    similarity: Float64  # squares, page after page
    clicks: Float64  # [pair]
    by_position: Float64  # [position] clicks
    by_pairs: Float64  # [upper, lower] clicks on both
    by_similarity: float  # Σ similarity of both, over clicks on both


class CRF(ClickModel):
    """P(set) ∝ exp(Σ (a(q, d_i) + v_i) + Σ (W_ij − κ s_ij)), over clicks and pairs of clicks.

    v_i is the effect of position i, W_ij that of two positions clicked together, and s_ij the
    similarity of two ads: the Jaccard index of their words, where there is text. With κ > 0 a
    click on one of two similar ads makes a click on the other less likely. Clicks are made from the
    top down. Probabilities are exact, as sums over all 2^n sets of up to 12 ads.

    All parameters have Gaussian priors, and the posterior is concave, so L-BFGS finds the only
    maximum; slopes are observed minus expected clicks. θ(q, d) is reported as P(click) of an ad
    alone on a page.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [1, 2], [1]]}
    >>> model = CRF().fit(log)
    >>> model.converged_, bool(model.theta_[0] > model.theta_[1])
    (True, True)
    """

    name: ClassVar[str] = "crf"
    assumes: ClassVar[str] = (
        "clicks on a page depend on each other in pairs, by positions and by similarity of ads"
    )
    reference: ClassVar[str] = "after Xiong, Wang, Ding, Shen, Liu 2012, WSDM (relational clicks)"
    uses_history: ClassVar[bool] = False
    max_page_ads: ClassVar[int | None] = MAX_PAGE_ADS
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "information_")
    global_parameters: ClassVar[tuple[str, ...]] = ("position_", "position_pairs_", "kappa_")

    similarity: str | None = setting(
        default="words",
        choices=("words",),
        allow_none=True,
        help='how ads are compared: "words" (by their words, if the log has text), or None (not at '
        "all)",
    )
    pair_precision: float = setting(
        default=0.5, greater_than=0, help="precision of the prior of a pair's log-odds a"
    )
    position_precision: float = setting(
        default=0.01, greater_than=0, help="precision of the prior of a position's effect v"
    )
    interaction_precision: float = setting(
        default=1.0, greater_than=0, help="precision of the prior of W and κ"
    )
    max_iterations: int = setting(default=300, low=1, integer=True)
    tolerance: float = setting(default=1e-7)

    def _estimate(self, sessions: GroupedSessions, prior: BetaPrior, history: Counts) -> None:
        longest, counts = sessions.max_ads, sessions.counts
        if longest > MAX_PAGE_ADS:
            raise LogError(
                f"The log has a page of {longest} ads: CRF sums over all sets of clicks, which is "
                f"possible up to {MAX_PAGE_ADS} ads. Keep the first {MAX_PAGE_ADS} ads of each "
                "page, or fit another model."
            )
        text = None if self.similarity is None else self._index_text(None)
        similarity = AdSimilarity.of(counts.ads, text)
        prepare = partial(
            summarise_pages, similarity=similarity, pair_ad=counts.pair_ad, longest=longest
        )
        blocks = self._engine.prepare(prepare, sessions.blocks())
        zero = CRFParameters(
            np.zeros(len(counts.impressions)),
            np.full(longest, np.log(self.prior_mean_ / (1 - self.prior_mean_))),
            np.zeros((longest, longest)),
            np.zeros(1),
        )
        fit = self._maximise(zero, blocks, sessions.counts.total, similar=text is not None)
        appeal, self.position_, self.position_pairs_, kappa = fit.parameters
        self.kappa_ = float(kappa[0])
        self.theta_ = _logistic(appeal + self.position_[0])
        self.information_ = self.pair_precision + fit.statistics.pairs["variance"]
        self._report_fit(fit)

    def _maximise(
        self, start: CRFParameters, blocks: Sequence[CRFBlock], sessions: float, *, similar: bool
    ) -> FitResult[CRFParameters, Statistics]:
        """The parameters of highest posterior density."""
        precision = CRFParameters(
            np.full(start.appeal.shape, self.pair_precision),
            np.full(start.position.shape, self.position_precision),
            np.full(start.pairs.shape, self.interaction_precision),
            np.full(1, self.interaction_precision),
        ).flatten()
        centre = start.flatten()

        def evaluate(vector: Float64) -> tuple[float, Float64, Statistics]:
            found = self._engine.reduce(e_step, start.unflatten(vector), blocks)
            totals = found.totals
            slope = CRFParameters(
                found.pairs["appeal"],
                totals["position"],
                totals["pairs"],
                totals["similarity"] if similar else np.zeros(1),
            ).flatten()
            away = vector - centre
            value = found.log_likelihood - 0.5 * float(precision @ away**2)
            return value, slope - precision * away, found

        return ascend(
            start, evaluate, sessions, self.max_iterations, self.tolerance, quiet=self._is_pilot
        )

    @property
    def appeal_(self) -> Float64:
        """The log-odds a of each pair, beside those of the position [pair]."""
        return self._to_appeal(self.theta_)

    def _to_appeal(self, theta: Float64) -> Float64:
        return np.asarray(_log_odds(theta) - self.position_[0])

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        check_page_length(batch.page)
        theta = self._pairs.take_or(self.theta_, self._pairs.find(batch).row, np.nan)
        appeal = np.where(np.isnan(theta), 0.0, self._to_appeal(theta))  # 0 for unseen pairs
        longest = int(np.diff(batch.page).max(initial=1))
        position, pairs = extend_positions(self.position_, self.position_pairs_, longest)
        known = text if self.similarity is not None else None
        similarity = AdSimilarity.of(batch.ads, known)
        kappa = self.kappa_ if known is not None else 0.0

        def pages(start: int, end: int) -> CRFPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            like = similarity.of_pages(batch.ad[first:last], starts)
            squares = starts_from_sizes(np.diff(starts) ** 2)
            return CRFPages(appeal[first:last], position, pairs, kappa, like, starts, squares)

        return pages

    def _posteriors(self, asked: PairLookup) -> PairPosteriors:
        """Betas by Laplace's approximation of the log-odds."""
        known = asked.row >= 0
        mean = float(_logistic(self.position_[:1])[0])
        theta = np.where(known, self._pairs.take_or(self.theta_, asked.row, mean), mean)
        information = self._pairs.take_or(self.information_, asked.row, self.pair_precision)
        return PairPosteriors(Posterior(theta, theta, information / (theta * (1 - theta))))


@dataclass(frozen=True, slots=True)
class CRFPages(EnumeratedPages):
    """Pages whose sets of clicks have pairwise log-odds."""

    appeal: Float64  # [impression]
    position: Float64  # [position]
    pairs: Float64  # [upper, lower]
    redundancy: float
    similarity: Float64  # squares, page after page
    starts: Int64  # [page + 1]
    squares: Int64  # [page + 1] where each page's square starts
    top_down: ClassVar[bool] = True

    def list_sequences(self, size: int) -> SequenceList:
        """All sets, from the top down."""
        return falling_sets(size)

    def probabilities(self, page: int) -> Float64:
        """P(each set of clicks)."""
        first, end = self.starts[page], self.starts[page + 1]
        n = int(end - first)
        like = self.similarity[self.squares[page] : self.squares[page + 1]].reshape(n, n)
        field = self.appeal[first:end] + self.position[:n]
        weights = np.empty(1 << n)
        fill_set_weights(field, self.pairs[:n, :n] - self.redundancy * np.triu(like, 1), weights)
        return np.asarray((weights / weights.sum())[set_codes(n)])

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        similar, squares = run_indices(self.squares, rows)
        return replace(
            self,
            appeal=self.appeal[index],
            similarity=self.similarity[similar],
            starts=starts,
            squares=squares,
        )


@cache
def set_codes(size: int) -> Int64:
    """The sets of `falling_sets` as numbers: bit i is position i + 1."""
    return np.array([sum(1 << (p - 1) for p in each) for each in falling_sets(size).clicks])


def extend_positions(position: Float64, pairs: Float64, longest: int) -> tuple[Float64, Float64]:
    """The effects for pages of some length; positions never shown are as the last one."""
    extra = max(0, longest - len(position))
    return np.pad(position, (0, extra), mode="edge"), np.pad(pairs, ((0, extra), (0, extra)))


def summarise_pages(
    block: QueryBlock, *, similarity: AdSimilarity, pair_ad: Int32, longest: int
) -> CRFBlock:
    """The distinct pages of a block, and the sums of its clicks."""
    size, start = np.diff(block.page), block.page[:-1]
    padded = np.full((len(block), longest), -1, np.int64)
    for j in range(longest):
        padded[size > j, j] = block.pair[start[size > j] + j]
    _, first, which = np.unique(padded, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    pages = block.select(first)
    clicks, by_position = np.zeros(block.n_pairs), np.zeros(longest)
    by_pairs, like = np.zeros((longest, longest)), np.zeros(1)
    squares = similarity.of_pages(pair_ad[block.pairs][pages.pair], pages.page)
    _add_clicks(
        block.pair, block.page, block.click, block.clicks, block.weight, which.astype(np.int64),
        starts_from_sizes(np.diff(pages.page) ** 2), squares, clicks, by_position, by_pairs, like,
    )  # fmt: skip
    return CRFBlock(
        block.first_pair, block.n_pairs, pages.pair, pages.page,
        np.bincount(which, block.weight, len(first)).astype(np.float64), squares,
        clicks, by_position, by_pairs, float(like[0]),
    )  # fmt: skip


def e_step(parameters: CRFParameters, block: CRFBlock) -> Statistics:
    """The log-likelihood, and its slopes: observed minus expected clicks; and their variances."""
    rows = slice(block.first_pair, block.first_pair + block.n_pairs)
    appeal, kappa = parameters.appeal[rows], float(parameters.similarity[0])
    expected, variance = np.zeros((2, block.n_pairs))
    by_position, by_pairs = np.zeros(len(parameters.position)), np.zeros(parameters.pairs.shape)
    like = np.zeros(1)
    log_normaliser = _expect_pages(
        block.pair, block.page, block.weight, block.similarity, appeal, parameters.position,
        parameters.pairs, kappa, expected, variance, by_position, by_pairs, like,
    )  # fmt: skip
    observed = (
        block.clicks @ appeal
        + block.by_position @ parameters.position
        + float((block.by_pairs * parameters.pairs).sum())
        - kappa * block.by_similarity
    )
    totals = {
        "position": block.by_position - by_position,
        "pairs": block.by_pairs - by_pairs,
        "similarity": like - block.by_similarity,
    }
    pairs = PairSums.of(block.first_pair, appeal=block.clicks - expected, variance=variance)
    return Statistics(float(observed) - log_normaliser, totals, pairs)


def _logistic(value: Float64) -> Float64:
    chance = np.exp(-np.logaddexp(0.0, -value))  # which does not overflow
    return np.clip(chance, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


def _log_odds(chance: Float64) -> Float64:
    return np.log(chance) - np.log1p(-chance)


def ascend(
    start: CRFParameters,
    evaluate: Callable[[Float64], tuple[float, Float64, Statistics]],
    sessions: float,
    max_iterations: int,
    tolerance: float,
    *,
    quiet: bool = False,
) -> FitResult[CRFParameters, Statistics]:
    """L-BFGS on a concave objective, until a step gains less than `tolerance` per session."""
    point = start.flatten()
    value, slope, found = evaluate(point)
    objective, history = [value], list[tuple[Float64, Float64]]()
    converged, gain = False, np.inf
    while len(objective) < max_iterations and not converged:
        if not quiet:
            report_progress("iterations", len(objective))
        step = _direction(slope, history)
        promised, length = float(step @ slope), 1.0 if history else 1 / (1 + np.abs(slope).max())
        for _ in range(MOST_HALVINGS):
            ahead = point + length * step
            new_value, new_slope, new_found = evaluate(ahead)
            if new_value >= value + LEAST_GAIN * length * promised:
                break
            length /= 2
        else:  # no step gains anything that rounding would not hide
            converged, gain = True, 0.0
            objective.append(value)
            break
        history = [*history[1 - MEMORY :], (ahead - point, slope - new_slope)]
        gain = (new_value - value) / max(sessions, 1.0)
        point, value, slope, found = ahead, new_value, new_slope, new_found
        objective.append(value)
        converged = gain < tolerance and tolerance > 0
    count = len(objective)
    if not quiet:
        report_progress("iterations", count)
    verdict = f"converged after {count} iterations, gain {gain:.1e} < {tolerance:g}"
    if not converged:
        verdict = (
            f"stopped after {count} iterations, gain {gain:.1e} > {tolerance:g}: not converged"
        )
        logger.warning("%s", verdict)
    return FitResult(start.unflatten(point), found, tuple(objective), converged, verdict)


def _direction(slope: Float64, history: Sequence[tuple[Float64, Float64]]) -> Float64:
    """The inverse curvature of the last steps times the slope: the two loops of L-BFGS."""
    step, shares = slope.copy(), list[float]()
    for moved, bent in reversed(history):
        share = float(moved @ step) / float(moved @ bent)
        step -= share * bent
        shares.append(share)
    if history:
        moved, bent = history[-1]
        step *= float(moved @ bent) / float(bent @ bent)
    for (moved, bent), share in zip(history, reversed(shares), strict=True):
        step += moved * (share - float(bent @ step) / float(moved @ bent))
    return step


@kernel
def fill_set_weights(field: Float64, coupling: Float64, weights: Float64) -> float:
    """Fill weights[set] with exp(log-odds of the set − the highest), and return the highest.

    Bit i of a set is position i. Of coupling only what is above the diagonal is read.
    """
    n = len(field)
    weights[0] = highest = 0.0
    for i in range(n):  # sets whose lowest position is i: first what i adds to each set above it
        size = 1 << i
        weights[size] = field[i]
        for j in range(i):
            for rest in range(1 << j):
                weights[size | 1 << j | rest] = weights[size | rest] + coupling[j, i]
        for rest in range(size):
            weights[size | rest] += weights[rest]
            highest = max(highest, weights[size | rest])
    for chosen in range(1 << n):
        weights[chosen] = np.exp(weights[chosen] - highest)
    return highest


@subkernel
def _sum_supersets(weights: Float64, n: int) -> None:
    """Replace the weight of every set by the sum over the sets that hold it."""
    for i in range(n):
        step = 1 << i
        for start in range(0, 1 << n, 2 * step):
            for rest in range(start, start + step):
                weights[rest] += weights[rest + step]


@kernel
def _expect_pages(
    pair: Int32, page: Int64, weight: Float64, similarity: Float64, appeal: Float64,
    position: Float64, interaction: Float64, kappa: float, expected: Float64, variance: Float64,
    by_position: Float64, by_pairs: Float64, like: Float64,
) -> float:  # fmt: skip
    """Add what is expected of every page, and return Σ weight · log Z."""
    longest = len(position)
    field, coupling = np.empty(longest), np.empty((longest, longest))
    weights = np.empty(1 << longest)
    total, square = 0.0, 0
    for s in range(len(weight)):
        first, n = page[s], page[s + 1] - page[s]
        for i in range(n):
            field[i] = appeal[pair[first + i]] + position[i]
            for j in range(n):
                coupling[i, j] = interaction[i, j] - kappa * similarity[square + i * n + j]
        highest = fill_set_weights(field[:n], coupling, weights)
        _sum_supersets(weights, n)
        normaliser = weights[0]
        total += weight[s] * (highest + np.log(normaliser))
        for i in range(n):
            chance = weights[1 << i] / normaliser
            expected[pair[first + i]] += weight[s] * chance
            variance[pair[first + i]] += weight[s] * chance * (1.0 - chance)
            by_position[i] += weight[s] * chance
            for j in range(i):
                share = weight[s] * weights[1 << i | 1 << j] / normaliser
                by_pairs[j, i] += share
                like[0] += share * similarity[square + j * n + i]
        square += n * n
    return total


@kernel
def _add_clicks(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, which: Int64,
    squares: Int64, similarity: Float64, clicked: Float64, by_position: Float64,
    by_pairs: Float64, like: Float64,
) -> None:  # fmt: skip
    """Add up the clicks of every session: by pair, by position, by two positions, by similarity."""
    for s in range(len(weight)):
        n = page[s + 1] - page[s]
        for c in range(clicks[s], clicks[s + 1]):
            i = click[c] - 1
            clicked[pair[page[s] + i]] += weight[s]
            by_position[i] += weight[s]
            for d in range(clicks[s], c):
                upper, lower = min(i, click[d] - 1), max(i, click[d] - 1)
                by_pairs[upper, lower] += weight[s]
                like[0] += weight[s] * similarity[squares[which[s]] + upper * n + lower]
