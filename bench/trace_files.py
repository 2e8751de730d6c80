"""How many files of reclick execute at least one function during a command.

`python -m bench trace_files` simulates a small log and traces `reclick fit --model ubm` and
`reclick evaluate` (seven models with ad text and labels, and three models without; report as HTML),
each in a separate process. Module bodies, class bodies and code that runs during an import do not
count; neither do kernels, which are machine code. The traced `reclick` is the one that this Python
imports.
"""

from __future__ import annotations

import inspect
import json
import runpy
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench.measure import print_row

IMPORT_MACHINERY = "<frozen importlib._bootstrap>"
MODELS = "luceclick,multiclick,dbn,icm,pm,am,ubm"
FEW_MODELS = "multiclick,ubm,dbn"
MAX_FILES, MAX_FIT, MAX_EVALUATE = 175, 28, 65


def find_package() -> Path:
    """The folder of the package."""
    spec = find_spec("reclick")
    if spec is None or spec.origin is None:
        sys.exit("reclick is not installed in this Python.")
    return Path(spec.origin).parent


class Tracer:
    """A profile function that records the files of the package whose functions run."""

    def __init__(self, package: Path) -> None:
        self.prefix = f"{package}/"
        self.files: set[str] = set()  # with a function that ran outside of imports
        self.files_in_imports: set[str] = set()
        self.counted_codes: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record one call."""
        code = frame.f_code
        if event != "call" or code in self.counted_codes:
            return
        if not code.co_filename.startswith(self.prefix):
            self.counted_codes.add(code)
            return
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or of a class
            return
        if is_importing(frame):
            self.files_in_imports.add(code.co_filename.removeprefix(self.prefix))
        else:
            self.files.add(code.co_filename.removeprefix(self.prefix))
            self.counted_codes.add(code)


def is_importing(frame: FrameType) -> bool:
    """Whether an import is one of the callers of this frame."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename == IMPORT_MACHINERY:
            return True
        caller = caller.f_back
    return False


def trace_command(target: Path, arguments: list[str]) -> None:
    """Run one command of reclick in this process, and write the names of the files as JSON."""
    tracer = Tracer(find_package())
    sys.argv = ["reclick", *arguments]
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        runpy.run_module("reclick", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    modules = [sys.modules[name] for name in sys.modules if name.split(".")[0] == "reclick"]
    imported_files = {str(module.__file__).removeprefix(tracer.prefix) for module in modules}
    sets = {
        "ran": tracer.files,
        "only_in_imports": tracer.files_in_imports - tracer.files,
        "imported": imported_files,
    }
    target.write_text(json.dumps({name: sorted(files) for name, files in sets.items()}))


def trace_apart(folder: Path, arguments: list[str]) -> dict[str, list[str]]:
    """Trace one command in a separate process."""
    target = folder / "files.json"
    command = [sys.executable, "-m", "bench.trace_files", str(target), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    files: dict[str, list[str]] = json.loads(target.read_text())
    return files


def report_files(title: str, files: dict[str, list[str]]) -> str:
    """The number of files of a command, and their names."""
    numbers = (
        f"{title}: {len(files['ran'])} files ran a function "
        f"({len(files['imported'])} modules imported; "
        f"{len(files['only_in_imports'])} more ran functions only during imports)"
    )
    return "\n".join([numbers, *(f"    {name}" for name in files["ran"])])


def main() -> bool:
    """Print the files of each command, and return whether every limit holds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        logs = folder / "logs"
        simulate = ["simulate", "--to", str(logs), "--sessions", "2000", "--seed", "0"]
        subprocess.run(
            [sys.executable, "-m", "reclick", *simulate], check=True, stdout=subprocess.DEVNULL
        )
        week1, week2, week3 = (str(logs / f"week{number}.parquet") for number in (1, 2, 3))
        fit = ["fit", week2, "--model", "ubm", "--to", str(folder / "model")]
        evaluate = ["evaluate", "--history", week1, "--train", week2, "--test", week3]
        labels = ["--ads", str(logs / "ads.parquet"), "--labels", str(logs / "labels.parquet")]
        many = [*evaluate, *labels, "--models", MODELS, "--to", str(folder / "many")]
        few = [*evaluate, "--models", FEW_MODELS, "--to", str(folder / "few")]
        files_by_command = {
            "reclick fit LOG --model ubm": trace_apart(folder, fit),
            f"reclick evaluate --ads --labels --models {MODELS}": trace_apart(folder, many),
            f"reclick evaluate --models {FEW_MODELS}": trace_apart(folder, few),
        }
        if not all((folder / name / "report.html").exists() for name in ("many", "few")):
            sys.exit("An evaluation wrote no HTML report.")
    print("\nFiles of reclick in which a function runs during a command\n")
    for title, files in files_by_command.items():
        print(f"{report_files(title, files)}\n")
    total = len(list(find_package().rglob("*.py")))
    fit_files, evaluate_files, _ = (len(files["ran"]) for files in files_by_command.values())
    rows = (
        ("files in total", total, MAX_FILES),
        ("reclick fit --model ubm", fit_files, MAX_FIT),
        ("reclick evaluate, seven models with text and labels", evaluate_files, MAX_EVALUATE),
    )
    results = [print_row(what, f"{n}", f"≤ {limit}", n <= limit) for what, n, limit in rows]
    return all(results)


if __name__ == "__main__":
    trace_command(Path(sys.argv[1]), sys.argv[2:])
