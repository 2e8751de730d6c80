"""Output to the terminal: results as text or JSON, notes, progress bars and errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import typer

from reclick.runtime.progress import Progress, ignore_progress, progress_to, show_progress


class OutputMode(NamedTuple):
    """How a command prints: without notes and progress, and its result as text or as JSON."""

    quiet: bool = False
    as_json: bool = False


AS_TEXT = OutputMode()
_mode: ContextVar[OutputMode] = ContextVar("output_mode", default=AS_TEXT)


@contextmanager
def output_mode(*, quiet: bool, as_json: bool) -> Iterator[None]:
    """Set the output mode of a block."""
    token = _mode.set(OutputMode(quiet, as_json))
    try:
        yield
    finally:
        _mode.reset(token)


def print_result(text: str, data: object) -> None:
    """Print the result of a command on standard output: the text, or with --json the data."""
    mode = _mode.get()
    if mode.as_json:
        typer.echo(json.dumps(to_json(data), indent=2, ensure_ascii=False))
    elif not mode.quiet:
        typer.echo(text)


def is_quiet() -> bool:
    """Whether only errors are printed."""
    return _mode.get().quiet


def print_text(text: str) -> None:
    """Print a part of a result as soon as it is ready; with --json, do nothing."""
    if _mode.get() == AS_TEXT:
        typer.echo(text)


def to_json(value: Any) -> Any:
    """Convert a value to JSON types: null for NaN and infinities, text for other types.

    >>> to_json({"a": (1, float("nan")), 2: None})
    {'a': [1, None], '2': None}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return str(value)


def print_note(text: str) -> None:
    """Print something worth knowing on standard error."""
    if not _mode.get().quiet:
        console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[None]:
    """Show all reports of a block as one bar with this name."""
    with progress_bars() as show:
        show(what, 0, total)
        with progress_to(lambda _, done, total: show(what, done, total)):
            yield


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Yield a function that shows reports: bars in a terminal, else a line every eight seconds.

    With --quiet, it shows nothing.
    """
    if _mode.get().quiet:
        yield ignore_progress
        return
    _announce_compilation()
    with show_progress() as show:
        yield show


@cache
def _announce_compilation() -> None:
    """Print once that kernels must be compiled, if none is in the cache."""
    from reclick.runtime.jit import cache_folder, cache_is_empty

    if cache_is_empty():
        line = "First run: compiling, which takes 10 to 30 seconds, once."
        if cache_folder() is None:
            line = "Compiling, which takes 10 to 30 seconds in every run, as nothing can be cached."
        console(stderr=True).print(line, style="dim")


def console(*, stderr: bool = False) -> Any:
    """Return a console of rich."""
    from rich.console import Console

    return Console(stderr=stderr)


def render(item: Any) -> str:
    """Render an object of rich, such as a table, as text: with colour if the terminal has it."""
    screen = console()
    with screen.capture() as capture:
        screen.print(item, markup=False)
    return str(capture.get()).rstrip("\n")


def show_error(message: str) -> None:
    """Print one clear message on standard error."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
