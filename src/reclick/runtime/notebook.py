"""HTML of objects in notebooks: small, escaped, and in the colours of the page, light or dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

LINE = "border-bottom:1px solid rgba(128,128,128,.3)"
TABLE = "border-collapse:collapse;margin:.4em 0;font-size:90%;background:transparent"
CELL = f"padding:.15em .8em .15em 0;text-align:{{align}};vertical-align:top;{LINE}"


def render_card(title: str, facts: Mapping[str, object], note: str = "", *more: str) -> str:
    """Render a title, a table of facts, a note, and further parts, which must be HTML.

    >>> "&lt;b&gt;" in render_card("Log", {"name": "<b>"})
    True
    """
    rows = "".join(
        f"<tr><th scope='row' style='{CELL.format(align='left')};font-weight:normal;opacity:.75'>"
        f"{escape(name)}</th><td style='{CELL.format(align='left')}'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if str(value)
    )
    table = f"<table style='{TABLE}'>{rows}</table>" if rows else ""
    text = f"<p style='margin:.4em 0'>{escape(note)}</p>" if note else ""
    return f"<div><strong>{escape(title)}</strong>{table}{text}{''.join(more)}</div>"


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]], bold: object = ()) -> str:
    """Render a table: the first column is aligned left, the others right.

    `bold` is a set of (row, column) of cells to emphasise.
    """
    bold_cells = set(bold) if isinstance(bold, set | frozenset) else set()
    head = "".join(
        f"<th scope='col' style='{CELL.format(align=_align(column))}'>{escape(name)}</th>"
        for column, name in enumerate(header)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td style='{CELL.format(align=_align(column))}'>"
            + (f"<strong>{escape(cell)}</strong>" if (row, column) in bold_cells else escape(cell))
            + "</td>"
            for column, cell in enumerate(cells)
        )
        + "</tr>"
        for row, cells in enumerate(rows)
    )
    return f"<table style='{TABLE}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def render_text(text: object) -> str:
    """Render text with its line breaks, as `print` shows it."""
    style = "margin:.4em 0;background:transparent;white-space:pre-wrap"
    return f"<pre style='{style}'>{escape(str(text))}</pre>"


def render_progress(tasks: Mapping[str, tuple[int, int | None]]) -> str:
    """Render a bar per task from the number of steps done and the total, if known.

    >>> render_progress({"Reading: bytes": (5, 10)})
    "<div><progress value='5' max='10'></progress> Reading: bytes 5 of 10</div>"
    """
    lines = []
    for what, (done, total) in tasks.items():
        extent = "" if total is None else f" value='{done}' max='{total}'"
        of_total = "" if total is None else f" of {total:,}"
        lines.append(f"<progress{extent}></progress> {escape(what)} {done:,}{of_total}")
    return f"<div>{'<br>'.join(lines)}</div>"


def _align(column: int) -> str:
    return "right" if column else "left"
