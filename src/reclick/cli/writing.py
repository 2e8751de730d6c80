"""Where commands write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def folder_of(file: str) -> Iterator[None]:
    """Make the folder that a file is to be in, if it is not there; a command that fails leaves no empty one."""
    from reclick.errors import clear_write_errors

    folder = Path(file).parent
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with clear_write_errors(file):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with suppress(OSError):  # something else was put there meanwhile
                path.rmdir()
        raise
