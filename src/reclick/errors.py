"""The error tree. Every message says what is wrong, where, what was got, and what to do."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """An argument named in a message: the command line shows it as its own option.

    `value` is a value to give it; `...` leaves the value open, and without one the name stands
    alone. `option` is its name on the command line, where that is another.

    >>> str(Argument("max_ads")), str(Argument("by", ...)), str(Argument("cuts", (0.05, 0.2)))
    ('max_ads', 'by=…', 'cuts=(0.05, 0.2)')
    >>> str(Argument("columns", {"query": ...}))
    "columns={'query': ...}"
    """

    name: str
    value: Any = None
    option: str = ""

    def __str__(self) -> str:
        name = self.name if isinstance(self.name, str) else _shorten(self.name)
        if self.value is None:
            return name
        if isinstance(self.value, dict):
            items = (f"{k!r}: {'...' if v is ... else repr(v)}" for k, v in self.value.items())
            return f"{name}={{{', '.join(items)}}}"
        return f"{name}={'…' if self.value is ... else repr(self.value)}"


LONGEST_VALUE = 200  # characters of a value in a message
Part = str | Argument  # a message is text and arguments in turn
# In an address of Azure a container stands before the @, and only what follows a colon is secret.
USERINFO = re.compile(
    r"(?<=://)(?:(?<!abfs://)(?<!abfss://)[^\s/@]+|[^\s/@:]+:[^\s/@]+|[^\s/@:]+:(?!\d+/)[^\s@]+)@"
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
LONG_WORD = re.compile(r"(\S{800})\S+")  # a name of others, which must not bury the message
SIGNATURE = re.compile(
    r"([?&][\w.-]*(?:sig|signature|token|key|keyid|secret|password|credential)=)[^\s&'\"),;]*\b",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Hide user names, passwords and signatures of URIs.

    >>> mask_secrets("s3://KEY:SECRET@bucket/x, https://host/x.csv?part=1&sig=a%2Fb.")
    's3://***@bucket/x, https://host/x.csv?part=1&sig=***.'
    """
    return SIGNATURE.sub(r"\1***", USERINFO.sub("***@", text))


def escape_controls(text: str) -> str:
    r"""Show control characters, which a terminal would obey, and half surrogate pairs as escapes.

    >>> escape_controls("a\x1b[31mb\nc")
    'a\\x1b[31mb\nc'
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class ReclickError(Exception):
    """Everything Reclick raises on purpose.

    A message is given in parts, text and `Argument`s; `str(error)` has the arguments as in Python.
    Secrets of URIs are masked.

    >>> error = ReclickError("Page too long. Raise ", Argument("max_ads"), ".")
    >>> str(error), error.render(lambda argument: "--" + argument.name.replace("_", "-"))
    ('Page too long. Raise max_ads.', 'Page too long. Raise --max-ads.')
    """

    def __init__(self, *parts: Part) -> None:
        super().__init__(*parts)

    def parts(self, *, python: bool) -> Sequence[Part]:
        """The message: text and arguments in turn, as it is read in Python or elsewhere."""
        return self.args

    def render(self, spell: Callable[[Argument], str] | None = None) -> str:
        """The message with every argument as `spell` writes it, by default as in Python."""
        parts = self.parts(python=spell is None)
        write = spell or str
        text = "".join(write(part) if isinstance(part, Argument) else str(part) for part in parts)
        return LONG_WORD.sub(r"\1…", mask_secrets(escape_controls(text)))

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:  # not of `args`: a SettingError has none
        return f"{type(self).__name__}({self.render()!r})"


class LogError(ReclickError, ValueError):
    """A log, an ads table or a labels table cannot be read as it is."""


class BadRowsError(LogError):
    """Some rows break the contract and `on_error` is "raise"."""


class SettingError(ReclickError, ValueError):
    """A setting or an argument has a value that makes no sense.

    >>> error = SettingError("first", 0, "a whole number of 1 or more", or_none=True)
    >>> str(error)
    'first: got 0, expected a whole number of 1 or more, or None.'
    >>> error.argument, error.got, error.expected
    ('first', 0, 'a whole number of 1 or more')
    """

    def __init__(
        self,
        argument: str,
        got: object,
        expected: str,
        advice: str | Sequence[Part] = (),
        *,
        or_none: bool = False,
    ) -> None:
        super().__init__()
        self.argument = argument
        self.got = got
        self.expected = expected
        self.advice: tuple[Part, ...] = (advice,) if isinstance(advice, str) else tuple(advice)
        self.or_none = or_none  # None is a value too, which the command line has no word for

    def parts(self, *, python: bool) -> Sequence[Part]:
        """What was got and what was expected, then the advice."""
        none = ", or None" if self.or_none and python else ""
        got = _shorten(self.got)
        start = (Argument(self.argument), f": got {got}, expected {self.expected}{none}.")
        return (*start, *((" ", *self.advice) if any(self.advice) else ()))

    def __reduce__(self) -> tuple[Any, ...]:  # pickled by its fields, not by its message
        fields = (self.argument, self.got, self.expected, self.advice)
        return type(self), fields, {"or_none": self.or_none}


class UsageError(SettingError):
    """Arguments do not go together, or do not fit what they are given with.

    >>> raise UsageError("Give ", Argument("test", ...), ", a log to score the models on.")
    Traceback (most recent call last):
    reclick.errors.UsageError: Give test=…, a log to score the models on.
    """

    def __init__(self, *message: Part) -> None:
        super().__init__("", None, "", message)

    def parts(self, *, python: bool) -> Sequence[Part]:
        """The message alone."""
        return self.advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.advice


class UnknownModelError(SettingError, KeyError):
    """There is no model of this name."""


class SeenLogError(UsageError):
    """A model has seen this log before, or is to be tested on the sessions it is fitted to."""


class EngineError(ReclickError, RuntimeError):
    """The processes or the cluster that do an engine's work cannot do it."""


