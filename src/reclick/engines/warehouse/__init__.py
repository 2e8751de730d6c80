"""SQL that counts a log in the warehouse that holds it: only the counts leave the warehouse.

statements.sql holds the statements, and a file per dialect holds what differs between warehouses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reclick.data.schema import LOG_COLUMNS, check_mapping
from reclick.errors import SettingError, check_choice, check_whole
from reclick.logs.assembly.spill import load_sql
from reclick.logs.validation import reasons
from reclick.logs.validation.encode import MAX_TEXT_BYTES
from reclick.logs.validation.validate import MAX_WEIGHT
from reclick.runtime.arguments import check_arguments

DIALECTS = ("bigquery", "clickhouse", "duckdb", "postgres", "snowflake")
COLUMNS = ("query", "ads", "clicks", "weight")
REASONS = {
    name: getattr(reasons, name.upper())
    for name in (
        *("no_query", "query_too_long", "no_ads", "page_too_long", "null_ad", "not_readable"),
        *("bad_weight", "null_click", "click_outside"),
    )
}


class CountingSQL(NamedTuple):
    """Statements that count a log. The results of the first two are for `Counts.from_tables`."""

    pairs: str
    visits: str
    dropped: str  # the bad rows, by reason


@check_arguments
def counting_sql(
    table: str,
    *,
    dialect: str,
    columns: Mapping[str, str] | None = None,
    where: str | None = None,
    max_ads: int = 100,
) -> CountingSQL:
    """Return SQL that counts a table of sessions, which has arrays of ads and of clicks.

    `columns` maps Reclick's names (query, ads, clicks, weight) to yours; without a weight, every
    session counts once. `where` is a condition in SQL. Columns, condition and table are copied into
    the statements unchanged. Bad rows are left out by the rules of `read_sessions`; `dropped`
    counts them.

    >>> counting_sql("week2", dialect="snowflake").pairs.splitlines()[-1]
    'group by query, shown.value::varchar'
    """
    check_choice("dialect", dialect, DIALECTS)
    names = check_mapping(columns, LOG_COLUMNS)
    unknown = sorted(set(names) - set(COLUMNS))
    if unknown:
        raise SettingError("columns", dict(names), f"names of {', '.join(COLUMNS)} only")
    if not table.strip() or ";" in table:
        raise SettingError("table", table, "the name of a table, such as 'logs.sessions'")
    pieces = load_sql(f"{dialect}.sql", __name__)
    number = pieces["number"]
    values = {
        **{name: names.get(name, name) for name in ("query", "ads", "clicks")},
        **REASONS,
        "weight": f"cast({names.get('weight', '1')} as {number})",
        "table": table,
        "where": f"\n    where {where}" if where else "",
        "max_ads": str(check_whole("max_ads", max_ads, 1)),
        "max_text_bytes": str(MAX_TEXT_BYTES),
        "max_weight": f"{MAX_WEIGHT:.0f}",
    }
    values |= {name: _fill(text, values) for name, text in pieces.items()}
    statements = load_sql("statements.sql", __name__)
    session = _fill(statements["session"], values)
    return CountingSQL(
        *(_fill(statements[name], {**values, "session": session}) for name in CountingSQL._fields)
    )


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the names in braces by their values, and two braces by one."""
    result = re.sub(r"(?<!\{)\{(\w+)\}(?!\})", lambda match: values[match[1]], text)
    return result.replace("{{", "{").replace("}}", "}")
