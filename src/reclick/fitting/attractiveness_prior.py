"""A prior of each pair's attractiveness, from the other data of its ad.

    pair ← the ad over its other queries ← the words of the ad ← overall

The prior mean of a pair (q, d) is the click rate of ad d on its other queries, shrunk towards the
rate of its words, and that towards the mean of all pairs. The clicks of a pair are never part of
its own prior mean. The prior is stronger if the ad has more data on other queries:

    mean(q, d) = (N + a) / (X + a / w),    1 / strength(q, d) = 1 / p + 1 / (N + a),

where N and X are the clicks and the exposure of the ad on its other queries, and w is the rate of
its words. As the pairs of an ad differ, one of them is worth at most p clicks: the clicks and the
exposure x of each count by p / (p + x w). The strengths p (how alike the pairs of an ad are) and a
(how alike ads with the same words are) maximise the likelihood of the clicks of each pair under its
own prior, times a wide prior of their own. The attractiveness is integrated out: Beta-binomial
where it is a probability; Gamma and Luce's choice against the rivals of the pair where it is a
weight. Strengths are in pseudo-clicks.

If no ad has a second query, N = X = 0 for every pair: the prior mean is the rate of the words, or
the mean of all pairs, and only 1 / p + 1 / a matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from reclick.data.counts import Counts
from reclick.data.hashing import splitmix64
from reclick.data.pair_index import IndexMap
from reclick.data.ragged import Bool, Float64, Int32, Int64
from reclick.data.stored_tables import read_numbers
from reclick.fitting.beta import BetaPrior
from reclick.fitting.priors import PRIOR_MARGIN
from reclick.runtime.jit import kernel
from reclick.text.poisson_regression import TEXT_MODELS, cross_fit_rates
from reclick.text.word_rates import TextModel, TokenLists

LOG_STRENGTHS = (-2.0, 7.0)  # the range of log p and log a
USUAL_LOG_STRENGTH, LOG_STRENGTH_DEVIATION = math.log(3.0), 1.0  # their normal prior
GRID_POINTS, STEPS = 7, (0.6, 0.3, 0.15)  # of the search along p and a in turn
PEAK_DIGITS = 3  # decimals of a log-strength
MAX_PAIRS = 25_000  # to choose strengths on; of more, whole ads are sampled
LEAST_RATE, MOST_RATE, MOST_WEIGHT = 1e-6, 0.99, 1e6  # of words: probabilities, or weights
MIN_EVIDENCE = 1e-4  # per pair: a level must add this to the log-likelihood to be used
MIN_TOTAL_EVIDENCE = 2.0  # of all pairs: what all levels must add together, more than by chance
SHARE_LIMITS = 1e-6, 1 - 1e-6  # limits of the probability of a pair in its choices
NO_TEXT = "no text of the ads was given"
NOTHING_KNOWN = f"no ad is on more than one query; {NO_TEXT}"


class Strengths(NamedTuple):
    """Strengths of the prior of a pair given its ad, and of an ad given its words."""

    pair: float
    ad: float


class PairPrior(NamedTuple):
    """Prior means, and their strengths in pseudo-clicks."""

    mean: Float64
    strength: Float64

    @classmethod
    def flat(cls, pairs: int, strength: float = 1.0) -> PairPrior:
        """Prior means of 1, all with the same strength."""
        return cls(np.ones(pairs), np.full(pairs, strength))

    def with_strength(self, strength: str | float, factor: float) -> PairPrior:
        """The same means with one strength for all; "auto": the strengths times a factor."""
        if isinstance(strength, str):
            return self._replace(strength=self.strength * factor)
        return self._replace(strength=np.full(len(self.mean), strength))

    def to_beta(self, strength: float | None = None) -> BetaPrior:
        """Priors of probabilities, in pseudo-examinations; all with `strength` if it is given."""
        mean = np.clip(self.mean, PRIOR_MARGIN, 1 - PRIOR_MARGIN)
        strengths = self.strength / mean if strength is None else np.full(len(mean), strength)
        return BetaPrior(mean, strengths)


class Choices(NamedTuple):
    """The choices in which a weight θ competed: P(chosen) = θ / (rivals + θ)."""

    number: Float64  # [pair]
    rivals: Float64  # [pair] the weight of everything else that could be chosen

    @classmethod
    def of(cls, weight: Float64, expected: Float64, information: Float64) -> Choices:
        """Choices with the slope and the curvature that a fit found at this weight.

        Of a choice of probability p, p is expected, and p (1 − p) is its information on log θ.
        """
        share = np.clip(1 - information / np.maximum(expected, 1e-300), *SHARE_LIMITS)
        return cls(expected / share, weight * (1 - share) / share)

    def take(self, pairs: Int64) -> Choices:
        """The choices of some pairs."""
        return Choices(*(each[pairs] for each in self))


class PairRecords(Protocol):
    """The clicks and the exposure of all pairs of a log, in memory or in buckets."""

    @property
    def n_ads(self) -> int:
        """The number of ads."""

    @property
    def rate(self) -> float:
        """Clicks per exposure, over all pairs."""

    @property
    def max_attractiveness(self) -> float:
        """The highest attractiveness that words may predict."""

    @property
    def n_shown(self) -> int:
        """The number of pairs that were shown."""

    @property
    def has_clicks(self) -> bool:
        """Whether any pair was clicked."""

    def count_ads(self) -> tuple[int, int]:
        """The numbers of ads that were shown for more than one query, and for any."""

    def by_ad(self) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad."""

    def sample(self) -> AdRecord:
        """The pairs that were shown, of all ads or of a sample of the ads."""

    def discount_by_ad(self, word_rate: Float64, strengths: Strengths) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad, where a pair is worth at most its strength."""

    def find_priors(
        self, by_ad: tuple[Float64, Float64] | None, word_rate: Float64, strengths: Strengths
    ) -> PairPrior:
        """The prior of each pair, from the data of its ad on other queries [pair]."""


class AdRecord(NamedTuple):
    """The clicks and the exposure of each pair, and the ad of each pair."""

    clicks: Float64  # [pair]
    exposure: Float64  # [pair] the clicks of an ad of attractiveness 1
    ad: Int32  # [pair]
    n_ads: int
    choices: Choices | None = None  # in which a weight competed; None: of a probability

    @property
    def max_attractiveness(self) -> float:
        """The highest attractiveness that words may predict."""
        return MOST_RATE if self.choices is None else MOST_WEIGHT

    @property
    def rate(self) -> float:
        """Clicks per exposure, over all pairs."""
        return float(self.clicks.sum() / max(self.exposure.sum(), 1e-12))

    @property
    def n_shown(self) -> int:
        """The number of pairs that were shown."""
        return int(np.sum(self.exposure > 0))

    @property
    def has_clicks(self) -> bool:
        """Whether any pair was clicked."""
        return bool(self.clicks.any())

    def count_ads(self) -> tuple[int, int]:
        """The numbers of ads that were shown for more than one query, and for any."""
        pairs = np.bincount(self.ad, self.exposure > 0, self.n_ads)
        return int(np.sum(pairs > 1)), int(np.sum(pairs > 0))

    def move_to(self, at: IndexMap, counts: Counts, decay: float) -> AdRecord:
        """The same record among the pairs of later counts; its sessions count by `decay`."""
        clicks, exposure = (at.place_pairs(decay * each) for each in (self.clicks, self.exposure))
        choices = None
        if self.choices is not None:
            number, rivals = decay * self.choices.number, self.choices.rivals
            choices = Choices(at.place_pairs(number), at.place_pairs(rivals))
        return AdRecord(clicks, exposure, counts.pair_ad, len(counts.ads), choices)

    def by_ad(self) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad."""
        clicks = np.bincount(self.ad, self.clicks, self.n_ads).astype(np.float64)
        return clicks, np.bincount(self.ad, self.exposure, self.n_ads).astype(np.float64)

    def elsewhere(self) -> tuple[Float64, Float64]:
        """Clicks and exposure of each pair's ad on its other queries [pair]."""
        clicks, exposure = self.by_ad()
        return (
            np.maximum(clicks[self.ad] - self.clicks, 0.0),
            np.maximum(exposure[self.ad] - self.exposure, 0.0),
        )

    def discount(self, word_rate: Float64, pair_strength: float) -> AdRecord:
        """The record as evidence on the ads: a pair is worth at most `pair_strength`."""
        worth = pair_strength / (pair_strength + self.exposure * word_rate[self.ad])
        return self._replace(clicks=self.clicks * worth, exposure=self.exposure * worth)

    def sample(self) -> AdRecord:
        """The pairs that were shown, of all ads or of a sample of the ads."""
        numbers = np.arange(self.n_ads, dtype=np.int32)
        in_sample = (self.exposure > 0) & draw_ads(numbers, self.n_shown)[self.ad]
        rows = np.flatnonzero(in_sample)
        choices = None if self.choices is None else self.choices.take(rows)
        clicks, exposure = self.clicks[rows], self.exposure[rows]
        return AdRecord(clicks, exposure, self.ad[rows], self.n_ads, choices)

    def discount_by_ad(self, word_rate: Float64, strengths: Strengths) -> tuple[Float64, Float64]:
        """Clicks and exposure of each ad, where a pair is worth at most its strength."""
        return self.discount(word_rate, strengths.pair).by_ad()

    def find_priors(
        self, by_ad: tuple[Float64, Float64] | None, word_rate: Float64, strengths: Strengths
    ) -> PairPrior:
        """The prior of each pair, from the data of its ad on other queries [pair].

        `by_ad` is the result of `discount_by_ad`, over all queries; None if ads are not used.
        """
        clicks = exposure = np.zeros(len(self.ad))
        if by_ad is not None:
            record = self.discount(word_rate, strengths.pair)
            clicks = np.maximum(by_ad[0][self.ad] - record.clicks, 0.0)
            exposure = np.maximum(by_ad[1][self.ad] - record.exposure, 0.0)
        return _prior_given(clicks, exposure, word_rate[self.ad], strengths)


