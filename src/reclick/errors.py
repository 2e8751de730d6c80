"""The error tree. Every message says what is wrong, where, what was got, and what to do."""

from __future__ import annotations


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
    """A model or counts folder is missing, incomplete, altered or of another format."""


class MissingExtraError(ReclickError, ImportError):
    """An optional dependency is needed and not installed."""
