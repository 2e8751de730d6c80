"""Imports point one way: each package of src/reclick imports only what stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reclick.models.registry import BUILT_IN
from tests.contracts.layers import (
    LEVEL,
    SOURCE,
    find_single_importers,
    find_violations,
    read_imports,
)

MOST_FILES = 276  # one more for each new model, format or export
# A model of text, an engine, a format of files, logs or exports, a family of click
# distributions, a section of the report, a part of the service or of the conformance kit; the
# search for hyperparameters, which is for every model; the market, which only `simulate` stands on.
STANDS_ALONE = (
    "fitting.search",
    "simulation.market",
    "engines.",
    "text.poisson_regression",
    "text.similarity",
    "logs.files.",
    "logs.formats.",
    "exports.",
    "clicks.",
    "report.sections.",
    "service.",
    "testing.",
)
MODELS = {f"models.{module}" for module, _ in BUILT_IN.values()}
# Helpers of models with one importer: a step of a long file, or imported when it is called.
PARTS_OF_MODELS = {
    "models.base.answers",  # one of the four parts of ClickModel
    "models.bucket_fit",  # fits in buckets, when they are called
    "models.bucket_luce",  # LuceClick's, when it is fitted in buckets
    "models.explanation",  # when `explain` is called
    "models.kernels.examination_mixture",  # kernels: of components, when there are several
    "models.kernels.examination_posterior",  # of BBM
    "models.luce.search",  # LuceClick's hyperparameters
}
ENTRY_POINTS = {"cli", "testing", "__main__", "rankings", "logs.events"}


def test_imports_point_down_the_layers() -> None:
    assert find_violations(read_imports()) == []


def test_every_package_has_a_layer() -> None:
    names = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names - {"__init__", "__pycache__", "py"} <= set(LEVEL) | {"py.typed"}


@pytest.mark.parametrize(
    ("file", "statement", "found"),
    [
        ("data/broken.py", "from reclick.engines.base import Engine", 1),
        ("data/broken.py", "from reclick.errors import LogError", 0),
        ("models/broken.py", "from reclick.metrics import METRICS", 1),
        ("exports/broken.py", "def f():\n    from reclick.metrics import METRICS", 1),
        ("evaluation/broken.py", "from reclick.report import to_html", 1),
        ("evaluation/broken.py", "def f():\n    from reclick.report import to_html", 0),
        ("data/broken.py", "from reclick import evaluate", 1),
        ("data/broken.py", "import reclick as rc", 1),
        ("data/broken.py", "from ..engines import LocalEngine", 1),
        ("data/broken.py", "from .. import engines", 1),
        ("data/broken.py", "from .ragged import Float64", 0),
        ("runtime/broken.py", "from reclick import __version__", 0),
        ("logs/broken.py", "if TYPE_CHECKING:\n    from reclick.models import UBM", 0),
    ],
)
def test_an_import_that_points_up_is_refused(
    tmp_path: Path, file: str, statement: str, found: int
) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(statement)
    assert len(find_violations(read_imports(tmp_path))) == found


def test_a_file_has_more_than_one_reader_or_is_a_model_a_format_or_a_section() -> None:
    single = find_single_importers()
    alone = {
        name: who
        for name, who in single.items()
        if not name.startswith(STANDS_ALONE)
        and name not in ENTRY_POINTS | MODELS | PARTS_OF_MODELS
        and not name.endswith("_commands")
    }
    assert alone == {}, "merge each into the module that imports it"
    assert set(single) >= PARTS_OF_MODELS, "it needs no exception"


def test_there_are_not_too_many_files() -> None:
    assert len(list(SOURCE.rglob("*.py"))) <= MOST_FILES
