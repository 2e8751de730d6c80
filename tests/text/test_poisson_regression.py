"""Text models: the effects of words are found, and the better model is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.data.batch import Float64
from reclick.text.poisson_regression import (
    PoissonTextModel,
    cross_fit_rates,
    fit_poisson,
    fit_word_rates,
    select_text_model,
)
from reclick.text.word_rates import TokenLists


def headlines(
    rng: np.random.Generator, ads: int, words: int, spread: float
) -> tuple[TokenLists, Float64]:
    """Ads of eight words each, and their true rates: the product of what each word does."""
    text = np.stack([rng.choice(words, 8, replace=False) for _ in range(ads)])
    effect = rng.normal(0, spread, words)
    tokens = TokenLists(
        np.arange(ads + 1) * 8, text.ravel().astype(np.int32), np.ones(8 * ads, np.int32)
    )
    return tokens, np.exp(effect[text].sum(axis=1) - 1)


def test_a_log_linear_text_model_finds_the_effects_of_words_and_is_chosen_where_they_multiply() -> (
    None
):
    rng = np.random.default_rng(11)
    tokens, rate = headlines(rng, 3_000, 200, 0.3)
    exposure = rng.uniform(20, 200, 3_000)
    clicks = rng.poisson(exposure * rate).astype(np.float64)
    model = select_text_model(tokens, exposure, clicks, 200, np.arange(3_000))
    assert isinstance(model, PoissonTextModel)
    means = fit_word_rates(tokens, exposure, clicks, 200)
    errors = [np.log(each.rate(tokens)) - np.log(rate) for each in (model, means)]
    assert np.std(errors[0]) < 0.1 < np.std(errors[1])


def test_where_words_say_nothing_the_text_models_say_the_overall_rate() -> None:
    rng = np.random.default_rng(12)
    tokens, _ = headlines(rng, 500, 400, 0.0)
    exposure = rng.uniform(1, 5, 500)
    clicks = rng.poisson(exposure * 0.4).astype(np.float64)
    rate = select_text_model(tokens, exposure, clicks, 400, np.arange(500)).rate(tokens)
    assert np.abs(rate / (clicks.sum() / exposure.sum()) - 1).max() < 0.35
    nothing = TokenLists(np.array([0, 1]), np.array([-1], np.int32), np.ones(1, np.int32))
    for model in (
        fit_word_rates(tokens, exposure, clicks, 400),
        fit_poisson(tokens, exposure, clicks, 400, 1e9),
    ):
        assert model.rate(nothing)[0] == pytest.approx(clicks.sum() / exposure.sum(), rel=0.01)


def test_the_slope_of_the_log_linear_objective_is_zero_where_it_is_fitted() -> None:
    rng = np.random.default_rng(13)
    tokens, rate = headlines(rng, 300, 50, 0.4)
    exposure = np.full(300, 40.0)
    clicks = rng.poisson(exposure * rate).astype(np.float64)
    model = fit_poisson(tokens, exposure, clicks, 50, 5.0)
    left = (clicks - exposure * model.rate(tokens)) / np.sqrt(8)
    slope = np.bincount(tokens.words, np.repeat(left, 8), 50) - 5.0 * model.weights
    assert np.abs(slope).max() < 0.05
    assert abs(left.sum()) < 1e-6


def test_cross_fitted_rates_do_not_know_the_ads_own_clicks() -> None:
    rng = np.random.default_rng(14)
    tokens, rate = headlines(rng, 1_000, 100, 0.3)
    exposure = rng.uniform(20, 200, 1_000)
    clicks = rng.poisson(exposure * rate).astype(np.float64)
    model, rates = cross_fit_rates(tokens, exposure, clicks, 100)
    assert np.std(np.log(rates / rate)) < 0.25
    assert np.std(np.log(model.rate(tokens) / rate)) < 0.2
    more = clicks + 1_000.0 * (np.arange(1_000) == 7)
    _, other = cross_fit_rates(tokens, exposure, more, 100)
    assert other[7] == pytest.approx(rates[7], rel=0.3)  # another strength may be chosen
