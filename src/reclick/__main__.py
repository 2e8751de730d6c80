"""`python -m reclick`, and the `reclick` command."""

from __future__ import annotations

import contextlib
import sys

from reclick.runtime.interrupts import INTERRUPTED, handle_signals, interrupt_code, was_interrupted


def main() -> None:
    """Run the command line.

    The exit code is 0, 1 (the log has bad rows), 2 (an error), 3 (a log seen before), 130 (Ctrl-C)
    or 143 (SIGTERM, which ends a command like Ctrl-C does).
    """
    with contextlib.suppress(ValueError):  # not the main thread of its process
        handle_signals()
    try:
        from reclick.cli import app

        app()
    except KeyboardInterrupt:  # before any command started
        sys.exit(interrupt_code())
    except SystemExit as system_exit:
        if system_exit.code == INTERRUPTED:  # raised by typer, which handles Ctrl-C only
            sys.exit(interrupt_code())
        raise
    except Exception:  # Python reports some interrupted imports as errors
        if was_interrupted():
            sys.exit(interrupt_code())
        raise


if __name__ == "__main__":
    main()
