"""Work in forked children: one that crashes, hangs or eats memory takes nobody with it.

The parent has imported everything and compiled the kernels, so a child starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from reclick.errors import ReclickError

CRASH_CODE = 77  # of a child that ended itself at a step of the file system
MEMORY_LIMIT = 1 << 30  # bytes that a child may use in addition to its parent
ADDRESS_SPACE = 8 << 30  # … and reserve, so that a failure does not hurt the machine
TIMEOUT = 60.0  # seconds of processor time, or without any
POLL_SECONDS = 0.5
STEPS = (
    *("open", "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "fsync", "link"),
    *("symlink", "truncate", "ftruncate", "chmod", "utime"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a child ended."""

    status: str  # "done", "refused" (a ReclickError), "traceback", "crashed", "killed", "hung"
    value: Any = None  # what the function returned
    message: str = ""  # of the error, with its traceback if it is no ReclickError
    signal: int = 0  # that ended it
    steps: int = 0  # that it took on the file system
    peak: int = 0  # bytes that it took in addition to its parent
    seconds: float = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether it ended in a way that no user should see."""
        return self.status in {"traceback", "killed", "hung"}


def run_in_child(
    work: Callable[[], Any],
    *,
    crash_at: int | None = None,
    kill: tuple[float, int] | None = None,
    timeout: float = TIMEOUT,
    memory: int | None = ADDRESS_SPACE,
    handle_term: bool = False,
) -> Outcome:
    """Run a function in a child and return how it ended.

    With `crash_at` the child ends before that step on the file system, as by a power cut. `kill` is
    when, in seconds, and with which signal, it is killed.
    """
    reader, writer = os.pipe()
    dump = os.memfd_create("dump")  # where Python writes what it did when it crashed
    started = time.monotonic()
    # A signal that comes before the child can handle it waits until it can.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if child == 0:
        os.close(reader)
        faulthandler.enable(dump)
        _run_child(work, writer, crash_at, memory, handle_term)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    os.close(writer)
    content, hung = _read(reader, child, started, kill, timeout)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - started
    crash = _read_dump(dump)
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and content:
        kind, value, message, steps, peak = pickle.loads(content)  # noqa: S301, of our own child
        return Outcome(kind, value, message, 0, steps, peak, seconds)
    if code == CRASH_CODE:
        return Outcome("crashed", seconds=seconds)
    if hung:
        return Outcome("hung", message=f"no end after {timeout:g} s", seconds=seconds)
    if kill is not None and code == -kill[1]:
        return Outcome("crashed", signal=-code, seconds=seconds)
    message = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Outcome(
        "killed", message=f"{message}\n{crash}".strip(), signal=max(-code, 0), seconds=seconds
    )


def _read_dump(dump: int) -> str:
    """What a crash wrote; the innermost calls come first."""
    os.lseek(dump, 0, os.SEEK_SET)
    text = os.read(dump, 4000).decode(errors="replace")
    os.close(dump)
    return text


def _read(
    reader: int, child: int, started: float, kill: tuple[float, int] | None, timeout: float
) -> tuple[bytes, bool]:
    """All that a child writes until it ends; it is killed on the way, or where it hangs."""
    parts: list[bytes] = []
    pending, hung = kill, False
    watch = Watch(child, timeout)
    while True:
        wait = POLL_SECONDS
        if pending:
            wait = min(wait, max(started + pending[0] - time.monotonic(), 0))
        ready, _, _ = select.select([reader], [], [], wait)
        if ready:
            part = os.read(reader, 1 << 20)
            if not part:
                break
            parts.append(part)
        elif pending and time.monotonic() >= started + pending[0]:
            _send(child, pending[1])
            pending = None
        elif not hung and watch.is_hung():
            hung = True
            _send(child, signal.SIGKILL)
    os.close(reader)
    return b"".join(parts), hung


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


class Watch:
    """Whether a child hangs: it has used its processor time, or uses none for as long.

    Wall time decides nothing: others may use the machine.
    """

    def __init__(self, child: int, timeout: float) -> None:
        self.child, self.timeout = child, timeout
        self.used, self.since = 0.0, time.monotonic()

    def is_hung(self) -> bool:
        """Look at the processor time of the child."""
        try:
            with open(f"/proc/{self.child}/stat") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return False
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if used > self.used:
            self.used, self.since = used, time.monotonic()
        return used > self.timeout or time.monotonic() - self.since > self.timeout


def _run_child(
    work: Callable[[], Any],
    writer: int,
    crash_at: int | None,
    memory: int | None,
    handle_term: bool,
) -> None:
    """Run the function, write how it ended to the pipe, and end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate if handle_term else signal.SIG_DFL)
    sys.stdin = io.StringIO()
    before = _take_memory()
    if memory is not None:
        limit = _address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    counter = count_steps(crash_at)
    signals = {signal.SIGINT, signal.SIGTERM}
    kind, value, message = "interrupted", None, ""
    try:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            value = work()
            kind = "done"
        except ReclickError as error:
            kind, message = "refused", f"{type(error).__name__}: {error}"
        except KeyboardInterrupt as error:
            kind, message = "interrupted", type(error).__name__
        except SystemExit as error:
            kind, value = "exit", error.code
        except BaseException:
            kind, message = "traceback", traceback.format_exc(limit=-12)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    except KeyboardInterrupt:  # at the very end: beyond, it would unwind the calls of the parent
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    counter.stop()
    peak = max(_peak_memory() - before, 0)
    try:
        content = pickle.dumps((kind, value, message, counter.steps, peak))
    except Exception:
        content = pickle.dumps((kind, repr(value)[:1000], message, counter.steps, peak))
    view = memoryview(content)
    while view:
        view = view[os.write(writer, view) :]
    os._exit(0)


