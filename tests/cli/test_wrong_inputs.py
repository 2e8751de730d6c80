"""What the command line says about inputs that a newcomer often gets wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from reclick.logs.files import log_file, parquet
from tests.support.commands import Run, write_log

SPACES = "query,ads,clicks\n" + "shoes,a1 a2 a3,1\nboots,a1 a2,\n" * 4
COMMAS = 'query,ads,clicks\nshoes,"a1, a2, a3",1\n'


def write_text(path: str, text: str) -> str:
    Path(path).write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("check", "space.csv"),
        ("convert", "space.csv", "--to", "sessions.parquet"),
        ("fit", "space.csv", "--to", "model"),
        ("fit", "space.csv", "--model", "multiclick", "--to", "model"),
        ("evaluate", "--train", "space.csv", "--test", "other.csv", "--models", "pbm", "--to", "r"),
    ],
)
def test_lists_in_a_notation_of_their_own_cause_one_warning(
    run: Run, words: tuple[str, ...]
) -> None:
    write_text("space.csv", SPACES)
    write_text("other.csv", "query,ads,clicks\nsandals,a1|a2,2\n")
    code, _, err = run(*words)
    assert code == 0
    assert err.count("warning:") == 1
    assert (
        "warning: space.csv: every page has one ad, such as 'a1 a2 a3'. "
        'Lists are written a1|a2|a3 or ["a1", "a2", "a3"].'
    ) in err


@pytest.mark.parametrize(
    ("text", "has_warning"),
    [
        (COMMAS, True),
        (COMMAS.replace(", ", ","), True),
        (COMMAS + "shoes,b|c,1\n", False),
        ("query,ads,clicks\nshoes,a1,1\nshoes, a2 ,1\n", False),
    ],
)
def test_pages_of_one_ad_are_suspicious_only_if_the_ad_looks_like_a_list(
    run: Run, text: str, has_warning: bool
) -> None:
    assert ("every page has one ad" in run("check", write_text("log.csv", text))[2]) == has_warning


def test_pages_of_one_ad_in_parquet_are_lists_already(run: Run) -> None:
    write_text("space.csv", SPACES)
    run("convert", "space.csv", "--to", "sessions.parquet")
    assert run("check", "sessions.parquet")[2] == ""


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_a_file_that_may_not_be_opened_is_not_called_damaged(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    if name == "log.csv":
        write_text(name, SPACES)
        monkeypatch.setattr(log_file.LogFile, "_open_bytes", refuse)
    else:
        write_log(name)
        monkeypatch.setattr(parquet, "read_layout", refuse)
    code, _, err = run("check", name)
    assert (code, err) == (
        2,
        f"error: {name} cannot be opened: permission denied. Check who may read it.\n",
    )


def test_names_are_whole_in_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("models", "luceclick")
    assert "attractiveness_strength" in out
    assert "…" not in "".join(line.split("│")[1] for line in out.splitlines() if "│" in line)
