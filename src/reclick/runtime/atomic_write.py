"""Writing files so that each is whole or not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from reclick.errors import clear_write_errors


def write_files(folder: Path, writers: dict[str, Callable[[Path], object]]) -> list[Path]:
    """Write every file beside its place, then move all of them there."""
    beside = {folder / name: _beside(folder / name) for name in writers}
    with (
        clear_write_errors(folder, "Every file there is whole."),
        made(folder),
        contextlib.ExitStack() as cleaning,
    ):
        for path, write in zip(beside.values(), writers.values(), strict=True):
            cleaning.callback(path.unlink, missing_ok=True)
            write(path)
        for target, path in beside.items():
            path.replace(target)
    return list(beside)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Where to write a file, beside its place; at the end it is moved there, and after an error it goes."""
    beside = _beside(target)
    with clear_write_errors(target), made(target.parent):
        try:
            yield beside
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, if it is not there; after an error no new one is left, unless something is in it."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid4().hex}")
