"""The tokens of an ad: the words of its title and description, and its display URL as one more.

The rules:

- Text is folded first: compatibility forms (full width, ligatures) become plain, case is folded
  (ß is ss), and the dotted and dotless i are one letter, so that a word in capitals equals itself
  in small letters in every language. Trade mark signs are dropped.
- A word is a run of letters, digits and the marks that belong to them (so Hindi and Thai vowels
  stay with their letters). Invisible joiners, soft hyphens, variation selectors and direction marks
  are ignored; the zero width space separates words, as Unicode says.
- An apostrophe inside a word is part of it, however it is typed: don't, don’t. A hyphen or an
  underscore separates words: same-day, same day.
- A number keeps its inner signs, its currency and its percent: 24/7, 9:30, 1,000.50, $49, 50%.
- Emoji and other symbols are not words. Scripts written without spaces give one token per run
  between spaces or punctuation.
- Stop words are dropped after folding: function words only, without those that sell (off, now, no,
  same, more).
- The display URL is folded, loses its scheme and its last slash, and is never a stop word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.ragged import Int32, Int64, run_indices, starts_from_sizes
from reclick.data.stored_tables import read_lists, read_strings
from reclick.errors import LogError
from reclick.runtime.arguments import check_arguments

FUNCTION_WORDS = """
    a an the this that these those
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    who whom whose which what when where why how
    am is are was were be been being do does did doing have has had having
    can could will would shall should may might must
    and or but nor so if then than because while until unless although though
    of in on at by to from with into onto upon about above between among through during before after
    up down out for against across along around as per via
    such too very just also both each every any some other another here there again once ever
    i'm i'll i've i'd we're we'll we've you're you'll you've it's that's they're there's let's
    don't doesn't didn't isn't aren't wasn't weren't can't won't couldn't wouldn't shouldn't
