"""All errors. A message says what is wrong, where, which value was passed, and what to do."""

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
    """An argument that a message names: the command line shows it as an option.

    `value` is a suggested value; `...` stands for any value, and without a value only the name is
    shown. `option` is the name on the command line, if it differs. `call` is the start of the call
    that takes the argument, if the function that was called does not have it.

    >>> str(Argument("max_ads")), str(Argument("by", ...)), str(Argument("cuts", (0.05, 0.2)))
    ('max_ads', 'by=…', 'cuts=(0.05, 0.2)')
    >>> str(Argument("columns", {"query": ...}))
    "columns={'query': ...}"
    >>> str(Argument("on_error", "drop", call="rc.read_sessions(log"))
    "rc.read_sessions(log, on_error='drop')"
    """

    name: str
    value: Any = None
    option: str = ""
    call: str = ""

    def __str__(self) -> str:
        if self.call:
            own = str(self._replace(call=""))
            function = self.call.partition("(")[0]
            return f"{own} of {function}" if self.value is None else f"{self.call}, {own})"
        name = self.name if isinstance(self.name, str) else _shorten(self.name)
        if self.value is None:
            return name
        if isinstance(self.value, dict):
            items = (f"{k!r}: {'...' if v is ... else repr(v)}" for k, v in self.value.items())
            return f"{name}={{{', '.join(items)}}}"
        return f"{name}={'…' if self.value is ... else repr(self.value)}"


LONGEST_VALUE = 200  # characters of a value in a message
Part = str | Argument  # of a message
# In an Azure address a container precedes the @, and only the text after a colon is secret.
USERINFO = re.compile(
    r"(?<=://)(?:(?<!abfs://)(?<!abfss://)[^\s/@]+|[^\s/@:]+:[^\s/@]+|[^\s/@:]+:(?!\d+/)[^\s@]+)@"
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
LONG_WORD = re.compile(r"(\S{800})\S+")  # such as a long name, which would hide the message
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
    r"""Replace control characters, which a terminal would execute, and half surrogate pairs.

    >>> escape_controls("a\x1b[31mb\nc")
    'a\\x1b[31mb\nc'
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class ReclickError(Exception):
    """The base of all errors that Reclick raises.

    A message has parts: text and `Argument`s. `str(error)` spells arguments as in Python. Secrets
    in URIs are masked.

    >>> error = ReclickError("Page too long. Raise ", Argument("max_ads"), ".")
    >>> str(error), error.render(lambda argument: "--" + argument.name.replace("_", "-"))
    ('Page too long. Raise max_ads.', 'Page too long. Raise --max-ads.')
    """

    def __init__(self, *parts: Part) -> None:
        super().__init__(*parts)

    def parts(self, *, python: bool) -> Sequence[Part]:
        """Return the parts of the message, for Python or for the command line."""
        return self.args

    def render(self, spell: Callable[[Argument], str] | None = None) -> str:
        """Return the message; `spell` writes its arguments, by default as in Python."""
        parts = self.parts(python=spell is None)
        write = spell or str
        text = "".join(write(part) if isinstance(part, Argument) else str(part) for part in parts)
        return LONG_WORD.sub(r"\1…", mask_secrets(escape_controls(text)))

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:  # not of `args`: a SettingError has none
        return f"{type(self).__name__}({self.render()!r})"


class LogError(ReclickError, ValueError):
    """A log, an ads table or a labels table cannot be read."""

    def set_call(self, call: str) -> None:
        """Advise to give the arguments in this call, except those that have a call already.

        >>> error = LogError("Drop it with ", Argument("on_error", "drop"), ".")
        >>> error.set_call("rc.read_ads(ads")
        >>> str(error)
        "Drop it with rc.read_ads(ads, on_error='drop'). Then pass what it returns."
        >>> error.render(lambda argument: "--on-error drop")
        'Drop it with --on-error drop.'
        """
        self.args = tuple(
            part._replace(call=call) if isinstance(part, Argument) and not part.call else part
            for part in self.args
        )

    def parts(self, *, python: bool) -> Sequence[Part]:
        """Return the message; in Python, with what to do with the result of another call."""
        has_call = any(isinstance(part, Argument) and part.call for part in self.args)
        return (*self.args, " Then pass what it returns.") if python and has_call else self.args


def permission_error(where: str) -> LogError:
    """Make the error for a file that this user may not read."""
    return LogError(f"{where} cannot be opened: permission denied. Check who may read it.")


class BadRowsError(LogError):
    """Some rows are bad and `on_error` is "raise"."""


class SettingError(ReclickError, ValueError):
    """A setting or an argument has an invalid value.

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
        self.or_none = or_none  # None is valid too, which the command line cannot express

    def parts(self, *, python: bool) -> Sequence[Part]:
        """Return the value that was passed and what was expected, then the advice."""
        none = ", or None" if self.or_none and python else ""
        got = _shorten(self.got)
        start = (Argument(self.argument), f": got {got}, expected {self.expected}{none}.")
        return (*start, *((" ", *self.advice) if any(self.advice) else ()))

    def __reduce__(self) -> tuple[Any, ...]:  # pickled by its fields, not by its message
        fields = (self.argument, self.got, self.expected, self.advice)
        return type(self), fields, {"or_none": self.or_none}


class UsageError(SettingError):
    """Arguments contradict each other, or do not fit the model or the log.

    >>> raise UsageError("Give ", Argument("test", ...), ", a log to score the models on.")
    Traceback (most recent call last):
    reclick.errors.UsageError: Give test=…, a log to score the models on.
    """

    def __init__(self, *message: Part) -> None:
        super().__init__("", None, "", message)

    def parts(self, *, python: bool) -> Sequence[Part]:
        """Return the message only."""
        return self.advice

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.advice


class UnknownModelError(SettingError, KeyError):
    """There is no model of this name."""


class SeenLogError(UsageError):
    """A model has seen this log before, or would be tested on the sessions it is fitted to."""


class EngineError(ReclickError, RuntimeError):
    """The processes or the cluster of an engine fail."""


class FitError(ReclickError, ArithmeticError):
    """The objective of a fit fell or is not finite: weights too large to add, or a bug."""


class NotFittedError(ReclickError):
    """The model is used before it is fitted."""


class CannotAnswerError(ReclickError):
    """The model, or the exact method, cannot compute this.

    `in_python` is advice that only a caller in Python can follow.

    >>> error = CannotAnswerError("The page is too long.", in_python=" Ask sample().")
    >>> str(error), error.render(str)
    ('The page is too long. Ask sample().', 'The page is too long.')
    """

    def __init__(self, *parts: Part, in_python: str = "") -> None:
        super().__init__(*parts)
        self.in_python = in_python

    def parts(self, *, python: bool) -> Sequence[Part]:
        """Return the message, with the advice to a caller in Python."""
        return (*self.args, self.in_python) if python else self.args


class StoreError(ReclickError):
    """A file or folder cannot be written, or a saved one is missing, incomplete or altered."""


class MissingExtraError(ReclickError, ImportError):
    """An optional dependency is needed and not installed."""


def _shorten(value: object) -> str:
    """Return the repr of a value, shortened if it is long."""
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "validate"):
        return f"a pyarrow.{type(value).__name__}"  # whose repr may crash if it is damaged
    try:
        text = repr(value)
    except ValueError:  # Python does not print numbers of more than 4,300 digits
        return "a number of more than 4,300 digits"
    except Exception:  # of another library, such as a closed DuckDB relation
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def check_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    """Raise if an argument is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise SettingError(argument, value, f"one of {', '.join(map(repr, choices))}")


def check_range(argument: str, value: object, low: float, high: float | None = None) -> None:
    """Raise if an argument is not a number in a range."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and low <= value <= (sys.float_info.max if high is None else high)):  # type: ignore[operator]
        limits = f"of {low:g} or more" if high is None else f"from {low:g} to {high:g}"
        raise SettingError(argument, value, f"a number {limits}")


