"""Mutations of bytes, of lines, of JSON values and of Arrow tables."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tests.support.damaged_arrow import move_offset

TOKENS = [
    *(b"", b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xe9", b"\xed\xa0\x80", b"\\ud800"),
    *(b"\n", b"\r", b"\r\n", b"\t", b",", b'"', b"'", b"\\", b"[", b"]", b"{", b"}", b"<", b">"),
    *(b"&", b"&amp;", b"</session>", b"<!--", b"<![CDATA[", b"-1", b"0", b"1e999", b"NaN"),
    *(b"Infinity", b"-0.0", b"2147483648", b"9223372036854775808", b"1" * 400, b"1_000", b"0x2"),
    *(b"null", b"true", b"\xd9\xa1", b"1e30", b"9" * 5000, b"[" * 2000, b'{"a":' * 500),
    *(b"2026-13-45T99:99:99Z", b"\x1b[31m", b"=cmd|' /C calc'!A0", b"../../etc/passwd"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 99, 10**6, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30),
    *(0.0, -0.0, 1.5, 1e18, 1e300, 1e-320, "", " ", "a", "é", "\u0000", "\ud800", "x" * 3000),
    *([], [None], [[]], ["a", "a"], [1, 1], [0], [-1], [1e9], {}, {"a": {}}, [["a"]], "1", "[1]"),
    *("NaN", "1e999", "2026-03-01T00:00:00Z", "9999-12-31T23:59:59Z", 1e16, 253402300800000),
]
Mutation = Callable[[bytes, random.Random, bytes], bytes]


def mutate_bytes(content: bytes, rng: random.Random, other_content: bytes = b"") -> bytes:
    """Damage the content at one to four places."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        content = rng.choice(BYTE_MUTATIONS)(content, rng, other_content)
    return content


def _flip(content: bytes, rng: random.Random, _: bytes) -> bytes:
    if not content:
        return content
    new_content, place = bytearray(content), rng.randrange(len(content))
    new_content[place] ^= 1 << rng.randrange(8)
    return bytes(new_content)


def _set(content: bytes, rng: random.Random, _: bytes) -> bytes:
    if not content:
        return content
    new_content, place = bytearray(content), rng.randrange(len(content))
    new_content[place] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
    return bytes(new_content)


def _piece(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice([1, 2, 4, 8, 64, 1000]))


def _delete(content: bytes, rng: random.Random, _: bytes) -> bytes:
    start, end = _piece(content, rng)
    return content[:start] + content[end:]


def _repeat(content: bytes, rng: random.Random, _: bytes) -> bytes:
    start, end = _piece(content, rng)
    return content[:end] + content[start:end] * rng.choice([1, 2, 50]) + content[end:]


def _insert(content: bytes, rng: random.Random, _: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice(TOKENS) + content[start:]


def _replace(content: bytes, rng: random.Random, _: bytes) -> bytes:
    start, end = _piece(content, rng)
    return content[:start] + rng.choice(TOKENS) + content[end:]


def _truncate(content: bytes, rng: random.Random, _: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _splice(content: bytes, rng: random.Random, other_content: bytes) -> bytes:
    start, (first, last) = rng.randrange(len(content) + 1), _piece(other_content, rng)
    return content[:start] + other_content[first:last] + content[start:]


def _move_lines(content: bytes, rng: random.Random, _: bytes) -> bytes:
    lines = content.split(b"\n")
    if len(lines) > 100_000:
        return content
    how = rng.randrange(4)
    if how == 0:
        rng.shuffle(lines)
    elif how == 1:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines) * rng.choice([1, 2, 20]))
    elif how == 2:
        del lines[rng.randrange(len(lines))]
    else:
        place = rng.randrange(len(lines))
        lines[place] = lines[place] + b"x" * rng.choice([10, 1000, 70_000, 300_000])
    return b"\n".join(lines)


def _change_line_ends(content: bytes, rng: random.Random, _: bytes) -> bytes:
    return content.replace(b"\n", rng.choice([b"\r", b"\r\n", b"\n\n", b"\x0b", b"\xe2\x80\xa8"]))


def _mix_line_ends(content: bytes, rng: random.Random, _: bytes) -> bytes:
    lines = content.split(b"\n")
    if len(lines) > 100_000:
        return content
    return b"".join(line + rng.choice([b"\n", b"\r\n", b"\r", b"\n\n"]) for line in lines)


def _move_blocks(content: bytes, rng: random.Random, _: bytes) -> bytes:
    """Swap two blocks, repeat one, or leave one out, as a damaged disk does."""
    size = rng.choice([16, 64, 512, 4096])
    blocks = [content[i : i + size] for i in range(0, len(content), size)]
    if len(blocks) < 2:
        return content
    first, second = rng.randrange(len(blocks)), rng.randrange(len(blocks))
    how = rng.randrange(4)
    if how == 0:
        blocks[first], blocks[second] = blocks[second], blocks[first]
    elif how == 1:
        blocks[first] = blocks[second]
    elif how == 2:
        blocks[first] = b"\0" * size
    else:
        rng.shuffle(blocks)
    return b"".join(blocks)


def _set_number(content: bytes, rng: random.Random, _: bytes) -> bytes:
    """Write a number of four or eight bytes that is invalid as a length or an offset."""
    width = rng.choice([4, 8])
    if len(content) < width:
        return content
    number: int = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])
    place = rng.randrange(len(content) - width + 1)
    absurd = (number % (1 << 8 * width)).to_bytes(width, "little")
    return content[:place] + absurd + content[place + width :]


