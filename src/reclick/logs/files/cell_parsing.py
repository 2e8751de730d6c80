"""Turn text cells into lists and numbers. A list is a JSON array, or values with `|` between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import FLAG, IDS, NUMBER, POSITIONS, TIME, Column
from reclick.logs.files.source import Raw, short, without

Value = Any  # what a cell or a JSON field holds after parsing: str, list, float or None


class UnreadableError(ValueError):
    """A cell or field does not hold what its column holds."""


def as_text(value: Value) -> str | None:
    """Return a JSON value as text: a string, or a whole number as its digits."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UnreadableError(f"expected text, got {short(value)}")


def as_ids(value: Value) -> list[str | None] | None:
    """Return a JSON value as a list of ids."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {short(value)}")
    return [as_text(item) for item in value]


def as_positions(value: Value) -> list[int | None] | None:
    """Return a JSON value as a list of positions; far-off ones are cut to what an array can hold."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise UnreadableError(f"expected a list, got {short(value)}")
    return [_position(item) for item in value]


def as_number(value: Value) -> float | None:
    """Return a JSON value as a number."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            min(float(value), float("inf"))
            if abs(value) < 1e300 or isinstance(value, float)
            else float("inf")
        )
    raise UnreadableError(f"expected a number, got {short(value)}")


def as_time(value: Value) -> str | None:
    """Return a JSON value as the text of a time."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise UnreadableError(f"expected a time, got {short(value)}")


def as_flag(value: Value) -> bool | None:
    """Return a JSON value as true or false; a number is false when it is 0 or less."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value > 0
    raise UnreadableError(f"expected true or false, got {short(value)}")


AS_KIND: dict[str, Callable[[Value], Any]] = {
    "text": as_text,
    IDS: as_ids,
    POSITIONS: as_positions,
    NUMBER: as_number,
    TIME: as_time,
    FLAG: as_flag,
}
ARROW = {
    "text": pa.string(),
    IDS: pa.list_(pa.string()),
    POSITIONS: pa.list_(pa.int64()),
    NUMBER: pa.float64(),
    TIME: pa.string(),  # as it is written
    FLAG: pa.bool_(),
}
WORDS = {
    "true": True,
    "t": True,
    "yes": True,
    "y": True,
    "false": False,
    "f": False,
    "no": False,
    "n": False,
}


def parse_cell(kind: str, cell: str) -> Any:
    """Return what a text cell says, or raise UnreadableError.

    >>> parse_cell("ids", "a|b"), parse_cell("ids", '["a", "b"]'), parse_cell("positions", "2|1"), parse_cell("positions", "")
    (['a', 'b'], ['a', 'b'], [2, 1], [])
    """
    if kind == NUMBER:
        return _parse_number(cell)
    text = cell.strip()
    if kind == TIME:
        return as_time(text)
    if kind == FLAG:
        return _parse_flag(text)
    if text.startswith("["):
        return AS_KIND[kind](_parse_json(text))
    parts = text.split("|") if text else []
    return parts if kind == IDS else [_parse_position(part) for part in parts]


def parse_columns(raw: Raw, wanted: Sequence[Column]) -> Raw:
    """Return the batch with its text columns parsed to their kinds, and rows with a cell that cannot be parsed set apart."""
    bad: dict[int, str] = {}
    parsed = dict(raw.columns)
    for column in wanted:
        if column.name in parsed and column.kind != "text":
            parsed[column.name] = _parse_array(parsed[column.name], column, bad)
    done = Raw(raw.where, raw.first, parsed, raw.length, raw.numbers, raw.unreadable, raw.rows)
    return without(done, bad)


def _parse_array(cells: pa.Array, column: Column, bad: dict[int, str]) -> pa.Array:
    fast = _parse_fast(cells, column.kind)
    if fast is not None:
        return fast
    coded = (
        cells.dictionary_encode()
    )  # a page or a click list is parsed once however often it is shown
    values: list[Any] = []
    wrong: dict[int, str] = {}
    for code, cell in enumerate(coded.dictionary.to_pylist()):
        try:
            values.append(parse_cell(column.kind, cell))
        except UnreadableError as error:
            values.append(None)
            wrong[code] = f"{column.name}: {error}"
    if wrong:
        codes = coded.indices.to_pylist()
        bad.update(
            {row: wrong[code] for row, code in enumerate(codes) if code in wrong and row not in bad}
        )
    return pa.array(values, ARROW[column.kind]).take(coded.indices)


def _parse_fast(cells: pa.Array, kind: str) -> pa.Array | None:
    """Parse all cells at once with Arrow when they are plain; None when any needs a closer look."""
    try:
        if kind == NUMBER:
            return pc.if_else(pc.equal(cells, ""), None, cells).cast(pa.float64())
        if kind == TIME:
            return pc.if_else(pc.equal(cells, ""), None, cells)
        if kind == FLAG:
            return None
        if pc.any(pc.match_substring_regex(cells, r"[\[\s]")).as_py():
            return None
        empty = pc.equal(cells, "")
        lists = pc.split_pattern(cells, "|")
        if pc.any(empty).as_py():
            lists = pc.if_else(empty, pa.scalar([], lists.type), lists)
        return lists.cast(ARROW[kind])
    except pa.ArrowInvalid:
        return None


def _position(item: Value) -> int | None:
    if item is None:
        return None
    if isinstance(item, float) and item.is_integer():
        item = int(item)
    if isinstance(item, int) and not isinstance(item, bool):
        return max(min(item, 2**31 - 1), -(2**31) + 1)
    raise UnreadableError(f"expected whole numbers, got {short(item)}")


def _parse_position(part: str) -> int | None:
    try:
        return _position(int(part))
    except ValueError as error:
        raise UnreadableError(f"expected whole numbers, got {short(part)}") from error


def _parse_number(cell: str) -> float | None:
    try:
        return float(cell) if cell.strip() else None
    except ValueError as error:
        raise UnreadableError(f"expected a number, got {short(cell)}") from error


def _parse_flag(text: str) -> bool | None:
    return WORDS[text.lower()] if text.lower() in WORDS else as_flag(_parse_number(text))


def _parse_json(text: str) -> Value:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"expected a list, got {short(text)}") from error