def _terminate(number: int, frame: Any) -> None:
    from reclick.runtime.interrupts import TerminationRequest

    raise TerminationRequest


def _take_memory() -> int:
    """Forget the peak of the parent, and return what the child starts with."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123
        file.write("5")
    return _status("VmRSS")


def _peak_memory() -> int:
    return _status("VmHWM")


def _address_space() -> int:
    return _status("VmSize")


def _status(name: str) -> int:
    with open("/proc/self/status") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0


# ---- steps on the file system


class StepCounter:
    """Counts the calls that change the file system, and ends the process before one of them."""

    def __init__(self, crash_at: int | None) -> None:
        self.steps = 0
        self._crash_at = crash_at
        self._before: list[tuple[Any, str, Any]] = []

    def patch(self, module: Any, name: str, is_step: Callable[..., bool]) -> None:
        """Count the calls of a function that are steps."""
        function = getattr(module, name, None)
        if function is None:
            return

        def call(*args: Any, **options: Any) -> Any:
            if is_step(*args, **options):
                self.steps += 1
                if self.steps == self._crash_at:
                    os._exit(CRASH_CODE)
            return function(*args, **options)

        self._before.append((module, name, function))
        setattr(module, name, call)

    def stop(self) -> None:
        """Count no more."""
        for module, name, function in reversed(self._before):
            setattr(module, name, function)


def count_steps(crash_at: int | None = None) -> StepCounter:
    """Start to count, in this process."""
    counter = StepCounter(crash_at)
    for name in STEPS:
        is_step = _opens_for_writing if name == "open" else _is_always_step
        counter.patch(os, name, is_step)
    counter.patch(io, "open", _mode_writes)
    counter.patch(pq, "write_table", _is_always_step)
    counter.patch(pq.ParquetWriter, "close", _is_always_step)
    return counter


def _is_always_step(*_: object, **__: object) -> bool:
    return True


def _opens_for_writing(path: object, flags: int, *_: object, **__: object) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _mode_writes(file: object, mode: str = "r", *_: object, **__: object) -> bool:
    return not isinstance(file, int) and any(letter in mode for letter in "wax+")
