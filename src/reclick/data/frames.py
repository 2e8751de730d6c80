"""Tables for other libraries: pandas, Polars and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as arrow_types

from reclick.errors import SettingError, check_whole
from reclick.runtime.arguments import check_arguments
from reclick.runtime.extras import import_extra

LATEX_CODES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
MISSING = "--"
MOST_DIGITS = 100


@check_arguments
def to_pandas(table: pa.Table) -> Any:
    """Convert a table of Reclick to a pandas DataFrame."""
    import_extra("pandas", "pandas")
    check_codes(table)
    return table.to_pandas()


@check_arguments
def to_polars(table: pa.Table) -> Any:
    """Convert a table of Reclick to a Polars DataFrame."""
    polars = import_extra("polars", "polars")
    check_codes(table)
    return polars.from_arrow(table)


@check_arguments
def to_latex(table: pa.Table, *, digits: int = 3) -> str:
    r"""Format a table as a LaTeX `tabular` with the rules of booktabs, with `digits` decimals.

    >>> print(to_latex(pa.table({"ad_id": ["50% off"], "relevance": [0.25]}), digits=2))
    \begin{tabular}{lr}
    \toprule
    ad\_id & relevance \\
    \midrule
    50\% off & 0.25 \\
    \bottomrule
    \end{tabular}
    """
    digits = check_digits(digits)
    check_codes(table)
    is_number = [_is_number(field.type) for field in table.schema]
    columns = [
        [_format(value, digits) for value in table.column(index).to_pylist()]
        for index in range(table.num_columns)
    ]
    return format_latex(table.column_names, list(zip(*columns, strict=True)), is_number)


def check_codes(table: pa.Table) -> None:
    """Raise if a dictionary index of the table is out of range: other libraries crash on it."""
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        raise SettingError("table", table, f"a valid table ({error})") from error


def check_digits(digits: int) -> int:
    """Return the number of decimals; raise if there are more than `MOST_DIGITS`."""
    if check_whole("digits", digits, 0) > MOST_DIGITS:
        raise SettingError("digits", digits, f"at most {MOST_DIGITS}")
    return int(digits)


def format_latex(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    bold: Callable[[int, int], bool] = lambda row, column: False,
) -> str:
    """Format text cells as a `tabular`; `bold(row, column)` is true for emphasised cells."""
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}",
        r"\toprule",
        rf"{' & '.join(map(escape_latex, header))} \\",
        r"\midrule",
    ]
    for row, cells in enumerate(rows):
        texts = [
            rf"\textbf{{{escape_latex(cell)}}}" if bold(row, column) else escape_latex(cell)
            for column, cell in enumerate(cells)
        ]
        lines.append(rf"{' & '.join(texts)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def escape_latex(text: str) -> str:
    r"""The text with the characters that LaTeX treats specially escaped.

    >>> escape_latex("a_b & c^2")
    'a\\_b \\& c\\textasciicircum{}2'
    """
    return "".join(LATEX_CODES.get(character, character) for character in text)


def _format(value: object, digits: int) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        return MISSING if math.isnan(value) else f"{value:.{digits}f}"
    return str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(arrow_types.is_integer(kind) or arrow_types.is_floating(kind))
