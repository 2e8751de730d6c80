"""The text of many rows at once: escape, join and write in Arrow, without a loop over rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.string_index import buffers

TEXT = pa.large_string()
# All white space by Python's definition; most readers split lines there.
WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
ONE_WORD_CODES = {character: quote(character, safe="") for character in "%" + WHITE_SPACE}
ONE_LINE_CODES = {character: code for character, code in ONE_WORD_CODES.items() if character != " "}
JSON_CODES = {
    character: json.dumps(character)[1:-1] for character in ("\\", '"', *map(chr, range(32)))
}
CSV_CODES = {'"': '""'}


def escape(texts: pa.Array, codes: dict[str, str]) -> pa.Array:
    """Replace each of these characters by its code.

    The character that codes start with must come first. `urllib.parse.unquote` undoes
    ONE_WORD_CODES and ONE_LINE_CODES.

    >>> texts = pa.array(["50% off"])
    >>> escape(texts, ONE_WORD_CODES)[0].as_py(), escape(texts, ONE_LINE_CODES)[0].as_py()
    ('50%25%20off', '50%25 off')
    """
    texts = texts.cast(TEXT)
    content = _content(texts)
    for character, code in codes.items():
        if character.encode() in content:  # most of them never occur
            texts = pc.replace_substring(texts, character, code)
    return texts


def escape_csv(texts: pa.Array) -> pa.Array:
    """Texts as CSV cells: quoted if they have a comma, a quote or a line break.

    >>> escape_csv(pa.array(["plain", 'a "b", c'])).to_pylist()
    ['plain', '"a ""b"", c"']
    """
    quoted_texts = concatenate('"', escape(texts, CSV_CODES), '"')
    return pc.if_else(contains_any(texts, ',"\r\n'), quoted_texts, texts.cast(TEXT))


def contains_any(texts: pa.Array, characters: str) -> pa.Array:
    """Whether each text has any of these characters."""
    return pc.match_substring_regex(texts, f"[{characters}]")


def map_distinct(texts: pa.Array, function: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Apply a function to texts, once per distinct text."""
    column = texts.dictionary_encode()
    return function(column.dictionary).take(column.indices)


def concatenate(*parts: pa.Array | str) -> pa.Array:
    r"""Join the parts of each row; a `str` is the same in all rows, a null is empty.

    >>> concatenate("a", pa.array([1, None]), "\n").to_pylist()
    ['a1\n', 'a\n']
    """
    columns = [
        pa.scalar(part, TEXT) if isinstance(part, str) else part.cast(TEXT) for part in parts
    ]
    return pc.binary_join_element_wise(
        *columns, pa.scalar("", TEXT), null_handling="replace", null_replacement=""
    )


def write_rows(file: BinaryIO, rows: pa.Array) -> None:
    """Write the texts one after the other."""
    file.write(_content(rows))


def get_column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    return table[name].combine_chunks()


def _content(texts: pa.Array) -> bytes:
    offsets, data = buffers(texts)
    return data[offsets[0] : offsets[-1]].tobytes()
