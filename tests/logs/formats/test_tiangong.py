"""The XML of TianGong-ST, by a log written by hand and by random sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.logs.files.log_file import LogFile
from reclick.logs.formats.base import ReadReport
from reclick.logs.formats.tiangong import FORMAT as TIANGONG

LOG = """<?xml version="1.0" encoding="UTF-8"?>
<sessions>
  <session num="4">
    <interaction num="1">
      <query>北京天气</query>
      <query_id>q12</query_id>
      <results>
        <result rank="1">
          <url>http://a.example/</url>
          <docid>d31</docid>
          <title>天气预报</title>
          <vtype>30000000</vtype>
          <relevance>
            <TACM>0.81</TACM>
            <PSCM>0.92</PSCM>
          </relevance>
        </result>
        <result rank="2"><url>http://b.example/</url><docid>d7</docid><title/></result>
      </results>
      <clicked>
        <click num="1"><rank>2</rank><docid>d7</docid><timestamp>1428.5</timestamp></click>
        <click num="2"><rank>1</rank><docid>d31</docid><timestamp>1420.0</timestamp></click>
      </clicked>
    </interaction>
    <interaction num="2">
      <query>天气</query>
      <query_id>q13</query_id>
      <results><result rank="1"><docid>d7</docid></result></results>
    </interaction>
  </session>
</sessions>
"""
LABELS = "1 4\tq13\td7\t3\n1 4\tq13\td9\t0\n"


def read(
    *files: LogFile, columns: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], ReadReport]:
    report = ReadReport()
    batches = list(TIANGONG.read(list(files), report, columns or {}))
    return [row for batch in batches for row in batch.to_pylist()], report


def written(folder: Path, text: str, name: str = "log.xml") -> LogFile:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return LogFile(str(path), name)


def row(session_id: str, query: str, ads: list[str], clicks: list[int]) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "user": None,
        "timestamp": None,
        "query": query,
        "ads": ads,
        "clicks": clicks,
    }


def test_pages_are_read_with_query_ids_and_clicks_in_the_order_of_time(tmp_path: Path) -> None:
    rows, report = read(written(tmp_path, LOG))
    assert rows == [row("4.1", "q12", ["d31", "d7"], [1, 2]), row("4.2", "q13", ["d7"], [])]
    assert report.ad_texts == {
        "d31": ("天气预报", "", "http://a.example/"),
        "d7": ("", "", "http://b.example/"),
    }
    assert report.notes == {"relevance computed by click models, skipped": 1}
    assert not report.bad_rows.dropped


def test_the_words_of_the_query_can_be_asked_for(tmp_path: Path) -> None:
    rows, _ = read(written(tmp_path, LOG), columns={"query": "query"})
    assert [row["query"] for row in rows] == ["北京天气", "天气"]


def test_a_name_that_is_none_of_reclicks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        LogError, match=r"columns=… names qurey, which Reclick does not know\..*Reclick's are query"
    ):
        read(written(tmp_path, LOG), columns={"qurey": "query"})


def test_clicks_without_times_stay_in_the_order_of_the_log(tmp_path: Path) -> None:
    text = LOG.replace("<timestamp>1428.5</timestamp>", "").replace(
        "<timestamp>1420.0</timestamp>", ""
    )
    rows, report = read(written(tmp_path, text))
    assert rows[0]["clicks"] == [2, 1]
    assert report.notes["clicks without a time, left in the log's order"] == 1


def test_a_file_of_human_labels_beside_the_log_is_told_and_not_read_as_sessions(
    tmp_path: Path,
) -> None:
    files = [written(tmp_path, LOG), written(tmp_path, LABELS, "sogou_st_human_labels.txt")]
    assert TIANGONG.recognises(files)
    rows, report = read(*files)
    assert len(rows) == 2
    assert report.notes["a human relevance label, read with rc.read_labels"] == 2


@pytest.mark.parametrize(
    ("old", "new", "reason", "line"),
    [
        ("<query_id>q12</query_id>", "", "no query", 4),
        ("<docid>d31</docid>\n", "\n", "null ad", 8),
        ('<result rank="2">', '<result rank="1">', "not readable", 18),
        ('<result rank="2">', "<result>", "not readable", 18),
        (
            '<results><result rank="1"><docid>d7</docid></result></results>',
            "<results/>",
            "no ads",
            25,
        ),
        (
            "<rank>2</rank><docid>d7</docid>",
            "<rank>5</rank><docid>d8</docid>",
            "click on an ad not shown",
            21,
        ),
        ("<rank>2</rank><docid>d7</docid>", "", "not readable", 21),
    ],
)
def test_what_breaks_the_rules_is_told_with_its_line(
    old: str, new: str, reason: str, line: int, tmp_path: Path
) -> None:
    assert LOG.count(old) == 1
    rows, report = read(written(tmp_path, LOG.replace(old, new)))
    assert [
        (reason, example.row)
        for reason, examples in report.bad_rows.examples.items()
        for example in examples
    ] == [(reason, line)]
    assert len(rows) == (2 if "<rank>" in old else 1)


def test_a_log_cut_short_keeps_the_sessions_before_the_cut(tmp_path: Path) -> None:
    text = LOG.replace("</sessions>", "") + '<session num="5"><interaction num="1"><query_id>q'
    rows, report = read(written(tmp_path, text))
    assert [row["session_id"] for row in rows] == ["4.1", "4.2"]
    assert report.bad_rows.dropped == {"not readable": 1}


def test_it_is_recognised_and_other_files_are_not(tmp_path: Path) -> None:
    log, labels = written(tmp_path, LOG), written(tmp_path, LABELS, "labels.txt")
    trec = written(tmp_path, LOG.replace("docid", "clueweb12id"), "trec.xml")
    plain = written(tmp_path, "query,ads,clicks\nq,a|b,1\n", "sessions.csv")
    assert TIANGONG.recognises([log])
    assert not any(
        TIANGONG.recognises(files) for files in ([], [labels], [trec], [plain], [log, plain])
    )


def write(sessions: list[list[tuple[int, list[int], list[int]]]]) -> str:
    """Sessions as XML: a page is a query, its ads, and the positions clicked in order."""
    text = ["<sessions>"]
    for number, pages in enumerate(sessions):
        text.append(f'<session num="{number}">')
        for place, (query, ads, clicks) in enumerate(pages):
            text.append(
                f'<interaction num="{place}"><query>words</query>'
                f"<query_id>q{query}</query_id><results>"
            )
            text += [
                f'<result rank="{rank}"><docid>d{ad}</docid></result>'
                for rank, ad in enumerate(ads, start=1)
            ]
            text.append("</results><clicked>")
            text += [
                f"<click><rank>{rank}</rank><timestamp>{time}</timestamp></click>"
                for time, rank in enumerate(clicks)
            ]
            text.append("</clicked></interaction>")
        text.append("</session>")
    return "\n".join([*text, "</sessions>"])


PAGES = st.lists(st.integers(0, 99), min_size=1, max_size=10).flatmap(
    lambda ads: st.tuples(
        st.integers(0, 9), st.just(ads), st.lists(st.integers(1, len(ads)), max_size=4)
    )
)


@given(st.lists(st.lists(PAGES, max_size=3), max_size=4))
def test_random_sessions_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[Any]
) -> None:
    rows, report = read(written(tmp_path_factory.mktemp("tiangong"), write(sessions)))
    assert rows == [
        row(f"{number}.{place}", f"q{query}", [f"d{ad}" for ad in ads], clicks)
        for number, pages in enumerate(sessions)
        for place, (query, ads, clicks) in enumerate(pages)
    ]
    assert not report.bad_rows.dropped
