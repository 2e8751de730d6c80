"""The command line as a user types it: every command, bad input, and interruption."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.main import get_command

import reclick as rc
from reclick.cli import app, command_options, fit_command, spell_option
from reclick.errors import Argument, ReclickError
from reclick.logs.formats import FORMATS, get_format
from tests.support import dated_logs
from tests.support.commands import CLICKS, Run, write_log


def test_help_names_every_command(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(
        word in out
        for word in (
            "simulate",
            "check",
            "describe",
            "count",
            "split",
            "fit",
            "predict",
            "evaluate",
            "models",
            "demo",
        )
    )


@pytest.mark.parametrize(
    "command", ["simulate", "check", "describe", "count", "split", "fit", "predict", "evaluate"]
)
def test_the_help_of_a_command_shows_an_example(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: reclick {command}" in " ".join(out.split())


def test_a_log_without_a_click_causes_a_warning_in_fit_and_not_in_predict(
    run: Run,
) -> None:
    log, pages = write_log("log.parquet"), write_log("pages.parquet", [[], []])
    assert "pages.parquet: no click." in run("fit", pages, "--to", "none")[2]
    assert run("fit", log, "--to", "model")[0] == 0
    assert run("predict", "model", pages, "--to", "scored.parquet")[2] == ""


def test_from_simulation_to_predictions(run: Run) -> None:
    assert run("simulate", "--to", "logs", "--sessions", "400", "--queries", "20")[0] == 0
    assert run("check", "logs/week2.parquet")[0] == 0
    code, out, _ = run(
        "fit",
        "logs/week1.parquet",
        "logs/week2.parquet",
        "--ads",
        "logs/ads.parquet",
        "--to",
        "model",
    )
    assert code == 0
    assert out.splitlines()[-1] == "model"
    assert rc.load("model").name == "luceclick"
    code, out, _ = run(
        "predict", "model", "logs/week3.parquet", "--to", "scored.parquet", "--top", "2"
    )
    assert code == 0
    assert re.fullmatch(r"400 pages, .* × the observed\nscored\.parquet\n", out)
    scored = pq.read_table("scored.parquet")
    assert scored.column_names[-3:] == ["click_prob", "expected_clicks", "sequences"]
    model = rc.load("model")
    log = rc.read_sessions("logs/week3.parquet")
    assert scored["expected_clicks"].to_pylist() == pytest.approx(
        model.expected_clicks(log).tolist(), rel=1e-12
    )


def test_evaluating_three_weeks_writes_tables_and_a_report_and_a_second_run_is_the_same(
    run: Run,
) -> None:
    assert run("simulate", "--to", "logs", "--sessions", "400", "--queries", "20")[0] == 0
    asked = (
        "--ads",
        "logs/ads.parquet",
        "--labels",
        "logs/labels.parquet",
        "--models",
        "multiclick,dctr",
        "--resamples",
        "100",
        "--to",
        "results",
    )
    code, out, _ = run(
        "evaluate", "logs/week1.parquet", "logs/week2.parquet", "logs/week3.parquet", *asked
    )
    assert code == 0
    assert "MultiClick" in out
    assert "results/report.html" in out
    first = Path("results/scores.parquet").read_bytes()
    parts = (
        "--history",
        "results/parts/history.parquet",
        "--train",
        "results/parts/train.parquet",
        "--test",
        "results/parts/test.parquet",
    )
    assert run("evaluate", *parts, *asked)[0] == 0
    assert Path("results/scores.parquet").read_bytes() == first


def test_a_fitted_model_is_evaluated_by_its_folder(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "ubm", "--to", "mine")[0] == 0
    code, out, _ = run(
        "evaluate", "--test", log, "--models", "mine", "--resamples", "50", "--to", "results"
    )
    assert code == 0
    assert "mine" in out
    assert run("fit", log, "--model", "ubm", "--to", "other/mine")[0] == 0
    code, out, _ = run(
        "evaluate",
        "--test",
        log,
        "--models",
        "mine,other/mine",
        "--resamples",
        "50",
        "--to",
        "both",
    )
    assert code == 0
    assert "Two fits of one click model compared on log.parquet: mine † and other/mine †" in out
    assert "on 60 test sessions." in out


def test_a_log_is_split_by_cuts(run: Run) -> None:
    assert run("simulate", "--to", "logs", "--sessions", "50", "--queries", "5")[0] == 0
    code, out, _ = run(
        "split", "logs/week1.parquet", "logs/week2.parquet", "logs/week3.parquet", "--to", "parts"
    )
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["history", "50"],
        ["train", "50"],
        ["test", "50"],
    ]


def test_a_full_disk_in_the_demo_is_one_clear_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("reclick.cli.demo_commands.SESSIONS", 300)
    monkeypatch.setattr(Path, "write_text", full)  # truth.json and report.md
    code, _, err = run("demo")
    assert code == 2
    assert "demo/logs cannot be written" in err
    assert "The disk is full: free some space" in err
    monkeypatch.setattr("reclick.simulation.Simulation.save", save_without_truth)
    code, _, err = run("demo")
    assert code == 2
    assert "demo/work/models cannot be written" in err
    assert not Path("demo/report.html").exists()


def save_without_truth(market: Any, folder: Path, **_: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in market._tables().items():
        pq.write_table(table, folder / name)


def test_describe_prints_a_profile_and_the_same_as_json(run: Run) -> None:
    write_log("log.parquet")
    code, out, _ = run("describe", "log.parquet")
    assert code == 0
    assert "Table 1" in out
    assert "Figure 1" in out
    profile = json.loads(run("describe", "log.parquet", "--json")[1])
    assert profile["sessions"] == 60
    assert profile["multi_click_share"] == pytest.approx(20 / 50)
    assert profile["reverse_share"] == pytest.approx(10 / 20)


def test_check_counts_bad_rows_and_exits_with_1(run: Run) -> None:
    write_log("log.parquet", [[1], [7], []])
    code, out, _ = run("check", "log.parquet")
    assert code == 1
    assert "click outside the page" in out


def test_bad_rows_stop_a_fit_and_leave_nothing(run: Run) -> None:
    write_log("log.parquet", [[1], [7], []])
    code, _, err = run("fit", "log.parquet", "--to", "model")
    assert code == 2
    assert "row 2" in err
    assert "drop" in err
    assert not Path("model").exists()
    code, _, err = run("fit", "log.parquet", "--to", "model", "--on-error", "drop")
    assert code == 0
    assert "click outside the page" in err  # nothing is dropped silently


def test_a_daily_job_slides_exactly(run: Run) -> None:
    days = [
        write_log("day1.parquet", [[1], [2, 1], []]),
        write_log("day2.parquet", query="hats"),
        write_log("day3.parquet", [[2], [], [1, 2]]),
    ]
    for day in days:
        assert run("count", day, "--to", f"counts/{day}")[0] == 0
    counting = ("--model", "multiclick")
    assert run("fit", days[0], days[1], *counting, "--to", "model")[0] == 0
    assert run("fit", days[2], "--update", "--forget", f"counts/{days[0]}", "--to", "model")[0] == 0
    assert run("fit", f"counts/{days[1]}", days[2], *counting, "--to", "fresh")[0] == 0
    slid, fresh = rc.load("model"), rc.load("fresh")
    assert slid.counts_ == fresh.counts_  # type: ignore[attr-defined]
    assert (slid.log_prob(days) == fresh.log_prob(days)).all()


def test_a_model_that_learns_from_sessions_is_updated_from_the_log(run: Run) -> None:
    run("simulate", "--to", "logs", "--sessions", "300")
    assert (
        run(
            "fit",
            "logs/week1.parquet",
            "--set",
            "components=1",
            "--to",
            "model",
        )[0]
        == 0
    )
    code, _, err = run(
        "fit", "logs/week2.parquet", "--update", "--model", "multiclick", "--to", "model"
    )
    assert code == 2
    assert "leave out --model" in err
    code, out, _ = run("fit", "logs/week2.parquet", "--update", "--decay", "0.9", "--to", "model")
    assert code == 0
    assert "fitted on Counts(570 sessions" in out


def test_update_keeps_the_settings_and_refuses_new_ones(run: Run) -> None:
    log = write_log("log.parquet")
    assert (
        run(
            "fit",
            log,
            "--model",
            "multiclick",
            "--to",
            "model",
            "--set",
            "variant=examination",
            "--set",
            "min_query_sessions=5",
        )[0]
        == 0
    )
    assert run("fit", log, "--update", "--again", "--decay", "0.5", "--to", "model")[0] == 0
    model = rc.load("model")
    assert model.get_params()["variant"] == "examination"
    assert model.counts_.total == 90  # type: ignore[attr-defined]
    code, _, err = run("fit", log, "--update", "--set", "min_query_sessions=6", "--to", "model")
    assert code == 2
    assert "--set" in err


def test_a_column_under_another_name(run: Run) -> None:
    table = pq.read_table(write_log("log.parquet")).rename_columns(["search_term", "ads", "clicks"])
    pq.write_table(table, "theirs.parquet")
    assert run("check", "theirs.parquet")[0] == 2
    assert run("check", "theirs.parquet", "--column", "query=search_term")[0] == 0


def test_models_lists_every_model_with_what_it_estimates(run: Run) -> None:
    code, out, _ = run("models")
    assert code == 0
    assert all(f"\n{name} " in out for name in rc.MODELS)
    assert "\nluceclick * " in out
    assert "docs/models in the repository" in out
    assert all(head in out for head in ("assumes", "estimates", "satisfaction"))
    told = {name: run("models", name)[1] for name in ("multiclick", "dctr", "pm")}
    assert "order of clicks, attractiveness, satisfaction" in told["multiclick"]
    assert "satisfaction" not in told["dctr"]
    assert "clicks only" in told["pm"]


@pytest.mark.parametrize("name", rc.MODELS)
def test_models_with_a_name_shows_its_settings_and_defaults(run: Run, name: str) -> None:
    code, out, _ = run("models", name)
    assert code == 0
    assert rc.MODELS[name].assumes in out
    assert f"docs/models/{name}.md in the repository" in out
    rows = [line[1:-1].split("│") for line in out.splitlines() if line.startswith("│")]
    shown = {cells[0].strip(): cells[1].strip() for cells in rows if cells[1].strip()}
    settings = rc.MODELS[name].settings
    assert shown == {setting: repr(each.default) for setting, each in settings.items()}
    table = " ".join(" ".join(cells[-1].split()) for cells in rows)
    assert all(" ".join(each.help.split()) in table for each in settings.values())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fit", "nothing.parquet", "--to", "model"), "nothing.parquet does not exist"),
        (("fit", "log.parquet", "--to", "model", "--model", "dbm"), "expected one of luceclick"),
        (
            ("fit", "log.parquet", "--to", "model", "--set", "tune=fats"),
            "--set tune: got 'fats', expected one of 'fast', 'full', 'off'",
        ),
        (
            ("fit", "log.parquet", "--to", "model", "--set", "variant=paper"),
            "'variant' is not a setting of LuceClick. Settings: attractiveness_prior",
        ),
        (
            ("fit", "log.parquet", "--to", "model", "--set", "componets=2"),
            "'componets' is not a setting of LuceClick. Did you mean 'components'? Settings: attr",
        ),
        (("fit", "log.parquet", "--to", "model", "--set", "variant"), "NAME=VALUE"),
        (("fit", "log.parquet", "--to", "model", "--decay", "0.9"), "--update"),
        (
            ("fit", "log.parquet", "--update", "--decay", "0", "--to", "nowhere"),
            "--decay: got 0.0, expected a factor above 0",
        ),
        (
            ("fit", "log.parquet", "--update", "--decay", "nan", "--to", "nowhere"),
            "--decay: got nan",
        ),
        (("fit", "log.parquet", "--update", "--to", "nowhere"), "nowhere does not exist"),
        (("fit", "log.parquet", "--to", "/dev/null/x"), "/dev/null/x cannot be written"),
        (("count", "log.parquet", "--to", "/dev/null/x"), "/dev/null/x cannot be written"),
        (("evaluate", "--to", "results"), "give --train and --test, or one LOG to split"),
        (
            ("evaluate", "--test", "log.parquet", "--models", "nobody"),
            "--models: got 'nobody', expected one of",
        ),
        (
            ("evaluate", "--test", "log.parquet", "--models", "ubm"),
            "UBM: not fitted yet. Give --train, a log",
        ),
        (("split", "log.parquet", "--to", "parts"), "no column 'timestamp' to split by"),
        (
            ("simulate", "--sessions", "9", "--queries", "3", "--to", "/dev/null/x"),
            "/dev/null/x cannot be written",
        ),
        (
            ("simulate", "--sessions", "9", "--queries", "3", "--to", "log.parquet"),
            "log.parquet cannot be written",
        ),
        (
            ("simulate", "--sessions", "-5", "--to", "logs"),
            "--sessions: got -5, expected a whole number of 1 or more",
        ),
        (("simulate", "--weeks", "0", "--to", "logs"), "--weeks: got 0"),
        (("simulate", "--queries", "-1", "--to", "logs"), "--queries: got -1"),
        (("simulate", "--ads-per-query", "0", "--to", "logs"), "--ads-per-query: got 0"),
        (("simulate", "--seed", "-1", "--to", "logs"), "--seed: got -1"),
        (
            ("check", "log.parquet", "--max-ads", "-1"),
            "--max-ads: got -1, expected a whole number of 1 or more",
        ),
        (
            ("check", "log.parquet", "--column", "query=nope"),
            'no column nope, which --column gives for "query"',
        ),
        (
            ("check", "log.parquet", "--format", "nope"),
            "--format: got 'nope', expected one of sessions",
        ),
        (("describe", "log.parquet", "--on-error", "no"), "--on-error: got "),
        (
            ("split", "log.parquet", "--to", "parts", "--by", "query", "--cut", "1"),
            "--cut: got 1, expected 2",
        ),
        (("split", "log.parquet", "--to", "parts", "--by", "week"), "Name the column with --by."),
        (
            ("convert", "log.parquet", "--to", "new/x.parquet", "--first", "0"),
            "--first: got 0, expected a whole number of 1 or more.\n",
        ),
        (
            ("convert", "log.parquet", "--to", "x.parquet", "--max-pages-per-hour", "9"),
            "Leave out --max-pages-per-hour, --max-clicks-per-hour and",
        ),
        (
            ("convert", "bad.parquet", "--to", "new/x.parquet", "--on-error", "raise"),
            "Drop it with --on-error drop.",
        ),
        (
            ("convert", "bad.parquet", "--to", "new/x.parquet"),
            "That is 33.3%, more than 5.0%, so nothing was written.",
        ),
        (
            ("convert", "bad.parquet", "--to", "new/x.parquet", "--max-bad", "lots"),
            "--max-bad: got 'lots', expected a share such as 5% or 0.05",
        ),
        (
            ("convert", "bad.parquet", "--to", "new/x.parquet", "--max-bad", "101%"),
            "--max-bad: got '101%'",
        ),
        (
            ("export", "log.parquet", "--to", "new/x.qrels"),
            "log.parquet is a file, not the folder of a model",
        ),
        (
            ("evaluate", "--test", "log.parquet", "--models", "ubm", "--seed", "-1"),
            "--seed: got -1",
        ),
        (
            ("evaluate", "log.parquet", "--test", "log.parquet"),
            "give it alone, or --history, --train and --test without it",
        ),
        (
            ("evaluate", "--test", "log.parquet", "--cut", "5"),
            "--by and --cut define how a LOG is split",
        ),
        (("formats", "nope"), "expected one of sessions, ubi"),
        (("fit", "log.parquet", "--to", "log.parquet"), "is a file"),
        (("models", "dbm"), "expected one of luceclick"),
        (("predict", "nowhere", "log.parquet", "--to", "x.parquet"), "nowhere does not exist"),
        (("check", "log.parquet", "--column", "qeury=x"), "query, ads, clicks"),
        (("check", "empty.parquet"), "empty"),
        (("check", "cut.parquet"), "cut short"),
    ],
)
def test_an_error_is_one_clear_line(run: Run, words: tuple[str, ...], expected: str) -> None:
    write_log("log.parquet")
    write_log("bad.parquet", [[1], [7], []])
    Path("empty.parquet").touch()
    Path("cut.parquet").write_bytes(Path("log.parquet").read_bytes()[:-20])
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert expected in err
    assert err.splitlines()[-1].startswith("error: ")  # a first run prints before that it compiles
    assert "Traceback" not in err
    assert not Path("new").exists()  # a command that fails leaves no new folder


@pytest.mark.parametrize(
    ("command", "argument", "expected"),
    [
        ("check", Argument("max_ads"), "--max-ads"),
        ("check", Argument("max_ads", 7), "--max-ads 7"),
        ("fit", Argument("on_error", "drop"), "--on-error drop"),
        ("check", Argument("columns", {"ad": ...}), "--column ad=..."),
        ("split", Argument("by", ...), "--by"),
        ("split", Argument("cuts", ("a", "b")), "--cut a --cut b"),
        ("export", Argument("cuts", (0.05, 0.2)), "--cuts 0.05,0.2"),
        ("export", Argument("log", ...), "--log"),
        ("check", Argument("engine", "x"), "engine='x'"),  # no option of this command
    ],
)
def test_an_argument_that_an_error_names_is_shown_as_the_option(
    command: str, argument: Argument, expected: str
) -> None:
    group: Any = get_command(app)
    error = ReclickError("max_ads.parquet: first=2 is bad. Give ", argument, ".")
    shown = error.render(partial(spell_option, command_options(group.commands[command])))
    assert shown == f"max_ads.parquet: first=2 is bad. Give {expected}."


def test_a_command_makes_the_folder_it_writes_to(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--to", "a/b/model")[0] == 0
    assert run("count", log, "--to", "c/d/counts")[0] == 0
    assert run("simulate", "--sessions", "9", "--queries", "3", "--to", "e/f/logs")[0] == 0
    assert (
        run("split", "e/f/logs/week1.parquet", "e/f/logs/week2.parquet", "--to", "g/h/parts")[0]
        == 0
    )
    assert run("convert", log, "--to", "i/j/sessions.parquet")[0] == 0
    assert run("predict", "a/b/model", log, "--to", "k/l/scored.parquet")[0] == 0
    assert run("export", "a/b/model", "--to", "m/n/judgments.qrels", "--min-support", "1")[0] == 0
    assert (
        run(
            "evaluate",
            "--test",
            log,
            "--models",
            "a/b/model",
            "--resamples",
            "50",
            "--to",
            "o/p/results",
        )[0]
        == 0
    )
    made = (
        "i/j/sessions.parquet",
        "k/l/scored.parquet",
        "m/n/judgments.qrels",
        "o/p/results/report.html",
        "g/h/parts/test.parquet",
    )
    assert [name for name in made if not Path(name).is_file()] == []


def test_formats_fit_a_small_terminal_and_one_is_described_in_full(run: Run) -> None:
    code, out, _ = run("formats")
    assert code == 0
    assert [line.split()[0] for line in out.split("\n\n")[0].splitlines()] == ["sessions", *FORMATS]
    assert out.splitlines()[-1].endswith("reclick convert LOG --format ubi --to sessions.parquet")
    told = {name: run("formats", name)[1] for name in ("sessions", *FORMATS)}
    assert all(get_format(name).about in " ".join(told[name].split()) for name in FORMATS)
    assert max(len(line) for text in (out, *told.values()) for line in text.splitlines()) < 80


def test_the_demo_names_every_file_it_wrote(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reclick.cli.demo_commands.SESSIONS", 300)
    code, out, err = run("demo", "--to", "shown")
    assert code == 0
    assert err.startswith("Simulating three weeks of clicks")
    named = {
        Path(line.split()[0])
        for line in out.split("What was written")[1].splitlines()
        if line.startswith("shown/")
    }
    assert all(path.exists() for path in named)
    files = [path for path in Path("shown").rglob("[!.]*") if path.is_file()]
    assert [path for path in files if named.isdisjoint({path, *path.parents})] == []


# ---- fit: what is refused before the log is read, and models that others use meanwhile


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test fail when a log is read."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr("reclick.logs.session_log.SessionLog.batches", fail)


def write_ads(path: str) -> str:
    pq.write_table(
        pa.table({"ad": ["a", None, "b"], "title": ["Shoes", "Nobody's", "Boots"]}), path
    )
    return path


@pytest.mark.usefixtures("unread")
def test_bad_rows_of_the_ads_are_reported_before_the_log_is_read(run: Run) -> None:
    code, _, err = run(
        "fit", write_log("log.parquet"), "--ads", write_ads("ads.parquet"), "--to", "model"
    )
    assert code == 2
    assert "1 of 3 rows of ads.parquet is bad: 1 no ad (row 2: None)" in err


def test_bad_rows_of_the_ads_are_dropped_as_the_message_says(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    log, ads = write_log("log.parquet"), write_ads("ads.parquet")
    assert run("fit", log, "--ads", ads, "--on-error", "drop", "--to", "model")[0] == 0
    assert "1 of 3 rows of ads.parquet is bad" in caplog.text  # nothing is dropped silently
    update = ("fit", log, "--update", "--again")
    assert run(*update, "--ads", ads, "--on-error", "drop", "--to", "model")[0] == 0
    assert run("predict", "model", log, "--ads", ads, "--to", "scored.parquet")[0] == 2
    assert (
        run("predict", "model", log, "--ads", ads, "--on-error", "drop", "--to", "scored.parquet")[
            0
        ]
        == 0
    )


def test_a_model_that_cannot_be_updated_is_refused_before_the_log_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "pbm", "--to", "model")[0] == 0
    monkeypatch.setattr("reclick.cli.fit_command.count_logs", None)
    code, _, err = run("fit", log, "--model", "pbm", "--update", "--to", "model")
    assert code == 2
    assert "PBM cannot be updated: fit it again" in err
    assert ".lock" not in {path.name for path in Path("model").iterdir()}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("counts",), "Give it the log itself, or fit a model for which counts are enough"),
        (("log.parquet", "--history", "log.parquet"), "no priors from a history: leave out --hist"),
        (("log.parquet", "--update", "--forget", "counts"), "reduce their weight with --decay"),
    ],
)
def test_what_the_default_model_cannot_do_is_refused_before_a_log_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: str
) -> None:
    log = write_log("log.parquet")
    assert run("count", log, "--to", "counts")[0] == 0
    assert run("fit", log, "--to", "model")[0] == 0
    monkeypatch.setattr("reclick.logs.files.parquet.ParquetSource.read", None)
    code, _, err = run("fit", *words, "--to", "model")
    assert code == 2
    assert expected in err


def test_two_updates_at_once_are_both_counted_or_one_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "multiclick", "--to", "model")[0] == 0
    monkeypatch.setattr("reclick.runtime.artifact.LOCK_TIMEOUT", 0.2)
    others: list[str] = []
    from reclick.cli.inputs import count_logs

    def meanwhile(*arguments: Any) -> Any:
        """While one update counts, another process tries the same."""
        trying = (
            "from reclick.runtime import artifact; artifact.LOCK_TIMEOUT = 0.2; "
            "from reclick.__main__ import main; main()"
        )
        words = [sys.executable, "-c", trying, "fit", log, "--update", "--to", "model"]
        others.append(subprocess.run(words, capture_output=True, text=True, check=False).stderr)
        return count_logs(*arguments)

    monkeypatch.setattr(fit_command, "count_logs", meanwhile)
    assert run("fit", log, "--update", "--again", "--to", "model")[0] == 0
    assert ["another process is writing to it" in told for told in others] == [True]
    assert rc.load("model").counts_.total == 120  # type: ignore[attr-defined]


def test_an_update_of_nothing_leaves_nothing(run: Run) -> None:
    log = write_log("log.parquet")
    Path("mine").mkdir()
    assert run("fit", log, "--update", "--to", "nowhere")[0] == 2
    assert run("fit", log, "--update", "--to", "mine")[0] == 2
    assert not Path("nowhere").exists()
    assert list(Path("mine").iterdir()) == []


# ---- stopped in the middle

ENDLESS = """
import sys
from reclick.__main__ import main
from reclick.engines.local import counter

