"""Arguments that make no sense, of every public function and method in turn: only ReclickErrors.

The numbers of findings are those of the reliability campaign.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import reclick as rc

LOG = {
    "query": ["q", "q", "r", "q"],
    "ads": [["x", "y"], ["y", "x"], ["x", "z"], ["x", "y"]],
    "clicks": [[1], [2, 1], [], [2]],
}
PAGES = {"query": ["q"], "ads": [["x", "y"]]}
DEEP: list[Any] = []
for _ in range(50):
    DEEP = [DEEP]


def closed_relation() -> Any:
    connection = duckdb.connect()
    relation = connection.sql("SELECT 'q' AS query, ['a'] AS ads, [1] AS clicks")
    connection.close()
    return relation


def twice_named() -> pd.DataFrame:
    return pd.DataFrame([["q", ["a"], [1], 3]], columns=["query", "ads", "clicks", "clicks"])


HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "empty text": lambda: "",
    "text": lambda: "no such thing",
    "half a pair": lambda: "\ud800",
    "zero byte": lambda: "a\0b",
    "bytes": lambda: b"\xff\xfe",
    "object": object,
    "true": lambda: True,
    "-1": lambda: -1,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "huge": lambda: 10**400,
    "empty list": list,
    "list of None": lambda: [None],
    "nested": lambda: DEEP,
    "dict": lambda: {1: object()},
    "columns of different lengths": lambda: LOG | {"query": ["q"]},
    "numbers as queries": lambda: LOG | {"query": [1.5] * 4},
    "closed relation": closed_relation,
    "two columns of one name": twice_named,
    "codes outside": lambda: pa.table(
        LOG
        | {
            "query": pa.DictionaryArray.from_arrays(
                pa.array([0, 1, 9, 0], pa.int32()), pa.array(["a", "b"]), safe=False
            )
        }
    ),
    "array": lambda: np.full((2, 2), np.nan),
    "model class": lambda: rc.UBM,
}


@pytest.fixture(scope="module")
def model() -> Any:
    return rc.UBM().fit(LOG)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "read_sessions": (
        lambda source, **more: rc.read_sessions(source, **more).summary,
        {
            "source": LOG,
            "ads": None,
            "format": None,
            "columns": None,
            "on_error": "raise",
            "max_ads": 100,
            "quick_return_seconds": 10,
            "click": None,
            "pages": None,
            "cleaning": None,
        },
    ),
    "count": (rc.count, {"log": LOG}),
    "load": (rc.load, {"folder": "nowhere"}),
    "Counts.load": (rc.Counts.load, {"folder": "nowhere"}),
    "read_ads": (rc.read_ads, {"source": {"a": "text"}, "on_error": "raise", "columns": None}),
    "read_labels": (
        rc.read_labels,
        {"source": {"query": ["q"], "ad": ["x"], "relevance": [1.0]}, "on_error": "raise"},
    ),
}
METHODS: dict[str, dict[str, Any]] = {
    "click_prob": {"pages": PAGES, "text": None},
    "log_prob": {"sessions": LOG},
    "sample": {"pages": PAGES, "rng": 1},
    "rank_sequences": {"page": "q", "ads": ["x", "y"], "length": 1, "top": 3},
    "fit": {"sessions": LOG},
}


def call_with_each(call: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, str]:
    """Call with each argument replaced by each hostile value; what came out that must not."""
    wrong = {}
    names = list(arguments)
    for name in names:
        for title, make in HOSTILE.items():
            given = {**arguments, name: make()}
            first = given.pop(names[0])
            try:
                call(first, **given)
            except rc.ReclickError as error:
                if len(str(error)) > 3000:
                    wrong[f"{name}={title}"] = "a message that is too long"
            except Exception as error:
                wrong[f"{name}={title}"] = repr(error)[:200]
    return wrong


@pytest.mark.parametrize("name", list(CALLS))
def test_functions_raise_only_errors_of_reclick(name: str) -> None:
    """Findings 21 and 22, and every other argument."""
    call, arguments = CALLS[name]
    assert call_with_each(call, arguments) == {}


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_raise_only_errors_of_reclick(model: Any, name: str) -> None:
    """Findings 21 and 22, and every other argument."""
    target = rc.UBM() if name == "fit" else model
    assert call_with_each(getattr(target, name), METHODS[name]) == {}


# ---- 21: the list


def test_what_is_no_model_is_named(model: Any) -> None:
    """Finding 21."""
    for call in (
        lambda: rc.judgments("x"),  # type: ignore[arg-type]
        lambda: rc.predict("x", PAGES, "out.parquet"),  # type: ignore[arg-type]
        lambda: rc.monitor("x", LOG),  # type: ignore[arg-type]
    ):
        with pytest.raises(rc.SettingError, match="model: got 'x'"):
            call()
    counts = rc.count(LOG)
    for change in (lambda: counts + 5, lambda: counts - None):  # type: ignore[operator]
        with pytest.raises(rc.UsageError, match=r"Counts are added to and subtracted from"):
            change()


def test_a_relation_or_a_lazy_frame_that_fails_is_an_error() -> None:
    """Finding 21: errors of DuckDB and Polars came through."""
    failing = duckdb.sql(
        "SELECT CASE WHEN range > 3 THEN error('boom') ELSE 'q' END AS query, ['a'] AS ads, "
        "[1] AS clicks FROM range(10)"
    )
    frame = pl.LazyFrame({"query": ["a"], "ads": [["x"]], "clicks": [[1]]})
    lazy = frame.with_columns(pl.col("query").cast(pl.Int64).alias("number"))
    for source in (failing, lazy, frame.with_columns(pl.col("nothing"))):
        with pytest.raises(rc.LogError, match="could not be read to the end"):
            rc.count(source)


def test_tables_that_arrow_refuses_are_an_error() -> None:
    """Finding 21: pandas with two columns of one name, and sparse ones."""
    sparse = pd.DataFrame(LOG | {"weight": pd.arrays.SparseArray([1.0] * 4)})
    for frame in (twice_named(), sparse):
        with pytest.raises(rc.LogError, match="cannot be read through Arrow"):
            rc.count(frame)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": 1e999}', "[]", "null", "\x00"])
def test_a_manifest_of_any_text_is_refused(tmp_path: Path, text: str) -> None:
    """Finding 21: RecursionError, OverflowError."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    for load in (rc.load, rc.Counts.load):
        with pytest.raises(rc.StoreError, match="cannot be read"):
            load(folder)


