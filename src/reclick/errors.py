"""The error tree. Every message says what is wrong, where, what was got, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike


class ReclickError(Exception):
    """Everything Reclick raises on purpose."""


class LogError(ReclickError, ValueError):
    """A log, an ads table or a labels table cannot be read as it is."""


class BadRowsError(LogError):
    """Some rows break the contract and `on_error` is "raise"."""


class SettingError(ReclickError, ValueError):
    """A setting or an argument has a value that makes no sense."""


class NotFittedError(ReclickError):
    """The model was asked before it was fitted."""


class CannotAnswerError(ReclickError):
    """The model, or the exact method, has no answer to this question."""


class StoreError(ReclickError):
    """A folder cannot be written; or one of a model or counts is missing, incomplete, altered or of another format."""


class MissingExtraError(ReclickError, ImportError):
    """An optional dependency is needed and not installed."""


@contextmanager
def clear_write_errors(
    where: str | PathLike[str], after: str = "What was there before is unchanged."
) -> Iterator[None]:
    """Say what to do when the system cannot write, and what state that leaves.

    >>> with clear_write_errors("model"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    reclick.errors.StoreError: model cannot be written ([Errno 28] No space left on device). The disk is full: free some space or give another \
folder. What was there before is unchanged.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "no space left" in str(error).lower()
        advice = (
            "The disk is full: free some space or give another folder."
            if full
            else "Give a folder that can be written."
        )
        raise StoreError(f"{where} cannot be written ({error}). {advice} {after}") from error
