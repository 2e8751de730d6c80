from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick.errors import BadRowsError, LogError
from reclick.logs import read_ads, read_labels

ADS = pa.table(
    {
        "ad": ["a1", "a2"],
        "title": ["Shoes 👟", None],
        "description": ["Run", "حذاء"],
        "display_url": ["x.com", ""],
    }
)
PLAIN = [
    {"ad": "a1", "title": "Shoes 👟", "description": "Run", "display_url": "x.com"},
    {"ad": "a2", "title": "", "description": "حذاء", "display_url": ""},
]


def test_ads_are_read_from_every_format(tmp_path: Path) -> None:
    pq.write_table(ADS, tmp_path / "ads.parquet")
    (tmp_path / "ads.csv").write_text(
        "ad,title,description,display_url\na1,Shoes 👟,Run,x.com\na2,,حذاء,\n"
    )
    (tmp_path / "ads.jsonl").write_text(
        '{"ad": "a1", "title": "Shoes 👟", "description": "Run", "display_url": "x.com"}\n'
        '{"ad": "a2", "description": "حذاء"}\n'
    )
    for name in ("ads.parquet", "ads.csv", "ads.jsonl"):
        assert read_ads(tmp_path / name).to_pylist() == PLAIN
    assert read_ads(tmp_path).to_pylist() == PLAIN  # the same ads in every file, merged


def test_ads_may_be_whole_numbers_in_a_frame_with_other_names() -> None:
    read = read_ads(
        pd.DataFrame({"id": [7], "headline": ["Shoes"]}), columns={"ad": "id", "title": "headline"}
    )
    assert read.to_pylist() == [{"ad": "7", "title": "Shoes", "description": "", "display_url": ""}]


def test_an_ad_listed_twice_with_the_same_text_is_merged() -> None:
    assert read_ads(pa.concat_tables([ADS, ADS])).to_pylist() == PLAIN


def test_an_ad_listed_twice_with_different_text_is_a_bad_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = pa.concat_tables([ADS, ADS.slice(0, 1).set_column(1, "title", pa.array(["Boots"]))])
    with pytest.raises(
        BadRowsError,
        match=r"1 of 3 rows of the table is bad: 1 ad listed twice with different text "
        r"\(row 3: 'a1'\)",
    ):
        read_ads(other)
    with caplog.at_level(logging.WARNING, logger="reclick"):
        assert read_ads(other, on_error="drop").to_pylist() == PLAIN
    assert "ad listed twice with different text" in caplog.text


def test_an_ad_without_an_id_is_a_bad_row() -> None:
    some = pa.table({"ad": ["a1", None, ""], "title": ["x", "y", "z"]})
    with pytest.raises(BadRowsError, match=r"2 no ad \(row 2: None\)"):
        read_ads(some)
    assert read_ads(some, on_error="drop")["ad"].to_pylist() == ["a1"]


def test_a_line_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "ads.csv").write_bytes(b'ad,title\na1,"Shoes\na2,\xff\na3,Boots\n')
    with pytest.raises(BadRowsError, match=r"2 of 3 rows of ads\.csv are bad: 2 not readable"):
        read_ads(tmp_path / "ads.csv")
    assert read_ads(tmp_path / "ads.csv", on_error="drop")["title"].to_pylist() == ["Boots"]


def test_text_that_is_not_utf8_is_told() -> None:
    raw = pa.array([b"\xff", b"ok"])
    broken = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    with pytest.raises(BadRowsError, match="not UTF-8"):
        read_ads(pa.table({"ad": ["a", "b"], "title": broken}))
    assert read_ads(pa.table({"ad": ["a", "b"], "title": broken}), on_error="drop")[
        "ad"
    ].to_pylist() == ["b"]


def test_an_ads_table_without_rows_is_told() -> None:
    with pytest.raises(LogError, match="has no rows"):
        read_ads(ADS.slice(0, 0))


def test_labels_are_numbers_and_bad_ones_are_told() -> None:
    labels = pa.table(
        {
            "query": ["q", "q", None, "r", "r"],
            "ad": ["a", "b", "a", "", "a"],
            "relevance": [3.0, None, 1.0, 1.0, float("nan")],
        }
    )
    with pytest.raises(
        BadRowsError,
        match=r"4 of 5 rows of the table are bad: 2 bad relevance .*1 no query .*1 no ad",
    ):
        read_labels(labels)
    read = read_labels(labels, on_error="drop")
    assert read.to_pylist() == [{"query": "q", "ad": "a", "relevance": 3.0}]
    assert read.schema.field("relevance").type == pa.float64()


def test_labels_of_a_wrong_type_are_told() -> None:
    with pytest.raises(LogError, match="relevance in the table: expected a number, got string"):
        read_labels(pa.table({"query": ["q"], "ad": ["a"], "relevance": ["high"]}))