def check_whole(argument: str, value: object, low: int) -> int:
    """Return an argument as an int; raise if it is not a whole number of `low` or more."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
        raise SettingError(argument, value, f"a whole number of {low} or more")
    return int(value)


def check_seed(argument: str, value: object) -> None:
    """Raise if an argument is neither a random generator nor a whole number of 0 or more."""
    if not hasattr(value, "bit_generator"):
        check_whole(argument, value, 0)


def check_fitted_model(model: Any) -> None:
    """Raise if an argument is not a fitted model."""
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
    """Turn an OSError of writing into a StoreError with advice and the state of the files.

    With `files`, only a full disk and errors of these files are errors of writing.

    >>> with explain_write_errors("model"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    reclick.errors.StoreError: model cannot be written ([Errno 28] No space left on device). \
The disk is full: free some space or give another folder. What was there before is unchanged.
    """
    try:
        yield
    except OSError as error:
        is_full = (
            error.errno in (errno.ENOSPC, errno.EDQUOT) or "no space left" in str(error).lower()
        )
        is_too_large = error.errno == errno.EFBIG
        is_of_writing = is_full or is_too_large or files is None
        if not is_of_writing and not any(_is_about(error, file) for file in files or ()):
            raise
        advice = "Give a folder that can be written."
        if is_full:
            advice = "The disk is full: free some space or give another folder."
        elif is_too_large:
            advice = "Its size is limited, by the file system or by `ulimit -f`."
        raise StoreError(f"{where} cannot be written ({error}). {advice} {after}") from error


def _is_about(error: OSError, file: Path) -> bool:
    return str(file) == error.filename or str(file) in str(error)
