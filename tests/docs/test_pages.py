"""Every Python block and every `reclick` command of the README and the docs runs, in order."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from reclick.__main__ import main
from reclick.cli import app
from reclick.models import MODELS
from reclick.runtime.outputs import atomic_file
from reclick.simulation import simulate
from tests.support.format_samples import NAMES, write_sample

ROOT = Path(__file__).parents[2]
ALL_PAGES = sorted(
    str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
# `reclick` is run, targets of `make` are looked up
PROGRAMS = {"reclick", "make", "pip", "python3"}
MARKER = re.compile(r"<!-- not run: (.+) -->\n\n\Z")  # before a block that cannot run: why
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of every fenced block, except for those that say why not."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        (block[1], block[2])
        for block in BLOCK.finditer(text)
        if not MARKER.search(text, 0, block.start())
    ]


def has_code(page: str) -> bool:
    return any(language in ("python", "sh") for language, _ in blocks(page))


PAGES = [
    page
    for page in ALL_PAGES
    if has_code(page) and (not page.startswith("docs/models/") or page.endswith("index.md"))
]  # the page of each model is run by test_models.py


def read_prose(page: str) -> str:
    """A page without its fenced blocks."""
    return BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def command_lines(page: str, program: str) -> Iterator[list[str]]:
    for language, text in blocks(page):
        if language == "sh":
            words = (shlex.split(line, comments=True) for line in text.splitlines())
            yield from (line for line in words if line and line[0] == program)


def load_script(name: str) -> ModuleType:
    """A script of docs/."""
    spec = spec_from_file_location(name.replace("/", "_"), ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    """A folder with a log of eight days and samples; the commands of the page write the rest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(MODELS, "_registered", {})  # what a page registers goes with it
    monkeypatch.setattr(import_module("reclick.cli.demo_commands"), "SESSIONS", 2_000)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "logs").mkdir()
    market = simulate(300, weeks=8, queries=20)
    with atomic_file(tmp_path / "logs" / "ads.parquet") as ads:  # so that Reclick may replace it
        pq.write_table(market.ads, ads)
    for number, day in enumerate(market.weeks, start=1):
        pq.write_table(day, tmp_path / "logs" / f"day{number}.parquet")
    for name in NAMES:
        write_sample(name, tmp_path)
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
def test_no_other_program_is_needed(page: str) -> None:
    lines = [
        line for language, text in blocks(page) if language == "sh" for line in text.split("\n")
    ]
    words = [shlex.split(line, comments=True) for line in lines]
    assert {line[0] for line in words if line} <= PROGRAMS


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
@pytest.mark.usefixtures("folder")
def test_the_output_shown_is_the_output(page: str) -> None:
    """If it is not: python docs/outputs.py."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert load_script("outputs").with_outputs(text) == text


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 9_000
    assert (ROOT / "docs" / "pictures" / "report.png").stat().st_size <= 200_000


def test_the_pictures_are_those_that_the_script_draws() -> None:
    """If they are not: python docs/pictures/draw.py."""
    for name, picture in load_script("pictures/draw").draw_all().items():
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == picture


def test_every_command_has_an_example() -> None:
    text = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    shell = "".join(block[2] for block in BLOCK.finditer(text) if block[1] == "sh")
    examples = set(re.findall(r"^reclick ([\w-]+)", shell, re.MULTILINE))
    assert examples == {
        command.callback.__name__.replace("_", "-")
        for command in app.registered_commands
        if command.callback
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
