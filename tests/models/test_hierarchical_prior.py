"""The prior of a pair from what is known of its ad, in every model with one but LuceClick."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.data.ragged import Float64
from reclick.engines.duckdb import DuckDBEngine
from reclick.models import DCTR, MODELS, UBM, ClickModel, load
from tests.support.ad_market import market
from tests.support.cascades import with_values

NAMES = ("dctr", "pbm", "ubm", "bbm", "cm", "dcm", "sdbn", "dbn", "ccm", "thcm", "scan", "pom")
ITERATIVE = ("pbm", "ubm", "dbn", "thcm", "scan")
# One ad per page has nothing to say of the continuation, so that it is not searched for.
SETTINGS: dict[str, dict[str, Any]] = {"dbn": {"continuation": 0.9}}
every_model = pytest.mark.parametrize("name", NAMES)


def new(name: str, **settings: Any) -> Any:
    return MODELS[name](**SETTINGS.get(name, {}), **settings)


def attractiveness(model: ClickModel, pairs: Any, text: Any = None) -> Float64:
    values: Float64 = model.relevance(pairs, text=text)["attractiveness"].to_numpy()
    return values


def test_it_is_the_default_of_every_model_with_an_attractiveness_per_pair() -> None:
    declared = {
        name for name in MODELS if "auto" in getattr(MODELS[name], "attractiveness_prior", "")
    }
    assert declared == {*NAMES, "luceclick"}


# ---- by hand


def test_prior_means_are_those_of_the_other_queries_counted_by_hand() -> None:
    log, _, _ = market(1, 3_000)
    model = DCTR().fit(log)
    counts, prior = model.training_counts, model._pairs.ad_prior
    assert prior is not None
    (p, a), w = prior.prior.strengths, counts.clicks.sum() / counts.impressions.sum()
    for pair in range(0, len(counts.clicks), 23):
        clicks = shown = 0.0
        for other in range(len(counts.clicks)):
            if other != pair and counts.pair_ad[other] == counts.pair_ad[pair]:
                worth = p / (p + counts.impressions[other] * w)
                clicks += worth * counts.clicks[other]
                shown += worth * counts.impressions[other]
        mean = (clicks + a) / (shown + a / w)
        strength = 1 / (1 / p + 1 / (clicks + a))  # in clicks; in impressions strength / mean
        theta = (counts.clicks[pair] + strength) / (counts.impressions[pair] + strength / mean)
        assert model.theta_[pair] == pytest.approx(theta, rel=1e-9)


@pytest.mark.parametrize("name", ITERATIVE)
def test_the_m_step_uses_the_mean_and_the_strength_of_each_pair(name: str) -> None:
    log, _, _ = market(2, 2_000)
    model = new(name, tolerance=1e-12, max_iterations=3_000).fit(log)
    mean, strength = model._pair_prior()
    assert len(np.unique(mean)) > 100
    assert len(np.unique(strength)) > 100
    expected = (model.training_counts.clicks + strength * mean) / (model.exposure_ + strength)
    np.testing.assert_allclose(model.theta_, expected, rtol=1e-4)


def test_a_given_strength_is_that_of_every_pair_and_the_means_stay() -> None:
    log, _, _ = market(3, 2_000)
    auto, given = DCTR().fit(log), DCTR(attractiveness_strength=5).fit(log)
    np.testing.assert_array_equal(given._pair_prior().strength, 5.0)
    np.testing.assert_allclose(given._pair_prior().mean, auto._pair_prior().mean, rtol=0.1)
    none = DCTR(attractiveness_strength=0).fit(log)
    counts = none.training_counts
    np.testing.assert_allclose(none.theta_, counts.clicks / counts.impressions)


# ---- new ads and new queries


@every_model
def test_known_ads_on_a_new_query_and_new_ads_get_a_sensible_answer(
    name: str, tmp_path: Path
) -> None:
    log, text, odds = market(1)
    model = new(name).fit(log, ads=text)
    assert "not used" not in model.prior_report_
    assert model.prior_report_ in repr(model)
    chance = odds / (1 + odds)
    known = attractiveness(model, {"query": ["never"] * 60, "ad": text["ad"]})
    assert np.corrcoef(np.log(known), np.log(chance))[0, 1] > 0.9
    new_ads = {
        "ad": ["new0", "new5", "new"],
        "title": ["offer number70", "offer number71", "offer number72"],
        "display_url": ["www.shop0.com", "www.shop5.com", "www.elsewhere.com"],
    }
    pairs = {"query": ["q0"] * 3, "ad": new_ads["ad"]}
    worst, best, stranger = attractiveness(model, pairs, new_ads)
    assert worst < 0.6 * stranger
    assert 1.2 * stranger < best == pytest.approx(chance[5::6].mean(), rel=0.25)
    pages = {"query": ["q0"] * 3, "ads": [[ad] for ad in new_ads["ad"]]}
    clicks = model.click_prob(pages, text=new_ads)[:, 0]
    seen = model.click_prob({"query": ["never"] * 60, "ads": [[ad] for ad in text["ad"]]})[:, 0]
    for ours, theta in ((clicks, [worst, best, stranger]), (seen, known)):
        ratio = ours / theta  # of a page of one ad: its examination
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.relevance(pairs, text=new_ads) == model.relevance(pairs, text=new_ads)
    assert again.relevance() == model.relevance()
    assert repr(again) == repr(model)


@every_model
def test_a_pair_that_was_seldom_shown_is_drawn_to_what_its_ad_does_elsewhere(name: str) -> None:
    log, _, odds = market(2)
    rare = {"query": ["rare"] * 60, "ads": [[f"ad{i}"] for i in range(60)]}
    rare["clicks"] = pa.array([[]] * 60, pa.list_(pa.int64()))
    log = pa.concat_tables([log, pa.table(rare)])
    pairs = {"query": ["rare"] * 60, "ad": [f"ad{i}" for i in range(60)]}
    auto, overall = (
        attractiveness(new(name, attractiveness_prior=prior).fit(log), pairs)
        for prior in ("auto", "overall")
    )
    assert np.corrcoef(np.log(auto), np.log(odds))[0, 1] > 0.8
    assert np.ptp(overall) < 1e-9


# ---- where it is used


@every_model
def test_without_recurring_ads_or_text_auto_is_overall_to_the_last_bit(name: str) -> None:
    log, _, _ = market(4, 1_500)
    own = [[f"{query}-{ads[0]}"] for query, ads in zip(*_columns(log), strict=True)]
    log = log.set_column(1, "ads", pa.array(own))
    auto, overall = (
        new(name, attractiveness_prior=prior).fit(log) for prior in ("auto", "overall")
    )
    np.testing.assert_array_equal(auto.theta_, overall.theta_)
    assert auto.relevance() == overall.relevance()
    assert auto.prior_report_ == "no ad is on more than one query; no text of the ads was given"
    assert not hasattr(overall, "prior_report_")


@every_model
def test_words_without_text_are_overall(name: str) -> None:
    log, _, _ = market(5, 1_500)
    words, overall = (
        new(name, attractiveness_prior=prior).fit(log) for prior in ("words", "overall")
    )
    assert words.relevance() == overall.relevance()
    assert words.prior_report_ == "no text of the ads was given"


@pytest.mark.parametrize("name", ["dctr", "ubm", "dbn"])
def test_where_ads_say_nothing_of_their_pairs_all_pairs_have_one_mean(name: str) -> None:
    rng, sessions = np.random.default_rng(7), 4_000
    theta = rng.beta(2.0, 5.0, (40, 30))  # [query, ad] not alike at all
    query, ad = rng.integers(0, 40, sessions), rng.integers(0, 30, sessions)
    hit = rng.random(sessions) < theta[query, ad]
    clicks = pa.array([[1] if each else [] for each in hit], pa.list_(pa.int64()))
    columns = {"query": [f"q{q}" for q in query], "ads": [[f"ad{i}"] for i in ad]}
    model = new(name).fit(pa.table({**columns, "clicks": clicks}))
    assert "30 of 30 ads are on more than one query" in model.prior_report_
    assert "so all pairs have one prior mean" in model.prior_report_
    assert model._pairs.ad_prior is None
    assert np.ptp(model._pair_prior().mean) == 0


def test_a_gain_that_may_be_chance_is_reported_as_too_small() -> None:
    log = rc.simulate(400, weeks=1, queries=30, seed=3).weeks[0]
    assert re.search(
        r"add \+0\.\d{4} per pair to the log-evidence, less than the 0\.0001 per pair and 2 of all "
        r"pairs that rule out chance, so all pairs have one prior mean",
        DCTR().fit(log).prior_report_,
    )


def test_held_out_sessions_are_better_predicted() -> None:
    log, _, _ = market(8, 5_000)
    train, test = log.slice(0, 2_000), log.slice(2_000)
    for name in ("dctr", "ubm", "dbn"):
        auto, overall = (
            new(name, attractiveness_prior=prior).fit(train).log_set_prob(test).mean()
            for prior in ("auto", "overall")
        )
        assert auto > overall + 0.01


def test_a_history_sets_the_mean_of_new_ads() -> None:
    log, _, _ = market(9, 2_000)
    history = {"query": ["q"] * 10, "ads": [["z"]] * 10, "clicks": [[1]] * 9 + [[]]}
    model = UBM().fit(log, history=history)
    assert model._pairs.ad_prior is not None
    pairs = {"query": ["q0"], "ad": ["never shown"]}
    assert attractiveness(model, pairs)[0] == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["ubm", "dbn", "ccm", "thcm", "sdbn", "dctr"])
def test_engines_agree(name: str) -> None:
    log, text, _ = market(6, 1_500)
    local, other = (
        new(name).fit(log, ads=text, engine=engine) for engine in (None, DuckDBEngine())
    )
    assert local.prior_report_ == other.prior_report_
    pairs = {"query": ["never"] * 60, "ad": text["ad"]}
    np.testing.assert_allclose(
        attractiveness(local, pairs), attractiveness(other, pairs), rtol=1e-9
    )
    np.testing.assert_allclose(local.log_set_prob(log), other.log_set_prob(log), rtol=1e-9)


# ---- intervals


def draw_world(name: str, seed: int) -> tuple[pa.Table, dict[tuple[str, str], float]]:
    """Sessions from a model whose pairs are drawn around their ads, and the truth."""
    rng, queries, ads, sessions = np.random.default_rng(seed), 60, 25, 9_000
    mean = rng.beta(2.0, 5.0, ads)
    theta = rng.beta(4.0, 4.0 * (1 - mean) / mean, (queries, ads))  # as alike as 4 clicks
    query = rng.integers(0, queries, sessions)
    shown = np.argsort(rng.random((sessions, ads)), axis=1)[:, :3]
    pages = pa.table(
        {
            "query": [f"q{q}" for q in query],
            "ads": [[f"ad{i}" for i in row] for row in shown],
        }
    )
    truth: Any = with_values(new(name, attractiveness_prior="overall"), pages)
    counts = truth.training_counts
    query_number, ad_number = (
        np.array([int(each.as_py()[skip:]) for each in names])[codes]
        for names, codes, skip in (
            (counts.queries, counts.pair_query, 1),
            (counts.ads, counts.pair_ad, 2),
        )
    )
    truth.theta_ = theta[query_number, ad_number]
    if hasattr(truth, "gamma_"):
        truth.gamma_ = np.clip(truth.gamma_, 0.6, 0.9)
        truth.gamma_[..., 0] = 1.0
    log = pages.append_column("clicks", truth.sample(pages, seed))
    pairs = {
        (f"q{q}", f"ad{i}"): float(theta[q, i])
        for q, i in zip(query_number, ad_number, strict=True)
    }
    return log, pairs


@pytest.mark.parametrize("name", ["dctr", "ubm", "dbn"])
def test_intervals_keep_their_coverage(name: str) -> None:
    log, truth = draw_world(name, 11)
    model = new(name).fit(log)
    assert model._pairs.ad_prior is not None
    for level in (0.5, 0.9):
        table = model.relevance(level=level)
        low, high = (table[f"attractiveness_{end}"].to_numpy() for end in ("low", "high"))
        pairs = zip(table["query"].to_pylist(), table["ad"].to_pylist(), strict=True)
        true = np.array([truth[pair] for pair in pairs])
        assert np.mean((low <= true) & (true <= high)) == pytest.approx(level, abs=0.05)
    width = np.mean(high - low)
    overall = new(name, attractiveness_prior="overall").fit(log).relevance()
    flat = overall["attractiveness_high"].to_numpy() - overall["attractiveness_low"].to_numpy()
    assert width < 0.9 * flat.mean()


def _columns(log: pa.Table) -> tuple[list[str], list[list[str]]]:
    return log["query"].to_pylist(), log["ads"].to_pylist()
