"""Campaigns: attempts that a seed determines, and failures whose inputs are saved."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from torture.children import MEMORY_LIMIT, Outcome

SHRINK_ATTEMPTS, SHRINK_SECONDS = 300, 20.0


class Failure(NamedTuple):
    """What went wrong in an attempt."""

    kind: str  # "crash", "traceback", "hang", "memory", "wrong answer", "mixed state", …
    message: str


class Campaign(ABC):
    """Attempts of one type. Their inputs are written to a folder, which is saved on failure."""

    name: ClassVar[str]
    share: ClassVar[float] = 1.0  # of the time, relative to other campaigns

    def prepare(self, folder: Path) -> None:  # noqa: B027, most need nothing
        """Prepare what all attempts use, once per process."""

    @abstractmethod
    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Make one attempt in an empty folder; returns None if nothing fails."""


def explain_outcome(outcome: Outcome, what: str = "") -> Failure | None:
    """The failure that the outcome of a child shows, or None."""
    about = f"{what}: " if what else ""
    if outcome.status == "killed":
        return Failure("crash", f"{about}{outcome.message}")
    if outcome.status == "traceback":
        return Failure("traceback", f"{about}{outcome.message}")
    if outcome.status == "hung":
        return Failure("hang", f"{about}{outcome.message}")
    if outcome.peak > MEMORY_LIMIT:
        return Failure("memory", f"{about}{outcome.peak >> 20} MB")
    return None


def shrink(content: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Leave out pieces of the content as long as it fails in the same way; returns the rest."""
    attempts, size, end = 0, len(content) // 2, time.monotonic() + SHRINK_SECONDS
    while size and attempts < SHRINK_ATTEMPTS and time.monotonic() < end:
        start, has_shrunk = 0, False
        while start < len(content) and attempts < SHRINK_ATTEMPTS and time.monotonic() < end:
            shorter = content[:start] + content[start + size :]
            attempts += 1
            if fails(shorter):
                content, has_shrunk = shorter, True
            else:
                start += size
        size = size if has_shrunk and size > 1 else size // 2
    return content
