"""Check the types of arguments: `check_arguments` raises an error before a function runs.

Functions check ranges, choices and combinations of arguments themselves.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar

from reclick.errors import ReclickError, SettingError, StoreError, check_fitted_model, check_seed
from reclick.runtime.filesystem import as_path

P = ParamSpec("P")
Result = TypeVar("Result")
LARGEST_WHOLE = 2**63 - 1
# Lists of NumPy, pandas and Arrow, by name, as `reclick --help` must not import these libraries.
ARRAYS = {"ndarray", "Series", "Index", "Array", "StringArray", "ChunkedArray"}


class Kind(NamedTuple):
    """A type of argument: whether it accepts a value, and its name in messages."""

    accepts: Callable[[Any], bool]
    expected: str


def check_arguments(function: Callable[P, Result]) -> Callable[P, Result]:
    """Raise a `SettingError` if an argument does not have its annotated type.

    An error of the file system that names a file becomes a `StoreError`. Annotations that `KINDS`
    does not know, such as `object`, accept everything.

    >>> @check_arguments
    ... def repeat(text: str, times: int = 2) -> str:
    ...     return text * times
    >>> repeat("ab", times=3)
    'ababab'
    >>> repeat("ab", times=None)
    Traceback (most recent call last):
    reclick.errors.SettingError: times: got None, expected a whole number.
    """
    checks: list[Callable[[Any], None] | None] = []
    by_name: dict[str, Callable[[Any], None]] = {}
    for parameter in inspect.signature(function).parameters.values():
        check = _find_check(parameter)
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
            checks.append(check)
        if check is not None:
            by_name[parameter.name] = check

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> Result:
        for check, value in zip(checks, args, strict=False):
            if check is not None:
                check(value)
        for name, value in options.items():
            if name in by_name:
                by_name[name](value)
        try:
            return function(*args, **options)
        except OSError as error:
            if error.filename is None or isinstance(error, ReclickError):
                raise  # a broken pipe, for example
            raise StoreError(
                f"{error.filename} cannot be used ({error.strerror}). Check its path and who may "
                "read, write and enter it."
            ) from error

    return call


def _find_check(parameter: inspect.Parameter) -> Callable[[Any], None] | None:
    """Return a function that raises if a value is wrong; None if any value may be right."""
    words = [part.strip() for part in _split(str(parameter.annotation))]
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return None
    if words == ["ClickModel"]:
        return check_fitted_model
    if words == ["np.random.Generator", "int"] or (parameter.name, words) == ("seed", ["int"]):
        return functools.partial(check_seed, parameter.name)
    kinds = [KINDS.get(word.partition("[")[0]) for word in words if word != "None"]
    checkable = [kind for kind in kinds if kind is not None]
    if len(checkable) < len(kinds) or not kinds:
        return None
    return functools.partial(_check, parameter.name, checkable, "None" in words)


def _split(annotation: str) -> list[str]:
    """Split an annotation at the bars that are not inside brackets."""
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _check(name: str, kinds: Sequence[Kind], or_none: bool, value: Any) -> None:
    if value is None and or_none:
        return
    if not any(kind.accepts(value) for kind in kinds):
        expected = " or ".join(kind.expected for kind in kinds)
        raise SettingError(name, value, expected, or_none=or_none)


def is_text(value: object) -> bool:
    r"""Whether a value is text that can be encoded: without half of a surrogate pair.

    >>> is_text("é"), is_text("\ud800"), is_text(b"e")
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_whole(value: object) -> bool:
    is_number = isinstance(value, Integral) and not isinstance(value, bool)
    return is_number and abs(int(value)) <= LARGEST_WHOLE  # type: ignore[call-overload]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return is_number and (abs(value) <= sys.float_info.max or abs(value) == math.inf)


def _is_list(value: object) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return is_list or type(value).__name__ in ARRAYS


def _is_location(value: Any) -> bool:
    as_path(value)  # raises an error with the reason
    return True


def _is_progress(value: object) -> bool:
    return value is None or isinstance(value, bool) or callable(value)


def _is_engine(value: object) -> bool:
    return all(hasattr(type(value), name) for name in ("count", "group", "reduce"))


def _is_page_rule(value: object) -> bool:
    return all(hasattr(type(value), name) for name in ("choose", "learn"))


def _is_log(value: object) -> bool:
    return hasattr(type(value), "batches")


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_texts(value: Any) -> bool:
    is_collection = isinstance(value, Sequence | Set) and not isinstance(value, str | bytes)
    return is_collection and all(is_text(text) for text in value)


def _is_a(name: str) -> Callable[[Any], bool]:
    """Check a class by name, without importing it: that of a value, or a base class."""

    def accepts(value: object) -> bool:
        return any(base.__name__ == name for base in type(value).__mro__)

    return accepts


KINDS: dict[str, Kind] = {
    "int": Kind(_is_whole, "a whole number"),
    "float": Kind(_is_number, "a number"),
    "bool": Kind(lambda value: type(value).__name__ in {"bool", "bool_"}, "True or False"),
    "str": Kind(is_text, "text"),
    "Sequence": Kind(_is_list, "a list"),
    "tuple": Kind(_is_list, "a tuple"),
    "Iterable": Kind(_is_iterable, "a list"),
    "Collection": Kind(_is_texts, "a list of texts"),
    "Cuts": Kind(lambda value: is_text(value) or _is_list(value), "a name or a list of numbers"),
    "Objective": Kind(lambda value: isinstance(value, str | Mapping), "a name or a dict"),
    "Mapping": Kind(lambda value: isinstance(value, Mapping), "a dict"),
    "Location": Kind(_is_location, "a path or a URI"),
    "ProgressOption": Kind(_is_progress, "True, False, None or a function"),
    "Engine": Kind(_is_engine, "an engine, such as rc.LocalEngine()"),
    "Log": Kind(_is_log, "a log, such as rc.read_sessions returns"),
    "Counts": Kind(_is_a("Counts"), "counts, such as rc.count returns"),
    "Clicks": Kind(_is_a("Clicks"), "clicks (rc.Clicks)"),
    "Cleaning": Kind(_is_a("Cleaning"), "cleaning (rc.Cleaning)"),
    "MonitorLimits": Kind(_is_a("MonitorLimits"), "limits (rc.MonitorLimits)"),
    "LogRecord": Kind(_is_a("LogRecord"), "the record of a log"),
    "SessionBatch": Kind(_is_a("SessionBatch"), "a batch of a log (rc.SessionBatch)"),
    "pa.Table": Kind(_is_a("Table"), "a pyarrow.Table"),
    "PageRule": Kind(_is_page_rule, "a rule with methods choose and learn"),
}
