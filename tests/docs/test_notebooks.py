"""The notebooks of docs/tutorials run, and have been stored with their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(FOLDER / "run.py"), name, "--to", str(tmp_path)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 0, ended.stderr
    fresh, stored = code_cells(tmp_path / f"{name}.ipynb"), code_cells(FOLDER / f"{name}.ipynb")
    assert [bool(cell["outputs"]) for cell in fresh] == [bool(cell["outputs"]) for cell in stored]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_stored_with_the_output_of_one_run_in_order(name: str) -> None:
    """If it is not: python docs/tutorials/run.py."""
    cells = code_cells(FOLDER / f"{name}.ipynb")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 150_000
