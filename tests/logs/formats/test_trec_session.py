"""The XML of the TREC Session track, by a log written by hand and by random sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import SESSION_SCHEMA
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.trec_session import FORMAT as TREC_SESSION

# Two sessions: one of 2011, with times of the clock and no user; one of 2014, with seconds, a user,
# and a second page of results.
LOG = """<?xml version="1.0" encoding="UTF-8"?>
<sessiontrack2014>
  <session num="17" starttime="23:58:01.141117">
    <topic><title>garden sheds</title><desc>Where to buy a garden shed</desc></topic>
    <interaction num="1" starttime="23:58:41.233975">
      <query>garden shed</query>
      <results>
        <result rank="1">
          <url>http://sheds.example/</url><clueweb09id>clueweb09-en0001-01-00001</clueweb09id>
          <title>Sheds &amp;amp; more</title><snippet>All our <b>sheds</b></snippet>
        </result>
        <result rank="2"><url>http://b.example/</url><clueweb09id>clueweb09-en0002-02-00002</clueweb09id><title/><snippet/></result>
        <result rank="3"><url>http://c.example/</url></result>
      </results>
      <clicked>
        <click num="2" starttime="00:01:10.5" endtime="00:02:00"><rank>1</rank></click>
        <click num="1" starttime="23:59:50.5" endtime="00:01:00"><rank>3</rank></click>
      </clicked>
    </interaction>
    <currentquery starttime="00:03:00"><query>cheap garden shed</query></currentquery>
  </session>
  <session num="18" userid="7" starttime="0">
    <topic num="2"/>
    <interaction num="1" starttime="3.1" type="reformulate">
      <query>roses</query>
      <results>
        <result rank="2"><clueweb12id>c2</clueweb12id></result>
        <result rank="1"><clueweb12id>c1</clueweb12id></result>
      </results>
    </interaction>
    <interaction num="2" starttime="9.0" type="page">
      <query>roses</query>
      <results>
        <result rank="11"><clueweb12id>c11</clueweb12id></result>
        <result rank="12"><clueweb12id>c12</clueweb12id></result>
      </results>
      <clicked>
        <click num="1" starttime="12.5" endtime="20"><rank>12</rank><docno>c12</docno></click>
      </clicked>
    </interaction>
    <interaction num="3" starttime="30.0" type="reformulate">
      <query>rozes</query><results/>
    </interaction>
  </session>
