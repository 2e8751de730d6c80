"""Write the tables of settings in docs/models from the declarations in the code.

Run `python docs/models/settings.py` after a setting was added or changed; a test compares them.
"""

from __future__ import annotations

from pathlib import Path

from reclick.models import MODELS

HEAD = "| setting | default | values | what |\n|---|---|---|---|\n"


def settings_table(name: str) -> str:
    """The settings of a model as a Markdown table."""
    rows = [
        (f"`{setting}`", f"`{each.default!r}`", each.values, each.help)
        for setting, each in MODELS[name].settings.items()
    ]
    return HEAD + "".join(f"| {' | '.join(map(escape_cell, row))} |\n" for row in rows)


def escape_cell(text: str) -> str:
    """The text of a cell, in which a bar would end the cell."""
    return text.replace("|", "\\|")


def with_table(page: str, name: str) -> str:
    """A page with the table of settings as the code has it."""
    before, rest = page.split("## Settings\n", 1)
    tail = rest[rest.index("\n\n", rest.index("| setting |")) :]
    return f"{before}## Settings\n\n{settings_table(name).rstrip()}{tail}"


if __name__ == "__main__":
    folder = Path(__file__).parent
    for model in MODELS:
        path = folder / f"{model}.md"
        path.write_text(with_table(path.read_text(encoding="utf-8"), model), encoding="utf-8")
