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
MEMORY = 10  # number of past steps that L-BFGS uses
LEAST_GAIN = 1e-4  # of a step, as a share of the gain predicted by the slope
MOST_HALVINGS = 40


class CRFParameters(NamedTuple):
    """The parameters. All have Gaussian priors: v around the mean log-odds, the others around 0."""

    appeal: Float64  # a [pair] log-odds, in addition to those of the position
    position: Float64  # v [position]
    pairs: Float64  # W [upper position, lower position]; 0 elsewhere
    similarity: Float64  # κ [1]

    def flatten(self) -> Float64:
        """Return all parameters as one vector."""
        return np.concatenate([values.ravel() for values in self])

    def unflatten(self, vector: Float64) -> CRFParameters:
        """Split a vector into arrays of the shapes of these parameters."""
        ends = np.cumsum([values.size for values in self])[:-1]
        parts = np.split(vector, ends)
        return CRFParameters(*(x.reshape(y.shape) for x, y in zip(parts, self, strict=True)))


class CRFBlock(NamedTuple):
    """The distinct pages of a block, and the sums of the clicks on them."""

    first_pair: int
    n_pairs: int
    pair: Int32  # [impression of a page]
    page: Int64  # [page + 1]
    weight: Float64  # [page] sessions
    similarity: Float64  # [page, upper, lower] one square matrix after another, flat
    clicks: Float64  # [pair]
    by_position: Float64  # [position] clicks
    by_pairs: Float64  # [upper, lower] clicks on both
    by_similarity: float  # Σ similarity of both, over clicks on both


class CRF(ClickModel):
    """P(set) ∝ exp(Σ (a(q, d_i) + v_i) + Σ (W_ij − κ s_ij)), over clicks and pairs of clicks.

    v_i is the effect of position i, W_ij that of two positions clicked together, and s_ij the
    similarity of two ads: the Jaccard index of their words, where there is text. With κ > 0 a
    click on one of two similar ads makes a click on the other less likely. Users click from the
    top down. Probabilities are exact, as sums over all 2^n sets of up to 12 ads.

    All parameters have Gaussian priors, and the posterior is concave, so L-BFGS finds the only
    maximum. The gradient is observed minus expected clicks. θ(q, d) is reported as P(click) of an
    ad alone on a page.

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
    probabilities: ClassVar[tuple[str, ...]] = ("theta_",)

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
        """Find the parameters of highest posterior density."""
        precision = CRFParameters(
            np.full(start.appeal.shape, self.pair_precision, np.float64),
            np.full(start.position.shape, self.position_precision, np.float64),
            np.full(start.pairs.shape, self.interaction_precision, np.float64),
            np.full(1, self.interaction_precision, np.float64),
        ).flatten()
        centre = start.flatten()

        def evaluate(vector: Float64) -> tuple[float, Float64, Statistics]:
            statistics = self._engine.reduce(e_step, start.unflatten(vector), blocks)
            totals = statistics.totals
            slope = CRFParameters(
                statistics.pairs["appeal"],
                totals["position"],
                totals["pairs"],
                totals["similarity"] if similar else np.zeros(1),
            ).flatten()
            deviation = vector - centre
            value = statistics.log_likelihood - 0.5 * float(precision @ deviation**2)
            return value, slope - precision * deviation, statistics

        return ascend(
            start, evaluate, sessions, self.max_iterations, self.tolerance, quiet=self._is_pilot
        )

    @property
    def appeal_(self) -> Float64:
        """The log-odds a of each pair, in addition to those of the position [pair]."""
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
        similarity_text = text if self.similarity is not None else None
        similarity = AdSimilarity.of(batch.ads, similarity_text)
        kappa = self.kappa_ if similarity_text is not None else 0.0

        def pages(start: int, end: int) -> CRFPages:
            first, last = batch.page[start], batch.page[end]
            starts = batch.page[start : end + 1] - first
            ad_similarity = similarity.of_pages(batch.ad[first:last], starts)
            squares = starts_from_sizes(np.diff(starts) ** 2)
            parameters = appeal[first:last], position, pairs, kappa
            return CRFPages(*parameters, ad_similarity, starts, squares)

        return pages

    def _posteriors(self, pairs: PairLookup) -> PairPosteriors:
        """Betas by Laplace's approximation of the log-odds."""
        is_known = pairs.row >= 0
        mean = float(_logistic(self.position_[:1])[0])
        theta = np.where(is_known, self._pairs.take_or(self.theta_, pairs.row, mean), mean)
        information = self._pairs.take_or(self.information_, pairs.row, self.pair_precision)
        return PairPosteriors(Posterior(theta, theta, information / (theta * (1 - theta))))