def draw_ads(numbers: Int32, n_shown: int) -> Bool:
    """Which ads to sample, for about `MAX_PAIRS` of `n_shown` pairs; all if they are fewer [ad]."""
    if n_shown <= MAX_PAIRS:
        return np.ones(len(numbers), bool)
    hashes = splitmix64(numbers.astype(np.uint64)) >> np.uint64(32)
    return np.asarray(hashes < MAX_PAIRS / n_shown * 2.0**32)


@dataclass(frozen=True, slots=True)
class AttractivenessPrior:
    """The prior of a pair of the training log, of a known ad on another query, or of a new ad."""

    strengths: Strengths
    pairs: PairPrior  # [pair]
    ads: PairPrior  # [ad] of a pair that was never seen
    evidence: float  # log-likelihood of the clicks per pair, attractiveness integrated out

    def for_new_ad(self, rate: Float64) -> PairPrior:
        """The prior of ads that were never seen, whose words have these rates."""
        combined = 1 / (1 / self.strengths.pair + 1 / self.strengths.ad)
        return PairPrior(rate, np.full(len(rate), combined))


def fit_prior(
    record: PairRecords, word_rate: Float64, *, use_ads: bool = True
) -> AttractivenessPrior:
    """The prior of highest evidence. `word_rate` [ad] must not depend on the ad's own clicks.

    Without `use_ads` the prior of a pair does not depend on the other queries of its ad.

    >>> clicks, ad = np.array([9.0, 8.0, 1.0, 0.0]), np.array([0, 0, 1, 1])
    >>> record = AdRecord(clicks, np.full(4, 10.0), ad, 2)
    >>> prior = fit_prior(record, np.full(2, record.rate))
    >>> bool(prior.pairs.mean[0] > 0.5 > prior.pairs.mean[2])
    True
    """
    sample = record.sample()
    rate, nothing = word_rate[sample.ad], np.zeros(len(sample.ad))

    def evidence(strengths: Strengths) -> float:
        elsewhere = nothing, nothing
        if use_ads:
            elsewhere = sample.discount(word_rate, strengths.pair).elsewhere()
        prior = _prior_given(*elsewhere, rate, strengths)
        if sample.choices is None:
            return _evidence_of_probabilities(sample.clicks, sample.exposure, *prior)
        return _evidence_of_weights(sample.clicks, *sample.choices, *prior)

    strengths = _maximise_evidence(evidence, together=not use_ads)
    evidence_per_pair = evidence(strengths) / max(len(sample.clicks), 1)
    by_ad = record.discount_by_ad(word_rate, strengths) if use_ads else None
    ad_totals = by_ad or (np.zeros(record.n_ads), np.zeros(record.n_ads))
    return AttractivenessPrior(
        strengths,
        record.find_priors(by_ad, word_rate, strengths),
        _prior_given(*ad_totals, word_rate, strengths),
        evidence_per_pair,
    )


