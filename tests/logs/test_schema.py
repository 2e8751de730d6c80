from __future__ import annotations

import pyarrow as pa
import pytest

from reclick.data.schema import is_ids, is_number, is_positions, is_text
from reclick.errors import LogError
from reclick.logs import read_sessions
from tests.support.log_tables import GOOD, read_back, table


def test_a_mapping_renames_other_peoples_columns() -> None:
    theirs = table().rename_columns(["search_term", "results", "clicked"])
    mapping = {"query": "search_term", "ads": "results", "clicks": "clicked"}
    assert read_back(read_sessions(theirs, columns=mapping)) == GOOD


def test_a_mapping_wins_over_a_column_of_the_canonical_name() -> None:
    both = table().append_column("term", pa.array(["x", "y", "z"]))
    assert [row["query"] for row in read_back(read_sessions(both, columns={"query": "term"}))] == [
        "x",
        "y",
        "z",
    ]


def test_an_unknown_canonical_name_lists_the_right_ones() -> None:
    with pytest.raises(
        LogError, match=r"names querry, which Reclick does not know.*query, ads, clicks, weight"
    ):
        read_sessions(table(), columns={"querry": "q"})


def test_a_mapped_column_that_is_missing_lists_those_there_are() -> None:
    with pytest.raises(
        LogError,
        match=r'the table has no column w, which columns=… gives for "weight"\. '
        r"It has query, ads, clicks",
    ):
        read_sessions(table(), columns={"weight": "w"})


def test_columns_that_reclick_does_not_read_may_be_mapped() -> None:
    assert (
        read_back(read_sessions(table(), columns={"session_id": "sid", "timestamp": "t"})) == GOOD
    )


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays(
        [*table().columns, table()["query"]], names=["query", "ads", "clicks", "query"]
    )
    with pytest.raises(LogError, match="two columns named query"):
        read_sessions(twice)


def test_pages_without_clicks_are_read_when_clicks_are_not_required() -> None:
    pages = table().drop_columns(["clicks"])
    log = read_sessions(pages, clicks_required=False)
    assert [row["clicks"] for row in read_back(log)] == [[], [], []]
    assert log.summary.notes == {}
    assert not log.has_clicks


def test_types_are_accepted_by_what_they_hold() -> None:
    assert is_text(pa.dictionary(pa.int8(), pa.large_string()))
    assert is_text(pa.uint8())
    assert not is_text(pa.float64())
    assert not is_text(pa.list_(pa.string()))
    assert is_ids(pa.list_view(pa.int64()))
    assert not is_ids(pa.list_(pa.list_(pa.string())))
    assert is_positions(pa.list_(pa.null()))
    assert not is_positions(pa.list_(pa.float32()))
    assert is_number(pa.decimal128(5, 2))
    assert not is_number(pa.bool_())
