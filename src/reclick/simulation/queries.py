"""What users ask: a topic with or without a modifier, a detail and an ending, or a brand by its name. Volumes follow Zipf's law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.errors import SettingError
from reclick.simulation.phrases import TOPIC_NAMES, brands, of_kind, take

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int64
    from reclick.simulation.phrases import Texts

SESSIONS_PER_QUERY = 3  # unless the number of queries is given: with Zipf's law, volumes then spread as in the paper's Table 1
HEAD = 0.5  # of the queries, the more frequent half: there from the first week
NEW_QUERIES = 0.1  # of the other queries that are new in each week after the first
CHANCE = 0.7  # how much luck there is in which query is asked more, beside its length in parts


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries, the most frequent first. Their parts are numbers into the lists of the topic's kind; −1 is none."""

    text: pa.StringArray  # [query]
    topic: Int64  # [query]
    modifier: Int64  # [query]
    detail: Int64  # [query]
    brand: Int64  # [query] the brand of the topic that is asked for by name
    share: Float64  # [query] of the sessions, once all queries are there
    week: Int64  # [query] the first it is asked in, from 0

    def __len__(self) -> int:
        return len(self.topic)


def make_queries(
    asked_for: int | None, sessions: int, weeks: int, named: int, rng: np.random.Generator
) -> Queries:
    """Take the short queries first: each part left out makes a query more likely to be asked, and to be asked often."""
    forms = all_forms(named)
    topic, modifier, detail, _, _, brand = forms
    count = _how_many(asked_for, sessions, len(topic))
    parts = np.count_nonzero(forms[1:4] >= 0, axis=0)
    order = np.argsort(parts + rng.gumbel(0.0, CHANCE, len(parts)), kind="stable")[:count]
    share = 1.0 / np.arange(1, count + 1)
    week = first_weeks(count, weeks, NEW_QUERIES, rng)
    week[: max(1, int(HEAD * count))] = 0
    return Queries(
        _spell(forms[:, order]),
        topic[order],
        modifier[order],
        detail[order],
        brand[order],
        share / share.sum(),
        week,
    )


def _how_many(asked_for: int | None, sessions: int, possible: int) -> int:
    """The queries asked for, or as many as a log of so many sessions would have."""
    if asked_for is None:
        return min(max(1, sessions // SESSIONS_PER_QUERY), possible)
    if asked_for > possible:
        expected = f"at most {possible}: the simulator's words make no more"
        raise SettingError("queries", asked_for, expected)
    return asked_for


def first_weeks(count: int, weeks: int, new: float, rng: np.random.Generator) -> Int64:
    """The first week of each of `count` things: in each week after the first, `new` of all that are there are new."""
    there = (1.0 - new) ** np.arange(weeks - 1, -1, -1)  # [week] of all that there ever are
    return np.searchsorted(there, rng.random(count), side="right").astype(np.int64)


def all_forms(named: int) -> Int64:
    """Every query that can be asked, as [part, query]: topic, modifier, detail, ending, whether the detail comes first, brand."""
    sizes = [
        [len(lists[topic]) + 1 for lists in map(of_kind, ("modifiers", "details", "endings"))]
        for topic in range(len(TOPIC_NAMES))
    ]
    grids = [_topic_forms(topic, shape) for topic, shape in enumerate(sizes)]
    topic, brand, alone = (part.reshape(-1) for part in np.indices((len(TOPIC_NAMES), named, 2)))
    none = np.full_like(topic, -1)
    return np.concatenate([*grids, np.stack([topic, none, none, alone - 1, none, brand])], axis=1)


def _topic_forms(topic: int, shape: list[int]) -> Int64:
    grid = np.indices((*shape, 2)).reshape(4, -1) - 1
    grid = grid[:, (grid[3] < 0) | (grid[1] >= 0)]  # only a detail that is there can come first
    return np.concatenate(
        [np.full((1, grid.shape[1]), topic), grid, np.full((1, grid.shape[1]), -1)]
    )


def _spell(forms: Int64) -> pa.StringArray:
    """The words of each form: emergency boston plumber near me, or emergency plumber boston near me; harborline, or harborline plumber."""
    topic, modifier, detail, ending, first, brand = forms
    name = np.where((brand >= 0) & (ending < 0), "", TOPIC_NAMES[topic])
    place = take(of_kind("details"), topic, detail)
    tail = take(of_kind("endings"), topic, np.where(brand >= 0, -1, ending))
    words = [
        brand_names(topic, brand),
        take(of_kind("modifiers"), topic, modifier),
        np.where(first >= 0, place, ""),
        name,
    ]
    return _join([*words, np.where(first >= 0, "", place), tail])


def brand_names(topic: Int64, brand: Int64) -> Texts:
    """The name of each topic's brand of that number, empty for −1."""
    names = np.append(brands(), "")
    found: Texts = names[np.where(brand < 0, -1, brand * len(TOPIC_NAMES) + topic)]
    return found


def _join(words: list[Texts]) -> pa.StringArray:
    """Words with spaces between them, none for a word that is empty."""
    spaced = pc.binary_join_element_wise(*(pa.array(each, pa.string()) for each in words), " ")
    return pc.replace_substring_regex(
        pc.utf8_trim_whitespace(spaced), pattern=" +", replacement=" "
    )
