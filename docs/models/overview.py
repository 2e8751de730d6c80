"""Write the table of models in index.md of this folder: `python docs/models/overview.py`."""

from __future__ import annotations

from pathlib import Path

from reclick.models import MODELS

PAGE = Path(__file__).parent / "index.md"
HEAD = "| name | assumes | order of clicks | satisfaction | fitted by | reference |"
ANSWERS = {True: "yes", False: "no"}


def overview_table(fitted_by: dict[str, str]) -> str:
    """All models; how each is fitted is not declared, so it is passed in."""
    rows = [
        f"| [{name}]({name}.md) | {model.assumes} | {ANSWERS[model.ordered]} | "
        f"{ANSWERS[model.satisfaction]} | {fitted_by[name]} | {model.reference} |"
        for name, model in ((name, MODELS[name]) for name in MODELS)
    ]
    return "\n".join([HEAD, "|---|---|---|---|---|---|", *rows])


def with_table(page: str) -> str:
    """The page with the table of models as the code has it."""
    before, after = page.split(HEAD, 1)
    table, tail = after.split("\n\n", 1)
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| [")]
    fitted_by = {row[0].split("]")[0].removeprefix("| ["): row[4] for row in rows}
    return f"{before}{overview_table(fitted_by)}\n\n{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
