"""Attractiveness from words, learnt from clicks and exposure, by one of two text models.

Exposure is the expected clicks if the ad were of average attractiveness: it accounts for positions
and competitors. The word rate model is that of the paper: the mean over the tokens of
clicks / exposure. The other is a Poisson regression,

    clicks ~ Poisson(exposure · exp(b + Σ w_t / √n))  over the n tokens of an ad,

with a normal prior that shrinks its weights towards 0. The likelihood of the clicks on held-out ads
decides between them and sets the strength of the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.data.hashing import multiplicative_hash
from reclick.data.ragged import Bool, Float64, Int32, Int64, read_only, run_of_elements
from reclick.errors import StoreError
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextModel, TokenLists

PRIOR_STRENGTHS = (10_000.0, 3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0)  # of a weight, in clicks
CROSS_FIT_STRENGTHS = (1000.0, 100.0, 10.0)
PRIOR_CLICKS = 1.0  # of the rate of a word in cross-fitting: no word makes a click impossible
LEAST_WORD_RATE = 1e-6
NEWTON_STEPS = 10
CONJUGATE_GRADIENT_STEPS = 30  # in each step of Newton's method
N_FOLDS = 3


@dataclass(frozen=True, slots=True)
class WordRateModel:
    """The mean over an ad's tokens of their click rates; an unknown token has the overall rate."""

    kind: ClassVar[str] = "word_rates"
    rates: Float64  # [word]
    overall: float

    def to_arrays(self) -> tuple[Float64, float]:
        """The parameters as saved with a model: the rates, and the overall rate."""
        return self.rates, self.overall

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks per unit of exposure [ad]."""
        _check_words(tokens, self.rates)
        by_token = np.append(self.rates, self.overall)[tokens.words]  # an unknown word is the last
        sums = _sum_per_ad(tokens, by_token * tokens.multiplicity)
        lengths = _lengths(tokens)
        return np.asarray(np.where(lengths > 0, sums / np.maximum(lengths, 1), self.overall))


@dataclass(frozen=True, slots=True)
class PoissonTextModel:
    """A rate exp(b + Σ w_t / √n) over the n tokens of an ad; an unknown token adds nothing."""

    kind: ClassVar[str] = "poisson"
    weights: Float64  # [word]
    intercept: float

    def to_arrays(self) -> tuple[Float64, float]:
        """The parameters as saved with a model: the weights, and the intercept."""
        return self.weights, self.intercept

    def rate(self, tokens: TokenLists) -> Float64:
        """Clicks per unit of exposure [ad]."""
        _check_words(tokens, self.weights)
        by_token = np.append(self.weights, 0.0)[tokens.words]  # an unknown word is the last
        scores = _sum_per_ad(tokens, _token_values(tokens) * by_token)
        return np.asarray(np.exp(self.intercept + scores))


def _check_words(tokens: TokenLists, values: Float64) -> None:
    """Raise if a word has no value in a saved prior."""
    if tokens.words.max(initial=-1) >= len(values):
        raise StoreError(
            "The words of the prior are not those of the ads' text: the folder was altered. "
            "Fit again, and save to a new folder."
        )


TEXT_MODELS: dict[str, Callable[[Float64, float], TextModel]] = {
    WordRateModel.kind: WordRateModel,
    PoissonTextModel.kind: PoissonTextModel,
}


def select_text_model(
    tokens: TokenLists, exposure: Float64, clicks: Float64, words: int, group: Int64
) -> TextModel:
    """The text model with the highest held-out likelihood, fitted to all ads.

    Ads of one group [ad], such as a query, are in the same fold.
    """
    fold = multiplicative_hash(group, N_FOLDS)
    total = np.zeros(1 + len(PRIOR_STRENGTHS))
    folds = np.unique(fold)
    for test_fold in folds if len(folds) > 1 else ():
        train = np.where(fold != test_fold, 1.0, 0.0)
        data = tokens, exposure * train, clicks * train, words
        models: list[TextModel] = [fit_word_rates(*data), *regularisation_path(*data)]
        total += [
            _log_likelihood(model.rate(tokens), exposure, clicks, fold == test_fold)
            for model in models
        ]
    best = int(total.argmax())
    data = tokens, exposure, clicks, words
    return fit_word_rates(*data) if best == 0 else regularisation_path(*data)[best - 1]


def cross_fit_rates(
    tokens: TokenLists, exposure: Float64, clicks: Float64, words: int
) -> tuple[TextModel, Float64]:
    """The text model with the highest held-out likelihood, and out-of-fold rates of the ads.

    The rate of an ad [ad] comes from a model fitted to other ads, without the clicks of the ad.
    """
    fold = multiplicative_hash(np.arange(len(tokens)), N_FOLDS)
    rates = np.zeros((1 + len(CROSS_FIT_STRENGTHS), len(tokens)))
    for test_fold in range(N_FOLDS):
        train, is_test = np.where(fold != test_fold, 1.0, 0.0), fold == test_fold
        data = tokens, exposure * train, clicks * train, words
        models: list[TextModel] = [fit_word_rates(*data, prior_clicks=PRIOR_CLICKS)]
        models += regularisation_path(*data, CROSS_FIT_STRENGTHS)
        for row, model in zip(rates, models, strict=True):
            row[is_test] = model.rate(tokens)[is_test]
    all_rows = np.ones(len(tokens), bool)
    likelihoods = [_log_likelihood(row, exposure, clicks, all_rows) for row in rates]
    best = int(np.argmax(likelihoods))
    data = tokens, exposure, clicks, words
    best_model: TextModel = fit_word_rates(*data, prior_clicks=PRIOR_CLICKS)
    if best > 0:
        best_model = regularisation_path(*data, CROSS_FIT_STRENGTHS[:best])[-1]
    return best_model, np.maximum(rates[best], LEAST_WORD_RATE)


def fit_word_rates(
    tokens: TokenLists,
    exposure: Float64,
    clicks: Float64,
    words: int,
    *,
    prior_clicks: float = 0.0,
) -> WordRateModel:
    """Fit the mean of word rates to the exposure and clicks of ads [ad].

    The rate of a word is shrunk to the overall rate by a prior worth `prior_clicks`.
    """
    ad, multiplicity = run_of_elements(tokens.starts), tokens.multiplicity
    word_exposure = np.bincount(tokens.words, multiplicity * exposure[ad], words).astype(np.float64)
    word_clicks = np.bincount(tokens.words, multiplicity * clicks[ad], words).astype(np.float64)
    overall = float(clicks.sum() / exposure.sum()) if exposure.sum() > 0 else 1.0
    if prior_clicks > 0 and overall > 0:
        word_clicks = word_clicks + prior_clicks
        word_exposure = word_exposure + prior_clicks / overall
    divisor = np.where(word_exposure > 0, word_exposure, 1.0)
    rates = np.where(word_exposure > 0, word_clicks / divisor, overall)
    return WordRateModel(rates, overall)


def regularisation_path(
    tokens: TokenLists,
    exposure: Float64,
    clicks: Float64,
    words: int,
    strengths: Sequence[float] = PRIOR_STRENGTHS,
) -> list[PoissonTextModel]:
    """The regressions of all prior strengths, each started at the one with the stronger prior."""
    models: list[PoissonTextModel] = []
    for strength in strengths:
        start = models[-1] if models else None
        models.append(fit_poisson(tokens, exposure, clicks, words, strength, start))
    return models


def fit_poisson(
    tokens: TokenLists,
    exposure: Float64,
    clicks: Float64,
    words: int,
    strength: float,
    start: PoissonTextModel | None = None,
) -> PoissonTextModel:
    """Fit the regression by Newton's method; a step that would lower the objective is halved."""
    design = _Design.from_tokens(tokens, words)
    weights = np.zeros(words) if start is None else start.weights
    intercept = _best_intercept(design, exposure, clicks, weights)
    value = _objective(design, exposure, clicks, weights, strength)
    for _ in range(NEWTON_STEPS):
        mean = exposure * np.exp(intercept + design.score(weights))
        slope = design.sum_by_word(clicks - mean) - strength * weights
        step = _solve_newton(slope, design, mean, strength)
        size = 1.0
        while (
            size > 1e-3
            and _objective(design, exposure, clicks, weights + size * step, strength) < value
        ):
            size /= 2
        weights = weights + size * step
        intercept = _best_intercept(design, exposure, clicks, weights)
        old_value, value = value, _objective(design, exposure, clicks, weights, strength)
        if value - old_value < 1e-9 * abs(value):
            break
    return PoissonTextModel(weights, intercept)


