"""Run Python programs with the sources and the environment of this checkout or of another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Checkout(NamedTuple):
    """A folder with the sources of Reclick, and the Python that runs them."""

    folder: Path
    python: str

    def run(self, program: str) -> str:
        """Run a program in a separate process, and return the last line that it prints."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        completed_process = subprocess.run(
            [self.python, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if completed_process.returncode:
            raise RuntimeError(completed_process.stderr)
        return completed_process.stdout.splitlines()[-1] if completed_process.stdout else ""

    def find_revision(self) -> str | None:
        """The hash of the folder `src` in the last commit; None if files have changed since."""
        git = ["git", "-C", str(self.folder)]
        commands = ["status", "--porcelain", "src"], ["rev-parse", "--short", "HEAD:src"]
        changes, revision = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout
            for command in commands
        )
        return None if changes else revision.strip()


THIS_CHECKOUT = Checkout(Path(__file__).parents[1], sys.executable)


def open_checkout(folder: str) -> Checkout:
    """The checkout in a folder, which must have its own environment in `.venv`."""
    return Checkout(Path(folder), str(Path(folder) / ".venv" / "bin" / "python"))
