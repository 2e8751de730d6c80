"""The interner against a Python dict."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclick.data.string_index import EMPTY, Interner, _append, _empty, _slot, buffers

TYPES = (pa.string(), pa.large_string())
ODD = [
    "",
    "\0",
    "\0\0",
    "a",
    "a\0",
    "👟",
    "👟👟",
    "حذاء",
    "é",
    "e\u0301",
    "x" * 70_000,
    "x" * 69_999 + "y",
]


def dict_codes(strings: list[str], known: dict[str, int]) -> list[int]:
    return [known.setdefault(text, len(known)) for text in strings]


@given(
    st.lists(st.lists(st.text(max_size=3), max_size=30), max_size=6),
    st.lists(st.text(max_size=3), max_size=20),
    st.sampled_from(TYPES),
)
def test_codes_are_those_of_a_dict(
    batches: list[list[str]], asked: list[str], kind: pa.DataType
) -> None:
    interner, known = Interner(), dict[str, int]()
    for batch in batches:
        assert interner.codes(pa.array(batch, kind)).tolist() == dict_codes(batch, known)
    assert interner.size == len(known)
    assert interner.strings().to_pylist() == list(known)
    assert interner.find(pa.array(asked, kind)).tolist() == [known.get(text, -1) for text in asked]
    assert interner.size == len(known)


@pytest.mark.parametrize("kind", TYPES)
def test_empty_long_and_odd_strings_are_told_apart(kind: pa.DataType) -> None:
    interner = Interner()
    assert interner.codes(pa.array(ODD, kind)).tolist() == list(range(len(ODD)))
    assert interner.codes(pa.array(ODD[::-1], kind)).tolist() == list(range(len(ODD)))[::-1]
    assert interner.strings().to_pylist() == ODD


def test_codes_stay_the_same_while_the_tables_grow() -> None:
    interner = Interner()
    texts = [f"query number {i}" for i in range(50_000)]
    for start in range(0, len(texts), 7_001):  # past many growths, from within and between calls
        part = texts[start : start + 7_001]
        assert interner.codes(pa.array(part + part)).tolist() == 2 * list(
            range(start, start + len(part))
        )
    assert interner.find(pa.array(texts)).tolist() == list(range(len(texts)))
    assert interner.find(pa.array([text + "x" for text in texts])).max() == -1
    assert interner.strings().to_pylist() == texts


def test_one_call_with_more_strings_than_any_table_holds() -> None:
    texts = [str(i) for i in range(30_000)]
    interner = Interner()
    assert interner.codes(pa.array(texts * 2)).tolist() == 2 * list(range(30_000))


@pytest.mark.parametrize("kind", TYPES)
def test_a_sliced_array_is_read_from_its_slice(kind: pa.DataType) -> None:
    whole = pa.array(["zero", "one", "", "three", "one", "five"], kind)
    interner = Interner()
    assert interner.codes(whole.slice(1, 4)).tolist() == [0, 1, 2, 0]
    assert interner.find(whole.slice(3)).tolist() == [2, 0, -1]
    assert interner.strings().to_pylist() == ["one", "", "three"]


def test_nothing_has_no_codes() -> None:
    interner = Interner()
    assert interner.codes(pa.array([], pa.string())).tolist() == []
    assert interner.find(pa.array(["a", ""])).tolist() == [-1, -1]
    assert len(interner.strings()) == 0
    assert interner.codes(pa.array([""] * 3)).tolist() == [0, 0, 0]


def test_chunks_are_read_as_one() -> None:
    assert Interner().codes(pa.chunked_array([["a", "b"], ["b", "c"]])).tolist() == [0, 1, 1, 2]


def test_bytes_are_told_apart_by_where_they_start_and_end() -> None:
    data = np.frombuffer(b"aaab", np.uint8)
    offsets = np.array([0, 1, 3, 4, 4, 4])
    assert Interner().codes_of_bytes(offsets, data).tolist() == [0, 1, 2, 3, 3]


def test_what_is_returned_is_a_copy() -> None:
    interner = Interner()
    interner.codes(pa.array(["ab", "c"]))
    offsets, data = interner.slices()
    data[:] = 0
    offsets[:] = 0
    assert interner.strings().to_pylist() == ["ab", "c"]


@pytest.mark.parametrize("kind", TYPES)
def test_buffers_are_the_offsets_and_bytes_of_the_array(kind: pa.DataType) -> None:
    offsets, data = buffers(pa.array(["xx", "ab", "é"], kind).slice(1))
    assert [bytes(data[a:b]).decode() for a, b in itertools.pairwise(offsets)] == ["ab", "é"]


def test_strings_of_one_hash_are_told_apart_by_their_bytes() -> None:
    slots, arena, data = _empty(8), np.zeros(16, np.int32), np.frombuffer(b"ab", np.uint8)
    text = arena.view(np.uint8)
    slots[4] = 5, 0  # the first slot of the line that the hash 5 belongs to
    assert _append(arena, text, 0, 0, data, 0, 2) == 3  # words: code, size and the bytes
    places = [
        _slot(slots, arena, text, np.frombuffer(each, np.uint8), 0, len(each), 5)
        for each in (b"ab", b"ac", b"a", b"abc")
    ]
    assert places == [4, 5, 5, 5]
    assert slots[5, 1] == EMPTY


def test_a_full_line_goes_on_in_the_next_and_round_the_end() -> None:
    slots, arena = _empty(8), np.zeros(64, np.int32)
    text, end, places = arena.view(np.uint8), 0, []
    for code, each in enumerate((b"a", b"b", b"c", b"d", b"e", b"f")):
        data = np.frombuffer(each, np.uint8)
        slot = _slot(slots, arena, text, data, 0, 1, 7)
        slots[slot] = 7, end
        end = _append(arena, text, end, code, data, 0, 1)
        places.append(slot)
    assert places == [4, 5, 6, 7, 0, 1]
