"""Every Python block and every `reclick` command of the README and the docs runs, in order."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reclick.__main__ import main
from reclick.cli import app
from reclick.models import MODELS
from reclick.simulation import simulate

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/explanation/multiclick.md",
    "docs/reference/logs.md",
    "docs/reference/command-line.md",
    "docs/reference/evaluation.md",
    "docs/reference/exports.md",
    "docs/how-to/clean-a-log.md",
    "docs/explanation/luceclick.md",
    "docs/explanation/simulation.md",
    "docs/tutorials/your-own-model.md",
    "docs/quickstart.md",
    "docs/how-to/daily-job.md",
    "docs/how-to/new-ads.md",
    "docs/how-to/python.md",
    "docs/how-to/auction.md",
    "docs/reference/files.md",
)
ALL_PAGES = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of every fenced block."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def read_prose(page: str) -> str:
    """A page without its fenced blocks."""
    return BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def command_lines(page: str, program: str) -> Iterator[list[str]]:
    for language, text in blocks(page):
        if language == "sh":
            words = (shlex.split(line, comments=True) for line in text.splitlines())
            yield from (line for line in words if line and line[0] == program)


def make_anchor(heading: str) -> str:
    """The anchor of a Markdown heading."""
    return "#" + re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def run_python(text: str, names: dict[str, object]) -> None:
    exec(compile(text, "<block>", "exec"), names)  # noqa: S102, the blocks are ours


def run_shell(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the `reclick` commands of a block, and no others."""
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "reclick":
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as exit_info:
                main()
            assert exit_info.value.code in (0, None), line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log of eight days; the commands of the page write the rest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MODELS, "_registered", {})  # what a page registers goes with it
    monkeypatch.setattr(import_module("reclick.cli.demo_commands"), "SESSIONS", 2_000)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "logs").mkdir()
    for number, day in enumerate(simulate(300, weeks=8, queries=20).weeks, start=1):
        pq.write_table(day, tmp_path / "logs" / f"day{number}.parquet")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PAGES)
def test_everything_on_the_page_runs_in_reading_order(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, object] = {}
    for language, text in blocks(page):
        if language == "python":
            run_python(text, names)
        if language == "sh":
            run_shell(text, monkeypatch)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_something_to_run(page: str) -> None:
    languages = {language for language, _ in blocks(page)}
    assert "python" in languages or any(command_lines(page, "reclick"))


def test_every_command_has_an_example() -> None:
    examples = {words[1] for words in command_lines("docs/reference/command-line.md", "reclick")}
    assert examples == {
        command.callback.__name__ for command in app.registered_commands if command.callback
    }


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_named_is_in_the_makefile(page: str) -> None:
    targets = set(
        re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {words[1] for words in command_lines(page, "make")}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_to_files_that_are_there(page: str) -> None:
    linked = [target for target, _ in LINK.findall(read_prose(page)) if target]
    assert [target for target in linked if not ((ROOT / page).parent / target).exists()] == []


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_within_the_docs_lead_to_headings(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, anchor in LINK.findall(read_prose(page)):
        if anchor:
            other = (
                text if not target else ((ROOT / page).parent / target).read_text(encoding="utf-8")
            )
            assert anchor in {
                make_anchor(line) for line in other.splitlines() if line.startswith("#")
            }
