"""The canonical columns of sessions, ads and labels: names, other names for them, and types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyarrow import types as arrow_types

from reclick.errors import Argument, LogError, Part, SettingError

TEXT, IDS, POSITIONS, NUMBERS = "text", "ids", "positions", "numbers"
NUMBER, TIME, FLAG = "number", "time", "flag"

EXPECTED = {
    TEXT: "text or whole-number ids",
    IDS: "a list of text or whole-number ids",
    POSITIONS: "a list of whole numbers",
    NUMBERS: "a list of numbers",
    NUMBER: "a number",
    TIME: "a time (a timestamp, a date, a number or text)",
    FLAG: "true or false, or a number that is 0 for false",
}
SPLIT = {  # how lists are made of a column of text in pandas
    IDS: "df[{0!r}].str.split(',')",
    POSITIONS: "[[int(i) for i in text.split(',') if i] for text in df[{0!r}]]",
    NUMBERS: "[[float(x) for x in text.split(',') if x] for text in df[{0!r}]]",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A canonical column: its name, what values it holds, and whether a source must have it.

    A lenient column is read if the source has it; a value that does not fit is treated as missing.
    `need` says what the table needs, for tables whose columns cannot be mapped.
    """

    name: str
    kind: str
    required: bool = True
    lenient: bool = False
    need: str = ""


OUTCOME_COLUMNS = ("dwell_seconds", "conversions")  # what happened after each click
SESSION_COLUMNS = (
    Column("query", TEXT),
    Column("ads", IDS),
    Column("clicks", POSITIONS),
    Column("weight", NUMBER, required=False),
    *(Column(name, NUMBERS, required=False) for name in OUTCOME_COLUMNS),
)
PAGE_COLUMNS = (
    *SESSION_COLUMNS[:2],
    Column("clicks", POSITIONS, required=False),
    *SESSION_COLUMNS[3:],
)
# The columns read from a log: with the time, by which sessions are recognised again.
TIME_COLUMN = Column("timestamp", TIME, required=False, lenient=True)
LOG_COLUMNS = (*SESSION_COLUMNS, TIME_COLUMN)
PAGE_LOG_COLUMNS = (*PAGE_COLUMNS, TIME_COLUMN)
AD_COLUMNS = (
    Column("ad", TEXT),
    *(Column(name, TEXT, required=False) for name in ("title", "description", "display_url")),
)
PAIR_COLUMNS = (Column("query", TEXT), Column("ad", TEXT))
LABEL_COLUMNS = (*PAIR_COLUMNS, Column("relevance", NUMBER))
CANDIDATES_NEED = "candidates need query and ad (or ads)"
BIDS_NEED = "bids need query, ad and bid (or satisfaction_bid)"
CANDIDATE_COLUMNS = (
    *(replace(column, need=CANDIDATES_NEED) for column in PAIR_COLUMNS),
    Column("value", NUMBER, required=False, need=CANDIDATES_NEED),
)
BID_COLUMNS = (
    *(replace(column, need=BIDS_NEED) for column in PAIR_COLUMNS),
    *(Column(name, NUMBER, required=False) for name in ("bid", "satisfaction_bid")),
    *(Column(name, NUMBER, required=False) for name in ("weight", "budget")),
    *(Column(name, TEXT, required=False) for name in ("advertiser", "auction")),
)

# Names that a mapping may have although they are not read, so that one mapping works everywhere.
UNREAD = ("session_id", "timestamp", "user")


def check_mapping(
    columns: Mapping[str, str] | None, columns_to_read: Sequence[Column]
) -> dict[str, str]:
    """Return the mapping as a dict; raise if it maps a name that is not a canonical one.

    >>> check_mapping({"query": "search_term"}, SESSION_COLUMNS)
    {'query': 'search_term'}
    """
    names = [column.name for column in columns_to_read if not column.lenient]
    if columns is not None and not _maps_names(columns):
        raise SettingError(
            "columns", columns, "Reclick's names and yours: {'query': 'search_term'}", or_none=True
        )
    mapping = dict(columns or {})
    unknown = [name for name in mapping if name not in names and name not in UNREAD]
    if unknown:
        raise LogError(
            Argument("columns", ...),
            f" names {_list_names(unknown)}, which Reclick does not know. It maps Reclick's names "
            f"to yours; Reclick's are {_list_names(names)}.",
        )
    return mapping


def _maps_names(columns: object) -> bool:
    return isinstance(columns, Mapping) and all(
        isinstance(name, str) for pair in columns.items() for name in pair
    )


def find_columns(
    available: Sequence[str],
    columns_to_read: Sequence[Column],
    mapping: Mapping[str, str],
    where: str,
) -> dict[str, str]:
    """Return {canonical name: the source's name} of the columns to read that the source has.

    >>> find_columns(["term", "ads", "clicks"], SESSION_COLUMNS, {"query": "term"}, "a.csv")
    {'query': 'term', 'ads': 'ads', 'clicks': 'clicks'}
    """
    repeated_names = {name for name, times in Counter(available).items() if times > 1}
    available_names = set(available)
    names = {}
    for column in columns_to_read:
        name = mapping.get(column.name, column.name)
        if column.lenient and (name in repeated_names or name not in available_names):
            continue
        if name in repeated_names:
            raise LogError(f"{where} has two columns named {name}. Rename one of them.")
        if name in available_names:
            names[column.name] = name
        elif column.required or column.name in mapping:
            raise LogError(*_explain_missing(column, name, available, where))
    return names