def _prior_given(
    clicks: Float64, exposure: Float64, rate: Float64, strengths: Strengths
) -> PairPrior:
    """The prior of pairs whose ads have these clicks and this exposure on other queries."""
    mean = (clicks + strengths.ad) / (exposure + strengths.ad / rate)
    return PairPrior(mean, 1 / (1 / strengths.pair + 1 / (clicks + strengths.ad)))


def _maximise_evidence(
    evidence: Callable[[Strengths], float], *, together: bool = False
) -> Strengths:
    """Search along the strength of pairs and the strength of ads in turn, or along both as one."""

    def objective(log_pair: float, log_ad: float) -> float:
        unusual = [(x - USUAL_LOG_STRENGTH) / LOG_STRENGTH_DEVIATION for x in (log_pair, log_ad)]
        strengths = Strengths(math.exp(log_pair), math.exp(log_ad))
        return evidence(strengths) - sum(x * x for x in unusual) / 2

    if together:
        both = _coarse_peak(lambda x: objective(x, x))
        both = _fine_peak(lambda x: objective(x, x), both, STEPS[-1])
        return Strengths(math.exp(both), math.exp(both))
    log_ad = 0.0
    log_pair = _coarse_peak(lambda x: objective(x, log_ad))
    log_ad = _coarse_peak(lambda x: objective(log_pair, x))
    for step in STEPS:
        log_pair = _fine_peak(lambda x: objective(x, log_ad), log_pair, step)  # noqa: B023
        log_ad = _fine_peak(lambda x: objective(log_pair, x), log_ad, step)  # noqa: B023
    return Strengths(math.exp(log_pair), math.exp(log_ad))