class _Design(NamedTuple):
    """A sparse matrix [ad, word] with the value of each token; 0 for unknown words."""

    starts: Int64  # [ad + 1]
    words: Int32  # [token]
    values: Float64  # [token]
    n_words: int

    @classmethod
    def from_tokens(cls, tokens: TokenLists, words: int) -> _Design:
        is_known = tokens.words >= 0
        values = np.where(is_known, _token_values(tokens), 0.0)
        columns = np.where(is_known, tokens.words, np.int32(0))
        return cls(read_only(tokens.starts), read_only(columns), read_only(values), words)

    def score(self, weights: Float64) -> Float64:
        """The weighted sum of the tokens of each ad [ad]."""
        return _matrix_vector(self.starts, self.words, self.values, read_only(weights))

    def sum_by_word(self, by_ad: Float64) -> Float64:
        """The sum of values of ads for each of their words [word]."""
        return _vector_matrix(self.starts, self.words, self.values, read_only(by_ad), self.n_words)


@kernel
def _matrix_vector(starts: Int64, words: Int32, values: Float64, weights: Float64) -> Float64:
    out = np.zeros(len(starts) - 1)
    for ad in range(len(out)):
        for t in range(starts[ad], starts[ad + 1]):
            out[ad] += values[t] * weights[words[t]]
    return out


