"""Progress of long work: one protocol for the library, notebooks and the command line.

Long work calls `report_progress(what, done, total)`. A public function opens
`track_progress(progress, task)`, which decides where reports go: to the caller's function, nowhere,
or, if the caller passes nothing, to a display that appears after two seconds. It is a bar in a
terminal or a notebook, and a line every eight seconds elsewhere. `RECLICK_PROGRESS=0` silences it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from reclick.errors import SettingError
from reclick.runtime.notebook import render_progress
from reclick.runtime.parallel import thread_limit

Progress = Callable[[str, int, int | None], object]  # what, number done, total if known
ProgressOption = Progress | bool | None  # None: a display; False: nothing; or a function
PROGRESS_VARIABLE = "RECLICK_PROGRESS"
SILENT_VALUES = {"0", "no", "off", "false"}
DISPLAY_DELAY = 2.0  # seconds before a display appears: most calls end earlier
LINE_INTERVAL = 8.0  # seconds between lines if there is no terminal
REFRESH_INTERVAL = 0.1  # seconds between two drawings of a bar
NOTEBOOK_INTERVAL = 0.3  # … in a notebook, where each drawing is a message to the browser


def ignore_progress(what: str, done: int, total: int | None) -> None:
    """Ignore a report."""


_listener: ContextVar[Progress | None] = ContextVar("progress_listener", default=None)
_display: ContextVar[Progress | None] = ContextVar("progress_display", default=None)
_compilations = itertools.count(1)


def report_progress(what: str, done: int, total: int | None = None) -> None:
    """Report progress to the function that tracks it, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


def report_compilation() -> None:
    """Show on a display, if there is one, that a kernel is compiled; callers get no report."""
    display, number = _display.get(), next(_compilations)
    if display is not None:
        display("Compiling kernels, once", number, None)


