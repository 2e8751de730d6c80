"""Run the notebooks of this folder and keep their output: `python docs/tutorials/run.py`.

`python docs/tutorials/run.py NAME... --to FOLDER` runs some of them and writes the results there.
What a notebook writes goes to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
ALL = sorted(path.stem for path in HERE.glob("*.ipynb"))


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """A notebook with fresh outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=300, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which would differ at every run
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=ALL)
    parser.add_argument("--to", type=Path, default=HERE)
    arguments = parser.parse_args()
    os.environ["RECLICK_PROGRESS"] = "0"  # progress is not part of what a notebook shows
    for name in arguments.names:
        start = time.perf_counter()
        result = run_notebook(HERE / f"{name}.ipynb")
        nbformat.write(result, arguments.to / f"{name}.ipynb")
        print(f"{name}: {time.perf_counter() - start:.1f} s")  # noqa: T201
