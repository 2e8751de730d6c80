"""SIGTERM, which `docker stop`, systemd and batch systems send, ends a command like Ctrl-C."""

from __future__ import annotations

import threading
from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes: 128 + SIGINT, 128 + SIGTERM


class TerminationRequest(KeyboardInterrupt):
    """Raised where a SIGTERM arrives, so that files are closed and temporary ones removed."""


_was_terminated = threading.Event()


def terminate(number: int, frame: Any) -> None:
    """Handle SIGTERM."""
    _was_terminated.set()
    raise TerminationRequest


def interrupt_code() -> int:
    """The exit code of a command that was interrupted, by Ctrl-C or by SIGTERM."""
    return TERMINATED if _was_terminated.is_set() else INTERRUPTED
