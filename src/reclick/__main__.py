"""`python -m reclick`, and the `reclick` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line: exits with 0, 1 (the log has bad rows), 2 (an error) or 130 (stopped)."""
    try:
        from reclick.cli import app
    except KeyboardInterrupt:  # before any command could begin
        sys.exit(130)
    app()


if __name__ == "__main__":
    main()
