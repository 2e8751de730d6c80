"""What a simulation is asked for, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reclick.errors import Argument, SettingError

WEEK = 7 * 24 * 60 * 60 * 1000  # milliseconds


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `simulate`."""

    sessions: int  # a week
    weeks: int
    queries: int | None
    ads_per_query: int
    page: tuple[int, int]
    bots: float
    seed: int

    def __post_init__(self) -> None:
        for name, least in {
            "sessions": 1,
            "weeks": 1,
            "queries": 1,
            "ads_per_query": 1,
            "seed": 0,
        }.items():
            value = getattr(self, name)
            if not (_is_whole(value) and value >= least) and (name, value) != ("queries", None):
                raise SettingError(name, value, f"a whole number of {least} or more")
        if self.sessions > WEEK:
            expected = f"at most {WEEK} per week, one per millisecond"
            raise SettingError("sessions", self.sessions, expected)
        if not _is_range(self.page, self.ads_per_query):
            advice = ("There are ", Argument("ads_per_query", self.ads_per_query), ".")
            expected = "the fewest and the most ads on a page, at most those of a query"
            raise SettingError("page", self.page, expected, advice)
        if not isinstance(self.bots, int | float) or not 0 <= self.bots <= 1:
            expected = "the share of sessions that are of bots, a number from 0 to 1"
            raise SettingError("bots", self.bots, expected)


def _is_range(page: tuple[int, int], most: int) -> bool:
    return len(page) == 2 and all(map(_is_whole, page)) and 1 <= page[0] <= page[1] <= most


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