def check_types(
    schema: pa.Schema, columns_to_read: Sequence[Column], names: Mapping[str, str], where: str
) -> None:
    """Raise if the Arrow type of a column cannot hold the values of its canonical column."""
    for column in columns_to_read:
        if column.name not in names or column.lenient:
            continue
        arrow_type = schema.field(names[column.name]).type
        if not ACCEPTS[column.kind](arrow_type):
            change = _explain_split(column.kind, names[column.name], arrow_type)
            raise LogError(*explain_type(column, where, str(arrow_type), change))


def explain_type(column: Column, where: str, got: str, change: str = "") -> tuple[Part, ...]:
    """The message for a column of the wrong type; `change` is how its values get the right one."""
    expected = f"{column.name} in {where}: expected {EXPECTED[column.kind]}, got {got}."
    if column.need:
        return (f"{expected} Rename the column, or convert it: {column.need}.",)
    give = f"{change} If another column has them, name it" if change else "Give the right column"
    return (f"{expected} {give} with ", name_column(column.name), ".")


def _explain_split(kind: str, name: str, arrow_type: pa.DataType) -> str:
    """How to make lists of text such as "a,b"; empty for other types."""
    if kind not in SPLIT or not is_string(arrow_type):
        return ""
    return f"Split the text into lists, in pandas: df[{name!r}] = {SPLIT[kind].format(name)}."


def is_text(kind: pa.DataType) -> bool:
    """Whether every value is text or a whole-number id; also for dictionary-coded values."""
    if arrow_types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(is_string(kind) or arrow_types.is_integer(kind) or arrow_types.is_null(kind))


def is_string(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's three string types."""
    return bool(
        arrow_types.is_string(kind)
        or arrow_types.is_large_string(kind)
        or arrow_types.is_string_view(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's five list types."""
    return any(
        check(kind)
        for check in (
            arrow_types.is_list,
            arrow_types.is_large_list,
            arrow_types.is_fixed_size_list,
            arrow_types.is_list_view,
            arrow_types.is_large_list_view,
        )
    )


def is_ids(kind: pa.DataType) -> bool:
    """Whether every value is a list of ids."""
    return bool(arrow_types.is_null(kind) or (is_list(kind) and is_text(kind.value_type)))


def is_positions(kind: pa.DataType) -> bool:
    """Whether every value is a list of whole numbers; the type of empty lists is accepted too."""
    if arrow_types.is_null(kind):
        return True
    return bool(
        is_list(kind)
        and (arrow_types.is_integer(kind.value_type) or arrow_types.is_null(kind.value_type))
    )


def is_numbers(kind: pa.DataType) -> bool:
    """Whether every value is a list of numbers, or of true and false."""
    if arrow_types.is_null(kind):
        return True
    return bool(
        is_list(kind) and (is_number(kind.value_type) or arrow_types.is_boolean(kind.value_type))
    )


def is_number(kind: pa.DataType) -> bool:
    """Whether every value is a number."""
    return bool(
        arrow_types.is_integer(kind)
        or arrow_types.is_floating(kind)
        or arrow_types.is_decimal(kind)
        or arrow_types.is_null(kind)
    )


def is_time(kind: pa.DataType) -> bool:
    """Whether values of this type may be times: numbers, text, timestamps or dates."""
    if arrow_types.is_dictionary(kind):
        return is_time(kind.value_type)
    return bool(
        is_string(kind)
        or is_number(kind)
        or arrow_types.is_timestamp(kind)
        or arrow_types.is_date(kind)
    )


def is_flag(kind: pa.DataType) -> bool:
    """Whether every value is true, false or a number."""
    return bool(arrow_types.is_boolean(kind) or is_number(kind))


ACCEPTS: dict[str, Callable[[Any], bool]] = {
    TEXT: is_text,
    IDS: is_ids,
    POSITIONS: is_positions,
    NUMBERS: is_numbers,
    NUMBER: is_number,
    TIME: is_time,
    FLAG: is_flag,
}


def _explain_missing(
    column: Column, name: str, available: Sequence[str], where: str
) -> tuple[Part, ...]:
    canonical = column.name
    has = _list_names(available[:30]) + (
        f" and {len(available) - 30} more" if len(available) > 30 else ""
    )
    if name != canonical:
        return (
            f"{where} has no column {name}, which ",
            Argument("columns", ...),
            f' gives for "{canonical}". It has {has}.',
        )
    if column.need:
        needs = f"Rename the column: {column.need}."
        return (f"{where} has no column {canonical}. It has {has}. {needs}",)
    if canonical == "ads" and {"ad", "position"} <= set(available):
        return (
            f"{where} has no column ads. It has {has}. It looks like one row per ad: read it with ",
            Argument("format", "long"),
            ", which needs session_id, query, ad, position, and clicked or click_time.",
        )
    other = (
        " It looks like a table of ads: leave it out, e.g. with a glob."
        if canonical == "query" and {"ad", "title"} <= set(available)
        else ""
    )
    return (
        f"{where} has no column {canonical}. It has {has}.{other} Name the right one with ",
        name_column(canonical),
        ", or the log's format, if it has another (`reclick formats`).",
    )


def name_column(canonical: str) -> Argument:
    """The argument that maps a canonical column to a column of the source."""
    return Argument("columns", {canonical: ...})


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(f"{name:.60}" for name in names) if names else "no columns"
