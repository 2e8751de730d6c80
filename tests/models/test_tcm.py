"""TCM: a worked example, its integrals by quadrature, posteriors by hand, saving, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import CannotAnswerError, LogError, StoreError
from reclick.models import MODELS, TCM, load
from reclick.models.tcm import (
    PATTERNS,
    TCMParameters,
    case_likelihoods,
    fit_common,
    pattern_probabilities,
    relevance_values,
    two_ad_patterns,
)
from tests.support.enumeration import Clicks

COMMON = TCMParameters(attending=0.6, second=0.4, externality=0.1)


def log_of(clicks: Sequence[Clicks], ads: tuple[str, ...] = ("a", "b")) -> dict[str, list[Any]]:
    size = len(clicks)
    return {"query": ["q"] * size, "ads": [list(ads)] * size, "clicks": [list(c) for c in clicks]}


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [
        ((0.3, 0.5), [0.796, 0.11376, 0.05316, 0.03024, 0.00684]),
        ((0.5, 0.3), [0.7, 0.2658, 0, 0.0342, 0]),
    ],
)
def test_patterns_of_the_worked_example(
    relevance: tuple[float, float], expected: list[float]
) -> None:
    upper, lower = (np.array(each) for each in relevance)
    got = two_ad_patterns(upper, lower, *COMMON)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_one_ad_integrated_out_is_the_mean_over_its_uniform_relevance() -> None:
    bins = 2000
    joint = pattern_probabilities(COMMON, bins)
    likelihood = case_likelihoods(COMMON, bins)
    np.testing.assert_allclose(likelihood[:5], joint.mean(axis=2), atol=1e-6)  # upper is known
    np.testing.assert_allclose(likelihood[5:10], joint.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(likelihood[10:].sum(axis=0), 1)


def test_the_patterns_of_uniform_relevances_are_the_published_ones() -> None:
    g, b, a = COMMON
    expected = [
        1 - 7 * g / 12,
        g * (11 / 24 - 13 * b / 60 + a / 72),
        g * (1 / 8 - b / 30 + a / 72),
        g * (13 * b / 60 - a / 72),
        g * (b / 30 - a / 72),
    ]
    means = pattern_probabilities(COMMON, 1500).mean(axis=(1, 2))
    np.testing.assert_allclose(means, expected, atol=1e-6)
    alone = 1e6 * np.array([1 - g / 2, g / 2, 0, 0, 0])
    for patterns_alone in (np.zeros(5), alone, 10 * alone):
        common = fit_common(1e6 * np.array(expected), patterns_alone)
        np.testing.assert_allclose(common, COMMON, atol=0.006)  # the grid is in steps of .005


def test_a_posterior_is_worked_out_by_hand() -> None:
    model = TCM(bins=4).fit(log_of([(1,), ()], ("a",)))
    # Two sessions of an ad alone: P ∝ (γ x) (1 − γ x), with γ = 2 · 1/2.
    x, g = np.array([0.125, 0.375, 0.625, 0.875]), 1.0
    posterior = g * x * (1 - g * x)
    posterior /= posterior.sum()
    np.testing.assert_allclose(model.theta_, [posterior @ x])
    np.testing.assert_allclose(model.click_prob(("q", ["a"])), [[g * posterior @ x]])
    # One more without a click, or the same with weight 2: P ∝ (γ x) (1 − γ x)², γ = 2 · 1/3.
    g = 2 / 3
    posterior = g * x * (1 - g * x) ** 2
    posterior /= posterior.sum()
    for log in (log_of([(1,), (), ()], ("a",)), log_of([(1,), ()], ("a",)) | {"weight": [1, 2]}):
        np.testing.assert_allclose(TCM(bins=4).fit(log).theta_, [posterior @ x])


def the_model() -> TCM:
    rng = np.random.default_rng(1)
    rows = [PATTERNS[i] for i in rng.choice(5, 200, p=[0.5, 0.25, 0.1, 0.1, 0.05])]
    return TCM().fit(log_of(rows[:100]) | {"query": ["q"] * 50 + ["r"] * 50})


@pytest.mark.parametrize("ads", [("a", "b"), ("b", "a"), ("a", "new"), ("a",), ("a", "a")])
def test_answers_follow_from_the_probabilities_of_all_sequences(ads: tuple[str, ...]) -> None:
    model = the_model()
    patterns = PATTERNS if len(ads) == 2 else PATTERNS[:2]
    log = log_of(list(patterns), ads)
    chance = np.exp(model.log_prob(log))
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    marginal = [sum(p for c, p in zip(patterns, chance, strict=True) if j in c) for j in (1, 2)]
    np.testing.assert_allclose(model.click_prob(("q", list(ads)))[0], marginal[: len(ads)])
    sets = [
        sum(p for d, p in zip(patterns, chance, strict=True) if set(c) == set(d)) for c in patterns
    ]
    np.testing.assert_allclose(np.exp(model.log_set_prob(log)), sets)
    after = model.next_click_prob(("q", list(ads)), [[1]])[0]
    if len(ads) == 2:
        np.testing.assert_allclose(after, [0, chance[3] / (chance[1] + chance[3])])
    best = model.rank_sequences("q", list(ads), top=9)
    assert [each.probability for each in best] == pytest.approx(sorted(chance, reverse=True))
    drawn = model.sample({"query": ["q"] * 20_000, "ads": [list(ads)] * 20_000}, 3).to_pylist()
    for clicks, p in zip(patterns, chance, strict=True):
        share = sum(tuple(each) == clicks for each in drawn) / 20_000
        assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / 20_000) + 1e-9


def test_answers_are_means_over_the_posteriors_of_both_ads() -> None:
    model = the_model()
    rows = {ad.as_py(): i for i, ad in enumerate(model.training_counts.ads)}
    own = model.training_counts.pair_query == 0
    posterior = {ad: model._posterior[own][i] for ad, i in rows.items()}
    x = relevance_values(model.bins)
    expected = np.zeros(5)
    for i, p in enumerate(posterior["a"]):
        for j, q in enumerate(posterior["b"]):
            found = two_ad_patterns(np.array(x[i]), np.array(x[j]), *model._common)
            expected += p * q * np.array(found)
    query = model.training_counts.queries[0].as_py()
    log = log_of(list(PATTERNS)) | {"query": [query] * 5}
    np.testing.assert_allclose(np.exp(model.log_prob(log)), expected, rtol=1e-10)


def test_the_posterior_of_a_relevance_is_a_beta_of_its_mean_and_variance() -> None:
    """A pair never shown has the uniform, Beta(1, 1), whatever the number of bins."""
    for bins in (2, 60):
        model = TCM(bins=bins).fit(log_of([(1,), (), (2,)]))
        row = model.relevance({"query": ["q"], "ad": ["never shown"]}).to_pylist()[0]
        assert row["attractiveness"] == pytest.approx(0.5)
        assert row["attractiveness_low"] == pytest.approx(0.05, abs=1e-6)
        assert row["attractiveness_high"] == pytest.approx(0.95, abs=1e-6)


def test_the_better_ad_is_recovered_from_simulated_users() -> None:
    """Users of the model: relevances .8, .5 and .2, 20,000 sessions of pairs in random order."""
    rng, relevance = np.random.default_rng(4), {"a": 0.8, "b": 0.5, "c": 0.2}
    pages = [rng.choice(list("abc"), 2, replace=False).tolist() for _ in range(20_000)]
    clicks = []
    for one, two in pages:
        upper, lower = np.array(relevance[one]), np.array(relevance[two])
        chance = [max(float(p), 0.0) for p in two_ad_patterns(upper, lower, 0.9, 0.6, 0.1)]
        clicks.append(list(PATTERNS[rng.choice(5, p=np.array(chance) / sum(chance))]))
    model = TCM().fit({"query": ["q"] * len(pages), "ads": pages, "clicks": clicks})
    a, b, c = model.theta_
    assert a > b + 0.1 > c + 0.2
    table = model.relevance()
    low, high = (table[f"attractiveness_{end}"].to_numpy() for end in ("low", "high"))
    assert ((low <= model.theta_) & (model.theta_ <= high)).all()


def test_a_saved_model_answers_the_same(tmp_path: Path) -> None:
    model = the_model()
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    log = log_of(list(PATTERNS))
    np.testing.assert_array_equal(back.log_prob(log), model.log_prob(log))
    assert back.relevance().equals(model.relevance())
    values, tables = model._to_tables()
    bad = tables["cases"].set_column(0, "case0", pa.array(-tables["cases"]["case0"].to_numpy()))
    with pytest.raises(StoreError, match="cases is damaged"):
        TCM()._from_tables(values, {**tables, "cases": bad})
    with pytest.raises(StoreError, match="values is damaged"):
        TCM()._from_tables({**values, "second_": 3.0}, tables)


def test_longer_pages_are_refused_with_the_reason() -> None:
    with pytest.raises(LogError, match=r"a page of 3 ads\. TCM is a model of pages of one or two"):
        TCM().fit(log_of([(1,)], ("a", "b", "c")))
    with pytest.raises(CannotAnswerError, match="a page of 3 ads"):
        the_model().click_prob(("q", ["a", "b", "c"]))


def test_it_is_listed_with_the_length_of_its_pages() -> None:
    assert MODELS["tcm"] is TCM is rc.TCM
    assert "tcm" in MODELS
    assert "tcm" in list(MODELS)
    assert TCM.max_page_ads == 2
    with pytest.raises(rc.UnknownModelError, match=r"crf, tcm\."):
        MODELS["no model"]


@pytest.mark.parametrize(("model", "most"), [("tcm", 2), ("crf", 12)])
def test_an_evaluation_refuses_longer_pages_before_any_fit(
    model: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was fitted")

    monkeypatch.setattr(rc.UBM, "fit", fit)
    log = log_of([(1,), ()] * 10, tuple(f"ad{i}" for i in range(most + 1)))
    with pytest.raises(LogError, match=rf"up to {most} ads.* a page of {most + 1}\. Leave"):
        rc.evaluate(["ubm", model], log, train=log, in_sample=True)


def test_it_is_evaluated_beside_others() -> None:
    rng = np.random.default_rng(2)
    rows = [PATTERNS[i] for i in rng.choice(5, 400, p=[0.5, 0.25, 0.1, 0.1, 0.05])]
    found = rc.evaluate(["tcm", "ubm"], test=log_of(rows[200:]), train=log_of(rows[:200]))
    table = found.scores.to_pydict()
    scores = [
        value
        for model, metric, value in zip(
            table["model"], table["metric"], table["value"], strict=True
        )
        if (model, metric) == ("TCM", "log_likelihood")
    ]
    assert scores
    assert np.isfinite(scores[0])
