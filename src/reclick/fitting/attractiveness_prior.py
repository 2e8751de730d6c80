"""A prior of each pair's attractiveness, from what is known of its ad.

    pair ← the ad over its other queries ← the words of the ad ← overall

The prior mean of a pair (q, d) is what ad d did on its other queries, shrunk to what its words
say, and that to the mean of all pairs. A pair's own clicks are never part of its own prior mean.
The prior is the stronger, the more is known of the ad elsewhere:

    mean(q, d) = (N + a) / (X + a / w),    1 / strength(q, d) = 1 / p + 1 / (N + a),

where N and X are the clicks and the exposure of the ad on its other queries, and w is the rate of
its words. As the pairs of an ad differ, one of them is worth at most p clicks: the clicks and the
exposure x of each count by p / (p + x w). The strengths p (how alike the pairs of an ad are) and a
(how alike ads with the same words are) maximise the likelihood of the clicks of each pair under its
own prior, with the attractiveness integrated out: Beta-binomial where attractiveness is a
probability, Gamma-Poisson where it is a weight. Strengths are in pseudo-clicks.

Where no ad has a second query, N = X = 0 for every pair: the prior mean is what the words say, or
the mean of all pairs, and only 1 / p + 1 / a matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from reclick.data.hashing import splitmix64
from reclick.data.ragged import Float64, Int32
from reclick.runtime.jit import kernel
from reclick.text.poisson_regression import cross_fit_rates
from reclick.text.word_rates import TextModel, TokenLists

LOG_STRENGTHS = (-2.0, 7.0)  # the range of log p and log a
USUAL_LOG_STRENGTH, LOG_STRENGTH_DEVIATION = (
    math.log(3.0),
    1.0,
)  # their prior: few clicks say little
ROUNDS = 3  # of the search along p and a in turn
MAX_PAIRS = 50_000  # that strengths are chosen on; of more, whole ads are drawn by their number
GOLDEN = (math.sqrt(5) - 1) / 2
LEAST_RATE = 1e-6
MIN_EVIDENCE = 1e-4  # per pair: what words must add to the log-likelihood to be used


class Strengths(NamedTuple):
    """How strongly a pair is held to its ad, and an ad to its words, in pseudo-clicks."""

    pair: float
    ad: float


class PairPrior(NamedTuple):
    """Prior means, and their strengths in pseudo-clicks."""

    mean: Float64
    strength: Float64


class AdRecord(NamedTuple):
    """The clicks and the exposure of each pair, and the ad of each pair."""

    clicks: Float64  # [pair]
    exposure: Float64  # [pair] the clicks of an ad of attractiveness 1
    ad: Int32  # [pair]
    n_ads: int

    @property
    def rate(self) -> float:
        """Clicks per exposure, over all pairs."""
        return float(self.clicks.sum() / max(self.exposure.sum(), 1e-12))

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
        """The record as it informs about the ads: a pair is worth at most `pair_strength`."""
        worth = pair_strength / (pair_strength + self.exposure * word_rate[self.ad])
        return self._replace(clicks=self.clicks * worth, exposure=self.exposure * worth)


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


def fit_prior(record: AdRecord, word_rate: Float64, *, probability: bool) -> AttractivenessPrior:
    """The prior of highest evidence. `word_rate` [ad] must not know the ad's own clicks.

    >>> clicks, ad = np.array([9.0, 8.0, 1.0, 0.0]), np.array([0, 0, 1, 1])
    >>> record = AdRecord(clicks, np.full(4, 10.0), ad, 2)
    >>> prior = fit_prior(record, np.full(2, record.rate), probability=True)
    >>> bool(prior.pairs.mean[0] > 0.5 > prior.pairs.mean[2])
    True
    """
    sample = _sample_ads(record)
    rate = word_rate[sample.ad]

    def evidence(strengths: Strengths) -> float:
        others = sample.discount(word_rate, strengths.pair).elsewhere()
        data = sample.clicks, sample.exposure, *others, rate
        return _log_evidence(*data, strengths.pair, strengths.ad, probability)

    strengths = _maximise_evidence(evidence)
    known = record.discount(word_rate, strengths.pair)
    return AttractivenessPrior(
        strengths,
        _prior_given(*known.elsewhere(), word_rate[record.ad], strengths),
        _prior_given(*known.by_ad(), word_rate, strengths),
        evidence(strengths) / max(len(sample.clicks), 1),
    )


def _prior_given(
    clicks: Float64, exposure: Float64, rate: Float64, strengths: Strengths
) -> PairPrior:
    """The prior of pairs whose ads have these clicks and this exposure on other queries."""
    mean = (clicks + strengths.ad) / (exposure + strengths.ad / rate)
    return PairPrior(mean, 1 / (1 / strengths.pair + 1 / (clicks + strengths.ad)))


def _sample_ads(record: AdRecord) -> AdRecord:
    """The pairs that were shown, of all ads or of some ads drawn by their number."""
    shown = record.exposure > 0
    if shown.sum() > MAX_PAIRS:
        drawn = splitmix64(np.arange(record.n_ads, dtype=np.uint64)) >> np.uint64(32)
        shown &= (drawn < MAX_PAIRS / shown.sum() * 2.0**32)[record.ad]
    rows = np.flatnonzero(shown)
    return AdRecord(record.clicks[rows], record.exposure[rows], record.ad[rows], record.n_ads)


def _maximise_evidence(evidence: Callable[[Strengths], float]) -> Strengths:
    """Search along the strength of pairs and the strength of ads in turn."""

    def objective(log_pair: float, log_ad: float) -> float:
        unusual = [(x - USUAL_LOG_STRENGTH) / LOG_STRENGTH_DEVIATION for x in (log_pair, log_ad)]
        strengths = Strengths(math.exp(log_pair), math.exp(log_ad))
        return evidence(strengths) - sum(x * x for x in unusual) / 2

    log_pair, log_ad = 1.0, 0.0
    for _ in range(ROUNDS):
        log_pair = _golden_section(lambda x: objective(x, log_ad))  # noqa: B023
        log_ad = _golden_section(lambda x: objective(log_pair, x))  # noqa: B023
    return Strengths(math.exp(log_pair), math.exp(log_ad))


def _golden_section(function: Callable[[float], float], accuracy: float = 0.05) -> float:
    """Where a function with one maximum over `LOG_STRENGTHS` has it."""
    low, high = LOG_STRENGTHS
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > accuracy:
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2


@kernel
def _log_evidence(
    clicks: Float64,
    exposure: Float64,
    other_clicks: Float64,
    other_exposure: Float64,
    rate: Float64,
    pair_strength: float,
    ad_strength: float,
    probability: bool,
) -> float:
    """Σ log P(clicks of a pair | its prior), attractiveness integrated out, up to a constant."""
    total = 0.0
    for i in range(len(clicks)):
        n, x = clicks[i], exposure[i]
        mean = (other_clicks[i] + ad_strength) / (other_exposure[i] + ad_strength / rate[i])
        s = 1.0 / (1.0 / pair_strength + 1.0 / (other_clicks[i] + ad_strength))
        if probability:
            mean = min(max(mean, 1e-6), 1.0 - 1e-6)
            a, b = s, s * (1.0 - mean) / mean
            m = max(x - n, 0.0)
            total += math.lgamma(n + a) + math.lgamma(m + b) - math.lgamma(n + m + a + b)
            total -= math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        else:
            total += math.lgamma(n + s) - math.lgamma(s) + s * math.log(s / mean)
            total -= (n + s) * math.log(x + s / mean)
    return total


@dataclass(frozen=True, slots=True)
class AdPrior:
    """Prior means and strengths of any pair, and how they came about."""

    prior: AttractivenessPrior
    model: TextModel | None  # of the words of new ads
    overall: float  # the rate of all pairs
    report: str

    @property
    def pairs(self) -> PairPrior:
        """Of the pairs of the training log."""
        return self.prior.pairs

    def unseen(self, known_ad: Int32, tokens: TokenLists) -> PairPrior:
        """Of pairs that were never seen, from their ads' numbers (−1: new) and words [ad]."""
        rate = np.full(len(known_ad), self.overall)
        if self.model is not None:
            rate = np.maximum(self.model.rate(tokens), LEAST_RATE)
        new = self.prior.for_new_ad(rate)
        known = known_ad >= 0
        mean, strength = new.mean.copy(), new.strength.copy()
        mean[known] = self.prior.ads.mean[known_ad[known]]
        strength[known] = self.prior.ads.strength[known_ad[known]]
        return PairPrior(mean, strength)


