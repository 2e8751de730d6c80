"""Mistakes of other click-model libraries, each as a test that ours does not make it."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.__main__ import main
from reclick.engines import as_grouped
from reclick.errors import StoreError
from reclick.models import MODELS, registry
from reclick.testing.cases import (
    ADS,
    LOG,
    ORACLE_PAGES,
    PAGES,
    Columns,
    as_table,
    sequence_probabilities,
)
from tests.support.conformance_kit import LONG_PAGE_MODELS, fitted, new_model

every_model = pytest.mark.parametrize("name", LONG_PAGE_MODELS)


# PyClick's UBM trains one cell of (rank, last click) and reads another


def test_what_ubm_learns_of_a_cell_is_what_it_reads_there() -> None:
    """One ad at every position, no priors: θγ of a cell is the share of clicks in it.

    Each of the six shares is different.
    """
    clicks = (
        [[1]] * 12
        + [[1, 2]] * 5
        + [[1, 3]] * 7
        + [[1, 2, 3]] * 3
        + [[2]] * 6
        + [[2, 3]] * 8
        + [[3]] * 4
        + [[]] * 25
    )
    log = as_table(
        {"query": ["q"] * len(clicks), "ads": [["a", "a", "a"]] * len(clicks), "clicks": clicks}
    )
    none = {name: 0 for name in MODELS["ubm"]().get_params() if name.endswith("strength")}
    model = MODELS["ubm"]().set_params(**none, max_iterations=20_000, tolerance=1e-13).fit(log)
    page = {"query": ["q"] * 4, "ads": [["a", "a", "a"]] * 4}
    for last, row in enumerate(model.next_click_prob(page, [[], [1], [2], [3]])):
        left = 1.0
        for position in range(last + 1, 4):
            here = [
                each for each in clicks if max((c for c in each if c < position), default=0) == last
            ]
            share = sum(position in each for each in here) / len(here)
            assert row[position - 1] / left == pytest.approx(share, abs=1e-4), (last, position)
            left -= row[position - 1]


# PyClick's and others' default argument, shared by all models


@every_model
def test_no_default_can_be_changed_for_everybody(name: str) -> None:
    for method in (
        "__init__",
        "fit",
        "update",
        "relevance",
        "rank_sequences",
        "next_click_prob",
        "sample",
        "save",
    ):
        for parameter in inspect.signature(getattr(MODELS[name], method)).parameters.values():
            assert not isinstance(parameter.default, list | dict | set | np.ndarray), (
                method,
                parameter.name,
            )


@every_model
def test_a_fit_leaves_nothing_on_the_class(name: str) -> None:
    before = dict(vars(MODELS[name]))
    new_model(name).fit(LOG)
    assert dict(vars(MODELS[name])) == before


# every parser of the field throws the order of clicks away

ORDERED: Columns = {
    "query": ["q", "q", "r", "q"],
    "ads": [["a", "b", "c"], ["b", "a"], ["c"], ["a", "b", "c"]],
    "clicks": [[3, 1, 2], [2, 1], [], [2]],
}


def as_parquet(folder: Path) -> str:
    pq.write_table(as_table(ORDERED), folder / "log.parquet")
    return str(folder / "log.parquet")


def as_csv(folder: Path) -> str:
    rows = zip(*(ORDERED[column] for column in ("query", "ads", "clicks")), strict=True)
    lines = [
        f'{query},"{json.dumps(ads).replace(chr(34), chr(34) * 2)}","{json.dumps(clicks)}"'
        for query, ads, clicks in rows
    ]
    (folder / "log.csv").write_text(
        "\n".join(["query,ads,clicks", *lines]) + "\n", encoding="utf-8"
    )
    return str(folder / "log.csv")


def as_jsonl(folder: Path) -> str:
    rows = [
        dict(zip(ORDERED, values, strict=True)) for values in zip(*ORDERED.values(), strict=True)
    ]
    (folder / "log.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    return str(folder / "log.jsonl")


READERS: dict[str, Callable[[Path], Any]] = {
    "parquet": as_parquet,
    "csv": as_csv,
    "jsonl": as_jsonl,
    "pandas": lambda _: pd.DataFrame(ORDERED),
    "polars": lambda _: pl.DataFrame(ORDERED),
    "arrow": lambda _: as_table(ORDERED),
    "duckdb": lambda _: duckdb.connect().from_arrow(as_table(ORDERED)),
    "dict": lambda _: ORDERED,
}


@pytest.mark.parametrize("reader", READERS)
def test_the_order_of_clicks_is_kept_from_every_source_to_the_model(
    reader: str, tmp_path: Path
) -> None:
    source = READERS[reader](tmp_path)
    (batch,) = rc.read_sessions(source).batches()
    assert [
        batch.click[start:end].tolist()
        for start, end in zip(batch.clicks, batch.clicks[1:], strict=False)
    ] == ORDERED["clicks"]
    grouped = as_grouped(source)
    kept = sorted(
        tuple(grouped.click[start:end].tolist())
        for start, end in zip(grouped.clicks, grouped.clicks[1:], strict=False)
    )
    assert kept == sorted(map(tuple, ORDERED["clicks"]))
    model = rc.MultiClick().fit(source)
    assert (
        model.log_prob(source).tolist() == rc.MultiClick().fit(ORDERED).log_prob(ORDERED).tolist()
    )


def test_a_model_with_an_order_tells_the_orders_of_a_set_apart() -> None:
    chance = sequence_probabilities(fitted("multiclick"), ORACLE_PAGES[0])
    assert len({round(p, 12) for clicks, p in chance.items() if set(clicks) == {1, 2, 3}}) == 6


# clickmodels drops sessions without a click, and says nothing


def test_sessions_without_a_click_are_kept_and_counted() -> None:
    log = rc.read_sessions(as_table(LOG))
    empty = sum(not clicks for clicks in LOG["clicks"])
    assert empty > 100
    assert log.summary.kept == log.summary.rows == len(LOG["clicks"])
    assert rc.count(log).lengths[:, 0].sum() == empty
    grouped = as_grouped(log)
    assert grouped.weight[np.diff(grouped.clicks) == 0].sum() == empty


@every_model
def test_sessions_without_a_click_lower_the_chance_of_one(name: str) -> None:
    clicked: Columns = {
        "query": ["q"] * 4,
        "ads": [["a", "b"]] * 4,
        "clicks": [[1], [2], [1, 2], [1]],
    }
    diluted: Columns = {
        column: [*values, *(values[:1] * 8 if column != "clicks" else [[]] * 8)]
        for column, values in clicked.items()
    }
    page = {"query": ["q"], "ads": [["a", "b"]]}
    few, many = (
        new_model(name).fit(as_table(log)).expected_clicks(page)[0] for log in (diluted, clicked)
    )
    assert few < 0.7 * many


# ULTRA takes an unknown model name for PBM


def test_an_unknown_model_is_an_error_that_lists_the_right_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(KeyError, match=r"got 'dbm', expected one of luceclick, .*Did you mean"):
        MODELS["dbm"]
    pq.write_table(as_table(LOG), tmp_path / "log.parquet")
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "reclick",
            "fit",
            str(tmp_path / "log.parquet"),
            "--to",
            str(tmp_path / "model"),
            "--model",
            "dbm",
        ],
    )
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 2
    assert "'dbm'" in told
    assert all(name in told for name in MODELS)
    assert not (tmp_path / "model").exists()


def test_a_saved_model_of_an_unknown_kind_is_refused_with_the_right_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fitted("dctr").save(tmp_path / "model")
    others = {name: each for name, each in registry.BUILT_IN.items() if name != "dctr"}
    monkeypatch.setattr(registry, "BUILT_IN", others)  # deleting would put it back last
    with pytest.raises(StoreError, match=r"'dctr'.*Known: luceclick"):
        rc.load(tmp_path / "model")


# PyClick's CTR models crash where they are asked for a probability


@pytest.mark.parametrize("name", ["gctr", "rctr", "dctr"])
def test_the_click_rate_models_answer_everything_about_known_and_unknown_pages(name: str) -> None:
    for page in PAGES:
        chance = sequence_probabilities(fitted(name), page)
        assert all(p > 0 for clicks, p in chance.items() if list(clicks) == sorted(clicks))
    pages = as_table({"query": ["never"], "ads": [["never1", "never2"]], "clicks": [[2]]})
    assert np.isfinite(fitted(name).log_prob(pages)).all()
    assert np.isfinite(fitted(name).click_prob(pages)).all()
    assert len(fitted(name).sample(pages, 0)) == 1


# PSCM's perplexity looks at the clicks it predicts


@every_model
def test_a_prediction_never_looks_at_the_clicks_it_predicts(name: str) -> None:
    model, table = fitted(name), as_table(LOG)
    expected = model.click_prob(table)
    others = as_table(
        {
            **LOG,
            "clicks": [
                [] if clicks else [len(ads)]
                for ads, clicks in zip(LOG["ads"], LOG["clicks"], strict=True)
            ],
        }
    )
    for changed in (others, table.drop_columns(["clicks"])):
        np.testing.assert_array_equal(model.click_prob(changed), expected)
        assert model.sample(changed, 1).equals(model.sample(table, 1))
        np.testing.assert_array_equal(model.expected_clicks(changed), model.expected_clicks(table))


# repeated clicks get lost without a word


def test_repeated_clicks_are_kept_once_at_their_first_time_and_counted() -> None:
    log = rc.read_sessions(
        {"query": ["q", "q"], "ads": [["a", "b", "c"]] * 2, "clicks": [[2, 1, 2, 1, 3], [1]]}
    )
    (batch,) = log.batches()
    assert batch.click.tolist() == [2, 1, 3, 1]
    assert log.summary.notes["repeated click"] == 1  # sessions
    assert "repeated click" in str(log.summary)


@every_model
def test_a_repeated_click_changes_no_answer(name: str) -> None:
    repeated = {**LOG, "clicks": [[*clicks, *clicks[:1]] for clicks in LOG["clicks"]]}
    model = new_model(name).fit(as_table(repeated), ads=ADS)
    np.testing.assert_array_equal(
        model.log_set_prob(as_table(repeated)), fitted(name).log_set_prob(as_table(LOG))
    )


def test_the_kit_has_arrow_lists_of_clicks_in_their_order() -> None:
    assert as_table(ORDERED)["clicks"].type == pa.list_(pa.int64())
