"""`python -m reclick`, and the `reclick` command: errors become one clear line, Ctrl-C a quiet end."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with 0, 1 (the log has bad rows), 2 (an error) or 130 (stopped)."""
    from reclick.cli import app, show_error
    from reclick.errors import ReclickError

    try:
        app()
    except ReclickError as error:
        show_error(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        show_error("stopped. Nothing was half-written: what was there before is unchanged.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, e.g. `reclick describe log | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
