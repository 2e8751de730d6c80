from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reclick.logs import read_sessions
from tests.logs.validation.test_validate import rows_of_all_kinds
from tests.support.format_samples import write_sample
from tests.support.log_tables import session, table

LOG = [
    session(ads=["a", "b", "c"], clicks=[2, 1]),
    session(clicks=[1, 1]),
    session(ads=["a", "a"]),
    session() | {"clicks": None},
    *[session(None) for _ in range(5)],
]


def test_the_totals_are_those_of_the_kept_rows() -> None:
    summary = read_sessions(table(LOG), on_error="drop").summary
    assert summary.to_dict() == {
        "rows": 9,
        "kept": 4,
        "dropped": {"no query": 5},
        "examples": {
            "no query": [{"where": "table", "row": row, "got": "null"} for row in (5, 6, 7)]
        },
        "notes": {"repeated click": 1, "repeated ad": 1, "clicks was null, read as no click": 1},
        "impressions": 9,
        "clicks": 3,
        "clicked_sessions": 2,
        "multi_click_sessions": 1,
        "reverse_sessions": 1,
        "longest_page": 3,
        "known_outcomes": 0,
        "converted_clicks": 0,
        "records": None,
        "dropped_records": {},
    }
    assert json.loads(json.dumps(summary.to_dict())) == summary.to_dict()


def test_as_text_it_is_a_table_with_the_first_examples() -> None:
    lines = str(read_sessions(table(LOG), on_error="drop").summary).splitlines()
    assert lines[0].split() == ["rows", "9"]
    assert lines[1].split() == ["kept", "4", "44.44%"]
    assert lines[2].split() == ["dropped:", "no", "query", "5", "55.56%"]
    assert lines[3] == "    row 5: null"


@settings(deadline=None)  # the first call compiles
@given(st.lists(rows_of_all_kinds, min_size=1, max_size=20))
def test_rows_are_kept_or_dropped_and_nothing_else(rows: list[dict[str, Any]]) -> None:
    log = read_sessions(table(rows), on_error="drop", max_ads=20)
    kept = sum(len(batch) for batch in log.batches())
    assert log.summary.rows == len(rows)
    assert log.summary.kept == kept
    assert kept + sum(log.summary.dropped.values()) == len(rows)
    assert all(
        len(found) == min(log.summary.dropped[reason], 3)
        for reason, found in log.summary.examples.items()
    )


def test_the_rows_of_xml_are_those_kept_and_those_dropped(tmp_path: Path) -> None:
    text = write_sample("trec_session", tmp_path).read_text(encoding="utf-8")
    session_text = text[text.index("<session") : text.index("</root>")]
    broken = session_text.replace("</session>", "<<</session>")
    path = tmp_path / "sessiontrack2014.xml"
    path.write_text(f"<root>{session_text}{broken}{session_text}</root>", encoding="utf-8")
    summary = read_sessions(path, format="trec_session", on_error="drop").summary
    rows, kept, dropped = (line.split() for line in str(summary).splitlines()[:3])
    assert rows == ["rows", str(summary.kept + 1)]
    assert kept[1] == str(summary.kept)
    assert dropped[-2] == "1"
