from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import BadRowsError, LogError, SettingError
from reclick.logs import as_log, read_sessions
from reclick.logs.files import memory, parquet
from reclick.runtime.progress import progress_to
from tests.support.log_tables import GOOD, read_back, session, table, write_parquet

SOME_BAD = [
    session(f"q{i}", clicks=[7] if i in {4, 8} else [1]) if i != 6 else session("q6", [None])
    for i in range(10)
]


def test_bad_rows_stop_the_reading_with_all_of_them_told(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "week2.parquet", SOME_BAD)
    with pytest.raises(BadRowsError) as caught:
        read_back(read_sessions(path))
    assert str(caught.value) == (
        "3 of 10 rows of week2.parquet are bad: 2 click outside the page "
        "(row 5: position 7 on a page of 2 ads), "
        "1 null ad (row 7: position 1 of 1). Drop such rows with on_error='drop'."
    )


def test_the_rest_is_still_checked_after_the_first_bad_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_BATCH_ROWS", 2)
    log = read_sessions(table(SOME_BAD))
    seen = []
    with pytest.raises(BadRowsError, match="3 of 10 rows of the table are bad"):
        seen += [row for batch in log.batches() for row in [len(batch)]]
    assert log.summary.dropped == {"click outside the page": 2, "null ad": 1}


def test_a_page_that_is_too_long_says_how_to_read_it() -> None:
    with pytest.raises(
        BadRowsError,
        match=r"1 of 1 rows of the table is bad: .*a page of 101 ads.*"
        r"Raise max_ads or cut such pages",
    ):
        read_back(read_sessions(table([session(ads=["a"] * 101)])))


def test_the_summary_makes_a_pass_when_there_was_none_and_tells_of_bad_rows() -> None:
    summary = read_sessions(table(SOME_BAD)).summary
    assert (summary.rows, summary.kept, sum(summary.dropped.values())) == (10, 7, 3)


def test_every_pass_makes_its_own_summary() -> None:
    log = read_sessions(table())
    read_back(log)
    first = log.summary
    read_back(log)
    assert log.summary == first
    assert log.summary is not first


def test_a_pass_that_stops_early_leaves_no_summary_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MAX_BATCH_ROWS", 1)
    log = read_sessions(table())
    next(log.batches())
    assert log.summary.rows == 3


def test_progress_is_told_after_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_BATCH_ROWS", 2)
    calls: list[tuple[int, int | None]] = []
    log = read_sessions(table(SOME_BAD), on_error="drop")
    with progress_to(lambda what, done, total: calls.append((done, total))):
        for _ in log.batches():
            pass
    assert calls[-1] == (10, 10)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_opening_a_log_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(parquet.ParquetSource, "read", fail)
    assert read_sessions(write_parquet(tmp_path / "a.parquet")).num_rows == 3


def test_ads_are_read_with_the_log() -> None:
    log = read_sessions(table(), ads=pa.table({"ad": ["a1"], "title": ["Shoes"]}))
    assert log.ads is not None
    assert log.ads["title"].to_pylist() == ["Shoes"]
    assert read_sessions(table()).ads is None


def test_bad_rows_of_the_ads_are_dropped_with_those_of_the_log() -> None:
    ads = pa.table({"ad": ["a1", None], "title": ["Shoes", "Nobody's"]})
    with pytest.raises(BadRowsError, match="1 of 2 rows of the table is bad: 1 no ad"):
        read_sessions(table(), ads=ads)
    log = read_sessions(table(), ads=ads, on_error="drop")
    assert log.ads is not None
    assert log.ads["ad"].to_pylist() == ["a1"]


def test_a_log_of_nothing_but_bad_rows_gives_no_batches() -> None:
    log = read_sessions(table([session(None)]), on_error="drop")
    assert list(log.batches()) == []
    assert log.summary.kept == 0


def test_wrong_settings_are_told() -> None:
    with pytest.raises(SettingError, match='on_error: got \'ignore\', expected "raise" or "drop"'):
        read_sessions(table(), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="max_ads: got 0, expected a whole number of 1 or more"):
        read_sessions(table(), max_ads=0)
    with pytest.raises(LogError, match="open already"):
        read_sessions(read_sessions(table()))


def test_rows_of_a_table_come_with_its_sessions() -> None:
    whole = table([*GOOD, session(None)]).append_column("device", pa.array(["x", "y", "z", "bad"]))
    (batch,) = read_sessions(whole, on_error="drop").batches(with_rows=True)
    assert batch.rows is not None
    assert batch.rows.column("device").to_pylist() == ["x", "y", "z"]


def test_the_name_says_what_is_read(tmp_path: Path) -> None:
    assert (
        repr(read_sessions(write_parquet(tmp_path / "week1.parquet")))
        == "SessionLog(week1.parquet, 3 rows)"
    )


def test_the_text_given_with_an_open_log_is_used() -> None:
    source = {"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]]}
    log = rc.read_sessions(source, ads={"a": "old", "b": "kept"})
    table = as_log(log, ads={"a": "new"}).ads
    assert table is not None
    assert dict(zip(table["ad"].to_pylist(), table["title"].to_pylist(), strict=True)) == {
        "a": "new",
        "b": "kept",
    }
    assert as_log(log) is log


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_pairs_are_iterated_in_tables_of_at_least_one(size: Any) -> None:
    model = rc.DCTR().fit({"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]]})
    with pytest.raises(rc.SettingError, match="size: got"):
        next(model.iterate_pairs(size))


def test_advice_of_a_log_that_another_function_opens_names_the_call_that_takes_it() -> None:
    log = {"term": ["q"], "ads": [["a"]], "clicks": [[]]}
    with pytest.raises(LogError) as caught:
        rc.PBM().fit(log)
    assert "Name the right one with rc.read_sessions(log, columns={'query': ...})" in str(
        caught.value
    )
    assert str(caught.value).endswith(" Then pass what it returns.")
    bad = {"query": ["q", "r"], "ads": [["a"], ["a"]], "clicks": [[1], [2]]}
    with pytest.raises(BadRowsError) as caught_rows:
        rc.PBM().fit(bad)
    advice = "Drop it with rc.read_sessions(log, on_error='drop'). Then pass what it returns."
    assert str(caught_rows.value).endswith(advice)
    assert rc.PBM().fit(rc.read_sessions(bad, on_error="drop")).click_prob(("q", ["a"])).size
    assert caught_rows.value.render(lambda _: "--on-error drop").endswith(
        "Drop it with --on-error drop."
    )
    with pytest.raises(BadRowsError, match=r"Raise max_ads of rc\.read_sessions or cut such pages"):
        rc.PBM().fit({"query": ["q"], "ads": [list(map(str, range(101)))], "clicks": [[]]})
    with pytest.raises(BadRowsError, match=r"Drop it with on_error='drop'\.$"):
        list(rc.read_sessions(bad).batches())


def test_advice_about_the_text_of_ads_names_read_ads() -> None:
    pages = {"query": ["q"], "ads": [["a"]], "clicks": [[]]}
    with pytest.raises(LogError, match=r"rc\.read_ads\(ads, columns=\{'ad': \.\.\.\}\)"):
        rc.read_sessions(pages, ads={"id": ["a"], "title": ["A"]})
