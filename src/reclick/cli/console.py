"""What is seen on the terminal: progress bars and errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on the terminal while something runs; silent when the output is not one."""
    with told() as tell:
        tell(what, 0, total)
        yield lambda done, known: tell(what, done, known)


@contextmanager
def told() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar for each thing that is being done, by its name; silent when the output is not a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    _tell_first_run()
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield tell


@cache
def _tell_first_run() -> None:
    """Say once that kernels are still to be compiled, if they are."""
    from reclick.runtime.jit import cache_is_empty

    if cache_is_empty():
        console(stderr=True).print(
            "First run: compiling, which takes a minute or two once.", style="dim"
        )


def console(*, stderr: bool = False) -> Any:
    """Where rich writes."""
    from rich.console import Console

    return Console(stderr=stderr)


def show_error(message: str) -> None:
    """One clear message on standard error."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
