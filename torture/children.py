"""Work in forked children, so that a crash, a hang or lack of memory ends only one child.

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

CRASH_CODE = 77  # exit code of a child that ended itself before a step on the file system
MEMORY_LIMIT = 1 << 30  # bytes that a child may use in addition to its parent
ADDRESS_SPACE = 8 << 30  # bytes that it may reserve, so that a failure does not harm the machine
TIMEOUT = 60.0  # seconds of processor time, or of wall time without using any
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
    message: str = ""  # of the error, with its traceback unless it is a ReclickError
    signal: int = 0  # the signal that ended the child
    steps: int = 0  # number of steps on the file system
    peak: int = 0  # peak memory in bytes, in addition to that of the parent
    seconds: float = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether the child ended in a way that users should never see."""
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

    With `crash_at` the child ends before that step on the file system, as in a power cut. `kill` is
    a time in seconds and the signal that the child then gets.
    """
    reader, writer = os.pipe()
    dump = os.memfd_create("dump")  # Python writes the traceback of a crash here
    start = time.monotonic()
    # Signals are blocked until the child can handle them.
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forks with threads
        child = os.fork()
    if child == 0:
        os.close(reader)
        faulthandler.enable(dump)
        _run_child(work, writer, crash_at, memory, handle_term)
    signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)
    os.close(writer)
    content, is_hung = _read(reader, child, start, kill, timeout)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - start
    crash = _read_dump(dump)
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and content:
        kind, value, message, steps, peak = pickle.loads(content)  # noqa: S301, of our own child
        return Outcome(kind, value, message, 0, steps, peak, seconds)
    if code == CRASH_CODE:
        return Outcome("crashed", seconds=seconds)
    if is_hung:
        return Outcome("hung", message=f"no end after {timeout:g} s\n{crash}", seconds=seconds)
    if kill is not None and code == -kill[1]:
        return Outcome("crashed", signal=-code, seconds=seconds)
    message = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Outcome(
        "killed", message=f"{message}\n{crash}".strip(), signal=max(-code, 0), seconds=seconds
    )


def _read_dump(dump: int) -> str:
    """Read the traceback of a crash; the innermost calls come first."""
    os.lseek(dump, 0, os.SEEK_SET)
    text = os.read(dump, 4000).decode(errors="replace")
    os.close(dump)
    return text


def _read(
    reader: int, child: int, start: float, kill: tuple[float, int] | None, timeout: float
) -> tuple[bytes, bool]:
    """Read what a child writes until it ends; send its signal, and kill it if it hangs."""
    parts: list[bytes] = []
    signal_to_send, is_hung = kill, False
    watch = Watch(child, timeout)
    while True:
        wait = POLL_SECONDS
        if signal_to_send:
            wait = min(wait, max(start + signal_to_send[0] - time.monotonic(), 0))
        ready, _, _ = select.select([reader], [], [], wait)
        if ready:
            part = os.read(reader, 1 << 20)
            if not part:
                break
            parts.append(part)
        elif signal_to_send and time.monotonic() >= start + signal_to_send[0]:
            _send(child, signal_to_send[1])
            signal_to_send = None
        elif not is_hung and watch.is_hung():
            is_hung = True
            _send(child, signal.SIGABRT)  # Python writes where it hangs
    os.close(reader)
    return b"".join(parts), is_hung


def _send(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


class Watch:
    """Detects that a child hangs: it has used up its processor time, or uses none for that long.

    Wall time alone is not enough, because other processes may use the machine.
    """

    def __init__(self, child: int, timeout: float) -> None:
        self.child, self.timeout = child, timeout
        self.cpu_seconds, self.last_progress = 0.0, time.monotonic()

    def is_hung(self) -> bool:
        """Check the processor time of the child."""
        try:
            with open(f"/proc/{self.child}/stat") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return False
        cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if cpu_seconds > self.cpu_seconds:
            self.cpu_seconds, self.last_progress = cpu_seconds, time.monotonic()
        return cpu_seconds > self.timeout or time.monotonic() - self.last_progress > self.timeout


def _run_child(
    work: Callable[[], Any],
    writer: int,
    crash_at: int | None,
    memory: int | None,
    handle_term: bool,
) -> None:
    """Run the function, write its outcome to the pipe, and exit."""
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
    except KeyboardInterrupt:  # after the function: it must not reach the code of the parent
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
    """Reset the peak memory, and return the memory that the child starts with."""
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
        """Stop counting: restore the functions."""
        for module, name, function in reversed(self._before):
            setattr(module, name, function)


def count_steps(crash_at: int | None = None) -> StepCounter:
    """Start counting in this process."""
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
