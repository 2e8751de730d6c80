"""The public names: all there, sorted, lazy, and their examples true."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest

import reclick
from reclick.models.registry import BUILT_IN

MODULES = sorted(
    ["reclick", *(module.name for module in pkgutil.walk_packages(reclick.__path__, "reclick."))]
)


@pytest.mark.parametrize("name", reclick.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(reclick, name) is not None
    assert name in dir(reclick)


def test_public_names_are_sorted_and_listed_once() -> None:
    names = reclick.__all__
    assert len(set(names)) == len(names)
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    functions = [name for name in names if name[0].islower()]
    assert names == [*sorted(constants), *sorted(classes), *sorted(functions)]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Multiclick", "Did you mean 'MultiClick'?"),
        ("luceclick", "Did you mean 'LuceClick'?"),
        ("read_csv", "Did you mean 'read_ads', 'read_bids' or 'read_labels'?"),
        ("xyz", "dir(reclick) lists all names."),
    ],
)
def test_an_unknown_name_lists_the_right_ones(name: str, advice: str) -> None:
    message = re.escape(f"module 'reclick' has no attribute {name!r}. {advice}")
    with pytest.raises(AttributeError, match=f"^{message}$"):
        getattr(reclick, name)


def test_a_misspelt_setting_suggests_the_right_one() -> None:
    with pytest.raises(
        reclick.UsageError, match=r"LuceClick\. Did you mean 'components'\? Settings: attract"
    ):
        reclick.LuceClick(componets=2)  # type: ignore[call-arg]


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in result.stdout.split()}


def test_importing_reclick_loads_nothing_heavy() -> None:
    assert loaded_by("import reclick").isdisjoint(
        {"numba", "pyarrow", "duckdb", "numpy", "pandas", "polars", "scipy", "rich", "typer"}
    )


def test_reading_does_not_load_frames_that_the_caller_did_not() -> None:
    loaded = loaded_by(
        "import reclick; reclick.count({'query': ['q'], 'ads': [['a']], 'clicks': [[1]]})"
    )
    assert "numba" in loaded
    assert loaded.isdisjoint({"polars", "duckdb", "sklearn", "rich"})


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert reclick.__version__ == version("reclick")


@pytest.mark.parametrize("name", [name for name in MODULES if name != "reclick.__main__"])
def test_examples_in_docstrings_are_true(name: str) -> None:
    module = importlib.import_module(name)
    failures, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS, raise_on_error=False)
    assert failures == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tried = sum(
        len(test.examples)
        for name in MODULES
        if name != "reclick.__main__"
        for test in finder.find(importlib.import_module(name))
    )
    assert tried >= 250  # 267 today: examples that are lost are seen here


def test_a_public_name_is_never_hidden_by_a_module_of_that_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(reclick.__path__)}
    assert modules & set(reclick.__all__) == set(reclick._MODULES)
    for _ in range(2):  # a module imported by the first use must not stand in the way of the second
        names = set(reclick.__all__) - set(reclick._MODULES)
        assert all(not isinstance(getattr(reclick, name), ModuleType) for name in names)


def public_functions() -> Iterator[tuple[str, Any]]:
    """Every public function, and every public method and property of a public class."""
    for name in reclick.__all__:
        value = getattr(reclick, name)
        if inspect.isfunction(value):
            yield name, value
        elif isinstance(value, type):
            for key, member in vars(value).items():
                function = member.fget if isinstance(member, property) else member
                function = getattr(function, "__func__", function)
                if not key.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{key}", function


def names_in(annotation: object, function: Any) -> set[str]:
    """The names of the classes in an annotation, also of those behind an alias such as AnyPath."""
    if not isinstance(annotation, str):
        return set()
    names = {node.id for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)}
    aliases = [get_args(function.__globals__.get(name)) for name in names]
    return names | {part.__name__ for parts in aliases for part in parts if isinstance(part, type)}


def test_every_type_that_a_public_function_returns_is_public() -> None:
    classes = {
        name: value.__module__
        for module in MODULES
        if module != "reclick.__main__"
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, type) and value.__module__ == module and not name.startswith("_")
    }
    hidden = {
        (where, name)
        for where, function in public_functions()
        for name in names_in(inspect.signature(function).return_annotation, function)
        if name in classes and name not in reclick.__all__
    }
    assert hidden == set()
    assert isinstance(reclick.MODELS, reclick.ModelRegistry)
    argument = reclick.Argument("top", 3)
    assert reclick.ReclickError("Give ", argument, ".").args[1] == argument


def test_every_error_is_public() -> None:
    from reclick import errors

    tree = [errors.ReclickError]
    for error in tree:
        tree += error.__subclasses__()
    assert {error.__name__ for error in tree if error.__module__ == "reclick.errors"} <= set(
        reclick.__all__
    )


def test_every_model_is_public() -> None:
    names = {class_name for _, class_name in BUILT_IN.values()}
    assert names <= set(reclick.__all__)
    assert names <= set(reclick.models.__all__)
    assert all(getattr(reclick, reclick.MODELS[name].__name__) for name in BUILT_IN)


def test_one_model_loads_its_own_module_only() -> None:
    code = "import reclick, sys; reclick.UBM; print('\\n'.join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in out.stdout.split() if name.startswith("reclick.")}
    models = {f"reclick.models.{module}" for module, _ in BUILT_IN.values()}
    assert loaded & models == {"reclick.models.examination"}
    assert not any(name.startswith("reclick.models.luce") for name in loaded)
    assert len(loaded) < 100


def test_the_constructor_of_a_model_is_what_it_declares() -> None:
    signature = inspect.signature(reclick.UBM)
    assert str(signature.parameters["attractiveness_strength"]) == (
        "attractiveness_strength: 'str | float' = 'auto'"
    )
    assert reclick.UBM.attractiveness_strength == "auto"
    assert "3 if all pairs have the same" in reclick.UBM.settings["attractiveness_strength"].help
    assert "attractiveness_strength: strength of that prior" in (reclick.UBM.__init__.__doc__ or "")
    assert inspect.signature(reclick.UBM.__init__).parameters.keys() == {
        "self",
        *reclick.UBM.settings,
    }
    with pytest.raises(reclick.SettingError, match="'strength' is not a setting of UBM"):
        reclick.ClickModel.__init__(reclick.UBM(), strength=1)
    assert reclick.MultiClick(variant="normalized").variant == "normalised"
    folds: Any = np.int64(4)
    assert type(reclick.DBN(folds=folds).folds) is int