"""
STOP_WORDS = frozenset(FUNCTION_WORDS.split())
TEXT_COLUMNS = ("title", "description", "display_url")
ADS_PER_BLOCK = 65_536  # large enough to be fast, small enough for memory

INVISIBLE = [0xAD, 0x34F, 0x61C, 0xFEFF]
INVISIBLE += [*range(0x180B, 0x1810), *range(0x200C, 0x2010), *range(0x202A, 0x202F)]
INVISIBLE += [*range(0x2060, 0x2070), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE0200)]
TRADE_MARKS = "©®℠℡™"
APOSTROPHES = "’‘‛ʼ＇´`"
FOLDED_SIGNS = str.maketrans(
    dict.fromkeys(INVISIBLE)
    | {ord(sign): None for sign in TRADE_MARKS}
    | {ord(sign): "'" for sign in APOSTROPHES}
)
ASCII_SIGNS = str.maketrans({"_": " ", "`": "'"})
DOTTED = re.compile("i\u0307+")
SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*://|//")


@check_arguments
def tokens(
    title: str, description: str, display_url: str, *, stop_words: Collection[str] = STOP_WORDS
) -> list[str]:
    """Return the tokens of one ad, repeats included.

    >>> tokens("Bonded & Insured Plumber", "Don’t wait, the plumber’s here!", "https://A.example/")
    ['bonded', 'insured', 'plumber', 'wait', "plumber's", 'a.example']
    """
    stop_words = _fold_stop_words(stop_words)
    words = [
        word for field in (title, description) for word in _words(field) if word not in stop_words
    ]
    return words + _url_token(display_url)


@dataclass(frozen=True, slots=True)
class AdTokens:
    """The tokens of ads, as codes laid end to end: ad i has token[offsets[i]:offsets[i + 1]]."""

    ads: pa.StringArray  # [ad] in the table's order
    vocabulary: pa.StringArray  # [word]
    offsets: Int64  # [ad + 1]
    token: Int32  # [occurrence] codes into vocabulary

    def __len__(self) -> int:
        return len(self.ads)

    def words(self, ad: int) -> list[str]:
        """Return the tokens of the ad in row `ad`.

        >>> ads, vocabulary = pa.array(["x", "y"]), pa.array(["fast", "plumber"])
        >>> token = np.array([0, 1, 0], np.int32)
        >>> AdTokens(ads, vocabulary, np.array([0, 1, 3]), token).words(1)
        ['plumber', 'fast']
        """
        codes = self.token[self.offsets[ad] : self.offsets[ad + 1]]
        return [self.vocabulary[code].as_py() for code in codes.tolist()]

    def to_tables(self) -> dict[str, pa.Table]:
        """Return the tables `ads` (ad, tokens) and `vocabulary` (word) for `from_tables`."""
        lists = pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.token))
        return {
            "ads": pa.table({"ad": self.ads, "tokens": lists}),
            "vocabulary": pa.table({"word": self.vocabulary}),
        }

    @classmethod
    def from_tables(cls, tables: Mapping[str, pa.Table]) -> AdTokens:
        """Rebuild from the tables of `to_tables`.

        >>> ads, vocabulary = pa.array(["x"]), pa.array(["fast", "plumber"])
        >>> text = AdTokens(ads, vocabulary, np.array([0, 2]), np.array([0, 1], np.int32))
        >>> AdTokens.from_tables(text.to_tables()).words(0)
        ['fast', 'plumber']
        """
        vocabulary = read_strings(tables, "vocabulary", "word")
        ads = read_strings(tables, "ads", "ad")
        starts, token = read_lists(tables, "ads", "tokens", low=0, high=len(vocabulary) - 1)
        return cls(ads.cast(pa.string()), vocabulary.cast(pa.string()), starts, token)


def tokenise(ads_table: pa.Table, *, stop_words: Collection[str] = STOP_WORDS) -> AdTokens:
    """Tokenise every ad of a table with string columns ad, title, description, display_url.

    No token crosses white space, so each distinct piece between spaces is tokenised only once.

    >>> texts = {"title": ["Fast Plumber"], "description": ["Fast!"], "display_url": ["x.example"]}
    >>> tokenise(pa.table({"ad": ["x"], **texts})).words(0)
    ['fast', 'plumber', 'fast', 'x.example']
    """
    _check_columns(ads_table)
    ids = _strings(ads_table["ad"])
    _check_distinct(ids)
    coder = _TokenCoder(stop_words)
    sizes, token = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    for start in range(0, len(ids), ADS_PER_BLOCK):
        block_sizes, block_token = _encode_block(ads_table.slice(start, ADS_PER_BLOCK), coder)
        sizes.append(block_sizes)
        token.append(block_token)
    offsets = starts_from_sizes(np.concatenate(sizes))
    return AdTokens(ids, coder.vocabulary(), offsets, np.concatenate(token))


class _TokenCoder:
    """Gives codes to words in order of appearance, and caches the codes of pieces and URLs."""

    def __init__(self, stop_words: Collection[str]) -> None:
        self.stop_words = _fold_stop_words(stop_words)
        self.words: dict[str, int] = {}
        self.pieces: dict[str, list[int]] = {}
        self.urls: dict[str, list[int]] = {}

    def encode_piece(self, piece: str) -> list[int]:
        """Return the codes of the words in a piece of title or description."""
        if piece not in self.pieces:
            self.pieces[piece] = self._codes(
                word for word in _words(piece) if word not in self.stop_words
            )
        return self.pieces[piece]

    def encode_url(self, url: str) -> list[int]:
        """Return the code of a display URL, or none when it is empty."""
        if url not in self.urls:
            self.urls[url] = self._codes(_url_token(url))
        return self.urls[url]

    def vocabulary(self) -> pa.StringArray:
        """Return the words by code."""
        return pa.array(self.words, pa.string())

    def _codes(self, words: Iterable[str]) -> list[int]:
        return [self.words.setdefault(word, len(self.words)) for word in words]


def _encode_block(ads: pa.Table, coder: _TokenCoder) -> tuple[Int64, Int32]:
    """Return the number of tokens of each ad, and all the codes end to end."""
    pieces = [pc.utf8_split_whitespace(_strings(ads[name])) for name in ("title", "description")]
    texts = [_encode_pieces(lists.flatten(), coder.encode_piece) for lists in pieces]
    urls = _encode_pieces(_strings(ads["display_url"]), coder.encode_url)
    sizes = [
        _sum_lists(text[0], pc.list_value_length(lists).to_numpy())
        for text, lists in zip(texts, pieces, strict=True)
    ]
    return _interleave([*sizes, urls[0]], [texts[0][1], texts[1][1], urls[1]])


def _encode_pieces(
    pieces: pa.StringArray, encode: Callable[[str], list[int]]
) -> tuple[Int64, Int32]:
    """Return the number of tokens of each piece, and all the codes end to end."""
    dictionary_array = pieces.dictionary_encode()
    lists = [encode(piece) for piece in dictionary_array.dictionary.to_pylist()]
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    values = np.fromiter(chain.from_iterable(lists), np.int32, sizes.sum())
    return _take_lists(sizes, values, dictionary_array.indices.to_numpy())


def _sum_lists(values: Int64, sizes: npt.NDArray[np.integer]) -> Int64:
    """The sum of each list; the lists are laid end to end and may be empty."""
    return np.diff(starts_from_sizes(values)[starts_from_sizes(sizes)])


def _interleave(sizes: list[Int64], values: list[Int32]) -> tuple[Int64, Int32]:
    """Lay out the first list of each source, then the second of each; return sizes and values."""
    count = len(sizes[0])
    rows = np.arange(len(sizes) * count).reshape(len(sizes), count).T.reshape(-1)
    return np.sum(sizes, axis=0), _take_lists(np.concatenate(sizes), np.concatenate(values), rows)[
        1
    ]


def _take_lists(sizes: Int64, values: Int32, rows: npt.NDArray[np.integer]) -> tuple[Int64, Int32]:
    """Lay the lists of these rows end to end; return the size of each, and the values."""
    indices, _ = run_indices(starts_from_sizes(sizes), rows.astype(np.int64, copy=False))
    return sizes[rows], values[indices]


def _words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    if text.isascii():
        return list(_ascii_words().findall(text.lower().translate(ASCII_SIGNS)))
    return list(_unicode_words().findall(_fold(text).replace("_", " ").replace("\u2044", "/")))


def _fold(text: str) -> str:
    """Fold case, compatibility forms and the dots of i; folding may decompose, so compose again."""
    folded = unicodedata.normalize("NFKC", text.translate(FOLDED_SIGNS)).casefold()
    return unicodedata.normalize(
        "NFKC", DOTTED.sub("i", folded.translate(FOLDED_SIGNS).replace("ı", "i"))
    )


def _fold_stop_words(stop_words: Collection[str]) -> frozenset[str]:
    """Fold the caller's stop words in the same way as the words of ads."""
    return STOP_WORDS if stop_words is STOP_WORDS else frozenset(map(_fold, stop_words))


