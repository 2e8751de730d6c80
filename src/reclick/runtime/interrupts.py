"""SIGTERM, which `docker stop`, systemd and batch systems send, ends a command like Ctrl-C."""

from __future__ import annotations

from typing import Any

INTERRUPTED, TERMINATED = 130, 143  # exit codes: 128 + SIGINT, 128 + SIGTERM


class TerminationRequest(KeyboardInterrupt):
    """Raised where a SIGTERM arrives, so that files are closed and temporary ones removed."""


def terminate(number: int, frame: Any) -> None:
    """Handle SIGTERM."""
    raise TerminationRequest


def interrupt_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that was interrupted."""
    return TERMINATED if isinstance(interrupt, TerminationRequest) else INTERRUPTED
