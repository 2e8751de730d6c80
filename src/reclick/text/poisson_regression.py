"""What the words of an ad say of its attractiveness: two models behind one interface, `rate(tokens)` of ads, learnt from clicks and exposure.

Exposure is what the clicks would have been if the ad had attracted like any other: where it stood and what stood beside it are in it already. The
mean of word rates is the paper's: the mean over the tokens of clicks / exposure. The log-linear one is a Poisson regression,
clicks ~ Poisson(exposure · exp(b + Σ w_t / √n)) over the n tokens of an ad, its weights shrunk towards 0 by a normal prior. Which one, and how
strongly it is shrunk, is decided by the likelihood of the clicks on ads held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reclick.data.batch import Float64, Int32, Int64
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TokenLists, WordRates

STRENGTHS = (
    10_000.0,
    3000.0,
    1000.0,
    300.0,
    100.0,
    30.0,
    10.0,
)  # of the prior of a weight, in clicks
STEPS, INNER = 10, 30  # of Newton, and of conjugate gradients in each
FOLDS = 3
Bool = npt.NDArray[np.bool_]
Design = tuple[Int64, Int32, Float64]  # where each ad's entries start, their words and values


class TextModel(Protocol):
    """What the words of ads say."""

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks for a unit of exposure [ad]."""


@dataclass(frozen=True, slots=True)
class WordMeans:
    """The mean over an ad's tokens of their click rates; a token never met has the overall rate."""

    rates: Float64  # [word]
    overall: float

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks for a unit of exposure [ad]."""
        each = np.where(
            tokens.words >= 0, np.append(self.rates, self.overall)[tokens.words], self.overall
        )
        sums, lengths = (
            _per_ad(tokens, each * tokens.many),
            _per_ad(tokens, tokens.many.astype(np.float64)),
        )
        return np.asarray(np.where(lengths > 0, sums / np.maximum(lengths, 1), self.overall))


@dataclass(frozen=True, slots=True)
class LogLinear:
    """A rate exp(b + Σ w_t / √n) over the n tokens of an ad; a token never met says nothing."""

    weights: Float64  # [word]
    intercept: float

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks for a unit of exposure [ad]."""
        return np.asarray(
            np.exp(
                self.intercept + _scores(tokens.starts, tokens.words, _values(tokens), self.weights)
            )
        )


class LogLinearWords(WordRates):
    """Word rates that answer with a log-linear model, where they are asked what the words of an ad say."""

    def __init__(self, rates: WordRates, model: LogLinear) -> None:
        """The same counts and vocabulary as those rates."""
        vars(self).update(vars(rates))
        self._model = model

    def of(self, query: Int32, ad: Int32, ads: TokenLists) -> Float64:
        """[pair, 3] of any pairs: the rate, twice, and no deviation."""
        rate = self._model.rate(ads)[ad]
        return np.stack([rate, rate, np.zeros(len(rate))], axis=1)


def word_means(tokens: TokenLists, exposure: Float64, clicks: Float64, words: int) -> WordMeans:
    """Learn from the exposure and clicks of ads [ad]."""
    ad, many = _ad(tokens), tokens.many
    shown = np.bincount(tokens.words, many * exposure[ad], words).astype(np.float64)
    clicked = np.bincount(tokens.words, many * clicks[ad], words).astype(np.float64)
    overall = float(clicks.sum() / exposure.sum()) if exposure.sum() > 0 else 1.0
    return WordMeans(
        np.where(shown > 0, clicked / np.where(shown > 0, shown, 1.0), overall), overall
    )


def log_linear(
    tokens: TokenLists,
    exposure: Float64,
    clicks: Float64,
    words: int,
    strength: float,
    start: LogLinear | None = None,
) -> LogLinear:
    """Learn by Newton's method, each step solved by conjugate gradients; a step that would lower the objective is halved."""
    design = tokens.starts, tokens.words, _values(tokens)
    weights = np.zeros(words) if start is None else start.weights
    level = _level(design, exposure, clicks, weights)
    value = _objective(design, exposure, clicks, weights, strength)
    for _ in range(STEPS):
        mean = exposure * np.exp(level + _scores(*design, weights))
        step = _solved(
            _sums(*design, clicks - mean, words) - strength * weights, design, mean, strength
        )
        size = 1.0
        while (
            size > 1e-3
            and _objective(design, exposure, clicks, weights + size * step, strength) < value
        ):
            size /= 2
        weights = weights + size * step
        level = _level(design, exposure, clicks, weights)
        before, value = value, _objective(design, exposure, clicks, weights, strength)
        if value - before < 1e-9 * abs(value):
            break
    return LogLinear(weights, level)


