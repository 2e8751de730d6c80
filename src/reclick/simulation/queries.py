"""Queries: a topic with or without a modifier, a detail and an ending, or the name of a brand.

Their volumes follow Zipf's law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.errors import SettingError
from reclick.simulation.vocabulary import TOPIC_NAMES, brand_of_topic, take_phrases, trade_phrases

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int64
    from reclick.simulation.vocabulary import Texts

# For the default number of queries. With Zipf's law, volumes are then distributed as in Table 1 of
# the paper.
SESSIONS_PER_QUERY = 3
FREQUENT_QUERIES = 0.5  # proportion of the queries, the most frequent, that exist from week 1
NEW_QUERIES = 0.1  # proportion of the other queries that is new in each week after the first
RANK_NOISE = 0.7  # scale of the noise in the order by volume, against 1 for each part of a query


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries, the most frequent first.

    Their parts are indices into the phrases of the topic's trade; −1 stands for none.
    """

    text: pa.StringArray  # [query]
    topic: Int64  # [query]
    modifier: Int64  # [query]
    detail: Int64  # [query]
    brand: Int64  # [query] number of the brand that the query names, among those of the topic
    share: Float64  # [query] proportion of the sessions, once all queries exist
    week: Int64  # [query] the first in which it occurs, from 0

    def __len__(self) -> int:
        return len(self.topic)


def make_queries(
    n_requested: int | None, sessions: int, weeks: int, n_brands: int, rng: np.random.Generator
) -> Queries:
    """Draw the queries: those with fewer parts are more likely to exist, and more frequent.

    Queries can name the first `n_brands` brands of each topic.
    """
    forms = list_forms(n_brands)
    topic, modifier, detail, _, _, brand = forms
    count = _count_queries(n_requested, sessions, len(topic))
    parts = np.count_nonzero(forms[1:4] >= 0, axis=0)
    order = np.argsort(parts + rng.gumbel(0.0, RANK_NOISE, len(parts)), kind="stable")[:count]
    share = 1.0 / np.arange(1, count + 1)
    week = draw_first_weeks(count, weeks, NEW_QUERIES, rng)
    week[: max(1, int(FREQUENT_QUERIES * count))] = 0
    return Queries(
        _spell_queries(forms[:, order]),
        topic[order],
        modifier[order],
        detail[order],
        brand[order],
        share / share.sum(),
        week,
    )


def _count_queries(n_requested: int | None, sessions: int, possible: int) -> int:
    """The requested number of queries, or the default for a log of this many sessions."""
    if n_requested is None:
        return min(max(1, sessions // SESSIONS_PER_QUERY), possible)
    if n_requested > possible:
        expected = f"at most {possible}: the simulator's words make no more"
        raise SettingError("queries", n_requested, expected)
    return n_requested


def draw_first_weeks(count: int, weeks: int, new: float, rng: np.random.Generator) -> Int64:
    """Draw the first week of each item: from the second week on, a share `new` of all is new."""
    share_until = (1.0 - new) ** np.arange(weeks - 1, -1, -1)  # [week] proportion of all items
    return np.searchsorted(share_until, rng.random(count), side="right").astype(np.int64)


def list_forms(n_brands: int) -> Int64:
    """Every possible query, as [part, query].

    The parts are topic, modifier, detail, ending, whether the detail comes first, and brand.
    """
    lists = [trade_phrases(field) for field in ("modifiers", "details", "endings")]
    grids = [
        _topic_forms(topic, [len(phrases[topic]) + 1 for phrases in lists])
        for topic in range(len(TOPIC_NAMES))
    ]
    topic, brand, is_alone = (
        part.reshape(-1) for part in np.indices((len(TOPIC_NAMES), n_brands, 2))
    )
    none = np.full_like(topic, -1)
    return np.concatenate(
        [*grids, np.stack([topic, none, none, is_alone - 1, none, brand])], axis=1
    )


def _topic_forms(topic: int, shape: list[int]) -> Int64:
    grid = np.indices((*shape, 2)).reshape(4, -1) - 1
    grid = grid[:, (grid[3] < 0) | (grid[1] >= 0)]  # without a detail, no detail can come first
    return np.concatenate(
        [np.full((1, grid.shape[1]), topic), grid, np.full((1, grid.shape[1]), -1)]
    )


def _spell_queries(forms: Int64) -> pa.StringArray:
    """Write the text of each form.

    Examples: "emergency boston plumber near me" (detail first), "emergency plumber boston near me",
    "harborline" and "harborline plumber".
    """
    topic, modifier, detail, ending, first, brand = forms
    name = np.where((brand >= 0) & (ending < 0), "", TOPIC_NAMES[topic])
    detail_text = take_phrases(trade_phrases("details"), topic, detail)
    ending_text = take_phrases(trade_phrases("endings"), topic, np.where(brand >= 0, -1, ending))
    words = [
        brand_of_topic(topic, brand),
        take_phrases(trade_phrases("modifiers"), topic, modifier),
        np.where(first >= 0, detail_text, ""),
        name,
    ]
    return _join_words([*words, np.where(first >= 0, "", detail_text), ending_text])


def _join_words(words: list[Texts]) -> pa.StringArray:
    """Join words with one space between them; empty words are left out."""
    text = pc.binary_join_element_wise(*(pa.array(column, pa.string()) for column in words), " ")
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(text), pattern=" +", replacement=" ")