@dataclass(frozen=True, slots=True)
class CRFPages(EnumeratedPages):
    """Pages whose sets of clicks have pairwise log-odds."""

    appeal: Float64  # [impression]
    position: Float64  # [position]
    pairs: Float64  # [upper, lower]
    redundancy: float
    similarity: Float64  # [page, upper, lower] one square matrix after another, flat
    starts: Int64  # [page + 1]
    squares: Int64  # [page + 1] where the matrix of each page starts in `similarity`
    top_down: ClassVar[bool] = True

    def list_sequences(self, size: int) -> SequenceList:
        """List all sets, each as a sequence from the top down."""
        return falling_sets(size)

    def probabilities(self, page: int) -> Float64:
        """Probability of each set of clicks."""
        first, end = self.starts[page], self.starts[page + 1]
        n = int(end - first)
        similarities = self.similarity[self.squares[page] : self.squares[page + 1]].reshape(n, n)
        field = self.appeal[first:end] + self.position[:n]
        weights = np.empty(1 << n)
        coupling = self.pairs[:n, :n] - self.redundancy * np.triu(similarities, 1)
        fill_set_weights(field, coupling, weights)
        return np.asarray((weights / weights.sum())[set_codes(n)])

    def select(self, rows: Int64) -> Self:
        """Select the pages `rows`, in this order."""
        index, starts = run_indices(self.starts, rows)
        similarity_index, squares = run_indices(self.squares, rows)
        return replace(
            self,
            appeal=self.appeal[index],
            similarity=self.similarity[similarity_index],
            starts=starts,
            squares=squares,
        )


@cache
def set_codes(size: int) -> Int64:
    """The sets of `falling_sets` as numbers: bit i is position i + 1."""
    return np.array([sum(1 << (p - 1) for p in clicks) for clicks in falling_sets(size).clicks])


def extend_positions(position: Float64, pairs: Float64, longest: int) -> tuple[Float64, Float64]:
    """Extend the effects to pages of some length; positions not in the log are as the last one."""
    extra = max(0, longest - len(position))
    return np.pad(position, (0, extra), mode="edge"), np.pad(pairs, ((0, extra), (0, extra)))


def summarise_pages(
    block: QueryBlock, *, similarity: AdSimilarity, pair_ad: Int32, longest: int
) -> CRFBlock:
    """Find the distinct pages of a block, and sum its clicks."""
    size, start = np.diff(block.page), block.page[:-1]
    pair_rows = np.full((len(block), longest), -1, np.int64)  # [session, position] −1: no ad
    for j in range(longest):
        pair_rows[size > j, j] = block.pair[start[size > j] + j]
    _, first, page_code = np.unique(pair_rows, axis=0, return_index=True, return_inverse=True)
    page_code = page_code.reshape(-1)
    pages = block.select(first)
    clicks, by_position = np.zeros(block.n_pairs), np.zeros(longest)
    by_pairs, by_similarity = np.zeros((longest, longest)), np.zeros(1)
    squares = similarity.of_pages(pair_ad[block.pairs][pages.pair], pages.page)
    _add_clicks(
        block.pair, block.page, block.click, block.clicks, block.weight,
        page_code.astype(np.int64), starts_from_sizes(np.diff(pages.page) ** 2), squares, clicks,
        by_position, by_pairs, by_similarity,
    )  # fmt: skip
    return CRFBlock(
        block.first_pair, block.n_pairs, pages.pair, pages.page,
        np.bincount(page_code, block.weight, len(first)).astype(np.float64), squares,
        clicks, by_position, by_pairs, float(by_similarity[0]),
    )  # fmt: skip


def e_step(parameters: CRFParameters, block: CRFBlock) -> Statistics:
    """The log-likelihood, its gradient (observed − expected clicks), and variances of clicks."""
    rows = slice(block.first_pair, block.first_pair + block.n_pairs)
    appeal, kappa = parameters.appeal[rows], float(parameters.similarity[0])
    expected, variance = np.zeros((2, block.n_pairs))
    by_position, by_pairs = np.zeros(len(parameters.position)), np.zeros(parameters.pairs.shape)
    by_similarity = np.zeros(1)
    log_normaliser = _expect_pages(
        block.pair, block.page, block.weight, block.similarity, appeal, parameters.position,
        parameters.pairs, kappa, expected, variance, by_position, by_pairs, by_similarity,
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
        "similarity": by_similarity - block.by_similarity,
    }
    pairs = PairSums.of(block.first_pair, appeal=block.clicks - expected, variance=variance)
    return Statistics(float(observed) - log_normaliser, totals, pairs)


def _logistic(value: Float64) -> Float64:
    probability = np.exp(-np.logaddexp(0.0, -value))  # does not overflow
    return np.clip(probability, PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)


def _log_odds(probability: Float64) -> Float64:
    return np.log(probability) - np.log1p(-probability)