def _level(design: Design, exposure: Float64, clicks: Float64, weights: Float64) -> float:
    """The intercept at which as many clicks are expected as there were."""
    expected = float(np.sum(exposure * np.exp(_scores(*design, weights))))
    return float(np.log(max(clicks.sum(), 0.5) / max(expected, 1e-12)))


def _objective(
    design: Design, exposure: Float64, clicks: Float64, weights: Float64, strength: float
) -> float:
    """Log-likelihood and log-prior at the best intercept."""
    score = _level(design, exposure, clicks, weights) + _scores(*design, weights)
    return float(
        np.sum(clicks * score - exposure * np.exp(np.minimum(score, 30.0)))
        - 0.5 * strength * np.sum(weights**2)
    )


def _solved(right: Float64, design: Design, mean: Float64, strength: float) -> Float64:
    """Solve (Xᵀ diag(mean) (X − the mean of its rows) + strength) x = right by conjugate gradients; the intercept moves along, hence the mean."""
    x, rest = np.zeros(len(right)), right.copy()
    along, before = rest.copy(), float(rest @ rest)
    for _ in range(INNER):
        if before < 1e-10:
            break
        score = _scores(*design, along)
        bent = (
            _sums(*design, mean * (score - mean @ score / mean.sum()), len(right))
            + strength * along
        )
        far = before / float(along @ bent)
        x += far * along
        rest -= far * bent
        after = float(rest @ rest)
        along, before = rest + after / before * along, after
    return x


@kernel
def _scores(starts: Int64, words: Int32, values: Float64, weights: Float64) -> Float64:
    """The weights of each ad's tokens, added up [ad]."""
    out = np.zeros(len(starts) - 1)
    for ad in range(len(out)):
        for t in range(starts[ad], starts[ad + 1]):
            if words[t] >= 0:
                out[ad] += values[t] * weights[words[t]]
    return out


@kernel
def _sums(starts: Int64, words: Int32, values: Float64, per_ad: Float64, many: int) -> Float64:
    """What is told of ads, added up for each of their tokens [word]."""
    out = np.zeros(many)
    for ad in range(len(starts) - 1):
        for t in range(starts[ad], starts[ad + 1]):
            if words[t] >= 0:
                out[words[t]] += values[t] * per_ad[ad]
    return out


def path(tokens: TokenLists, exposure: Float64, clicks: Float64, words: int) -> list[LogLinear]:
    """The log-linear models of all strengths, each started from that of the stronger prior."""
    models: list[LogLinear] = []
    for strength in STRENGTHS:
        models.append(
            log_linear(tokens, exposure, clicks, words, strength, models[-1] if models else None)
        )
    return models


def chosen(
    tokens: TokenLists, exposure: Float64, clicks: Float64, words: int, group: Int64
) -> TextModel:
    """The text model that gives held-out clicks the highest likelihood, learnt from all ads. Ads of a group [ad], such as a query, go together."""
    fold = group.astype(np.int64) * 2_654_435_761 % (1 << 32) * FOLDS >> 32
    likely = np.zeros(len(STRENGTHS) + 1)
    for k in np.unique(fold) if len(np.unique(fold)) > 1 else ():
        train = np.where(fold != k, 1.0, 0.0)
        seen = exposure * train, clicks * train, words
        models: list[TextModel] = [word_means(tokens, *seen), *path(tokens, *seen)]
        likely += [_likely(model.rate(tokens), exposure, clicks, fold == k) for model in models]
    best = int(likely.argmax())
    return (
        word_means(tokens, exposure, clicks, words)
        if best == 0
        else path(tokens, exposure, clicks, words)[best - 1]
    )


def _likely(rate: Float64, exposure: Float64, clicks: Float64, held: Bool) -> float:
    """Log-likelihood of the clicks of held-out ads, Poisson, but for a constant."""
    mean = np.maximum(rate * exposure, 1e-12)[held]
    return float(np.sum(clicks[held] * np.log(mean) - mean))


def _ad(tokens: TokenLists) -> Int64:
    """The ad of each entry."""
    return np.repeat(np.arange(len(tokens)), np.diff(tokens.starts))


def _values(tokens: TokenLists) -> Float64:
    """What each entry counts: its multiplicity by the root of the ad's tokens."""
    lengths = _per_ad(tokens, tokens.many.astype(np.float64))
    return np.asarray(tokens.many / np.sqrt(lengths[_ad(tokens)]))


def _per_ad(tokens: TokenLists, values: Float64) -> Float64:
    return np.bincount(_ad(tokens), values, len(tokens)).astype(np.float64)
