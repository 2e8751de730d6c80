"""What a folder of a simulation may hold."""

from __future__ import annotations

import re

from reclick.errors import UsageError
from reclick.runtime.filesystem import AnyPath


def refuse_other_weeks(folder: AnyPath, weeks: int) -> None:
    """Refuse a folder with more weeks than are written: it would hold two simulations under one name."""
    for path in folder.glob("week*.parquet"):
        number = re.fullmatch(r"week(\d+)\.parquet", path.name)
        if number and int(number[1]) > weeks:
            raise UsageError(
                f"{path} is of another simulation, and this one has {weeks} weeks. Remove it, or "
                "save to another folder."
            )
