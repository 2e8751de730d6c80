"""`python -m reclick`, and the `reclick` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line.

    The exit code is 0, 1 (the log has bad rows), 2 (an error), 3 (a log seen before) or 130.
    """
    try:
        from reclick.cli import app
    except KeyboardInterrupt:  # before any command started
        sys.exit(130)
    app()


if __name__ == "__main__":
    main()