@contextmanager
def progress_to(listener: Progress) -> Iterator[None]:
    """Send the reports of a block to a function.

    >>> from reclick.models import UBM
    >>> log = {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    >>> reports = []
    >>> with progress_to(lambda what, done, total: reports.append((what, done))):
    ...     model = UBM(max_iterations=2, tolerance=0).fit(log)
    >>> reports[-2:]
    [('iterations', 1), ('iterations', 2)]
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def track_progress(progress: ProgressOption, task: str = "") -> Iterator[None]:
    """Send the reports of a public function to its caller's `progress`, named after the task.

    If it is None, reports still go to an outer tracker, or else to a display.

    >>> with track_progress(lambda what, done, total: print(what, done, total), "Counting"):
    ...     report_progress("sessions", 5, 10)
    Counting: sessions 5 10
    """
    value: object = progress
    if not (value is None or isinstance(value, bool) or callable(value)):
        expected = "a function of (what, done, total), True or False"
        raise SettingError("progress", value, expected, or_none=True)
    if progress is False:
        with progress_to(ignore_progress):
            yield
    elif callable(progress):
        with progress_to(_name_task(progress, task)):
            yield
    elif _listener.get() is not None:
        yield
    else:
        with show_progress(delay=DISPLAY_DELAY) as display, progress_to(_name_task(display, task)):
            yield


@contextmanager
def rename_progress(name: str) -> Iterator[None]:
    """Give all reports of a block one name.

    >>> with progress_to(lambda what, done, total: print(what, done)), rename_progress("Reading"):
    ...     report_progress("sessions", 5)
    Reading 5
    """
    listener = _listener.get() or ignore_progress
    with progress_to(lambda what, done, total: listener(name, done, total)):
        yield


@contextmanager
def count_progress(name: str) -> Iterator[None]:
    """Count the reports of a block as steps of one name; a last report marks the end.

    >>> with progress_to(lambda *report: print(report)), count_progress("Fitting"):
    ...     report_progress("trials", 1)
    ('Fitting', 0, None)
    ('Fitting', 1, None)
    ('Fitting', 2, 2)
    """
    listener, steps = _listener.get() or ignore_progress, 0

    def report(what: str, done: int, total: int | None) -> None:
        nonlocal steps
        steps += 1
        listener(name, steps, None)

    listener(name, 0, None)
    with progress_to(report):
        yield
    listener(name, steps + 1, steps + 1)


def _name_task(progress: Progress, task: str) -> Progress:
    def report(what: str, done: int, total: int | None) -> None:
        progress(f"{task}: {what}", done, total)

    return report if task else progress


# ---- the display


@contextmanager
def show_progress(delay: float = 0.0) -> Iterator[Progress]:
    """Yield a function that shows reports on standard error, once `delay` seconds have passed."""
    if os.environ.get(PROGRESS_VARIABLE, "").strip().lower() in SILENT_VALUES:
        yield ignore_progress
        return
    display = _Display(delay)
    token = _display.set(display)
    try:
        yield display
    finally:
        _display.reset(token)
        display.close()


class _Display:
    """Reports as bars in a terminal or a notebook, and as lines elsewhere.

    It starts no thread until it shows something, and none at all with a thread limit of 1.
    """

    def __init__(self, delay: float) -> None:
        self._start = time.monotonic()
        self._next = self._start + delay  # when the next drawing or line is due
        self._lock = threading.Lock()
        self._show: _Bars | _NotebookBars | _Lines | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now < self._next and self._show is None:
            return
        with self._lock:
            if self._show is None:
                self._show = _open_display(self._start)
            self._show.update(what, done, total, now)

    def close(self) -> None:
        with self._lock:
            if self._show is not None:
                self._show.close()


class _Bars:
    """One bar per task, removed at the end."""

    def __init__(self, console: Any) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._background = thread_limit() > 1
        self._drawing_time = 0.0
        self._tasks: dict[str, Any] = {}
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            auto_refresh=self._background,
        )
        self._bars.start()

    def update(self, what: str, done: int, total: int | None, now: float) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)
        if not self._background and now - self._drawing_time >= REFRESH_INTERVAL:
            self._bars.refresh()
            self._drawing_time = now

    def close(self) -> None:
        self._bars.stop()


class _NotebookBars:
    """One bar per task in the output of a notebook's cell, removed at the end."""

    def __init__(self, display: Any, html: Any) -> None:
        """`display` and `html` are those of IPython.display."""
        self._html = html
        self._output = display(html(""), display_id=True)
        self._drawing_time = 0.0
        self._tasks: dict[str, tuple[int, int | None]] = {}

    def update(self, what: str, done: int, total: int | None, now: float) -> None:
        self._tasks[what] = done, total
        if now - self._drawing_time >= NOTEBOOK_INTERVAL:
            self._output.update(self._html(render_progress(self._tasks)))
            self._drawing_time = now

    def close(self) -> None:
        self._output.update(self._html(""))


class _Lines:
    """A line every eight seconds, for logs of jobs.

    A thread repeats the last report if no new one comes, unless the thread limit is 1.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._due = start + LINE_INTERVAL
        self._last: tuple[str, int, int | None] = ("working", 0, None)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        if thread_limit() > 1:
            threading.Thread(target=self._write_on, daemon=True, name="reclick-progress").start()

    def update(self, what: str, done: int, total: int | None, now: float) -> None:
        self._last = (what, done, total)
        self._write(now)

    def close(self) -> None:
        self._closed.set()

    def _write_on(self) -> None:
        while not self._closed.wait(max(self._due - time.monotonic(), REFRESH_INTERVAL)):
            self._write(time.monotonic())

    def _write(self, now: float) -> None:
        with self._lock:
            if now < self._due or self._closed.is_set():
                return
            self._due = now + LINE_INTERVAL
            what, done, total = self._last
            extent = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            sys.stderr.write(f"reclick: {what} {extent} ({now - self._start:.0f} s)\n")
            sys.stderr.flush()


def _open_display(start: float) -> _Bars | _NotebookBars | _Lines:
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        from IPython.display import HTML, display

        return _NotebookBars(display, HTML)
    if console.is_terminal and sys.stderr.isatty():
        return _Bars(console)
    return _Lines(start)