def _damage_end(content: bytes, rng: random.Random, other_content: bytes) -> bytes:
    """Damage the last bytes, where Parquet has its footer and zip its list."""
    end_start = max(0, len(content) - rng.choice([8, 64, 500, 3000]))
    mutate: Mutation = rng.choice([_flip, _set, _delete, _set_number, _truncate, _repeat])
    return content[:end_start] + mutate(content[end_start:], rng, other_content)


def _encode_otherwise(content: bytes, rng: random.Random, _: bytes) -> bytes:
    """Add a byte order mark, or change the encoding."""
    if rng.random() < 0.5:
        return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0"]) + content
    encoding = rng.choice(["utf-16", "utf-16-be", "utf-32", "utf-7", "cp037"])
    return content.decode("latin-1").encode(encoding, "replace")


BYTE_MUTATIONS = [
    *[_flip] * 4,
    *[_set] * 2,
    *[_delete] * 2,
    *[_insert] * 4,
    *[_replace] * 3,
    *(_repeat, _truncate, _splice, _move_lines, _move_lines, _change_line_ends, _mix_line_ends),
    *(_move_blocks, _set_number, _set_number, _damage_end, _damage_end, _encode_otherwise),
]


# ---- JSON


def mutate_json_lines(content: bytes, rng: random.Random) -> bytes:
    """Replace some values in lines of JSON; the lines remain valid JSON."""
    lines = content.split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(lines))
        try:
            value = json.loads(lines[place])
        except (ValueError, RecursionError):
            continue
        new_value = _change_value(value, rng)
        if rng.random() < 0.1 and isinstance(new_value, dict) and len(new_value) > 1:
            new_value = _swap_values(new_value, rng)
        lines[place] = json.dumps(new_value, ensure_ascii=True).encode()
    return b"\n".join(lines)


def _swap_values(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    first, second = rng.sample(list(value), 2)
    return {**value, first: value[second], second: value[first]}


def _change_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        how = rng.random()
        if how < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if how < 0.15:
            return {**value, str(rng.choice(VALUES)): value[key]}
        return {**value, key: _change_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [_change_value(item, rng) if i == place else item for i, item in enumerate(value)]
    return rng.choice(VALUES)


# ---- tables


def mutate_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """Change the type, the values or the name of a column, or add nulls to it."""
    if not table.num_columns:
        return table
    index = rng.randrange(table.num_columns)
    name, column = table.column_names[index], table.column(index)
    how = rng.randrange(12)
    if how == 0:
        return table.remove_column(index)
    if how == 9:  # columns change their names
        names = rng.sample(table.column_names, table.num_columns)
        return table.rename_columns(names)
    if how == 10:  # many chunks, some of them empty, in another order
        cuts = sorted(rng.randrange(table.num_rows + 1) for _ in range(rng.choice([1, 3, 20])))
        parts = [table.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, table.num_rows])]
        return pa.concat_tables(rng.sample(parts, len(parts)))
    if how == 11 and pa.types.is_floating(column.type):
        number = rng.choice([math.nan, math.inf, -math.inf, -1.0, 1e308, 5e-324])
        return table.set_column(index, name, pa.array([number] * table.num_rows, column.type))
    if how == 1:
        new_name = rng.choice([*table.column_names, "", "clicks", "weight", "é" * 50, "\x1b[31m"])
        names = [
            new_name if i == index else old_name for i, old_name in enumerate(table.column_names)
        ]
        return table.rename_columns(names)
    if how == 2:
        return table.append_column(rng.choice(["weight", "dwell_seconds", "extra"]), column)
    if how == 3:
        return table.slice(rng.randrange(table.num_rows + 1))
    if how == 4:
        return table.set_column(index, name, pa.nulls(table.num_rows, column.type))
    values = column.to_pylist()
    if how == 5 and values and pa.types.is_string(column.type):
        return table.set_column(index, name, column.dictionary_encode())
    for _ in range(rng.choice([1, 3, 10])):
        if values:
            place = rng.randrange(len(values))
            values[place] = _change_value(values[place], rng)
    for kind in rng.sample([column.type, None, pa.string(), pa.large_list(pa.int64())], 4):
        try:
            return table.set_column(index, name, pa.array(values, kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
    return table


def encode_wrongly(table: pa.Table, rng: random.Random) -> pa.Table:
    """A table with a column of text as dictionary codes, one of them outside the dictionary.

    Arrow's writers crash on it, so it can be used only as a table in memory.
    """
    name = rng.choice([each.name for each in table.schema if pa.types.is_string(each.type)])
    column = table[name].combine_chunks().dictionary_encode()
    codes = column.indices.to_pylist()
    codes[rng.randrange(len(codes))] = rng.choice([-1, len(column.dictionary), 2**31 - 1, 10**8])
    wrong = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), column.dictionary, safe=False
    )
    return table.set_column(table.column_names.index(name), name, wrong)


def spoil_offset(table: pa.Table, rng: random.Random) -> pa.Table:
    """A table with a column of lists or text, one of whose offsets is out of range."""
    kinds = (pa.types.is_string, pa.types.is_list)
    names = [each.name for each in table.schema if any(is_kind(each.type) for is_kind in kinds)]
    name = rng.choice(names)
    column = table[name].combine_chunks()
    offset = rng.choice([-1, -(2**31), 2**31 - 1, 10**8])
    wrong = move_offset(column, rng.randrange(1, len(column)), offset)
    return table.set_column(table.column_names.index(name), name, wrong)
