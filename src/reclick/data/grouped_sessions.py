"""Sessions: a log's sessions in memory, equal ones grouped with a weight, for models that look at a session as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.counts import Counts, refuse_weightless
from reclick.errors import LogError
from reclick.runtime import artifact
from reclick.runtime.jit import kernel
from reclick.runtime.progress import Progress


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Distinct sessions in the order of their queries. Pairs are rows of the counts' (query, ad) pairs."""

    counts: Counts
    pair: Int32  # [impression] page after page
    page: Int64  # [session + 1] where each page starts in pair
    click: Int32  # [click] positions from 1, in the order clicked
    clicks: Int64  # [session + 1] where each session's clicks start in click
    weight: Float64  # [session] how many sessions of the log are this one

    def __len__(self) -> int:
        return len(self.weight)

    def __repr__(self) -> str:
        return f"Sessions({len(self):,} distinct of {self.counts.total:,.0f}, {len(self.counts.impressions):,} pairs)"

    @property
    def max_ads(self) -> int:
        """The longest page."""
        return int(np.diff(self.page).max(initial=1))

    def select(self, chosen: Int64) -> Sessions:
        """Some of the sessions, with the same pairs: for cross-validation. The counts stay those of all."""
        pages, clicks = np.diff(self.page)[chosen], np.diff(self.clicks)[chosen]
        return Sessions(
            counts=self.counts,
            pair=_gathered(self.pair, self.page, chosen, int(pages.sum())),
            page=_starts(pages),
            click=_gathered(self.click, self.clicks, chosen, int(clicks.sum())),
            clicks=_starts(clicks),
            weight=self.weight[chosen],
        )

    def blocks(self, many: int) -> list[Sessions]:
        """The same sessions in about `many` runs of equal size, to be worked on side by side."""
        edges = np.linspace(0, len(self), many + 1).astype(np.int64)
        return [self._run(int(start), int(end)) for start, end in pairwise(edges) if end > start]

    def _run(self, start: int, end: int) -> Sessions:
        page, clicks = self.page[start : end + 1], self.clicks[start : end + 1]
        return Sessions(
            counts=self.counts,
            pair=self.pair[page[0] : page[-1]],
            page=page - page[0],
            click=self.click[clicks[0] : clicks[-1]],
            clicks=clicks - clicks[0],
            weight=self.weight[start:end],
        )


def as_sessions(sessions: object, *, progress: Progress | None = None) -> Sessions:
    """Sessions as they are, or those of a log, grouped.

    >>> as_sessions({"query": ["pizza"] * 3, "ads": [["a", "b"]] * 3, "clicks": [[2, 1], [], [2, 1]]})
    Sessions(2 distinct of 3, 2 pairs)
    """
    if isinstance(sessions, Sessions):
        return sessions
    if isinstance(sessions, Counts) or artifact.is_stored(sessions):
        raise LogError(
            "Counts do not tell which clicks were on one page, which this model learns from. Give it the log itself."
        )
    from reclick.engines.local.grouper import Grouper
    from reclick.logs import as_log

    grouper, log = Grouper(), as_log(sessions)
    grouper.add_batches(log.batches(progress=progress))
    log.refuse_nothing()
    grouped = grouper.finish()
    refuse_weightless(grouped.counts, log.name)
    return grouped


def _starts(sizes: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


@kernel
def _gathered(values: Int32, starts: Int64, chosen: Int64, size: int) -> Int32:
    """The runs values[starts[i]] … values[starts[i + 1] − 1] of the chosen i, end to end."""
    out = np.empty(size, np.int32)
    at = 0
    for i in chosen:
        for place in range(starts[i], starts[i + 1]):
            out[at] = values[place]
            at += 1
    return out