def _coarse_peak(function: Callable[[float], float]) -> float:
    """The approximate maximum of a function that has only one over `LOG_STRENGTHS`."""
    grid = np.linspace(*LOG_STRENGTHS, GRID_POINTS)
    values = [function(float(x)) for x in grid]
    best = min(max(int(np.argmax(values)), 1), GRID_POINTS - 2)
    return _parabola_peak(grid[best - 1 : best + 2], values[best - 1 : best + 2])


def _fine_peak(function: Callable[[float], float], near: float, step: float) -> float:
    """The maximum of a function near a point, by a parabola."""
    points = np.array([near - step, near, near + step])
    return _parabola_peak(points, [function(float(x)) for x in points])


def _parabola_peak(points: Float64, values: Sequence[float]) -> float:
    """The peak of the parabola through three points at equal distances, at most one step outside.

    It is rounded: further digits depend on the rounding of sums, and would differ between buckets.
    """
    step = float(points[1] - points[0])
    slope, curve = values[2] - values[0], values[0] - 2 * values[1] + values[2]
    move = 2.0 * math.copysign(1.0, slope)
    if curve < 0:
        move = min(max(-slope / (2 * curve), -2.0), 2.0)
    peak = round(float(points[1]) + move * step, PEAK_DIGITS)
    return min(max(peak, LOG_STRENGTHS[0]), LOG_STRENGTHS[1])


@kernel
def _evidence_of_probabilities(
    clicks: Float64, exposure: Float64, mean: Float64, strength: Float64
) -> float:
    """Σ log P(clicks of a pair | its prior), a probability integrated out: Beta-binomial."""
    total = 0.0
    for i in range(len(clicks)):
        n, misses, a = clicks[i], max(exposure[i] - clicks[i], 0.0), strength[i]
        m = min(max(mean[i], 1e-6), 1.0 - 1e-6)
        b = a * (1.0 - m) / m
        total += math.lgamma(misses + b) - math.lgamma(b)
        total -= math.lgamma(n + misses + a + b) - math.lgamma(a + b)
        if n > 0.0:
            total += math.lgamma(n + a) - math.lgamma(a)
    return total


