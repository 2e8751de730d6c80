"""Click propensities: by hand, from every model that can, and as files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from reclick.errors import CannotAnswerError, NotFittedError, SettingError
from reclick.exports import export, propensities
from reclick.models import CM, DCTR, MODELS, PBM, UBM
from tests.support.conformance_kit import LONG_PAGE_MODELS
from tests.support.export_data import LOG, rates

PAGES: dict[str, list[Any]] = {
    "query": ["q"] * 30,
    "ads": [["a", "b", "c"], ["b", "a"], ["c"]] * 10,
    "clicks": [[1], [1], [1], [3], [1, 2], [], [1, 2], [2], [1], [], [1], [], [2], [], [1]] * 2,
}


def shares(table: Any) -> list[float]:
    return list(table["propensity"].to_pylist())


def test_a_cascade_by_hand() -> None:
    # Users stop at their first click: an ad below another is examined if that was not clicked.
    # a is clicked 4 of 5 times, b 1 of 2 times that it is examined.
    log = {
        "query": ["q"] * 6,
        "ads": [["a", "b"]] * 5 + [["b"]],
        "clicks": [[1], [1], [1], [1], [2], []],
    }
    model = CM(attractiveness_strength=0).fit(log)
    attractive = dict(zip(("a", "b"), model.relevance()["attractiveness"].to_pylist(), strict=True))
    assert attractive == {"a": 0.8, "b": 0.5}
    # Position 1: c = 1. Position 2 of [a, b]: (1 − 0.8) · 0.5 / 0.5 = 0.2.
    assert shares(propensities(model, log)) == pytest.approx([1, 0.2])
    # On [b, a] it is 1 − 0.5, for a. Both pages, weighted by attractiveness:
    # (0.2 · 0.5 + 0.5 · 0.8) / (0.5 + 0.8).
    both = {"query": ["q"] * 2, "ads": [["a", "b"], ["b", "a"]]}
    assert shares(propensities(model, both)) == pytest.approx([1, 0.5 / 1.3])


def test_sessions_count_by_their_weight() -> None:
    log = {
        "query": ["q"] * 6,
        "ads": [["a", "b"]] * 5 + [["b"]],
        "clicks": [[1], [1], [1], [1], [2], []],
    }
    model = CM(attractiveness_strength=0).fit(log)
    weighted = propensities(
        model, {"query": ["q"] * 2, "ads": [["a", "b"], ["b", "a"]], "weight": [3.0, 1.0]}
    )
    assert shares(weighted) == pytest.approx([1, (3 * 0.2 * 0.5 + 0.5 * 0.8) / (3 * 0.5 + 0.8)])
    assert weighted["impressions"].to_pylist() == [4.0, 4.0]


def test_for_pbm_they_are_the_examination_with_a_log_and_without() -> None:
    model = PBM().fit(PAGES)
    own = propensities(model)
    assert shares(own) == pytest.approx((model.gamma_ / model.gamma_[0]).tolist())
    assert own["position"].to_pylist() == [1, 2, 3]
    assert own["impressions"].null_count == 3
    assert shares(propensities(model, PAGES)) == pytest.approx(shares(own), rel=1e-6)


def test_pbm_recovers_the_examination_of_simulated_clicks() -> None:
    rng = np.random.default_rng(1)
    examination, attractive = np.array([1.0, 0.6, 0.35, 0.2]), np.linspace(0.1, 0.8, 8)
    pages = rng.permuted(np.tile(np.arange(8), (20_000, 1)), axis=1)[:, :4]
    clicked = rng.random(pages.shape) < examination * attractive[pages]
    log = {
        "query": ["q"] * len(pages),
        "ads": [[f"ad{ad}" for ad in page] for page in pages.tolist()],
        "clicks": [(np.flatnonzero(row) + 1).tolist() for row in clicked],
    }
    assert shares(propensities(PBM().fit(log))) == pytest.approx(examination.tolist(), abs=0.03)
    assert shares(propensities(UBM().fit(log), log)) == pytest.approx(
        examination.tolist(), abs=0.03
    )


@pytest.mark.parametrize("name", [name for name in LONG_PAGE_MODELS if MODELS[name].attractiveness])
def test_every_model_with_attractiveness_has_propensities(name: str) -> None:
    found = propensities(MODELS[name]().fit(PAGES), PAGES)
    assert found["position"].to_pylist() == [1, 2, 3]
    assert shares(found)[0] == 1.0
    assert all(share > 0 for share in shares(found))
    assert found["impressions"].to_pylist() == [30, 20, 10]


def test_a_model_without_propensities_has_a_reason() -> None:
    for name in ("gctr", "rctr", "pm"):
        with pytest.raises(CannotAnswerError, match=r"has no propensities: .* attractiveness"):
            propensities(MODELS[name]().fit(PAGES), PAGES)
    with pytest.raises(
        SettingError,
        match=r"DCTR's propensities are means over pages: give a log with log=…",
    ):
        propensities(rates())
    with pytest.raises(NotFittedError):
        propensities(PBM())
    never = {"query": ["q"], "ads": [["x", "y"]], "clicks": [[2]]}
    with pytest.raises(CannotAnswerError, match="No ad at position 1 attracts"):
        propensities(DCTR(attractiveness_strength=0).fit(never), never)


def test_they_are_written_as_csv_or_parquet(tmp_path: Path) -> None:
    model = PBM().fit(PAGES)
    found = export(model, tmp_path / "p.csv", format="propensities", log=PAGES)
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["propensity"]) for row in rows] == shares(propensities(model, PAGES))
    assert [row["position"] for row in rows] == ["1", "2", "3"]
    assert (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()[
        0
    ] == "position,propensity,impressions"
    assert str(found).splitlines() == ["click propensities: 3 positions", str(tmp_path / "p.csv")]
    export(model, tmp_path / "p.parquet", format="propensities")
    assert pq.read_table(tmp_path / "p.parquet").equals(propensities(model))
    with pytest.raises(SettingError, match=r"Give a name that ends in \.csv or \.parquet"):
        export(model, tmp_path / "p.json", format="propensities")


def test_the_clicks_of_the_log_are_not_used() -> None:
    model = UBM().fit(PAGES)
    without = {name: PAGES[name] for name in ("query", "ads")}
    assert propensities(model, without).equals(propensities(model, PAGES))
    assert propensities(model, LOG).num_rows == 2
