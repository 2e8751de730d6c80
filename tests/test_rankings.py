"""A new ranking against the old one: by hand, by brute force, and covered by its intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reclick as rc
from reclick.models.impression_values import ImpressionValues
from tests.support.conformance_kit import LONG_PAGE_MODELS

LOG = {
    "query": ["pizza"] * 6 + ["taxi"] * 4,
    "ads": [["a", "b", "c"], ["c", "a", "b"]] * 3 + [["b", "d"]] * 4,
    "clicks": [[1], [2, 1], [], [3], [1], [2], [2], [], [1, 2], [1]],
}
TEXT = {"a": "hot pizza", "b": "cold pizza", "c": "hot wings", "d": "airport taxi"}
OLD: dict[str, Any] = {
    "query": ["pizza", "pizza", "taxi"],
    "ads": [["a", "b", "c"], ["a", "b", "c"], ["b", "d"]],
}
NEW: dict[str, Any] = {
    "query": ["pizza", "pizza", "taxi"],
    "ads": [["c", "b", "a"], ["a", "new"], ["b", "d"]],
}
WITH_PAIRS = [name for name in LONG_PAGE_MODELS if rc.MODELS[name].attractiveness]


def fitted(name: str) -> rc.ClickModel:
    settings: dict[str, Any] = {"tune": "off"} if name == "luceclick" else {}
    return rc.MODELS[name](**settings).fit(LOG, ads=TEXT)


@pytest.mark.parametrize("name", LONG_PAGE_MODELS)
def test_values_are_means_of_what_the_model_expects(name: str) -> None:
    model = fitted(name)
    comparison = rc.compare_rankings(model, OLD, NEW, draws=3)
    old, new = model.expected_clicks(OLD).mean(), model.expected_clicks(NEW).mean()
    assert comparison.clicks.old.value == pytest.approx(old)
    assert comparison.clicks.new.value == pytest.approx(new)
    assert comparison.clicks.difference.value == pytest.approx(new - old)
    assert comparison.sessions == 3
    assert comparison.changed_share == pytest.approx(2 / 3)
    assert np.allclose(comparison.unseen_share, (0.0, 1 / 7))
    for each in (comparison.clicks, comparison.satisfaction):
        if each is not None:
            assert all(low <= value <= high for value, low, high in each[:3])
    if comparison.satisfaction is not None:
        expected = model.satisfaction_prob(NEW).mean()
        assert comparison.satisfaction.new.value == pytest.approx(expected)
    assert (comparison.satisfaction is None) == (not model.satisfaction)


@pytest.mark.parametrize("name", WITH_PAIRS)
def test_a_model_with_its_own_values_of_impressions_is_the_model(name: str) -> None:
    model = fitted(name)
    log = rc.read_sessions(NEW, ads={"new": "hot pizza"})
    (batch,) = log.batches()
    queries = np.repeat(np.array(NEW["query"]), [len(ads) for ads in NEW["ads"]])
    pairs = {"query": queries.tolist(), "ad": [ad for ads in NEW["ads"] for ad in ads]}
    table = model.relevance(pairs, text=log.ads)
    theta = table["attractiveness"].to_numpy()
    rho = table["satisfaction"].to_numpy() if model.satisfaction else None
    text = model._index_text(log.ads)

    def answer(values: rc.ClickModel) -> np.ndarray:
        chunks = values.map_batch(batch, lambda _, pages: pages.click_prob(), text=text)
        return np.concatenate(list(chunks))

    copied = model._with_values(theta, rho)
    assert answer(copied) == pytest.approx(answer(model), rel=1e-9)
    assert isinstance(copied._pairs, ImpressionValues)
    assert copied._pairs.used
    if name != "am":  # whose clicks depend on the order of θ alone
        assert np.abs(answer(model._with_values(theta / 2, rho)) - answer(model)).max() > 1e-3


def test_the_interval_is_that_of_betas_where_all_sessions_are_alike() -> None:
    """DCTR expects θ clicks, and one distinct page has no sampling of sessions."""
    log = {
        "query": ["q"] * 30,
        "ads": [["a", "b"]] * 30,
        "clicks": [[1]] * 9 + [[2]] * 18 + [[]] * 3,
    }
    model = rc.DCTR(attractiveness_prior=0.5, attractiveness_strength=2).fit(log)
    pages = {"query": ["q"] * 50, "ads": [["a"]] * 50}
    comparison = rc.compare_rankings(
        model, pages, {"query": ["q"] * 50, "ads": [["b"]] * 50}, draws=2000, level=0.9
    )
    rng = np.random.default_rng(5)
    a, b = rng.beta(10, 22, 200_000), rng.beta(19, 13, 200_000)
    for estimate, draws in (
        (comparison.clicks.old, a),
        (comparison.clicks.new, b),
        (comparison.clicks.difference, b - a),
    ):
        assert (estimate.low, estimate.high) == pytest.approx(
            np.quantile(draws, [0.05, 0.95]), abs=0.015
        )
    assert comparison.clicks.probability_of_gain == pytest.approx(np.mean(b > a), abs=0.015)
    assert "θ" not in comparison.covers
    assert "uncertainty of attractiveness" in comparison.covers


def test_without_posteriors_the_interval_is_that_of_resampled_sessions() -> None:
    """RCTR: clicks depend on the position alone; a longer page has its last position more."""
    model = rc.RCTR().fit(LOG)
    rate = (
        model.expected_clicks(("q", ["a", "b", "c"]))[0]
        - model.expected_clicks(("q", ["a", "b"]))[0]
    )
    n, longer = 400, 100
    old = {"query": ["q"] * n, "ads": [["a", "b"]] * n}
    new = {"query": ["q"] * n, "ads": [["a", "b", "c"]] * longer + [["a", "b"]] * (n - longer)}
    comparison = rc.compare_rankings(model, old, new, draws=10)
    value, low, high = comparison.clicks.difference
    deviation = rate * np.sqrt(0.25 * 0.75 / n)
    assert value == pytest.approx(0.25 * rate)
    assert (low, high) == pytest.approx(
        (value - 1.645 * deviation, value + 1.645 * deviation), abs=0.15 * deviation
    )
    assert comparison.covers.startswith("the sampling of sessions only: RCTR")


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for seed in range(60):
        theta = rng.beta(2, 6, 2)  # attractiveness, drawn from the prior of the model
        clicks = rng.random((25, 2)) < theta
        log = {
            "query": ["q"] * 25,
            "ads": [["a", "b"]] * 25,
            "clicks": [(np.flatnonzero(row) + 1).tolist() for row in clicks],
        }
        model = rc.DCTR(attractiveness_prior=0.25, attractiveness_strength=8).fit(log)
        comparison = rc.compare_rankings(model, ("q", ["a"]), ("q", ["b"]), draws=150, seed=seed)
        _, low, high = comparison.clicks.difference
        covered += bool(low <= theta[1] - theta[0] <= high)
    assert 47 <= covered <= 60  # 54 expected; 47 is 3 standard deviations below


def test_weights_count_sessions() -> None:
    model = fitted("dbn")
    weighted = {"query": ["pizza", "taxi"], "ads": [["a", "b"], ["b", "d"]], "weight": [3.0, 1.0]}
    plain = {"query": ["pizza"] * 3 + ["taxi"], "ads": [["a", "b"]] * 3 + [["b", "d"]]}
    new = {"query": ["pizza", "taxi"], "ads": [["b", "a"], ["d", "b"]]}
    repeated = {"query": ["pizza"] * 3 + ["taxi"], "ads": [["b", "a"]] * 3 + [["d", "b"]]}
    one = rc.compare_rankings(model, weighted, new, draws=20)
    two = rc.compare_rankings(model, plain, repeated, draws=20)
    assert one.to_dict() == two.to_dict()
    assert one.by_query.equals(two.by_query)


def test_the_table_of_queries_has_the_largest_gain_first() -> None:
    model = fitted("dctr")
    table = rc.compare_rankings(model, OLD, NEW, draws=2).by_query
    assert sorted(table["query"].to_pylist()) == ["pizza", "taxi"]
    gains = [row["difference"] * row["sessions"] for row in table.to_pylist()]
    assert gains == sorted(gains, reverse=True)
    taxi = next(row for row in table.to_pylist() if row["query"] == "taxi")
    assert taxi["clicks_old"] == pytest.approx(model.expected_clicks(("taxi", ["b", "d"]))[0])
    assert taxi["difference"] == 0


def test_the_same_seed_gives_the_same_intervals_and_text_of_new_ads_counts() -> None:
    model = rc.MultiClick().fit(LOG, ads=TEXT)
    one = rc.compare_rankings(model, OLD, NEW, draws=5, seed=3)
    assert one.to_dict() == rc.compare_rankings(model, OLD, NEW, draws=5, seed=3).to_dict()
    other = rc.compare_rankings(model, OLD, NEW, draws=5, seed=3, text={"new": "cold pizza"})
    assert other.clicks.new.value != one.clicks.new.value
    assert other.clicks.old.value == one.clicks.old.value


def test_the_result_as_text() -> None:
    comparison = rc.compare_rankings(fitted("dbn"), OLD, NEW, draws=5)
    lines = str(comparison).splitlines()
    assert lines[0] == "3 sessions, 66.7% with another page"
    assert [line.split()[0] for line in lines[1:9]] == [
        *("expected", "old", "new", "difference"),
        *("satisfaction", "old", "new", "difference"),
    ]
    assert lines[-1].startswith("90% intervals cover the sampling of sessions and the uncertainty")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"query": ["pizza"], "ads": [["a"]]}, "has 3 pages and table 1"),
        (OLD | {"query": ["pizza", "taxi", "taxi"]}, r"Row 2: .* 'pizza', the new one of 'taxi'"),
    ],
)
def test_rows_must_be_the_same_sessions(new: Any, message: str) -> None:
    with pytest.raises(rc.UsageError, match=message):
        rc.compare_rankings(fitted("dctr"), OLD, new)


def test_the_text_of_both_logs_counts() -> None:
    model = rc.UBM(attractiveness_prior="words").fit(LOG, ads=TEXT)
    pages = [{"query": ["pizza"], "ads": [[ad, "c"]]} for ad in ("x", "y")]
    texts = [{"x": "hot pizza wings"}, {"y": "cold taxi"}]
    old, new = (
        rc.read_sessions(page, ads=text, clicks_required=False)
        for page, text in zip(pages, texts, strict=True)
    )
    found = rc.compare_rankings(model, old, new, draws=2).clicks
    for estimate, page, text in zip((found.old, found.new), pages, texts, strict=True):
        expected = model.expected_clicks(page, text=text)[0]
        assert estimate.value == pytest.approx(expected)
        assert model.expected_clicks(page)[0] != pytest.approx(expected)