# ---- 22: nothing is misread without a word


def test_an_empty_path_and_a_file_listed_twice_are_refused(tmp_path: Path) -> None:
    """Finding 22: the current folder was read, and the file counted twice."""
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"query": "q", "ads": ["a"], "clicks": [1]}) + "\n"
    )
    with pytest.raises(rc.LogError, match="The path to read is empty"):
        rc.read_sessions("")
    for files in (["a.jsonl", "a.jsonl"], ["a.jsonl", str(tmp_path / "a.jsonl")], ["*.jsonl"] * 2):
        with pytest.raises(rc.LogError, match=r"a\.jsonl is listed twice"):
            rc.read_sessions(files)


def test_text_is_not_a_list_of_ads(model: Any) -> None:
    """Finding 22: its letters were taken for ads."""
    with pytest.raises(rc.UsageError, match="give its query and its ads"):
        model.rank_sequences("q", "xy")


def test_messages_are_short_and_show_control_characters() -> None:
    """Finding 22: 15,000 characters of names, and escape sequences as they are."""
    wide: dict[str, list[int]] = {f"{'x' * 500}{number}": [1] for number in range(1000)}
    with pytest.raises(rc.LogError) as caught:
        rc.read_sessions(wide)
    assert len(str(caught.value)) < 3000
    with pytest.raises(rc.LogError, match=r"a\\x1b\[31mred"):
        rc.read_sessions({"a\x1b[31mred": [1]})
