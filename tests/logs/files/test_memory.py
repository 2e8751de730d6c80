from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from reclick.errors import LogError
from reclick.logs import read_sessions
from tests.support.log_tables import GOOD, SCHEMA, read_back, table

MAKERS: dict[str, Any] = {
    "Arrow table": table,
    "Arrow batch": lambda: table().to_batches()[0],
    "Arrow reader": lambda: table().to_reader(),
    "pandas": lambda: pd.DataFrame(GOOD),
    "pandas categorical": lambda: pd.DataFrame(GOOD).astype({"query": "category"}),
    "pandas with an index": lambda: pd.DataFrame(GOOD, index=["x", "y", "z"]),
    "Polars": lambda: pl.DataFrame(GOOD),
    "Polars lazy": lambda: pl.DataFrame(GOOD).lazy(),
    "Polars categorical": lambda: pl.DataFrame(GOOD).with_columns(
        pl.col("query").cast(pl.Categorical)
    ),
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS.keys())
def test_a_table_of_every_library_is_read_any_number_of_times(maker: Any) -> None:
    log = read_sessions(maker())
    assert read_back(log) == GOOD
    assert read_back(log) == GOOD
    assert log.name == "table"


def test_a_duckdb_relation_is_read_on_its_own_connection() -> None:
    connection = duckdb.connect()
    connection.register("log", table())
    log = read_sessions(connection.sql("select * from log"))
    assert read_back(log) == GOOD
    assert read_back(log) == GOOD
    assert connection.sql("select 1").fetchall() == [(1,)]


def test_a_duckdb_connection_is_free_again_when_reading_stops_early() -> None:
    connection = duckdb.connect()
    log = read_sessions(
        connection.sql(
            "select 'q' || i as query, ['a', 'b'] as ads, [1] as clicks from range(2000000) t(i)"
        )
    )
    batches = log.batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert connection.sql("select 1").fetchall() == [(1,)]


class DuckDBPyRelation:
    """A relation as DuckDB had it before 1.5."""

    def __init__(self, relation: Any) -> None:
        self._relation = relation

    def limit(self, rows: int) -> DuckDBPyRelation:
        return DuckDBPyRelation(self._relation.limit(rows))

    def to_arrow_table(self) -> pa.Table:
        return self._relation.to_arrow_table()

    def project(self, columns: str) -> DuckDBPyRelation:
        return DuckDBPyRelation(self._relation.project(columns))

    def fetch_arrow_reader(self, rows: int) -> pa.RecordBatchReader:
        assert self._relation is not None, "There is no query result"
        relation, self._relation = self._relation, None
        return relation.to_arrow_reader(rows)


DuckDBPyRelation.__module__ = "duckdb"


def test_a_relation_of_an_older_duckdb_is_read() -> None:
    connection = duckdb.connect()
    connection.register("log", table())
    log = read_sessions(DuckDBPyRelation(connection.sql("select * from log")))
    assert read_back(log) == GOOD
    assert read_back(log) == GOOD


