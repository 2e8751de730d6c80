from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.formats.sogou import FORMAT as SOGOU
from tests.support.line_logs import EVERY_START, Shown, faults, fields, log, pages, read, started

MOUSE = ["0 0 0"] * 6


def page(query: object, ads: str, clicks: str, times: str, *mouse: str) -> str:
    return fields(query, ads, clicks, times, *(mouse or MOUSE))


SAMPLE = [
    page(0, "0 1 2", "0 0 0", "-1 -1 -1"),
    page(1, "10 11 12", "1 1 1", "1400000300.25 1400000100.5 1400000200.75", *["5 6 7"] * 6),
    page(1, "12 11 10", "0 0 1", "-1 -1 1400000400.5 "),
]


def test_each_line_is_a_page_and_the_times_put_its_clicks_in_order(tmp_path: Path) -> None:
    rows, report = read(SOGOU, log(tmp_path, *SAMPLE))
    assert pages(rows) == [
        ("0", ["0", "1", "2"], []),
        ("1", ["10", "11", "12"], [2, 3, 1]),
        ("1", ["12", "11", "10"], [3]),
    ]
    assert {(row["session_id"], row["user"], row["timestamp"]) for row in rows} == {
        (None, None, None)
    }
    assert not report.bad_rows.dropped
    assert report.ads_table() is None


def test_clicks_of_one_moment_are_taken_from_the_top_down(tmp_path: Path) -> None:
    rows, _ = read(SOGOU, log(tmp_path, page(1, "10 11 12", "1 1 1", "7.5 3 3.0")))
    assert rows[0]["clicks"] == [2, 3, 1]


def test_the_files_beside_it_name_queries_and_results(tmp_path: Path) -> None:
    queries = log(tmp_path, fields("红鞋", 0, 1, 0), fields("red shoes", 1, 2, 1), name="query_id")
    urls = log(
        tmp_path,
        fields("http://a.example/?q=1", 10),
        fields("http://b.example/", 11),
        name="url_id.txt",
    )
    intents = log(tmp_path, fields(0, 1), fields(1, 1), name="query_class")
    files = [
        intents,
        queries,
        log(tmp_path, *SAMPLE[:2], name="test_data"),
        log(tmp_path, SAMPLE[2], name="train_data"),
        urls,
    ]
    assert SOGOU.recognises(files)
    rows, report = read(SOGOU, *files)
    assert [row["query"] for row in rows] == ["红鞋", "red shoes", "red shoes"]
    texts = report.ads_table()
    assert texts is not None
    assert texts.select(["ad", "display_url"]).to_pydict() == {
        "ad": ["10", "11"],
        "display_url": ["http://a.example/?q=1", "http://b.example/"],
    }
    assert report.notes == {"query_class file, not read": 1}
    assert not report.bad_rows.dropped


def test_bad_lines_beside_it_are_told_and_a_query_without_a_name_too(tmp_path: Path) -> None:
    queries = log(
        tmp_path,
        fields("shoes", 0, 1, 0),
        fields("boots", 0, 1, 0),
        fields("hats", 3),
        fields("", 4, 1, 0),
        name="query_id",
    )
    urls = log(
        tmp_path,
        "http://a.example/",
        fields("", 10),
        fields("http://b.example/", ""),
        b"\xff\t12",
        name="url_id",
    )
    rows, report = read(SOGOU, queries, urls, log(tmp_path, *SAMPLE, name="train_data"))
    assert [row["query"] for row in rows] == ["shoes"]
    assert report.bad_rows.dropped == {"duplicate id": 1, "not readable": 6, "no query": 2}
    assert faults(report)["no query"] == [2, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (page("", "1 2 3", "0 0 0", "-1 -1 -1"), "no query"),
        (page(1, "", "", ""), "no ads"),
        (fields(1, "1 2 3", "0 0 0"), "not readable"),
        (page(1, "1 2", "0 0 0", "-1 -1 -1"), "not readable"),
        (page(1, "1 2 3", "0 0", "-1 -1 -1"), "not readable"),
        (page(1, "1 2 3", "0 0 0", "-1 -1"), "not readable"),
        (page(1, "1 2 3", "0 2 0", "-1 5 -1"), "not readable"),
        (page(1, "1 2 3", "0 1 0", "-1 noon -1"), "not readable"),
        (page(1, "1 2 3", "0 1 0", "-1 nan -1"), "clicks and times disagree"),
        (page(1, "1 2 3", "0 1 0", "-1 -1 -1"), "clicks and times disagree"),
        (page(1, "1 2 3", "0 0 0", "-1 5 -1"), "clicks and times disagree"),
        ("nothing of the kind", "not readable"),
        (b"1\t2\t0\t-1\xff", "not readable"),
    ],
)
def test_a_line_that_breaks_the_rules_is_told_and_the_rest_is_kept(
    tmp_path: Path, line: str | bytes, reason: str
) -> None:
    rows, report = read(SOGOU, log(tmp_path, SAMPLE[0], line, "", SAMPLE[2]))
    assert pages(rows) == [("0", ["0", "1", "2"], []), ("1", ["12", "11", "10"], [3])]
    assert faults(report) == {reason: [2]}