@kernel
def _evidence_of_weights(
    clicks: Float64, choices: Float64, rivals: Float64, mean: Float64, strength: Float64
) -> float:
    """Σ log P(clicks of a pair | its prior), a weight integrated out, up to a constant.

    The likelihood θⁿ (c + θ)⁻ᴺ, of n clicks in N choices against rivals c, is that of a Gamma of
    rate x = N / (c + θ₀), which has its slope at the mode θ₀, times a rest. The integral is by
    Gauss's rule with two nodes, exact for a rest of third degree. Without the rest clicks would be
    Poisson, more scattered than choices are: single sessions would be evidence of a strong prior.
    """
    total = 0.0
    for i in range(len(clicks)):
        n, number, c, s = clicks[i], choices[i], rivals[i], strength[i]
        rate, shape = s / mean[i], n + s
        half = (rate * c + number - shape) / 2.0
        mode = shape * c / (half + math.sqrt(half * half + rate * shape * c))
        x = number / (c + mode)
        root = math.sqrt(shape + 1.0)
        low, high = (shape + 1.0 - root) / (rate + x), (shape + 1.0 + root) / (rate + x)
        rest = x * low - number * math.log(c + low)
        ratio = math.exp(x * high - number * math.log(c + high) - rest)
        total += rest + math.log(0.5 + 0.5 * ratio + (0.5 - 0.5 * ratio) / root)
        total += s * math.log(rate) - shape * math.log(rate + x)
        if n > 0.0:
            total += math.lgamma(shape) - math.lgamma(s)
    return total


