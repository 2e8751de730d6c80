"""The command line in a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reclick.__main__ import main
from tests.support.commands import Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command in a folder of its own: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["reclick", *words])
        try:
            main()
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return command