count = counter.Counter.add_batches

def endless(batches):
    for batch in batches:
        for number in range(10**9):
            if number == 20:  # the first ones are counted by now
                print("counting", flush=True)
            yield batch

counter.Counter.add_batches = lambda self, batches: count(self, endless(batches))
main()
"""


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
@pytest.mark.parametrize("update", [(), ("--update",)])
def test_a_fit_stopped_in_the_middle_leaves_the_last_good_model(
    tmp_path: Path, how: signal.Signals, code: int, update: tuple[str, ...]
) -> None:
    model, log = tmp_path / "model", write_log(str(tmp_path / "log.parquet"))
    rc.MultiClick().fit(log).save(model)
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    fitting = start("-c", ENDLESS, "fit", log, "--model", "multiclick", "--to", str(model), *update)
    assert fitting.stdout is not None
    assert fitting.stdout.readline() == "counting\n"
    fitting.send_signal(how)
    _, err = fitting.communicate(timeout=60)
    assert fitting.returncode == code
    assert {
        path.name: path.read_bytes() for path in model.iterdir() if path.name != ".lock"
    } == before
    if how == signal.SIGINT:
        assert (
            err.splitlines()[-1]
            == "error: Interrupted. No file was left half-written: each is either the new version "
            "or the old one."
        )
        assert "Traceback" not in err
        assert not (model / ".lock").exists()
    rc.load(model).save(model)  # whoever was killed does not hold it
    assert not (model / ".lock").exists()


def test_help_loads_nothing_heavy() -> None:
    asking = (
        "import atexit, sys; from reclick.__main__ import main; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    asked = subprocess.run(
        [sys.executable, "-c", asking, "--help"], capture_output=True, text=True, check=True
    )
    loaded = set(asked.stderr.split())
    assert "reclick.cli" in loaded
    assert loaded.isdisjoint(
        {
            "numba",
            "numpy",
            "pyarrow",
            "duckdb",
            "narwhals",
            "pandas",
            "polars",
            "rich.progress",
            "rich.live",
            "reclick.models",
        }
    )


def test_output_cut_short_by_head_is_no_error(tmp_path: Path) -> None:
    log = write_log(str(tmp_path / "log.parquet"))
    describing = start("-m", "reclick", "describe", log)
    assert describing.stdout is not None
    describing.stdout.close()
    describing.stdout = None
    _, err = describing.communicate(timeout=60)
    assert (describing.returncode, err) == (0, "")


# ---- logs seen before


def test_a_day_in_a_partition_is_named_with_it(run: Run) -> None:
    for day in (1, 2):
        Path(f"wh/dt=2026-03-0{day}").mkdir(parents=True)
        write_log(f"wh/dt=2026-03-0{day}/part-0.parquet", CLICKS[day:] + [[1]] * day)
    fit = ("fit", "--model", "multiclick", "--to", "model")
    assert run(*fit, "wh/dt=2026-03-01")[0] == 0
    assert run(*fit, "wh/dt=2026-03-02", "--update")[0] == 0
    err = run(*fit, "wh/dt=2026-03-02", "--update")[2]
    assert err.startswith("error: dt=2026-03-02/part-0.parquet: seen before.")
    assert "are in dt=2026-03-02/part-0.parquet (60 sessions" in err


def test_an_update_of_no_model_says_to_fit_first(run: Run) -> None:
    code, _, err = run("fit", write_log("day1.parquet"), "--update", "--to", "nowhere")
    assert code == 2
    assert "nowhere does not exist: there is no model to update. Fit it first" in err


def test_a_day_that_is_run_twice_is_refused_with_an_exit_code_of_its_own(run: Run) -> None:
    """The trap: a scheduler runs the same day again."""
    days = [write_log(f"day{n}.parquet", CLICKS[n:] + [[1]] * n) for n in (1, 2)]
    fit = ("fit", "--model", "multiclick", "--to", "model")
    assert run(*fit, days[0])[0] == run(*fit, days[1], "--update")[0] == 0
    before = rc.load("model").training_counts
    code, out, err = run(*fit, days[1], "--update")
    assert (code, out) == (3, "")
    assert "day2.parquet: seen before. All of its sessions are in day2.parquet (60 sessions" in err
    assert err.rstrip().endswith("give --again.")
    assert rc.load("model").training_counts == before
    pq.write_table(pq.read_table(days[1]).take(list(range(59, -1, -1))), "copy.parquet")
    assert run(*fit, "copy.parquet", "--update")[0] == 3
    assert run(*fit, days[1], "--update", "--again")[0] == 0
    assert rc.load("model").training_counts.total == before.total + 60
    assert run(*fit, days[1], "--again")[0] == 2


def test_a_model_that_saw_the_test_log_is_marked(run: Run) -> None:
    """The trap: fitted on everything, then compared on a part of it."""
    for number in (1, 2):
        pq.write_table(dated_logs.day(number), f"day{number}.parquet")
    train, test = "day1.parquet", "day2.parquet"
    assert run("fit", train, test, "--model", "dctr", "--to", "both")[0] == 0
    parts = ("--train", train, "--to", "results")
    code, out, err = run("evaluate", "--models", "both,dctr", "--test", test, *parts)
    assert code == 0
    assert "both †" in out
    assert "DCTR †" not in out
    assert "† both was fitted on all of the test sessions: those in 2 files (240 sessions, " in out
    assert "both †" in Path("results/report.md").read_text()
    code, _, err = run("evaluate", "--models", "dctr", "--test", train, *parts)
    assert code == 3
    assert "--in-sample" in err
    code, out, err = run("evaluate", "--models", "dctr", "--test", train, "--in-sample", *parts)
    assert code == 0
    assert "DCTR †" in out
    assert "† DCTR was fitted on all of the test sessions" in out


def test_predict_compares_expected_and_observed_clicks(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "dctr", "--to", "model")[0] == 0
    code, out, _ = run("predict", "model", log, "--to", "pages.csv")
    assert code == 0
    assert re.match(r"60 pages, [\d.]+ clicks expected, 70 observed: 1\.\d\d × the observed\n", out)
    assert Path("pages.csv").read_text().startswith("query,ads,clicks,click_prob")


def write_random_clicks(path: str) -> str:
    """Sessions with one click, at the top, among which 12 % of the users click on anything."""
    rng = np.random.default_rng(1)
    rows = []
    for i in range(600):
        ads = rng.permutation(list("abcdef"))[:5].tolist()
        clicks = [1] if rng.random() < 0.7 else []
        if i % 60 < 7:
            clicks = (rng.permutation(5)[: rng.binomial(5, 0.5)] + 1).tolist()
        rows.append({"query": "shoes", "ads": ads, "clicks": clicks, "user": f"u{i % 60}"})
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_predict_leaves_out_random_sessions(run: Run) -> None:
    log = write_random_clicks("log.parquet")
    code, _, err = run("fit", log, "--model", "ubm", "--set", "noise=user", "--to", "model")
    assert code == 0, err
    code, out, _ = run("predict", "model", log, "--to", "clean.parquet", "--max-noise", "0.5")
    assert code == 0
    assert out.startswith("530 pages")
    kept = pq.read_table("clean.parquet")
    assert {int(user[1:]) for user in kept["user"].to_pylist()} == set(range(7, 60))
    assert max(kept["noise_prob"].to_pylist()) <= 0.5
    made = run("fit", log, "--model", "multiclick", "--set", "noise=session", "--to", "counted")
    assert made[0] == 0, made[2]
    code, _, err = run("predict", "model", log, "--to", "x.parquet", "--max-noise", "2")
    assert code == 2
    assert "--max-noise" in err
    assert run("fit", log, "--model", "ubm", "--to", "plain")[0] == 0
    code, _, err = run("predict", "plain", log, "--to", "x.parquet", "--max-noise", "0.5")
    assert code != 0
    assert "no component of random clicks" in err


def test_evaluate_takes_noise_and_redundancy(run: Run) -> None:
    log = write_random_clicks("log.parquet")
    table = pq.read_table(log)
    for name, part in (("train", table[:400]), ("test", table[400:])):
        pq.write_table(part, f"{name}.parquet")
    ads = [f"{ad},word {ad},,{ad}.example\n" for ad in "abcdef"]
    Path("ads.csv").write_text("".join(["ad,title,description,display_url\n", *ads]))
    models = "ubm,ubm:noise=user,multiclick:redundancy=auto"
    logs = "--train", "train.parquet", "--test", "test.parquet", "--ads", "ads.csv"
    code, out, err = run("evaluate", "--models", models, *logs, "--to", "results")
    assert code == 0, err
    rows = pq.read_table("results/scores.parquet").to_pylist()
    whole = {"metric": "log_set_likelihood", "sessions": "all", "volume": "all"}
    scores = {each["model"]: each["value"] for each in rows if whole.items() <= each.items()}
    plain, with_noise, _ = scores.values()
    assert with_noise > plain, out  # random clicks are foreseen
