"""How far a long job is, and who is told.

What reads or writes rows takes a `progress`, which is told of the rows. A fit is deep down in a model: it tells, and `listening` says to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int, int | None], object]  # rows done, rows in all when known
Told = Callable[
    [str, int, int | None], object
]  # what is being done, how far, of how much when known


def nobody(what: str, done: int, total: int | None) -> None:
    """Tell nobody."""


_listener: ContextVar[Told] = ContextVar("listener", default=nobody)


@contextmanager
def listening(listener: Told) -> Iterator[None]:
    """Have the listener told how far fits are.

    >>> from reclick.models import UBM
    >>> heard = []
    >>> with listening(lambda what, done, total: heard.append((what, done))):
    ...     model = UBM(max_iterations=2, tolerance=0).fit({"query": ["q"], "ads": [["a"]], "clicks": [[1]]})
    >>> heard
    [('iterations', 1), ('iterations', 2)]
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, done: int, total: int | None = None) -> None:
    """Tell whoever listens."""
    _listener.get()(what, done, total)