@kernel
def _vector_matrix(
    starts: Int64, words: Int32, values: Float64, by_ad: Float64, n_words: int
) -> Float64:
    out = np.zeros(n_words)
    for ad in range(len(starts) - 1):
        for t in range(starts[ad], starts[ad + 1]):
            out[words[t]] += values[t] * by_ad[ad]
    return out


def _best_intercept(design: _Design, exposure: Float64, clicks: Float64, weights: Float64) -> float:
    """The intercept at which the expected number of clicks equals the observed one."""
    expected = float(np.sum(exposure * np.exp(design.score(weights))))
    return float(np.log(max(clicks.sum(), 0.5) / max(expected, 1e-12)))


def _objective(
    design: _Design, exposure: Float64, clicks: Float64, weights: Float64, strength: float
) -> float:
    """Log-likelihood plus log-prior at the best intercept."""
    score = _best_intercept(design, exposure, clicks, weights) + design.score(weights)
    log_likelihood = np.sum(clicks * score - exposure * np.exp(np.minimum(score, 30.0)))
    return float(log_likelihood - 0.5 * strength * np.sum(weights**2))


def _solve_newton(slope: Float64, design: _Design, mean: Float64, strength: float) -> Float64:
    """Solve (Xᵀ diag(mean) (X − X̄) + strength) x = slope by conjugate gradients.

    X̄ is the mean row weighted by `mean`, since the intercept changes with the weights.
    """
    x, residual = np.zeros(len(slope)), slope.copy()
    direction, old_norm = residual.copy(), _dot(residual, residual)
    for _ in range(CONJUGATE_GRADIENT_STEPS):
        if old_norm < 1e-10:
            break
        score = design.score(direction)
        centred_score = mean * (score - _dot(mean, score) / mean.sum())
        product = design.sum_by_word(centred_score) + strength * direction
        step = old_norm / _dot(direction, product)
        x += step * direction
        residual -= step * product
        new_norm = _dot(residual, residual)
        direction, old_norm = residual + new_norm / old_norm * direction, new_norm
    return x


def _dot(a: Float64, b: Float64) -> float:
    """The dot product, computed in this thread: BLAS would start threads that wait."""
    return float(np.sum(a * b))


def _log_likelihood(rate: Float64, exposure: Float64, clicks: Float64, rows: Bool) -> float:
    """Poisson log-likelihood of the clicks of these ads, up to a constant."""
    mean = np.maximum(rate * exposure, 1e-12)[rows]
    return float(np.sum(clicks[rows] * np.log(mean) - mean))


def _token_values(tokens: TokenLists) -> Float64:
    """The value of each token: its multiplicity divided by the root of the ad's length."""
    lengths = _lengths(tokens)[run_of_elements(tokens.starts)]
    return np.asarray(tokens.multiplicity / np.sqrt(lengths))


def _lengths(tokens: TokenLists) -> Float64:
    return _sum_per_ad(tokens, tokens.multiplicity.astype(np.float64))


def _sum_per_ad(tokens: TokenLists, values: Float64) -> Float64:
    return np.bincount(run_of_elements(tokens.starts), values, len(tokens)).astype(np.float64)
