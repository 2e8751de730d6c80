"""Output to the terminal: progress bars and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer

from reclick.runtime.progress import Progress, progress_to, show_progress


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[None]:
    """Show everything that is reported in the block as one bar of this name."""
    with progress_bars() as show:
        show(what, 0, total)
        with progress_to(lambda _, done, known: show(what, done, known)):
            yield


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Yield a function that shows reports: bars in a terminal, a line now and then elsewhere."""
    _announce_compilation()
    with show_progress() as show:
        yield show


@cache
def _announce_compilation() -> None:
    """Print once that kernels are still to be compiled, if they are."""
    from reclick.runtime.jit import cache_is_empty

    if cache_is_empty():
        console(stderr=True).print(
            "First run: compiling, which takes a minute or two once.", style="dim"
        )


def console(*, stderr: bool = False) -> Any:
    """A rich console."""
    from rich.console import Console

    return Console(stderr=stderr)


def show_error(message: str) -> None:
    """Print one clear message on standard error."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
