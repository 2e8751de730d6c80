from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import BadRowsError, LogError
from reclick.logs import ReadSummary, read_sessions
from reclick.logs.files import log_file
from reclick.logs.files.csv import parse_valid_block, split_records
from tests.support.log_tables import GOOD, read_back

HEADER = "query,ads,clicks\n"


def written(tmp_path: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def dropped(path: Path) -> tuple[list[str], ReadSummary]:
    log = read_sessions(path, on_error="drop")
    return [row["query"] for row in read_back(log)], log.summary


@pytest.mark.parametrize(
    "body",
    [
        "shoes,a1|a2|a3,2|1\nحذاء,a2,\nshoes 👟,a3|a1,1\n",
        'shoes,"[""a1"",""a2"",""a3""]","[2, 1]"\nحذاء,"[""a2""]",[]\nshoes 👟,a3|a1,1',
        '"shoes",a1|a2|a3,2|1\r\nحذاء,a2,\r\n\r\n"shoes 👟",a3|a1,1\r\n',
    ],
)
def test_lists_are_json_or_have_bars_between_values(tmp_path: Path, body: str) -> None:
    assert read_back(read_sessions(written(tmp_path, HEADER + body))) == GOOD


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_the_header_tells_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = written(tmp_path, (HEADER + "shoes,a|b,1\n").replace(",", delimiter))
    assert [row["ads"] for row in read_back(read_sessions(path))] == [["a", "b"]]


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    assert (
        len(
            read_back(
                read_sessions(written(tmp_path, b"\xef\xbb\xbf" + HEADER.encode() + b"q,a,1\n"))
            )
        )
        == 1
    )


def test_a_cell_may_hold_line_breaks_delimiters_and_quotes(tmp_path: Path) -> None:
    rows = read_back(
        read_sessions(written(tmp_path, HEADER + '"two\nlines, ""quoted""",a|b,1\nnext,a,\n'))
    )
    assert [row["query"] for row in rows] == ['two\nlines, "quoted"', "next"]


def test_a_broken_quote_costs_one_row(tmp_path: Path) -> None:
    good, summary = dropped(written(tmp_path, HEADER + 'q1,a,1\n"q2,a,1\nq3,a,1\nq4,a,1\n'))
    assert good == ["q1", "q3", "q4"]
    assert summary.dropped == {"not readable": 1}
    assert summary.examples["not readable"][0].row == 2
    assert "does not close" in summary.examples["not readable"][0].got


def test_two_broken_quotes_do_not_swallow_the_rows_between_them(tmp_path: Path) -> None:
    good, summary = dropped(
        written(tmp_path, HEADER + 'q1,a,1\n"q2,a,1\nq3,a,1\n"q4,a,1\nq5,a,1\n')
    )
    assert good == ["q1", "q3", "q5"]
    assert summary.dropped == {"not readable": 2}


def test_broken_quotes_among_sound_ones_cost_their_own_rows(tmp_path: Path) -> None:
    body = "".join(
        f'"q{i}","[""a"",""b""]",1\n' if i % 50 else f'"q{i},a|b,1\n' for i in range(1, 1001)
    )
    good, summary = dropped(written(tmp_path, HEADER + body))
    assert good == [f"q{i}" for i in range(1, 1001) if i % 50]
    assert summary.dropped == {"not readable": 20}
    assert [example.row for example in summary.examples["not readable"]] == [50, 100, 150]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b"q,a", "2 fields where the header has 3"),
        (b"q,a,1,extra", "4 fields where the header has 3"),
        (b'"q"x,a,1', "a broken quote"),
        (b"q,a,one", "clicks: expected whole numbers"),
        (b"q,a,1.5", "clicks: expected whole numbers"),
        (b'q,"[""a""",1', "ads: expected a list"),
        (b'q,"[{}]",1', "ads: expected text"),
        (b"q\xff,a,1", "not UTF-8"),
    ],
)
def test_a_line_that_cannot_be_read_is_counted_with_its_row(
    tmp_path: Path, line: bytes, got: str
) -> None:
    path = written(tmp_path, HEADER.encode() + b"q1,a,1\n" + line + b"\nq3,a,7\n")
    good, summary = dropped(path)
    assert good == ["q1"]
    assert summary.dropped == {"not readable": 1, "click outside the page": 1}
    (example,) = summary.examples["not readable"]
    assert (example.where, example.row) == ("a.csv", 2)
    assert got in example.got
    assert summary.examples["click outside the page"][0].row == 3
    with pytest.raises(BadRowsError, match="not readable"):
        read_back(read_sessions(path))


def test_weights_are_numbers_and_an_empty_one_is_bad(tmp_path: Path) -> None:
    path = written(tmp_path, "query,ads,clicks,weight\nq,a,1,2.5\nr,a,1,\ns,a,1,much\n")
    log = read_sessions(path, on_error="drop")
    (batch,) = log.batches()
    assert batch.weight is not None
    assert batch.weight.tolist() == [2.5]
    assert log.summary.dropped == {"not readable": 1, "bad weight": 1}


def test_an_empty_page_and_an_empty_ad_are_bad_rows(tmp_path: Path) -> None:
    good, summary = dropped(written(tmp_path, HEADER + "q,,\nr,a||b,1\n,a,1\ns,a,1\n"))
    assert good == ["s"]
    assert summary.dropped == {"no ads": 1, "null ad": 1, "no query": 1}


def test_nul_bytes_do_not_crash(tmp_path: Path) -> None:
    assert [
        row["query"] for row in read_back(read_sessions(written(tmp_path, HEADER + "q\0r,a,1\n")))
    ] == ["q\0r"]


def test_a_file_read_in_small_blocks_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "".join(
        f'"q{i}\nx",a|b,{1 + i % 3}\n'
        if i % 3
        else f'"q{i},a|b,1\n'
        if i % 5 == 0
        else f"q{i},a|b,1\n"
        for i in range(300)
    )
    path = written(tmp_path, HEADER + body)
    whole = dropped(path)
    for size in (17, 64, 500):
        monkeypatch.setattr(log_file, "BLOCK_BYTES", size)
        assert dropped(path) == whole


def test_a_cut_gzip_is_told(tmp_path: Path) -> None:
    path = written(
        tmp_path, gzip.compress((HEADER + "q,a,1\n" * 100_000).encode())[:-200], "a.csv.gz"
    )
    with pytest.raises(LogError, match=r"a\.csv\.gz cannot be read to the end"):
        read_back(read_sessions(path))


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="has no rows"):
        read_back(read_sessions(written(tmp_path, HEADER)))


def test_a_missing_column_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        LogError, match=r"a\.csv has no column query\. It has term, ads, clicks\..*columns="
    ):
        read_sessions(written(tmp_path, "term,ads,clicks\nq,a,1\n"))


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@given(st.lists(st.tuples(cells, cells).filter(any), min_size=1))
def test_what_the_csv_module_writes_is_read_back(rows: list[tuple[str, str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    body = text.getvalue().encode()
    assert [tuple(record) for record in split_records(body, 2, ",")[0]] == rows
    sound = parse_valid_block(body, ("a", "b"), ",")
    if sound is not None:
        assert list(zip(*(column.to_pylist() for column in sound.columns), strict=True)) == rows
