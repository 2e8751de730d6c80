"""What a campaign is: attempts that follow from a seed, and failures that are kept."""

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
    """What an attempt showed that must not be."""

    kind: str  # "crash", "traceback", "hang", "memory", "wrong answer", "mixed state", …
    message: str


class Campaign(ABC):
    """Attempts of one type. What an attempt needs is written to a folder, and kept if it fails."""

    name: ClassVar[str]
    share: ClassVar[float] = 1.0  # of the time

    def prepare(self, folder: Path) -> None:  # noqa: B027, most need nothing
        """Make what all attempts use, once per process."""

    @abstractmethod
    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Try one thing in an empty folder; None if all is well."""


def explain_outcome(outcome: Outcome, what: str = "") -> Failure | None:
    """The failure that a child shows by the way it ended, if it does."""
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
    """A shorter content that fails in the same way: pieces are left out while it still does."""
    attempts, size, end = 0, len(content) // 2, time.monotonic() + SHRINK_SECONDS
    while size and attempts < SHRINK_ATTEMPTS and time.monotonic() < end:
        start, changed = 0, False
        while start < len(content) and attempts < SHRINK_ATTEMPTS and time.monotonic() < end:
            shorter = content[:start] + content[start + size :]
            attempts += 1
            if fails(shorter):
                content, changed = shorter, True
            else:
                start += size
        size = size if changed and size > 1 else size // 2
    return content
