"""A time limit for long work. Long work checks it regularly, and stops by itself.

A thread cannot be stopped from outside: a request that has been given up would keep it busy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from reclick.errors import ReclickError

_limit: ContextVar[tuple[float, float] | None] = ContextVar("time_limit", default=None)


class TimeLimitError(ReclickError):
    """Work took longer than `time_limit` allows."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the time of the block: after it, `check_time` raises an error."""
    token = _limit.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def check_time() -> None:
    """Raise a TimeLimitError if the time is over; do nothing if there is no limit.

    >>> with time_limit(0.0):
    ...     check_time()
    Traceback (most recent call last):
    ...
    reclick.runtime.time_limit.TimeLimitError: It took more than 0 seconds. Send a smaller request.
    """
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[0]:
        raise TimeLimitError(f"It took more than {limit[1]:g} seconds. Send a smaller request.")