@dataclass(frozen=True, slots=True)
class AdPrior:
    """Prior means and strengths of any pair, and their sources."""

    prior: AttractivenessPrior
    model: TextModel | None  # of the words of new ads
    overall: float  # the rate of all pairs
    sources: str  # of the prior, in words
    max_attractiveness: float = MOST_WEIGHT  # that words may predict

    @property
    def report(self) -> str:
        """The sources of the prior, and its strengths, in words."""
        pair, ad = self.prior.strengths
        return f"{self.sources}; strengths: pair {pair:.3g}, ad {ad:.3g} clicks"

    @property
    def pairs(self) -> PairPrior:
        """The prior of the pairs of the training log."""
        return self.prior.pairs

    def unseen(self, known_ad: Int32, tokens: TokenLists | None) -> PairPrior:
        """The prior of unseen pairs, from the numbers (−1: new) and words of their ads [ad]."""
        rate = np.full(len(known_ad), self.overall)
        if self.model is not None and tokens is not None:
            rate = np.clip(self.model.rate(tokens), LEAST_RATE, self.max_attractiveness)
        new = self.prior.for_new_ad(rate)
        is_known = known_ad >= 0
        mean, strength = new.mean.copy(), new.strength.copy()
        mean[is_known] = self.prior.ads.mean[known_ad[is_known]]
        strength[is_known] = self.prior.ads.strength[known_ad[is_known]]
        return PairPrior(mean, strength)

    # saving

    def to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Values and tables from which `from_tables` makes the same prior."""
        prior = self.prior
        values: dict[str, Any] = {
            "strengths": list(prior.strengths),
            "evidence": prior.evidence,
            "overall": self.overall,
            "sources": self.sources,
            "max_attractiveness": self.max_attractiveness,
        }
        tables = {"pairs": pa.table(prior.pairs._asdict()), "ads": pa.table(prior.ads._asdict())}
        if self.model is not None:
            by_word, values["text"] = self.model.to_arrays()
            values["text_model"] = self.model.kind
            tables["words"] = pa.table({"value": by_word})
        return values, tables

    def is_for(self, n_pairs: int, n_ads: int) -> bool:
        """Whether it has a mean and a strength for each of so many pairs and ads."""
        sizes = [len(each) for prior in (self.prior.pairs, self.prior.ads) for each in prior]
        return sizes == [n_pairs, n_pairs, n_ads, n_ads]

    @classmethod
    def from_tables(cls, values: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> AdPrior:
        """The prior from what `to_tables` returned."""
        pairs, ads = (_read_prior(tables, name) for name in ("pairs", "ads"))
        model = None
        if "text_model" in values:
            by_word = read_numbers(tables, "words", "value").copy()
            model = TEXT_MODELS[values["text_model"]](by_word, values["text"])
        strengths = Strengths(*values["strengths"])
        prior = AttractivenessPrior(strengths, pairs, ads, values["evidence"])
        return cls(prior, model, values["overall"], values["sources"], values["max_attractiveness"])

    def with_pairs(self, tables: Mapping[str, pa.Table], n_pairs: int) -> AdPrior:
        """The same with the prior of other pairs, read from the table `pairs`."""
        pairs = _read_prior(tables, "pairs", n_pairs)
        return replace(self, prior=replace(self.prior, pairs=pairs))


def _read_prior(tables: Mapping[str, pa.Table], name: str, length: int | None = None) -> PairPrior:
    columns = (read_numbers(tables, name, each, length=length, low=0) for each in PairPrior._fields)
    return PairPrior(*(each.copy() for each in columns))


def fit_ad_prior(
    record: PairRecords,
    tokens: TokenLists | None,
    words: int,
    *,
    use_ads: bool = True,
    need_evidence: bool = True,
    overall: float | None = None,
) -> AdPrior:
    """The prior of highest evidence: with words if they add to it, and with the ads' records.

    Without `use_ads` the prior of a pair does not depend on the other queries of its ad; without
    `need_evidence` the words are used even if they add nothing. `overall` is the mean of all
    pairs, by default that of the record.
    """
    recurs = use_ads and record.count_ads()[0] > 0
    flat = np.full(record.n_ads, max(record.rate if overall is None else overall, LEAST_RATE))
    prior = fit_prior(record, flat, use_ads=recurs)
    model, text = None, NO_TEXT
    if tokens is not None:
        clicks, exposure = record.by_ad()
        candidate, rate = cross_fit_rates(tokens, exposure, clicks, words)
        rate = np.minimum(rate, record.max_attractiveness)
        with_words = fit_prior(record, rate, use_ads=recurs)
        gain = with_words.evidence - prior.evidence
        text = f"the words of the ads add {gain:+.4f} per pair to the log-evidence"
        if gain >= MIN_EVIDENCE or not need_evidence:
            prior, model = with_words, candidate
        else:
            text += ", so they are not used"
    ads = "one prior mean for all pairs" if model is None else "words alone"
    if use_ads:
        ads = _describe_ads(record)
    return AdPrior(prior, model, float(flat[0]), f"{ads}; {text}", record.max_attractiveness)


def fit_words(
    record: PairRecords,
    tokens: TokenLists | None,
    words: int,
    *,
    overall: float | None = None,
) -> AdPrior:
    """The prior from words alone."""
    return fit_ad_prior(
        record,
        tokens,
        words,
        use_ads=False,
        need_evidence=False,
        overall=overall,
    )


def select_ad_prior(
    record: PairRecords, tokens: TokenLists | None, words: int, *, overall: float | None = None
) -> tuple[AdPrior | None, str]:
    """The prior of probabilities of highest evidence, and a report.

    It is None where neither the ads' other queries nor their words add to the evidence of one mean
    for all pairs.
    """
    recurring, _ = record.count_ads()
    if not recurring and tokens is None:
        return None, NOTHING_KNOWN
    if not record.has_clicks:
        return None, "no ad was clicked, so all pairs have one prior mean"
    mean = max(record.rate if overall is None else overall, LEAST_RATE)
    flat = fit_prior(record, np.full(record.n_ads, mean), use_ads=False)
    prior = fit_ad_prior(record, tokens, words, overall=overall)
    gain = prior.prior.evidence - flat.evidence
    total = gain * record.n_shown
    if gain >= MIN_EVIDENCE and total >= MIN_TOTAL_EVIDENCE:
        return prior, prior.report
    added = f"together they add {gain:+.4f} per pair to the log-evidence"
    if gain > 0:
        added = (
            f"{added}, less than the {MIN_EVIDENCE:.4f} per pair and {MIN_TOTAL_EVIDENCE:g} of all "
            "pairs that rule out chance"
        )
    return None, f"{prior.sources}; {added}, so all pairs have one prior mean"


def _describe_ads(record: PairRecords) -> str:
    recurring, n_shown = record.count_ads()
    if not recurring:
        return "no ad is on more than one query"
    return f"{recurring:,} of {n_shown:,} ads are on more than one query"