def _url_token(display_url: str) -> list[str]:
    """Return the token of a display URL, or nothing when it is empty."""
    url = display_url.strip()
    url = url.lower() if url.isascii() else _fold(url)
    url = SCHEME.sub("", url, count=1) if SCHEME.match(url) else url
    url = url.removesuffix("/")
    return [url] if url else []


@cache
def _ascii_words() -> re.Pattern[str]:
    return _pattern("", "$")


@cache
def _unicode_words() -> re.Pattern[str]:
    return _pattern("".join(_marks()), "$€£¥₹₩₽฿₺₪")


def _pattern(marks: str, currency: str) -> re.Pattern[str]:
    """Runs of word characters, joined by apostrophes or, between digits, by . , / : with signs."""
    run = rf"\w[\w{marks}]*"
    return re.compile(
        rf"(?:[{currency}](?=\d))?{run}(?:(?:'|(?<=\d)[.,/:](?=\d)){run})*(?:(?<=\d)[%{currency}])?"
    )


def _marks() -> Iterator[str]:
    """Yield the combining marks that a pattern's word class leaves out, as character ranges."""
    codes = [
        code
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code)) in {"Mn", "Mc"} and code not in FOLDED_SIGNS
    ]
    first = last = codes[0]
    for code in [*codes[1:], 0]:
        if code != last + 1:
            yield f"{chr(first)}-{chr(last)}"
            first = code
        last = code


def _check_columns(table: pa.Table) -> None:
    for name in ("ad", *TEXT_COLUMNS):
        if name not in table.column_names:
            raise LogError(
                f"ads table: no column {name!r}, only {', '.join(table.column_names)}. "
                "It needs ad, title, description, display_url."
            )
        if table[name].null_count:
            raise LogError(
                f"ads table: {table[name].null_count} nulls in column {name!r}. "
                "Fill them with empty text, or drop those ads."
            )


def _check_distinct(ads: pa.StringArray) -> None:
    repeats = len(ads) - pc.count_distinct(ads).as_py()
    if repeats:
        counts = pc.value_counts(ads)
        example = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise LogError(
            f"ads: {repeats} duplicate ids, such as {example['values']!r} "
            f"({example['counts']} times). Keep one row for each ad."
        )


def _strings(column: pa.ChunkedArray) -> pa.StringArray:
    return _as_one_array(column, pa.string())


def _as_one_array(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    chunks = column.cast(kind).chunks
    return (
        chunks[0]
        if len(chunks) == 1
        else pa.concat_arrays(chunks)
        if chunks
        else pa.array([], kind)
    )