def fit_ad_prior(
    record: AdRecord,
    tokens: TokenLists | None,
    words: int,
    *,
    probability: bool,
    use_ads: bool = True,
    need_evidence: bool = True,
) -> AdPrior:
    """The prior of highest evidence: with words if they add to it, and with the ads' records.

    Without `use_ads` a pair is not drawn to what its ad does on other queries; without
    `need_evidence` the words are used even if they add nothing.
    """
    flat = np.full(record.n_ads, max(record.rate, LEAST_RATE))
    prior = _fit_levels(record, flat, probability, use_ads)
    model, text = None, "no text of the ads was given"
    if tokens is not None:
        clicks, exposure = record.by_ad()
        candidate, rate = cross_fit_rates(tokens, exposure, clicks, words)
        with_words = _fit_levels(record, rate, probability, use_ads)
        gain = with_words.evidence - prior.evidence
        text = f"the words of the ads add {gain:+.4f} per pair to the log-evidence"
        if gain >= MIN_EVIDENCE or not need_evidence:
            prior, model = with_words, candidate
        else:
            text += ", so they are not used"
    ads = _describe_ads(record, prior) if use_ads else "one prior mean for all pairs"
    return AdPrior(prior, model, float(flat[0]), f"{ads}; {text}")


def _fit_levels(
    record: AdRecord, rate: Float64, probability: bool, use_ads: bool
) -> AttractivenessPrior:
    if use_ads:
        return fit_prior(record, rate, probability=probability)
    pairs = np.arange(len(record.ad), dtype=np.int32)
    alone = record._replace(ad=pairs, n_ads=len(pairs))
    prior = fit_prior(alone, rate[record.ad], probability=probability)
    return replace(prior, ads=prior.for_new_ad(rate))


def _describe_ads(record: AdRecord, prior: AttractivenessPrior) -> str:
    pairs = np.bincount(record.ad, record.exposure > 0, record.n_ads)
    recurring, shown = int(np.sum(pairs > 1)), int(np.sum(pairs > 0))
    if not recurring:
        return "no ad is on more than one query"
    strengths = f"pair {prior.strengths.pair:.3g}, ad {prior.strengths.ad:.3g} clicks"
    return f"{recurring:,} of {shown:,} ads are on more than one query; strengths: {strengths}"