class FitError(ReclickError, ArithmeticError):
    """The objective of a fit fell or is not finite: weights too large to add, or a wrong model."""


class NotFittedError(ReclickError):
    """The model was asked before it was fitted."""


class CannotAnswerError(ReclickError):
    """The model, or the exact method, has no answer to this question.

    `in_python` is advice that only a caller in Python can follow.

    >>> error = CannotAnswerError("The page is too long.", in_python=" Ask sample().")
    >>> str(error), error.render(str)
    ('The page is too long. Ask sample().', 'The page is too long.')
    """

    def __init__(self, *parts: Part, in_python: str = "") -> None:
        super().__init__(*parts)
        self.in_python = in_python

    def parts(self, *, python: bool) -> Sequence[Part]:
        """The message, and the advice to a caller in Python."""
        return (*self.args, self.in_python) if python else self.args


class StoreError(ReclickError):
    """A file or folder cannot be written, or a saved one is missing, incomplete or altered."""


class MissingExtraError(ReclickError, ImportError):
    """An optional dependency is needed and not installed."""


def _shorten(value: object) -> str:
    """A value as in Python, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of more than 4,300 digits"
    except Exception:  # of a class of others, such as a DuckDB relation that is closed
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def check_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    """Refuse an argument that is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise SettingError(argument, value, f"one of {', '.join(map(repr, choices))}")


def check_range(argument: str, value: object, low: float, high: float | None = None) -> None:
    """Refuse an argument that is not a number in a range."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low <= value <= (sys.float_info.max if high is None else high)):  # type: ignore[operator]
        wanted = f"of {low:g} or more" if high is None else f"from {low:g} to {high:g}"
        raise SettingError(argument, value, f"a number {wanted}")


def check_whole(argument: str, value: object, low: int) -> int:
    """The argument as an int; one that is not a whole number from `low` on is refused."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
        raise SettingError(argument, value, f"a whole number of {low} or more")
    return int(value)


def check_seed(argument: str, value: object) -> None:
    """Refuse what is neither a random generator nor a whole number of 0 or more."""
    if not hasattr(value, "bit_generator"):
        check_whole(argument, value, 0)


def check_fitted_model(model: Any) -> None:
    """Refuse what is not a fitted model."""
    if not hasattr(type(model), "check_fitted"):
        raise SettingError("model", model, "a fitted model, such as rc.load(folder) returns")
    model.check_fitted()


@contextmanager
def explain_write_errors(
    where: object,
    after: str = "What was there before is unchanged.",
    *,
    files: Sequence[Path] | None = None,
) -> Iterator[None]:
    """Turn an OSError of writing into a StoreError with advice and the state that it leaves.

    With `files`, only a full disk and errors of these files: others are not of writing.

    >>> with explain_write_errors("model"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    reclick.errors.StoreError: model cannot be written ([Errno 28] No space left on device). \
The disk is full: free some space or give another folder. What was there before is unchanged.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "no space left" in str(error).lower()
        too_large = error.errno == errno.EFBIG
        of_writing = full or too_large or files is None
        if not of_writing and not any(_is_about(error, file) for file in files or ()):
            raise
        advice = "Give a folder that can be written."
        if full:
            advice = "The disk is full: free some space or give another folder."
        elif too_large:
            advice = "Its size is limited, by the file system or by `ulimit -f`."
        raise StoreError(f"{where} cannot be written ({error}). {advice} {after}") from error


def _is_about(error: OSError, file: Path) -> bool:
    return str(file) == error.filename or str(file) in str(error)
