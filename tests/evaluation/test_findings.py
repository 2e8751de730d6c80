"""Findings for the person who decides: the model to use, ads to act on, effects of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import UsageError
from reclick.evaluation.findings import (
    MIN_IMPRESSIONS,
    estimate_word_effects,
    find_contrasts,
    recommend_model,
)
from reclick.metrics import SCORE_SCHEMA

ESTIMATES = ("attractiveness", "satisfaction", "relevance")


class KnownModel:
    """A model whose relevance is given."""

    satisfaction = True

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def relevance(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows)


def pair(query: str, ad: str, theta: float, rho: float, impressions: float) -> dict[str, Any]:
    values = {"attractiveness": theta, "satisfaction": rho, "relevance": theta * rho}
    ends = {f"{name}_low": value - 0.1 for name, value in values.items()}
    ends |= {f"{name}_high": value + 0.1 for name, value in values.items()}
    support = {"impressions": impressions, "clicks": impressions / 2}
    return {"query": query, "ad": ad, **values, **ends, **support}


def scores(values: dict[tuple[str, str], float | None]) -> pa.Table:
    rows = [
        {"model": model, "metric": metric, "sessions": "all", "volume": "all", "value": value}
        for (model, metric), value in values.items()
    ]
    return pa.Table.from_pylist(rows, SCORE_SCHEMA)


def test_the_model_with_the_best_mean_rank_is_recommended() -> None:
    table = scores(
        {
            ("A", "log_likelihood"): -0.5,
            ("B", "log_likelihood"): -0.6,
            ("C", "log_likelihood"): None,
            ("A", "perplexity"): 1.3,
            ("B", "perplexity"): 1.2,
            ("C", "perplexity"): 1.4,
            ("A", "calibration_error"): 0.02,
            ("B", "calibration_error"): 0.01,
            ("C", "calibration_error"): 0.03,
        }
    )
    assert recommend_model(table) == "B"  # ranks 1, 0, 0 against 0, 1, 1 and last
    assert recommend_model(table, in_sample_models={"B"}) == "A"
    assert recommend_model(table, in_sample_models={"A", "B", "C"}) == "B"
    assert recommend_model(SCORE_SCHEMA.empty_table()) is None


def test_misleading_ads_attract_and_do_not_satisfy_and_gems_are_the_opposite() -> None:
    rows = [pair("q", f"plain{n}", 0.2 + n / 100, 0.4 + n / 100, 1_000) for n in range(5)]
    rows += [
        pair("q", "bait", 0.9, 0.1, 1_000),
        pair("q", "gem", 0.05, 0.9, 1_000),
        pair("q", "rare bait", 0.95, 0.05, MIN_IMPRESSIONS - 1),
        pair("q", "uncertain bait", 0.8, 0.35, 1_000),
    ]
    ads = pa.table({"ad": ["bait"], "title": ["Free"]})
    misleading, gems = find_contrasts(KnownModel(rows), ads)  # type: ignore[arg-type]
    assert misleading[0]["ad"] == "bait"
    assert misleading[0]["title"] == "Free"
    assert gems[0]["ad"] == "gem"
    assert gems[0]["title"] == ""
    # The mean satisfaction is 0.43, and the interval of the uncertain one includes it.
    assert [len(misleading), len(gems)] == [1, 1]


def test_the_effect_of_a_word_is_relative_to_the_other_ads_of_its_queries() -> None:
    # In each query one ad has the word and twice the attractiveness of the other, whatever the
    # level of the query: with equal impressions the mean is 1.5, so the effect is 2 / 1.5.
    rows, texts = [], []
    for number in range(12):
        level = 0.01 * (1 + number)
        rows += [
            pair(f"q{number}", f"good{number}", 2 * level, 0.5, 50),
            pair(f"q{number}", f"poor{number}", level, 0.5, 50),
        ]
        texts += [(f"good{number}", "Official"), (f"poor{number}", "Newsletter")]
    ads = pa.table(
        {
            "ad": [ad for ad, _ in texts],
            "title": [word for _, word in texts],
            "description": [""] * len(texts),
            "display_url": ["brand.example"] * len(texts),
        }
    )
    words = estimate_word_effects(KnownModel(rows), ads)  # type: ignore[arg-type]
    assert [word["word"] for word in words] == ["official", "newsletter"]
    assert words[0]["effect"] == pytest.approx(4 / 3)
    assert words[1]["effect"] == pytest.approx(2 / 3)
    assert words[0]["low"] == pytest.approx(4 / 3)  # no spread between ads
    assert words[0]["impressions"] == 600
    assert words[0]["ads"] == 12


def test_the_interval_of_a_word_counts_ads_and_not_impressions() -> None:
    rng = np.random.default_rng(0)
    effects = rng.lognormal(0.0, 0.5, 40)
    for impressions in (100, 10_000):
        rows = [pair("q", f"ad{n}", 0.05 * e, 0.5, impressions) for n, e in enumerate(effects)]
        ads = pa.table(
            {
                "ad": [row["ad"] for row in rows],
                "title": ["Official" if n % 2 else "Newsletter" for n in range(40)],
                "description": [""] * 40,
                "display_url": [""] * 40,
            }
        )
        (first, _) = estimate_word_effects(KnownModel(rows), ads)  # type: ignore[arg-type]
        width = np.log(first["high"] / first["low"])
        assert 0.2 < width < 0.8  # about 4 · 0.5 / √20, at any number of impressions


def test_a_model_reports_on_itself_with_and_without_a_log() -> None:
    market = rc.simulate(3_000, weeks=2, queries=20, seed=1)
    model = rc.DBN(max_iterations=20).fit(market.weeks[0], ads=market.ads)
    scored = model.report(market.weeks[1], ads=market.ads, resamples=50)
    assert scored.value("DBN", "click_ratio") == pytest.approx(1, abs=0.3)
    assert scored.details["recommended"] == "DBN"
    assert scored.details["models"]["DBN"]["seconds"]["fit"] is None
    assert scored.details["words"]
    alone = model.report(ads=market.ads, name="ours")
    assert alone.profile is None
    assert alone.details["misleading"] == scored.details["misleading"]
    assert repr(alone) == "Evaluation(ours, not scored)"
    with pytest.raises(UsageError, match="without a log"):
        model.report(labels=market.labels)
    with pytest.raises(TypeError, match=r"ClickModel\.report\(\) got .*'to'"):
        model.report(to="report.html")  # type: ignore[call-arg]


def test_a_report_of_a_model_alone_has_its_ads_and_no_scores(tmp_path: Any) -> None:
    market = rc.simulate(3_000, weeks=1, queries=10, seed=1)
    model = rc.DBN(max_iterations=20).fit(market.weeks[0], ads=market.ads)
    page = model.report(ads=market.ads).to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<h1>What DBN has learnt</h1>" in page
    assert "No log was given" in page
    assert "Comparison</h2>" not in page
