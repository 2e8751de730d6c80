"""The findings of the campaign on version 0.1.0: that they are complete, and some of them again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from torture import findings
from torture.findings import REPRODUCTIONS, Checkout, Reproduction, judge, main

PAGE = findings.ROOT / "docs" / "explanation" / "security.md"
PACKAGE = findings.ROOT / "src" / "reclick"
FEW = (2, 14, 20)  # findings that take little time


def test_every_finding_of_the_page_is_reproduced() -> None:
    numbers = re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted({each.finding for each in REPRODUCTIONS}) == sorted(map(int, numbers))
    assert len(numbers) == 22


def test_every_test_that_the_page_names_exists() -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 22
    for path, name in names:
        assert f"def {name}" in (findings.ROOT / path).read_text(encoding="utf-8"), (path, name)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes")
@pytest.mark.parametrize("number", FEW)
def test_a_finding_does_no_harm_now(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--finding", str(number)]) == 0, capsys.readouterr().out
    assert "held" in capsys.readouterr().out


def crash(checkout: Checkout) -> list[str]:
    return checkout.run("-c", "import os; os.abort()").find_crash()


def raise_error(checkout: Checkout) -> list[str]:
    return checkout.run("-c", "{}[1]").find_crash()


def reserve_too_much(checkout: Checkout) -> list[str]:
    return checkout.run("-c", "bytearray(1 << 40)").find_crash()


def show_nothing(checkout: Checkout) -> list[str]:
    checkout.control("no-such-command")
    return []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes")
@pytest.mark.parametrize(
    ("find_symptoms", "cell"),
    [
        (crash, "BROKEN: SIGABRT"),
        (raise_error, "BROKEN: traceback, KeyError"),
        (reserve_too_much, "BROKEN: traceback, MemoryError"),
    ],
)
def test_harm_is_told(
    find_symptoms: findings.FindSymptoms,
    cell: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(findings, "REPRODUCTIONS", [Reproduction(99, "harm", find_symptoms)])
    assert main([]) == 1
    assert cell in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes")
def test_a_reproduction_that_does_not_get_there_shows_nothing() -> None:
    verdict = judge(Reproduction(99, "nothing", show_nothing), PACKAGE, sys.executable)
    assert verdict.reason
    assert verdict.format(is_expected=False).startswith("NOTHING SHOWN")


def test_what_holds_in_both_versions_is_not_as_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(findings, "REPRODUCTIONS", [Reproduction(99, "no harm", lambda _: [])])
    assert main([]) == 0
    assert main(["--beside", str(Path(findings.ROOT))]) == 1
    assert "HELD" in capsys.readouterr().out
