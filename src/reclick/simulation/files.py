"""Writing several files so that each is whole or not there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from reclick.errors import SettingError, clear_write_errors


def write_files(folder: Path, writers: dict[str, Callable[[Path], object]]) -> list[Path]:
    """Write every file beside its place, then move all of them there."""
    beside = {folder / name: folder / f".{name}.{uuid4().hex}" for name in writers}
    with clear_write_errors(folder, "Every file there is whole."), contextlib.ExitStack() as cleaning:
        folder.mkdir(parents=True, exist_ok=True)
        for path, write in zip(beside.values(), writers.values(), strict=True):
            cleaning.callback(path.unlink, missing_ok=True)
            write(path)
        for target, path in beside.items():
            path.replace(target)
    return list(beside)


def refuse_other_weeks(folder: Path, weeks: int) -> None:
    """Refuse a folder with more weeks than are written: it would hold two simulations under one name."""
    for path in sorted(folder.glob("week*.parquet")):
        number = re.fullmatch(r"week(\d+)\.parquet", path.name)
        if number and int(number[1]) > weeks:
            raise SettingError(f"{path} is of another simulation, and this one has {weeks} weeks. Remove it, or save to another folder.")
