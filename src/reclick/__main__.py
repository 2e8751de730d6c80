"""`python -m reclick`, and the `reclick` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line: exits with 0, 1 (the log has bad rows), 2 (an error) or 130 (stopped)."""
    from reclick.cli import app

    app()


if __name__ == "__main__":
    main()
