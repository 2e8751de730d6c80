"""Write what the Python blocks of README.md and docs/quickstart.md print below them.

Run `python docs/outputs.py` after a change of what they print; a test compares them. An output is
a `text` block that directly follows a `python` block. The blocks of a page share their names.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/quickstart.md")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def with_outputs(page: str) -> str:
    """A page with the outputs of its blocks as they are now."""
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(block[1], "<block>", "exec"), names)  # noqa: S102, the blocks are ours
        shown = f"\n```text\n{printed.getvalue()}```\n" if printed.getvalue() else ""
        return f"```python\n{block[1]}```\n{shown}"

    return BLOCK.sub(run, page)


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(with_outputs(path.read_text(encoding="utf-8")), encoding="utf-8")
