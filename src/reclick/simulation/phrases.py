"""Picking phrases from the word lists, many at a time."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reclick.simulation.vocabulary import BRAND_ENDS, BRAND_STARTS, KINDS, TOPICS

if TYPE_CHECKING:
    from reclick.data.batch import Int64

Texts = npt.NDArray[np.object_]

TOPIC_NAMES: Texts = np.array(list(TOPICS), object)  # [topic]


def phrases(text: str) -> list[str]:
    """The phrases of a word list.

    >>> phrases("near_me open_now")
    ['near me', 'open now']
    """
    return [phrase.replace("_", " ") for phrase in text.split()]


def of_kind(field: str) -> list[list[str]]:
    """The phrases that the kind of each topic has for `field`: modifiers, details, endings or offers."""
    return [phrases(getattr(KINDS[kind], field)) for kind, _ in TOPICS.values()]


def nouns() -> list[list[str]]:
    """The words that ads of each topic use for it."""
    return [phrases(words) for _, words in TOPICS.values()]


def brands() -> Texts:
    """All brands; brand b belongs to topic b % topics, where it is number b // topics.

    >>> brands()[:2].tolist()
    ['harborline', 'mapleworks']
    """
    starts, ends = phrases(BRAND_STARTS), phrases(BRAND_ENDS)
    mixed = (
        (start, (start + turn) % len(ends))
        for turn in range(len(ends))
        for start in range(len(starts))
    )  # neighbours differ in both
    return np.array([starts[start] + ends[end] for start, end in mixed], object)


def take(lists: list[list[str]], which: Int64, number: Int64) -> Texts:
    """Phrase `number` of list `which`, for each pair of them; number −1 is the empty phrase.

    >>> take([["a", "b"], ["c"]], np.array([0, 1, 1]), np.array([1, 0, -1])).tolist()
    ['b', 'c', '']
    """
    flat = np.array(["", *chain.from_iterable(lists)], object)
    starts = 1 + np.cumsum([0, *map(len, lists)])[which]
    found: Texts = flat[np.where(number < 0, 0, starts + number)]
    return found


def pick_two(lists: list[list[str]], which: Int64, rng: np.random.Generator) -> tuple[Texts, Texts]:
    """Two different phrases of each list named."""
    sizes = np.array([*map(len, lists)])[which]
    first = rng.integers(0, sizes)
    second = (first + rng.integers(1, sizes)) % sizes
    return take(lists, which, first), take(lists, which, second)
