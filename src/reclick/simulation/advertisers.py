"""Who advertises: every ad has a brand, a topic and a theme (the modifier or the detail it is written for, or none), and competes for queries.

A query's pool holds general ads of its topic, and ads written for its modifier and for its detail when it has them. The first place is a house
that was there from the start; a query that asks for a brand by name finds that brand there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reclick.simulation.phrases import TOPIC_NAMES, brands, of_kind
from reclick.simulation.queries import first_weeks

if TYPE_CHECKING:
    from reclick.data.batch import Int32, Int64
    from reclick.simulation.queries import Queries

NEW_ADS = 0.08  # of the ads that are there, new in each week after the first


@dataclass(frozen=True, slots=True)
class Advertising:
    """The ads by their facts, before a word of them is written."""

    topic: Int64  # [ad]
    modifier: Int64  # [ad] that it is written for, −1 for none
    detail: Int64  # [ad] that it is written for, −1 for none
    brand: Int64  # [ad] number among the brands of the topic
    week: Int64  # [ad] the first it is shown in, from 0
    pool: Int32  # [query, place] ads


def houses(size: int) -> int:
    """How many general ads of each topic are there from the start and may be asked for by name, in pools of this size."""
    return max(1, min(size // 3, len(brands()) // len(TOPIC_NAMES)))


def make_advertising(
    queries: Queries, size: int, weeks: int, rng: np.random.Generator
) -> Advertising:
    """Fill every query's pool; only ads that some pool holds are made."""
    groups = _groups_before()
    pool = _fill_pools(queries, groups, size, rng)
    held = np.bincount(pool.reshape(-1), minlength=groups[-1] * size) > 0
    group, slot = np.divmod(np.flatnonzero(held), size)
    topic = np.searchsorted(groups, group, side="right") - 1
    theme = group - groups[topic]
    house = (theme == 0) & (slot < houses(size))
    brand = np.where(house, slot, rng.integers(0, len(brands()) // len(TOPIC_NAMES), len(slot)))
    week = np.where(house, 0, first_weeks(len(slot), weeks, NEW_ADS, rng))
    return Advertising(
        topic, *_written_for(topic, theme), brand, week, (np.cumsum(held, dtype=np.int32) - 1)[pool]
    )


def _groups_before() -> Int64:
    """Groups of ads before each topic's own: one for no theme, one for each modifier, one for each detail."""
    sizes = [
        1 + len(modifiers) + len(details)
        for modifiers, details in zip(of_kind("modifiers"), of_kind("details"), strict=True)
    ]
    return np.cumsum([0, *sizes])


def _fill_pools(queries: Queries, groups: Int64, size: int, rng: np.random.Generator) -> Int64:
    """Ads as group · size + slot, all different: a third each for the modifier and the detail, the rest for no theme."""
    count = len(queries)
    modifiers = np.array([len(found) for found in of_kind("modifiers")])[queries.topic]
    theme = np.zeros((count, size), np.int64)
    theme[:, 1::3] = np.where(queries.modifier >= 0, 1 + queries.modifier, 0)[:, None]
    theme[:, 2::3] = np.where(queries.detail >= 0, 1 + modifiers + queries.detail, 0)[:, None]
    slot = np.zeros((count, size), np.int64)
    slot[:, 1:] = rng.permuted(np.broadcast_to(np.arange(1, size), (count, size - 1)), axis=1)
    house = np.where(queries.brand >= 0, queries.brand, rng.integers(0, houses(size), count))
    slot = np.where(theme == 0, (slot + house[:, None]) % size, slot)
    return (groups[queries.topic][:, None] + theme) * size + slot


def _written_for(topic: Int64, theme: Int64) -> tuple[Int64, Int64]:
    """The modifier and the detail of each theme, −1 for none."""
    modifiers = np.array([len(found) for found in of_kind("modifiers")])[topic]
    modifier = np.where((theme > 0) & (theme <= modifiers), theme - 1, -1)
    detail = np.where(theme > modifiers, theme - modifiers - 1, -1)
    return modifier, detail
