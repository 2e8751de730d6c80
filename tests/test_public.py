"""The public names: all there, sorted, lazy, and their examples true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import reclick

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


def test_an_unknown_name_lists_the_right_ones() -> None:
    with pytest.raises(
        AttributeError,
        match=r"module 'reclick' has no attribute 'Multiclick'\. It has: AM, .*MultiClick",
    ):
        _ = reclick.Multiclick


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
    assert tried >= 20


def test_a_public_name_is_never_hidden_by_a_module_of_that_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(reclick.__path__)}
    assert not modules & set(reclick.__all__)
    for _ in range(2):  # a module imported by the first use must not stand in the way of the second
        assert all(not isinstance(getattr(reclick, name), ModuleType) for name in reclick.__all__)
