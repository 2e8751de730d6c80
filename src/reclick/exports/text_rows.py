"""The text of many rows at once: escaping, joining and writing, in Arrow and without a loop over rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.string_index import buffers

TEXT = pa.large_string()
# All that Python, and so most readers, takes for white space: they split lines there.
WHITE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
ONE_WORD = {character: quote(character, safe="") for character in "%" + WHITE}
ONE_LINE = {character: code for character, code in ONE_WORD.items() if character != " "}
IN_JSON = {
    character: json.dumps(character)[1:-1] for character in ("\\", '"', *map(chr, range(32)))
}
IN_CSV = {'"': '""'}


def escaped(texts: pa.Array, codes: dict[str, str]) -> pa.Array:
    """The texts with each of these characters as its code; the character that codes start with comes first.

    ONE_WORD and ONE_LINE are undone by `urllib.parse.unquote`.

    >>> escaped(pa.array(["50% off"]), ONE_WORD)[0].as_py(), escaped(pa.array(["50% off"]), ONE_LINE)[0].as_py()
    ('50%25%20off', '50%25 off')
    """
    texts = texts.cast(TEXT)
    held = _content(texts)
    for character, code in codes.items():
        if character.encode() in held:  # most never occur
            texts = pc.replace_substring(texts, character, code)
    return texts


def holding(texts: pa.Array, characters: str) -> pa.Array:
    """Whether each text has any of these characters."""
    return pc.match_substring_regex(texts, f"[{characters}]")


def for_each_query(queries: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """What becomes of each row's query, each distinct one being worked out once."""
    coded = queries.dictionary_encode()
    return change(coded.dictionary).take(coded.indices)


def joined(*parts: pa.Array | str) -> pa.Array:
    r"""The parts of each row side by side; a text is the same for all rows, and a null is nothing.

    >>> joined("a", pa.array([1, None]), "\n").to_pylist()
    ['a1\n', 'a\n']
    """
    columns = [
        pa.scalar(part, TEXT) if isinstance(part, str) else part.cast(TEXT) for part in parts
    ]
    return pc.binary_join_element_wise(
        *columns, pa.scalar("", TEXT), null_handling="replace", null_replacement=""
    )


def write_rows(file: BinaryIO, rows: pa.Array) -> None:
    """Write the texts, end to end."""
    file.write(_content(rows))


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    return table[name].combine_chunks()


def _content(texts: pa.Array) -> bytes:
    offsets, data = buffers(texts)
    return data[offsets[0] : offsets[-1]].tobytes()
