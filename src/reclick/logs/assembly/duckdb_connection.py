"""DuckDB with a limit to its memory, a folder to spill to, and a clear word when neither is enough."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from reclick.errors import StoreError

MEMORY = "384MB"
MOST_THREADS = 4  # each needs memory of its own


def bounded_engine(folder: Path) -> Any:
    """A connection that keeps to its memory and spills to the folder."""
    import duckdb

    threads = str(min(MOST_THREADS, os.cpu_count() or 1))
    return duckdb.connect(
        config={
            "memory_limit": MEMORY,
            "temp_directory": str(folder),
            "preserve_insertion_order": "false",
            "threads": threads,
        }
    )


def raise_clearly(error: BaseException | None, folder: Path) -> None:
    """Raise what a user can act on in place of DuckDB's own error of memory or disk; leave any other alone."""
    import duckdb

    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        what = str(error).splitlines()[0]
        raise StoreError(
            f"{folder}: the log cannot be sorted there ({what}). Free some space, or give another folder (TMPDIR)."
        ) from error
