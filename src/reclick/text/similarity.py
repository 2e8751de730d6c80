"""How similar the ads of a page are: the Jaccard index of their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64, Int32, Int64, starts_from_sizes
from reclick.runtime.jit import kernel
from reclick.text.word_rates import TextIndex


@dataclass(frozen=True, slots=True)
class AdSimilarity:
    """The distinct words of some ads, by which any two of them can be compared."""

    starts: Int64  # [ad + 1]
    words: Int32  # [word of an ad] ascending within an ad; no words for ads without text

    @classmethod
    def of(cls, ads: pa.Array, text: TextIndex | None) -> Self:
        """The words of ads; an ad without text is similar to itself only.

        >>> from reclick.text.tokens import AdTokens
        >>> token = np.array([0, 1, 1, 0, 2], np.int32)
        >>> vocabulary = pa.array(["fast", "pizza", "sushi"])
        >>> text = AdTokens(pa.array(["x", "y"]), vocabulary, np.array([0, 3, 5]), token)
        >>> similarity = AdSimilarity.of(pa.array(["x", "y", "z"]), TextIndex(text))
        >>> similarity.of_pages(np.array([0, 1, 2], np.int32), np.array([0, 3])).reshape(3, 3)
        array([[1.        , 0.33333333, 0.        ],
               [0.33333333, 1.        , 0.        ],
               [0.        , 0.        , 1.        ]])
        """
        if text is None:
            return cls(np.zeros(len(ads) + 1, np.int64), np.zeros(0, np.int32))
        rows, tokens = text.rows(ads), text.text
        ads_with_text = np.flatnonzero(rows >= 0)
        sizes = np.diff(tokens.offsets)[rows[ads_with_text]]
        ad = np.repeat(ads_with_text, sizes)
        first = np.repeat(tokens.offsets[rows[ads_with_text]], sizes)
        within = np.arange(len(ad)) - np.repeat(starts_from_sizes(sizes)[:-1], sizes)
        word = tokens.token[first + within]
        distinct = np.unique(ad.astype(np.int64) << 32 | word)
        counts = np.bincount(distinct >> 32, minlength=len(ads))
        return cls(starts_from_sizes(counts), (distinct & 0xFFFFFFFF).astype(np.int32))

    def of_pages(self, ad: Int32, starts: Int64) -> Float64:
        """The similarities of the ads of each page, as one square after another.

        `ad` has the row of each impression's ad, and `starts` where each page starts.
        """
        squares = starts_from_sizes(np.diff(starts) ** 2)
        out = np.empty(squares[-1])
        _compare_pages(self.starts, self.words, ad, starts, squares, out)
        return out


@kernel
def _compare_pages(
    starts: Int64, words: Int32, ad: Int32, page: Int64, squares: Int64, out: Float64
) -> None:
    """Fill `out` with |words in both| / |words in either|; 1 for an ad and itself."""
    for s in range(len(page) - 1):
        n = page[s + 1] - page[s]
        for i in range(n):
            one = ad[page[s] + i]
            out[squares[s] + i * n + i] = 1.0
            for j in range(i):
                other = ad[page[s] + j]
                value = 1.0
                if one != other:
                    a, b, both = starts[one], starts[other], 0
                    while a < starts[one + 1] and b < starts[other + 1]:
                        both += words[a] == words[b]
                        word_a, word_b = words[a], words[b]
                        a += word_a <= word_b
                        b += word_b <= word_a
                    either = starts[one + 1] - starts[one] + starts[other + 1] - starts[other]
                    value = both / max(either - both, 1)
                out[squares[s] + i * n + j] = out[squares[s] + j * n + i] = value
