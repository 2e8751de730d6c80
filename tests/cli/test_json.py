"""--json of every command: these keys are what scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.cli.console import to_json
from tests.support import dated_logs
from tests.support.commands import Run, write_log

RECORD = {"name", "sessions", "content", "timed", "start", "end"}
SUMMARY = {
    *("rows", "kept", "dropped", "examples", "notes", "impressions", "clicks", "clicked_sessions"),
    *("multi_click_sessions", "reverse_sessions", "longest_page", "records", "dropped_records"),
    *("known_outcomes", "converted_clicks"),
}
MODEL = {
    *("model", "settings", "sessions", "queries", "ads", "pairs", "impressions", "clicks"),
    *("ads_with_text", "words", "provenance", "parameters", "advice"),
}
EXPORT = {"files", "rows", "format", "queries", "grades", "cuts", "column", "left_out"}
LISTED_MODEL = {
    *("name", "default", "assumes", "estimates", "order_of_clicks", "counts_are_enough"),
    "max_page_ads",
    "reference",
}


def run_json(run: Run, *words: str, code: int = 0) -> Any:
    """The JSON that a command prints, and nothing but it."""
    found, out, _ = run(*words, "--json")
    assert found == code
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_commands_about_logs(run: Run) -> None:
    found = run_json(
        run, "simulate", "--to", "market", "--sessions", "300", "--weeks", "1", "--queries", "30"
    )
    assert set(found) == {"to", "weeks", "sessions_per_week", "seed", "files"}
    assert "market/week1.parquet" in found["files"]
    log = write_log("log.parquet")
    found = run_json(run, "check", log)
    assert set(found) == {"log", "format", "summary"}
    assert set(found["summary"]) == SUMMARY
    assert (found["log"], found["format"]) == ("log.parquet", "sessions")
    found = run_json(run, "convert", log, "--to", "sessions.parquet")
    assert set(found) == {"log", "format", "summary", "files"}
    assert found["files"] == ["sessions.parquet"]
    assert run_json(run, "describe", log) == to_json(rc.describe(log).to_dict())
    found = run_json(run, "count", log, "--to", "counts")
    assert set(found) == {"to", "sessions", "queries", "ads", "pairs", "logs"}
    assert set(found["logs"][0]) == RECORD
    pq.write_table(pa.concat_tables(map(dated_logs.day, range(1, 22))), "weeks.parquet")
    found = run_json(run, "split", "weeks.parquet", "--to", "parts")
    assert list(found) == ["history", "train", "test"]
    assert found["test"] == {"sessions": 840, "file": "parts/test.parquet"}


def test_bad_rows_are_json_too(run: Run) -> None:
    Path("bad.csv").write_text("query,ads,clicks\nq,a|b,1\nq,a|b,3\n")
    found = run_json(run, "check", "bad.csv", code=1)
    assert found["summary"]["dropped"] == {"click outside the page": 1}
    assert found["summary"]["examples"]["click outside the page"][0]["row"] == 2


def test_commands_about_models(run: Run) -> None:
    log = write_log("log.parquet")
    found = run_json(run, "fit", log, "--model", "dctr", "--to", "model")
    assert set(found) == {"to", *MODEL}
    assert set(found["provenance"][0]) == RECORD | {"use", "date"}
    found = run_json(run, "show", "model")
    assert set(found) == MODEL
    found = run_json(run, "show", "model", "--query", "shoes")
    assert set(found) == {"query", "ad", "pairs", "level", "values", "unseen_ad", "words"}
    assert found["values"][0] == rc.load("model").relevance(query="shoes").to_pylist()[0]
    found = run_json(run, "predict", "model", log, "--to", "pages.parquet")
    assert set(found) == {"to", "pages", "expected_clicks", "observed_clicks"}
    found = run_json(run, "export", "model", "--to", "judgments.qrels", "--min-support", "0")
    assert {"files", "rows", "format", "queries", "grades", "cuts", "column", "left_out"} <= set(
        found
    )
    assert found["files"][0] == "judgments.qrels"
    train = write_log("train.parquet", [[1], [2, 1], []] * 5)
    found = run_json(
        run, "evaluate", "--models", "dctr", "--train", train, "--test", log, "--to", "results"
    )
    assert set(found) == {"to", "logs", "models", "warnings", "scores", "files"}
    assert set(found["scores"][0]) == {
        *("model", "metric", "value", "deviation", "low", "high", "support")
    }
    assert "results/report.html" in found["files"]
    found = run_json(run, "report", "model", "--to", "report.html")
    assert set(found) == {"to", "recommended", "misleading", "gems", "words"}
    assert found["recommended"] is None
    found = run_json(run, "report", "model", log, "--resamples", "20", "--to", "report.html")
    assert found["recommended"] == type(rc.load("model")).__name__
    assert "evaluated on" in Path(found["to"]).read_text(encoding="utf-8")


def test_lists_of_models_and_formats(run: Run) -> None:
    listed = run_json(run, "models")
    assert [each["name"] for each in listed if each["default"]] == ["luceclick"]
    assert all(set(each) == LISTED_MODEL for each in listed)
    one = run_json(run, "models", "ubm")
    assert set(one) == LISTED_MODEL | {"settings"}
    assert set(one["settings"][0]) == {"name", "default", "values", "help"}
    assert all(each["help"] for each in one["settings"])
    assert {"name": "sessions", "title": "Reclick's own columns"} in run_json(run, "formats")
    assert set(run_json(run, "formats", "ubi")) == {"name", "title", "about"}


def test_slates_and_prices(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "dctr", "--to", "model", "-q")[0] == 0
    table = {"query": ["shoes"] * 2, "ad": ["a", "b"], "bid": [1.0, 2.0]}
    pq.write_table(pa.table(table), "bids.parquet")
    found = run_json(run, "rank", "model", "bids.parquet", "--to", "pages.parquet")
    assert found == {"to": "pages.parquet", "pages": 1, "objective": "clicks"}
    found = run_json(run, "auction", "model", "bids.parquet", "--to", "prices.parquet")
    assert set(found) == {
        *("to", "mechanism", "pages_with_ads", "expected_clicks", "revenue", "welfare"),
        "satisfied_sessions",
    }


def test_numbers_that_json_does_not_have_are_null() -> None:
    infinite = {"a": [float("-inf"), float("nan"), 1.5], "b": {3: True}, "c": b"x"}
    assert to_json(infinite) == {"a": [None, None, 1.5], "b": {"3": True}, "c": "b'x'"}


def test_an_error_prints_no_json(run: Run) -> None:
    code, out, err = run("check", "nothing.parquet", "--json")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
