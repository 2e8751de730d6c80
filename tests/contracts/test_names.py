"""Names of src/reclick: one class per name, and no function or variable is a bare participle."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.layers import SOURCE

# Irregular participles, and adjectives of the same use. Regular ones end in -ed.
PARTICIPLES = frozenset(
    (
        "asked",
        "beside",
        "bought",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "dealt",
        "done",
        "drawn",
        "driven",
        "found",
        "given",
        "gone",
        "grown",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "leapt",
        "led",
        "left",
        "longer",
        "lost",
        "made",
        "many",
        "meant",
        "met",
        "paid",
        "plain",
        "said",
        "seen",
        "sent",
        "short",
        "shown",
        "sold",
        "sought",
        "sound",
        "spent",
        "spoken",
        "taken",
        "taught",
        "thought",
        "told",
        "torn",
        "understood",
        "whole",
        "won",
        "written",
    )
)
# As variables these are adjectives, sides, or names of public fields and of the progress protocol.
ALLOWED_VARIABLES = frozenset(
    {"broken", "done", "hidden", "kept", "left", "longer", "plain", "short", "whole", "written"}
)
VERBS_IN_ED = frozenset({"embed", "feed", "need", "seed", "speed", "exceed", "proceed", "shed"})
Function = ast.FunctionDef | ast.AsyncFunctionDef
TINY = 1e-3  # smaller constants are tolerances
PROPERTIES = frozenset({"property", "cached_property"})


def read_definitions(source: Path) -> Iterator[tuple[Path, ast.ClassDef | Function]]:
    """Every class and function of the sources, with its file."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | Function):
                yield path, node


def find_duplicate_classes(source: Path) -> dict[str, int]:
    """Names that more than one class has."""
    names = Counter(
        node.name.lstrip("_")
        for _, node in read_definitions(source)
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in names.items() if count > 1}


def find_participles(source: Path) -> list[str]:
    """Functions and methods (except properties) that are named by a bare participle."""
    return [
        f"{path.relative_to(source)}:{node.lineno} {node.name}"
        for path, node in read_definitions(source)
        if isinstance(node, Function) and is_participle(node.name) and not is_property(node)
    ]


def find_participle_variables(source: Path) -> list[str]:
    """Variables and parameters that are named by a bare irregular participle."""
    return [
        f"{path.relative_to(source)} {name}"
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name | ast.arg)
        for name in variable_names(node)
        if name.strip("_") in PARTICIPLES - ALLOWED_VARIABLES
    ]


def find_repeated_tolerances(source: Path) -> dict[str, list[str]]:
    """Names of constants that several files define, at least one of them as a tiny number.

    A tolerance has one name and one definition: with the same name elsewhere, it would be taken for
    the same one, and another value for a mistake.
    """
    files: dict[str, list[str]] = {}
    tiny = set()
    for path in sorted(source.rglob("*.py")):
        for name, value in read_constants(ast.parse(path.read_text(encoding="utf-8"))):
            files.setdefault(name, []).append(str(path.relative_to(source)))
            if isinstance(value, float) and 0 < abs(value) < TINY:
                tiny.add(name)
    return {name: files[name] for name in sorted(tiny) if len(files[name]) > 1}


def read_constants(module: ast.Module) -> Iterator[tuple[str, object]]:
    """The names and values of the constants of a module that are literals."""
    for node in module.body:
        if not isinstance(node, ast.Assign) or len(node.targets) > 1:
            continue
        target, value = node.targets[0], node.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        names = target.elts if isinstance(target, ast.Tuple) and several else [target]
        values = value.elts if isinstance(value, ast.Tuple) and several else [value]
        for each, literal in zip(names, values, strict=True):
            if isinstance(each, ast.Name) and isinstance(literal, ast.Constant):
                yield each.id, literal.value


def variable_names(node: ast.AST) -> list[str]:
    """The variable that a node assigns, or the parameter that it declares."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return [node.arg] if isinstance(node, ast.arg) else []


def is_participle(name: str) -> bool:
    """Whether a name is one word, and that a participle."""
    word = name.strip("_")
    regular = word.endswith("ed") and "_" not in word and word not in VERBS_IN_ED
    return word in PARTICIPLES or regular


def is_property(node: Function) -> bool:
    """Whether a method is read like an attribute: `model.fitted` states a fact."""
    names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return bool(names & PROPERTIES)


def test_no_two_classes_have_the_same_name() -> None:
    assert find_duplicate_classes(SOURCE) == {}


def test_no_function_is_a_bare_participle() -> None:
    assert find_participles(SOURCE) == []


def test_no_variable_is_a_bare_participle() -> None:
    assert find_participle_variables(SOURCE) == []


def test_every_tolerance_has_one_definition() -> None:
    assert find_repeated_tolerances(SOURCE) == {}


def test_a_second_tolerance_of_a_name_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("MOST, EDGE = 5, 1e-9\nMARGIN = 1e-9")
    (tmp_path / "b.py").write_text("EDGE = 0.5\nMOST = 3")
    assert find_repeated_tolerances(tmp_path) == {"EDGE": ["a.py", "b.py"]}


@pytest.mark.parametrize("line", ["found = 1", "def read(given): ...", "for told in (): ..."])
def test_a_participle_as_a_variable_is_recognised(line: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(line)
    assert len(find_participle_variables(tmp_path)) == 1


@pytest.mark.parametrize("name", ["told", "_dealt", "joined", "kept", "__given__", "padded"])
def test_a_participle_is_recognised(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"def {name}(): ...\nasync def {name}(): ...")
    assert len(find_participles(tmp_path)) == 2


@pytest.mark.parametrize("name", ["join", "feed", "read", "with_clicks", "sorted_pairs", "split"])
def test_a_verb_is_not_a_participle(name: str, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(f"def {name}(): ...")
    assert find_participles(tmp_path) == []


def test_a_second_class_of_a_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Totals: ...")
    (tmp_path / "b.py").write_text("class _Totals: ...")
    assert find_duplicate_classes(tmp_path) == {"Totals": 2}
