"""What LuceClick learns of the words of ads, and what they tell of ads never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.data.batch import Float64
from reclick.models import LuceClick, MultiClick, load
from reclick.text.poisson_regression import (
    PoissonTextModel,
    fit_poisson,
    fit_word_rates,
    select_text_model,
)
from reclick.text.word_rates import TokenLists
from tests.support.luce_world import PLAIN


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


def test_words_are_the_prior_of_ads_never_seen_without_the_bias_of_where_they_stood(
    tmp_path: Path,
) -> None:
    # Words are equally good; "low" ads are at positions that are hardly examined. Click rates blame
    # the word, exposure does not.
    rng, count = np.random.default_rng(14), 12_000
    gamma = np.array([[[1.0, 0.2], [0.5, 0.5], [0.5, 0.5]]])
    pages = ChoicePages(
        "luce",
        np.full(2 * count, 0.6),
        np.zeros(2 * count),
        np.ones((1, 3)),
        gamma,
        np.arange(count + 1) * 2,
        np.zeros(count, np.int64),
    )
    click, clicks = pages.sample(rng)
    low = rng.random(count) < 0.85  # … most of the time
    ads = [
        [f"h{i % 9}", f"l{i % 7}"] if below else [f"l{i % 7}", f"h{i % 9}"]
        for i, below in enumerate(low)
    ]
    text = {"ad": [f"h{i}" for i in range(9)] + [f"l{i}" for i in range(7)] + ["new-h", "new-l"]}
    text["title"] = [("high" if "h" in ad else "low") + f" {ad[-1]}" for ad in text["ad"]]
    text |= {"description": [""] * 18, "display_url": [""] * 18}
    lists = pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click))
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": lists})
    model = LuceClick(**PLAIN, attractiveness_prior="words").fit(log, ads=text)
    asked = {"query": ["q", "q"], "ad": ["new-h", "new-l"]}
    ours, counted = (
        each.relevance(asked, text=text)["attractiveness"].to_numpy()
        for each in (model, MultiClick().fit(log, ads=text))
    )
    assert ours[0] / ours[1] == pytest.approx(1, abs=0.15)
    assert counted[0] / counted[1] > 1.25
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").relevance(asked, text=text) == model.relevance(asked, text=text)


def test_words_say_the_same_of_a_new_ad_after_many_updates_with_days_that_are_alike() -> None:
    rng = np.random.default_rng(12)
    ads = {
        "ad": [f"a{i}" for i in range(12)] + ["new"],
        "title": [f"{'cheap' if i % 2 else 'fine'} w{i}" for i in range(12)] + ["cheap new"],
    }

    def day() -> dict[str, list[Any]]:
        shown = [rng.permutation(12)[:3] for _ in range(600)]
        clicks = [
            [int(j) + 1 for j, i in enumerate(page) if rng.random() < (0.3 if i % 2 else 0.05)][:1]
            for page in shown
        ]
        return {
            "query": ["q"] * 600,
            "ads": [[f"a{i}" for i in page] for page in shown],
            "clicks": clicks,
        }

    model = LuceClick(attractiveness_prior="words", **PLAIN).fit(day(), ads=ads)
    said = [model.relevance({"query": ["q"], "ad": ["new"]})["attractiveness"][0].as_py()]
    for _ in range(3):
        said.append(
            model.update(day())
            .relevance({"query": ["q"], "ad": ["new"]})["attractiveness"][0]
            .as_py()
        )
    assert max(said) < 1.5 * min(said)