def ascend(
    start: CRFParameters,
    evaluate: Callable[[Float64], tuple[float, Float64, Statistics]],
    sessions: float,
    max_iterations: int,
    tolerance: float,
    *,
    quiet: bool = False,
) -> FitResult[CRFParameters, Statistics]:
    """Run L-BFGS on a concave objective, until a step gains less than `tolerance` per session."""
    point = start.flatten()
    value, slope, statistics = evaluate(point)
    objective, history = [value], list[tuple[Float64, Float64]]()
    converged, gain = False, np.inf
    while len(objective) < max_iterations and not converged:
        if not quiet:
            report_progress("iterations", len(objective))
        step = _direction(slope, history)
        predicted_gain = float(step @ slope)
        length = 1.0 if history else 1 / (1 + np.abs(slope).max())
        for _ in range(MOST_HALVINGS):
            ahead = point + length * step
            new_value, new_slope, new_statistics = evaluate(ahead)
            if new_value >= value + LEAST_GAIN * length * predicted_gain:
                break
            length /= 2
        else:  # the gain of every step is below the rounding error
            converged, gain = True, 0.0
            objective.append(value)
            break
        move, slope_drop = ahead - point, slope - new_slope
        if float(move @ slope_drop) > 0:  # not if the step is below the rounding error
            history = [*history[1 - MEMORY :], (move, slope_drop)]
        gain = (new_value - value) / max(sessions, 1.0)
        point, value, slope, statistics = ahead, new_value, new_slope, new_statistics
        objective.append(value)
        converged = gain < tolerance and tolerance > 0
    count = len(objective)
    if not quiet:
        report_progress("iterations", count)
    message = f"converged after {count} iterations, gain {gain:.1e} < {tolerance:g}"
    if not converged:
        message = (
            f"stopped after {count} iterations, gain {gain:.1e} > {tolerance:g}: not converged"
        )
        logger.warning("%s", message)
    return FitResult(start.unflatten(point), statistics, tuple(objective), converged, message)


def _direction(slope: Float64, history: Sequence[tuple[Float64, Float64]]) -> Float64:
    """Multiply the slope by the inverse curvature of the last steps: the two loops of L-BFGS."""
    step, shares = slope.copy(), list[float]()
    for move, slope_drop in reversed(history):
        share = float(move @ step) / float(move @ slope_drop)
        step -= share * slope_drop
        shares.append(share)
    if history:
        move, slope_drop = history[-1]
        step *= float(move @ slope_drop) / float(slope_drop @ slope_drop)
    for (move, slope_drop), share in zip(history, reversed(shares), strict=True):
        step += move * (share - float(slope_drop @ step) / float(move @ slope_drop))
    return step


@kernel
def fill_set_weights(field: Float64, coupling: Float64, weights: Float64) -> float:
    """Fill weights[set] with exp(log-odds of the set − the highest), and return the highest.

    Bit i of a set is position i. Only the part of `coupling` above the diagonal is read.
    """
    n = len(field)
    weights[0] = highest = 0.0
    for i in range(n):  # sets whose lowest position is i: first what i adds to each set above i
        size = 1 << i
        weights[size] = field[i]
        for j in range(i):
            for rest in range(1 << j):
                weights[size | 1 << j | rest] = weights[size | rest] + coupling[j, i]
        for rest in range(size):
            weights[size | rest] += weights[rest]
            highest = max(highest, weights[size | rest])
    for code in range(1 << n):
        weights[code] = np.exp(weights[code] - highest)
    return highest


@subkernel
def _sum_supersets(weights: Float64, n: int) -> None:
    """Replace the weight of every set by the sum over the sets that contain it."""
    for i in range(n):
        step = 1 << i
        for start in range(0, 1 << n, 2 * step):
            for rest in range(start, start + step):
                weights[rest] += weights[rest + step]


@kernel
def _expect_pages(
    pair: Int32, page: Int64, weight: Float64, similarity: Float64, appeal: Float64,
    position: Float64, interaction: Float64, kappa: float, expected: Float64, variance: Float64,
    by_position: Float64, by_pairs: Float64, by_similarity: Float64,
) -> float:  # fmt: skip
    """Add the expected clicks of every page, and return Σ weight · log Z."""
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
            probability = weights[1 << i] / normaliser
            expected[pair[first + i]] += weight[s] * probability
            variance[pair[first + i]] += weight[s] * probability * (1.0 - probability)
            by_position[i] += weight[s] * probability
            for j in range(i):
                share = weight[s] * weights[1 << i | 1 << j] / normaliser
                by_pairs[j, i] += share
                by_similarity[0] += share * similarity[square + j * n + i]
        square += n * n
    return total


@kernel
def _add_clicks(
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, page_code: Int64,
    squares: Int64, similarity: Float64, by_pair: Float64, by_position: Float64,
    by_pairs: Float64, by_similarity: Float64,
) -> None:  # fmt: skip
    """Add the clicks of every session: by pair, by position, by two positions, by similarity."""
    for s in range(len(weight)):
        n = page[s + 1] - page[s]
        for c in range(clicks[s], clicks[s + 1]):
            i = click[c] - 1
            by_pair[pair[page[s] + i]] += weight[s]
            by_position[i] += weight[s]
            for d in range(clicks[s], c):
                upper, lower = min(i, click[d] - 1), max(i, click[d] - 1)
                by_pairs[upper, lower] += weight[s]
                at = squares[page_code[s]] + upper * n + lower
                by_similarity[0] += weight[s] * similarity[at]