LIST_TYPES = [
    pa.list_(pa.string()),
    pa.large_list(pa.large_string()),
    pa.list_(pa.string(), 2),
    pa.list_view(pa.string()),
    pa.large_list_view(pa.string_view()),
    pa.list_(pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize("kind", LIST_TYPES, ids=str)
def test_every_list_type_is_read_also_sliced_and_with_nulls(kind: pa.DataType) -> None:
    pages = [["a", "b"], ["c", "d"], None, ["b", "a"], ["e", "f"]]
    whole = pa.table(
        {
            "query": list("vwxyz"),
            "ads": pa.array(pages, kind),
            "clicks": [[1], [2], [1], None, [2, 1]],
        }
    )
    log = read_sessions(whole.slice(1), on_error="drop")
    assert [(row["query"], row["ads"], row["clicks"]) for row in read_back(log)] == [
        ("w", ["c", "d"], [2]),
        ("y", ["b", "a"], []),
        ("z", ["e", "f"], [2, 1]),
    ]
    assert log.summary.dropped == {"no ads": 1}
    assert log.summary.notes == {"clicks was null, read as no click": 1}
    assert log.summary.examples["no ads"][0].row == 2


def test_a_column_of_nothing_but_empty_lists_or_nulls_is_no_clicks() -> None:
    columns: list[list[Any]] = [[[], []], [None, None]]
    for clicks in columns:
        log = read_sessions(
            pa.table({"query": ["q", "r"], "ads": [["a"], ["b"]], "clicks": clicks})
        )
        assert [row["clicks"] for row in read_back(log)] == [[], []]


def test_a_dict_of_columns_is_read_like_a_table() -> None:
    columns: list[dict[str, list[Any]]] = [
        {"query": [1, 2], "ads": [[2, 3], [3]], "clicks": [[1, 2], []]},
        {"query": ["q", None], "ads": [["a"], ["b"]], "clicks": [[], []]},
        {"query": ["q", "r"], "ads": [["a"], []], "clicks": [None, None], "weight": [1, 0.5]},
        {"query": ["q", "r"], "ads": [[7], [8]], "clicks": [[1], [1]], "weight": [None, 2]},
    ]
    for each in columns:
        plain, arrow = (
            read_sessions(each, on_error="drop"),
            read_sessions(pa.table(each), on_error="drop"),
        )
        assert read_back(plain) == read_back(arrow)
        assert plain.summary == arrow.summary
    assert read_back(read_sessions(columns[0]))[0] == {
        "query": "1",
        "ads": ["2", "3"],
        "clicks": [1, 2],
    }


def test_a_dict_of_arrow_columns_is_read() -> None:
    whole = table()
    assert read_back(read_sessions({name: whole[name] for name in whole.column_names})) == GOOD
    assert (
        read_back(
            read_sessions({name: whole[name].combine_chunks() for name in whole.column_names})
        )
        == GOOD
    )


@pytest.mark.parametrize("query", [[1, "a"], [2**70], ["\ud800"], [1, 2, 3], 5])
def test_a_dict_that_is_no_table_is_told(query: Any) -> None:
    with pytest.raises(LogError, match="The columns given do not make a table"):
        read_sessions({"query": query, "ads": [["a"], ["b"]], "clicks": [[], []]})


def test_chunks_are_numbered_through() -> None:
    chunked = pa.concat_tables([table(), table([{"query": "q", "ads": ["a"], "clicks": [9]}])])
    with pytest.raises(LogError, match="row 4: position 9 on a page of 1 ad"):
        read_back(read_sessions(chunked))


def test_a_table_of_mixed_types_is_told() -> None:
    with pytest.raises(LogError, match="mixes types"):
        read_sessions(
            pd.DataFrame({"query": ["q", "r"], "ads": [["a"], "b"], "clicks": [[1], [1]]})
        )


def test_something_else_is_refused_with_what_can_be_read() -> None:
    with pytest.raises(LogError, match=r"Cannot read a int\. Give a path"):
        read_sessions(5)


GIVE_PAGES = "Give a page as (query, [ad, …]), or pages as {'query': [...], 'ads': [[...], ...]}."
MISSHAPEN_PAGES = [
    ("pizza", "a"),
    ("pizza", {"a"}),
    ("pizza", ["a", "b"], 1),
    ["pizza", ["a", "b"]],
    [("pizza", ["a", "b"])],
    {"query": "pizza", "ads": ["a", "b"]},
    {"query": ["pizza"], "ads": ["a", "b"]},
    {"query": ["pizza"], "ads": ["a"]},
    [{"query": "pizza", "ads": ["a", "b"]}],
]


@pytest.mark.parametrize("source", MISSHAPEN_PAGES, ids=repr)
def test_something_like_a_page_is_told_the_shape_of_pages(source: Any) -> None:
    with pytest.raises(LogError, match=rf"This is not a page: got .*{re.escape(GIVE_PAGES)}"):
        read_sessions(source)
    with pytest.raises(LogError, match=r"\(query, \[ad, …\], \[position, …\]\), or pages as"):
        read_sessions(source, clicks_required=True)


def test_two_files_are_no_page(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"one\.parquet does not exist"):
        read_sessions(("one.parquet", "two.parquet"))
    with pytest.raises(LogError, match="pizza does not exist"):
        read_sessions(["pizza", "a"])


def test_a_wrong_type_and_a_missing_column_are_told() -> None:
    with pytest.raises(
        LogError, match="ads in the table: expected a list of text or whole-number ids, got string"
    ):
        read_sessions(pa.table({"query": ["q"], "ads": ["a"], "clicks": [[1]]}))
    with pytest.raises(LogError, match=r"the table has no column clicks\. It has query, ads"):
        read_sessions(table().drop_columns(["clicks"]), clicks_required=True)


def test_an_empty_table_has_no_rows() -> None:
    with pytest.raises(LogError, match="table has no rows"):
        read_back(read_sessions(SCHEMA.empty_table()))


@pytest.mark.parametrize(
    ("name", "text", "expression"),
    [
        ("ads", "a,b", r"df['term'] = df['term'].str.split(',')"),
        (
            "clicks",
            "2,1",
            "df['term'] = [[int(i) for i in text.split(',') if i] for text in df['term']]",
        ),
    ],
)
def test_text_in_place_of_lists_is_told_how_to_split_it(
    name: str, text: str, expression: str
) -> None:
    frame = pd.DataFrame({"query": ["q"], "ads": [["a", "b"]], "clicks": [[2, 1]]})
    df = frame.drop(columns=name).assign(term=[text])
    with pytest.raises(LogError, match=rf"Split the text .*: {re.escape(expression)}\. If another"):
        read_sessions(df, columns={name: "term"})
    exec(expression, {"df": df})  # noqa: S102, the advice that was printed
    (row,) = read_back(read_sessions(df, columns={name: "term"}))
    assert row == {"query": "q", "ads": ["a", "b"], "clicks": [2, 1]}


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.DataFrame, dict, pa.table], ids=["pandas", "polars", "dict", "arrow"]
)
def test_positions_that_are_whole_floats_are_read(make: Any) -> None:
    columns = {"query": ["q", "q", "q"], "ads": [["a", "b"]] * 3, "clicks": [[2.0, 1.0], [], None]}
    rows = read_back(read_sessions(make(columns)))
    assert [row["clicks"] for row in rows] == [[2, 1], [], []]


@pytest.mark.parametrize("position", [1.5, float("inf"), 1e300])
def test_positions_that_are_not_whole_are_told(position: float) -> None:
    columns = {"query": ["q"], "ads": [["a", "b"]], "clicks": [[position]]}
    with pytest.raises(LogError, match=r"clicks in the table: expected a list of whole numbers"):
        read_sessions(pl.DataFrame(columns))
