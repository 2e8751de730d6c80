"""A log small enough to grade by hand, and texts odd enough to break a file."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from reclick.models import DCTR

# Rates: red shoes a 3 of 4, b 1 of 4, d 1 of 1; the other query, with a tab and a percent sign,
# a 2 of 4.
RED, ODD = "red shoes", "50% off\tpizza"
LOG: dict[str, list[Any]] = {
    "query": [RED] * 5 + [ODD] * 4,
    "ads": [["a", "b"]] * 4 + [["d"]] + [["a"]] * 4,
    "clicks": [[1], [1], [1, 2], [], [1], [1], [1], [], []],
}
BY_HAND: dict[str, Any] = {
    "cuts": (0.2, 0.5, 0.7),
    "bound": "value",
    "min_support": 2,
}  # on the rates themselves: 3, 1 and 2; d is left out
LEFT_OUT = {"shown fewer than 2 times": 1}

_HARD = st.sampled_from("\t\n\r\v\f\x1c\x85\xa0\u2003\u2028\u3000 %,\"'\\#:=+-@é😀q|{}[]")
TEXTS = st.text(st.one_of(_HARD, st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12)
WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=8
).filter(lambda text: len(text.split()) == 1)


def rates() -> DCTR:
    """The click rates of the log, as they are."""
    return DCTR(attractiveness_strength=0).fit(LOG)


def shown_once(pairs: list[tuple[str, str]]) -> DCTR:
    """A model that has seen each of these pairs once, with a click on every second."""
    clicks: list[list[int]] = [[1] if number % 2 else [] for number in range(len(pairs))]
    return DCTR().fit(
        {"query": [query for query, _ in pairs], "ads": [[ad] for _, ad in pairs], "clicks": clicks}
    )
