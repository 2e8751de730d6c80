"""Which ads a page shows, in which order: the best of the pool by bid × estimated attractiveness, with the noise of each auction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reclick.runtime.jit import kernel

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64

NOISE = 1.0  # standard deviation, on the log of bid × estimated attractiveness


def draw_sizes(page: tuple[int, int], there: Int64, rng: np.random.Generator) -> Int64:
    """Draw the number of ads of each page, n with chance in proportion to n⁴, and never more than there are."""
    sizes = np.arange(page[0], page[1] + 1)
    wanted: Int64 = rng.choice(sizes, len(there), p=sizes**4 / np.sum(sizes**4))
    return np.minimum(wanted, there)


@kernel
def fill_pages(
    query: Int64,  # [session]
    pages: Int64,  # [session + 1] where each page starts in place
    there: npt.NDArray[np.bool_],  # [query, place]
    value: Float64,  # [query, place]
    rng: np.random.Generator,
    place: Int32,  # [impression] filled
    impressions: Int64,  # [query, place] added to
) -> None:
    """Hold one auction a session: its page is the best places of the query's pool, best first."""
    score = np.empty(len(place))
    for session in range(len(query)):
        q, page = query[session], slice(pages[session], pages[session + 1])
        _hold(value[q], there[q], rng, place[page], score[page])
        for winner in place[page]:
            impressions[q, winner] += 1


@kernel
def _hold(
    value: Float64,
    there: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    place: Int32,
    score: Float64,
) -> None:
    """Sort the best scores into place as they come; a page is short, so by insertion."""
    score[:] = -np.inf
    for candidate in range(len(value)):
        if not there[candidate]:
            continue
        scored = value[candidate] + NOISE * rng.standard_normal()
        at = len(place)
        while at > 0 and score[at - 1] < scored:
            if at < len(place):
                score[at], place[at] = score[at - 1], place[at - 1]
            at -= 1
        if at < len(place):
            score[at], place[at] = scored, candidate