def test_a_log_without_measures_of_the_mouse_is_read_when_asked_for(tmp_path: Path) -> None:
    rows, _ = read(SOGOU, log(tmp_path, fields(5, "10 11", "0 1", "-1 3")))
    assert pages(rows) == [("5", ["10", "11"], [2])]


@pytest.mark.parametrize(
    "line",
    [
        fields("00:00:00", "555001", "[红鞋]", "8 3", "shop.example/a.html").encode("gbk"),
        fields("20200102030405", "9b1f", "红鞋", 1, 1, "http://shop.example/"),
    ],
)
def test_sogouq_is_refused_with_the_reason(tmp_path: Path, line: str | bytes) -> None:
    file = log(tmp_path, line, line, name="SogouQ.reduced")
    assert SOGOU.recognises([file])
    with pytest.raises(
        LogError,
        match=r"SogouQ\.reduced is a SogouQ query log\. "
        r"It holds the results clicked and not those shown",
    ):
        read(SOGOU, file)


def test_names_without_pages_are_an_error(tmp_path: Path) -> None:
    queries = log(tmp_path, fields("shoes", 0, 1, 0), name="query_id")
    assert not SOGOU.recognises([queries])
    with pytest.raises(LogError, match="no pages in query_id"):
        read(SOGOU, queries)


@pytest.mark.parametrize("start", EVERY_START)
def test_its_own_files_are_recognised_and_no_others(tmp_path: Path, start: str) -> None:
    assert SOGOU.recognises([started(tmp_path, EVERY_START[start])]) is (
        start in {"sogou", "clicks only"}
    )


ids = st.integers(0, 99_999).map(str)
shown_pages = st.tuples(ids, st.lists(ids, min_size=1, max_size=10)).flatmap(
    lambda shown: st.tuples(
        st.just(shown[0]),
        st.just(shown[1]),
        st.permutations(range(1, len(shown[1]) + 1)).flatmap(beginnings),
    )
)


def beginnings(order: list[int]) -> st.SearchStrategy[list[int]]:
    return st.integers(0, len(order)).map(lambda many: list(order)[:many])


@given(st.lists(shown_pages, max_size=8))
def test_what_is_written_is_read_back(shown: list[Shown]) -> None:
    lines = []
    for query, ads, clicks in shown:
        times = [
            f"{1400000100.5 + clicks.index(at):.3f}" if at in clicks else "-1"
            for at in range(1, len(ads) + 1)
        ]
        flags = ["1" if at in clicks else "0" for at in range(1, len(ads) + 1)]
        lines.append(
            page(
                query,
                " ".join(ads),
                " ".join(flags),
                " ".join(times),
                *[" ".join(["0"] * len(ads))] * 6,
            )
        )
    with TemporaryDirectory() as folder:
        file = log(Path(folder), *lines)
        assert SOGOU.recognises([file]) is bool(shown)
        rows, report = read(SOGOU, file)
    assert pages(rows) == shown
    assert not report.bad_rows.dropped
