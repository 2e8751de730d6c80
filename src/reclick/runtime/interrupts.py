"""Signals: SIGTERM, as of `docker stop`, systemd and batch systems, ends a command like Ctrl-C.

If a signal arrives while a library is running, the library may raise another error instead of
KeyboardInterrupt, as DuckDB does; `was_interrupted` then reports the signal. In a callback of the
garbage collector Python prints the KeyboardInterrupt and goes on; `raise_lost_interrupt` raises it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes: 128 + SIGINT, 128 + SIGTERM


class TerminationRequest(KeyboardInterrupt):
    """Raised where a SIGTERM arrives, so that files are closed and temporary ones removed."""


_was_interrupted = threading.Event()
_was_terminated = threading.Event()
_is_handling = threading.Event()


def handle_signals() -> None:
    """Let SIGINT and SIGTERM interrupt this process from now on, and record them."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _print_unraisable
    _is_handling.set()


def keep_recording() -> None:
    """Record Ctrl-C also where a library has installed its own handler, which is called as before.

    This does nothing unless `handle_signals` was called.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not _is_handling.is_set() or not callable(handler) or handler is _interrupt:
        return

    def record(number: int, frame: Any) -> None:
        _was_interrupted.set()
        handler(number, frame)

    with suppress(ValueError):  # not the main thread of its process
        signal.signal(signal.SIGINT, record)


def raise_lost_interrupt() -> None:
    """Raise KeyboardInterrupt if a signal arrived earlier, so that a long job ends all the same."""
    if was_interrupted():
        raise KeyboardInterrupt


def _print_unraisable(error: Any) -> None:
    """Print an error that cannot be raised, unless it is a KeyboardInterrupt that was recorded."""
    if not (was_interrupted() and issubclass(error.exc_type, KeyboardInterrupt)):
        sys.__unraisablehook__(error)


def _interrupt(number: int, frame: Any) -> None:
    _was_interrupted.set()
    raise KeyboardInterrupt


def _terminate(number: int, frame: Any) -> None:
    _was_interrupted.set()
    _was_terminated.set()
    raise TerminationRequest


def was_interrupted() -> bool:
    """Whether a signal has asked this process to end."""
    return _was_interrupted.is_set()


def interrupt_code() -> int:
    """The exit code of a command that was interrupted, by Ctrl-C or by SIGTERM."""
    return TERMINATED if _was_terminated.is_set() else INTERRUPTED


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Delay signals that arrive in the block until its end.

    Kernels with a random generator need it: numba unpacks the generator in Python, and crashes if a
    signal interrupts that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals interrupt the main thread only
        return
    # Only handlers in Python raise: others are left alone.
    handlers: dict[int, Any] = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    signals: list[int] = []
    is_held = True

    def handle(number: int, frame: Any) -> None:
        if is_held:
            signals.append(number)
        else:  # it has not been restored, because another signal interrupted that
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        is_held = False
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        finally:
            for which in signals:
                signal.raise_signal(which)