</sessiontrack2014>
"""


def read(path: Path) -> tuple[list[dict[str, Any]], ReadReport]:
    report = ReadReport()
    batches = list(TREC_SESSION.read([LogFile(str(path), path.name)], report, {}))
    assert all(batch.schema == SESSION_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()], report


def read_text(text: str, folder: Path) -> tuple[list[dict[str, Any]], ReadReport]:
    path = folder / "log.xml"
    path.write_text(text, encoding="utf-8")
    return read(path)


def row(
    session_id: str, query: str, ads: list[str], clicks: list[int], user: str | None = None
) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "user": user,
        "timestamp": None,
        "query": query,
        "ads": ads,
        "clicks": clicks,
    }


def faults(report: ReadReport) -> list[tuple[str, int]]:
    return [
        (reason, example.row)
        for reason, examples in report.bad_rows.examples.items()
        for example in examples
    ]


def test_pages_clicks_in_order_of_time_and_users_are_read(tmp_path: Path) -> None:
    rows, report = read_text(LOG, tmp_path)
    assert rows == [
        row(
            "17.1",
            "garden shed",
            ["clueweb09-en0001-01-00001", "clueweb09-en0002-02-00002", "http://c.example/"],
            [3, 1],
        ),
        row("18.1", "roses", ["c1", "c2"], [], "7"),
        row("18.2", "roses", ["c11", "c12"], [2], "7"),
    ]
    assert not report.bad_rows.dropped
    assert report.notes == {
        "a current query, for which no results were shown": 1,
        "a later page of results, kept as a page of its own": 1,
        "a query without results": 1,
    }


def test_titles_and_snippets_become_the_text_of_ads(tmp_path: Path) -> None:
    _, report = read_text(LOG, tmp_path)
    assert report.ad_texts == {
        "clueweb09-en0001-01-00001": ("Sheds & more", "All our sheds", "http://sheds.example/"),
        "clueweb09-en0002-02-00002": ("", "", "http://b.example/"),
        "http://c.example/": ("", "", "http://c.example/"),
    }


def page(inside: str, *, query: str = "<query>q</query>") -> str:
    page = f'<interaction num="1">{query}\n{inside}\n</interaction>'
    return f'<sessiontrack2014><session num="1">\n{page}</session></sessiontrack2014>'


def results(*ads: str) -> str:
    return (
        "<results>"
        + "".join(
            f'<result rank="{rank}"><clueweb12id>{ad}</clueweb12id></result>'
            for rank, ad in enumerate(ads, start=1)
        )
        + "</results>"
    )


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (page(results("a"), query=""), "no query", 2),
        (page(results("a"), query="<query> </query>"), "no query", 2),
        (page("<clicked><click><rank>1</rank></click></clicked>"), "click without a page", 2),
        (page("<results><result><url>u</url></result></results>"), "not readable", 3),
        (page('<results><result rank="top"><url>u</url></result></results>'), "not readable", 3),
        (
            page(
                '<results><result rank="1"><url>u</url></result>\n'
                '<result rank="1"><url>v</url></result></results>'
            ),
            "not readable",
            4,
        ),
        (page('<results><result rank="1"><title>no id</title></result></results>'), "null ad", 3),
    ],
)
def test_a_page_that_breaks_the_rules_is_bad_and_told_with_its_line(
    text: str, reason: str, line: int, tmp_path: Path
) -> None:
    rows, report = read_text(text, tmp_path)
    assert rows == []
    assert faults(report) == [(reason, line)]


@pytest.mark.parametrize(
    ("click", "reason"),
    [
        ("<rank>3</rank>", "click on an ad not shown"),
        ("<rank>0</rank>", "click on an ad not shown"),
        ("<docno>z</docno>", "click on an ad not shown"),
        ("<rank>first</rank>", "not readable"),
        ("<rank>9999999999</rank>", "not readable"),
        ("", "not readable"),
    ],
)
def test_a_bad_click_is_told_and_the_page_is_kept_with_the_others(
    click: str, reason: str, tmp_path: Path
) -> None:
    second = '<click starttime="2"><rank>2</rank></click>'
    clicked = f'<clicked>\n<click starttime="1">{click}</click>{second}</clicked>'
    rows, report = read_text(page(results("a", "b") + clicked), tmp_path)
    assert [(row["ads"], row["clicks"]) for row in rows] == [(["a", "b"], [2])]
    assert faults(report) == [(reason, 4)]


def test_a_click_is_placed_by_its_rank_and_without_one_by_its_id(tmp_path: Path) -> None:
    clicked = (
        "<clicked><click><docno>b</docno></click>"
        "<click><rank>1</rank><docno>b</docno></click></clicked>"
    )
    rows, report = read_text(page(results("a", "b") + clicked), tmp_path)
    assert [row["clicks"] for row in rows] == [[2, 1]]
    assert report.notes == {
        "a click's rank and id name two results, the rank was used": 1,
        "clicks without a time, left in the log's order": 1,
    }


def test_clicks_of_the_same_moment_keep_the_order_of_the_log(tmp_path: Path) -> None:
    clicked = "".join(
        f'<click starttime="{time}"><rank>{rank}</rank></click>'
        for time, rank in [(5, 3), (2, 2), (5, 1)]
    )
    rows, _ = read_text(page(results("a", "b", "c") + f"<clicked>{clicked}</clicked>"), tmp_path)
    assert [row["clicks"] for row in rows] == [[2, 3, 1]]


def test_a_gap_in_the_ranks_is_closed_and_told(tmp_path: Path) -> None:
    shown = "".join(
        f'<result rank="{rank}"><clueweb12id>c{rank}</clueweb12id></result>' for rank in (1, 4)
    )
    rows, report = read_text(
        page(f"<results>{shown}</results><clicked><click><rank>4</rank></click></clicked>"),
        tmp_path,
    )
    assert [(row["ads"], row["clicks"]) for row in rows] == [(["c1", "c4"], [2])]
    assert report.notes == {"a gap in the ranks, closed": 1}


def test_a_log_cut_short_keeps_the_sessions_before_the_cut(tmp_path: Path) -> None:
    text = LOG[: LOG.index("<clueweb12id>c11")]
    rows, report = read_text(text, tmp_path)
    assert [row["session_id"] for row in rows] == ["17.1"]
    assert faults(report) == [("not readable", text.count("\n") + 1)]


def test_it_is_recognised_and_other_files_are_not(tmp_path: Path) -> None:
    files = {
        "trec.xml": LOG,
        "sessions.csv": "query,ads,clicks\nq,a|b,1\n",
        "sessions.jsonl": '{"query": "q", "ads": ["a"], "clicks": []}\n',
    }
    files["tiangong.xml"] = (
        '<x><session num="1"><interaction num="1"><query_id>q1</query_id>'
        '<results><result rank="1"><docid>d1</docid></result></results>'
    )
    files["empty.xml"] = ""
    logs = []
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        logs.append(LogFile(str(tmp_path / name), name))
    assert [TREC_SESSION.recognises([log]) for log in logs] == [True, False, False, False, False]
    assert not TREC_SESSION.recognises([])
    assert not TREC_SESSION.recognises(logs[:2])


WORDS = (
    st.text(
        st.characters(
            codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
        ),
        min_size=1,
    )
    .map(str.strip)
    .filter(bool)
)
PAGES = st.lists(WORDS, min_size=1, max_size=6).flatmap(
    lambda ads: st.tuples(
        WORDS,
        st.just(ads),
        st.lists(st.tuples(st.integers(0, 99), st.integers(1, len(ads))), max_size=4),
    )
)


def write(sessions: list[list[tuple[str, list[str], list[tuple[int, int]]]]]) -> str:
    """Sessions as XML: a page is a query, its ads, and clicks as (time, position)."""
    text = ["<sessiontrack2014>"]
    for number, pages in enumerate(sessions):
        text.append(f'<session num="{number}" userid={quoteattr(f"user {number}")}>')
        for place, (query, ads, clicks) in enumerate(pages):
            text.append(
                f'<interaction num="{place}" starttime="0"><query>{escape(query)}</query><results>'
            )
            text += [
                f'<result rank="{rank}"><clueweb12id>{escape(ad)}</clueweb12id></result>'
                for rank, ad in enumerate(ads, start=1)
            ]
            text.append("</results><clicked>")
            text += [
                f'<click num="{n}" starttime="{time}"><rank>{rank}</rank></click>'
                for n, (time, rank) in enumerate(clicks)
            ]
            text.append("</clicked></interaction>")
        text.append("</session>")
    return "\n".join([*text, "</sessiontrack2014>"])


@given(st.lists(st.lists(PAGES, max_size=3), max_size=4))
def test_random_sessions_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[Any]
) -> None:
    rows, report = read_text(write(sessions), tmp_path_factory.mktemp("trec"))
    assert rows == [
        row(
            f"{number}.{place}",
            query,
            ads,
            [position for _, position in sorted(clicks, key=lambda click: click[0])],
            f"user {number}",
        )
        for number, pages in enumerate(sessions)
        for place, (query, ads, clicks) in enumerate(pages)
    ]
    assert not report.bad_rows.dropped
