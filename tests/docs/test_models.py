"""docs/models: every model has its page and its picture, and the tables agree with the models."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

from reclick.models import MODELS

DOCS = Path(__file__).parents[2] / "docs" / "models"
every_model = pytest.mark.parametrize("name", MODELS)


def read_page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def rows_under(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose first line starts with `head`."""
    lines = text.split(head, 1)[1].splitlines()[2:]
    table = lines[
        : next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def script(name: str) -> ModuleType:
    """A script of docs/models."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_model
def test_the_table_of_settings_is_that_of_the_code(name: str) -> None:
    """If it is not: python docs/models/settings.py."""
    assert script("settings").with_table(read_page(name), name) == read_page(name)
    written = {
        row[0].strip("` "): ast.literal_eval(row[1].strip("`"))
        for row in rows_under(read_page(name), "| setting | default |")
    }
    assert written == MODELS[name]().get_params()


@every_model
def test_the_page_has_a_formula_and_says_what_it_can_and_cannot_answer(name: str) -> None:
    text = read_page(name)
    assert text.count("$$") >= 2
    for needed in (
        "**Assumes.**",
        "## Fitting",
        "- Can: ",
        "- Cannot: ",
        "- Use it for: ",
        "## Reference",
        f"]({name}.svg)",
    ):
        assert needed in text
    assert ("with the order of clicks" in text) == MODELS[name].ordered
    assert ("| satisfaction |" in text) == MODELS[name].satisfaction


@every_model
def test_the_examples_on_the_page_run(name: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", read_page(name), re.MULTILINE | re.DOTALL)
    assert any(f'MODELS["{name}"]' in block for block in blocks)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "<block>", "exec"), names)  # noqa: S102, the blocks are ours


@every_model
def test_the_picture_is_the_one_that_the_script_draws(name: str) -> None:
    picture = (DOCS / f"{name}.svg").read_text(encoding="utf-8")
    assert picture == script("draw").svg(name)
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314, the file is ours
    assert "http" not in picture.replace(
        "http://www.w3.org/2000/svg", ""
    )  # nothing is loaded from elsewhere


def test_there_is_no_page_or_picture_of_a_model_that_is_not_there() -> None:
    for ending in ("md", "svg"):
        assert {path.stem for path in DOCS.glob(f"*.{ending}")} - {"index"} == set(MODELS)
    assert set(script("draw").GRAPHS) == set(MODELS)


def test_the_table_of_models_is_the_one_that_the_script_writes() -> None:
    """If it is not: python docs/models/overview.py."""
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    assert script("overview").with_table(page) == page


def test_the_table_of_models_is_that_of_the_code() -> None:
    rows = rows_under((DOCS / "index.md").read_text(encoding="utf-8"), "| name | assumes |")
    answers = {True: "yes", False: "no"}
    expected = [
        [
            f"[{name}]({name}.md)",
            model.assumes,
            answers[model.ordered],
            answers[model.satisfaction],
            model.reference,
        ]
        for name, model in ((name, MODELS[name]) for name in MODELS)
    ]
    assert sorted([*row[:4], row[5].strip("| ")] for row in rows) == sorted(expected)
    for row in rows:
        name = row[0].split("]")[0].strip("| [")
        iterative = "max_iterations" in MODELS[name]().get_params()
        assert row[4].startswith(("EM", "L-BFGS")) == iterative
