"""Options of all commands: one meaning per name, panels, metavars, --quiet, --threads, shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reclick.cli import app
from reclick.cli.command import OTHER_PANEL, PANELS
from reclick.cli.console import _announce_compilation
from reclick.runtime import jit
from reclick.runtime.parallel import thread_limit
from tests.support.commands import Run, write_log

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
# Options of several commands that may say something else in each: where, and how much, to write.
OWN_HELP = {
    *("to", "top", "seed", "history", "ads", "level", "sessions", "model", "by", "cut", "log"),
    *("satisfaction_weight", "max_ads"),
}


def options(command: Any) -> dict[str, Any]:
    return {each.name: each for each in command.params if each.param_type_name == "option"}


def test_no_type_of_python_is_in_any_help(run: Run) -> None:
    for name in COMMANDS:
        _, out, _ = run(name, "--help")
        for word in ("<list", "<str", "<bool", "<int", "<float", "TEXT..."):
            assert word not in out, name
        assert "─ Output ─" in out or name in {"demo"}, name
        assert "─ General ─" in out, name


def test_every_option_has_a_metavar_and_a_panel() -> None:
    known = {*PANELS, OTHER_PANEL, "General"}
    for name, command in COMMANDS.items():
        for option in options(command).values():
            if option.name != "help":
                assert option.metavar is not None, (name, option.name)
                assert option.rich_help_panel in known, (name, option.name)


def test_an_option_means_the_same_in_every_command() -> None:
    """The same text of help, the same type; a list is given below of those that may differ."""
    helps: dict[str, set[str]] = {}
    panels: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for option in options(command).values():
            helps.setdefault(option.name, set()).add(option.help)
            panels.setdefault(option.name, set()).add(option.rich_help_panel)
    differ = {name for name, texts in helps.items() if len(texts) > 1}
    assert differ <= OWN_HELP
    assert all(len(names) == 1 for names in panels.values())


def test_panels_come_in_one_order(run: Run) -> None:
    _, out, _ = run("fit", "--help")
    places = [out.index(f"─ {panel} ─") for panel in ("Input", "Model", "Output", "General")]
    assert places == sorted(places)


def test_quiet_prints_errors_only(run: Run) -> None:
    log = write_log("log.parquet")
    assert run("fit", log, "--model", "multiclick", "--to", "model", "--quiet") == (0, "", "")
    assert run("check", log, "-q") == (0, "", "")
    code, out, err = run("check", "nothing.parquet", "-q")
    assert (code, out) == (2, "")
    assert "nothing.parquet does not exist" in err
    code, out, err = run("check", log, "-q", "--json")
    assert (code, err) == (0, "")
    assert out.startswith("{")


def test_threads_are_limited_in_a_command_and_not_after_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def count_logs(*_: object) -> object:
        seen.append(thread_limit())
        raise KeyboardInterrupt

    monkeypatch.setattr("reclick.cli.log_commands.count_logs", count_logs)
    before = thread_limit()
    assert run("describe", "log.parquet", "--threads", "3")[0] == 130
    assert seen == [3]
    assert thread_limit() == before


@pytest.mark.parametrize("value", ["0", "-2", "many", "1.5", ""])
def test_a_number_of_threads_that_is_none_is_refused(run: Run, value: str) -> None:
    code, out, err = run("describe", write_log("log.parquet"), "--threads", value)
    assert (code, out) == (2, "")
    assert "threads" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("reclick ev", ["evaluate"]),
        ("reclick fit --model lu", ["luceclick"]),
        ("reclick evaluate --models ubm,db", ["ubm,dbn"]),
        ("reclick formats ub", ["ubi"]),
        ("reclick check --format yandex_p", ["yandex_personalized"]),
        ("reclick fit --dec", ["--decay"]),
    ],
)
def test_the_shell_completes(words: str, expected: list[str]) -> None:
    variables = {
        "_RECLICK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    main = (
        "import sys; sys.argv = ['reclick']; from reclick.cli import app; app(prog_name='reclick')"
    )
    done = subprocess.run(
        [sys.executable, "-c", main],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "dask"], "--engine: got 'dask', expected one of 'local', 'pool', 'spark'"),
        (["--workers", "2"], "--workers is for --engine pool"),
        (["--master", "local[2]"], "--master, --shared-folder and --tasks are"),
        (["--engine", "spark", "--master", "spark://h:1"], "h:1 needs --shared-folder: a folder"),
        (["--engine", "pool", "--workers", "0"], "--workers: got 0, expected"),
    ],
)
def test_options_of_engines_go_with_their_engine(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    log = write_log(str(tmp_path / "log.parquet"))
    code, _, err = run("fit", log, "--to", str(tmp_path / "model"), *arguments)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(("is_cached", "line"), [(True, "once."), (False, "in every run")])
def test_the_time_to_compile_is_announced(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    is_cached: bool,
    line: str,
) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path if is_cached else None)
    _announce_compilation.__wrapped__()
    assert line in capsys.readouterr().err
