"""Pages whose click sequences are listed one by one: for families without a simpler form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np

from reclick.clicks.distribution import Clicks, PageDistribution, SequenceRanks, TopSequences
from reclick.clicks.sequence_search import TIE, check_rankable
from reclick.data.batch import Float64, Int64
from reclick.data.ragged import Bool, starts_from_sizes
from reclick.errors import CannotAnswerError


class SequenceList(NamedTuple):
    """The possible click sequences of a page of some size: shorter first, then lexicographic."""

    clicks: tuple[tuple[int, ...], ...]  # [sequence] positions from 1
    row: dict[tuple[int, ...], int]  # of each sequence
    holds: Bool  # [sequence, position] whether the position is clicked
    length: Int64  # [sequence]
    after: dict[tuple[int, ...], tuple[Int64, Int64]]  # prefix: what `following` found

    @classmethod
    def of(cls, sequences: Iterator[tuple[int, ...]], size: int) -> SequenceList:
        """A list of sequences on a page of `size` ads."""
        clicks = tuple(sequences)
        holds = np.zeros((len(clicks), size), np.bool_)
        for row, each in enumerate(clicks):
            holds[row, [position - 1 for position in each]] = True
        rows = {each: row for row, each in enumerate(clicks)}
        return cls(clicks, rows, holds, holds.sum(axis=1), {})

    def following(self, prefix: tuple[int, ...]) -> tuple[Int64, Int64]:
        """The sequences that begin with these clicks, and their next click, 0 where it is none."""
        if prefix not in self.after:
            n = len(prefix)
            rows = [row for row, each in enumerate(self.clicks) if each[:n] == prefix]
            then = [(*self.clicks[row], 0)[n] for row in rows]
            self.after[prefix] = np.array(rows, np.int64), np.array(then, np.int64)
        return self.after[prefix]


@cache
def falling_sets(size: int) -> SequenceList:
    """Every set of clicked positions, clicked from the top down.

    >>> falling_sets(2).clicks
    ((), (1,), (2,), (1, 2))
    """
    positions = range(1, size + 1)
    sets = (each for length in range(size + 1) for each in combinations(positions, length))
    return SequenceList.of(sets, size)


class EnumeratedPages(PageDistribution):
    """Base of families that list the probabilities of all click sequences of a page."""

    top_down: ClassVar[bool] = False  # whether the order of clicks is always that of the page

    def list_sequences(self, size: int) -> SequenceList:
        """The possible click sequences of a page of `size` ads."""
        raise NotImplementedError

    def probabilities(self, page: int) -> Float64:
        """The probability of each listed sequence of a page [sequence]."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _each(self, clicks: Clicks) -> Iterator[tuple[int, SequenceList, Float64, tuple[int, ...]]]:
        """Each page with its sequences, their probabilities, and its own clicks."""
        sizes = np.diff(self.starts).tolist()
        for page, size in enumerate(sizes):
            own = clicks.click[clicks.starts[page] : clicks.starts[page + 1]].tolist()
            yield page, self.list_sequences(size), self.probabilities(page), tuple(own)

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        out = np.full(len(self), -np.inf)
        for page, listed, chance, own in self._each(clicks):
            row = listed.row.get(own)
            if row is not None and chance[row] > 0:
                out[page] = math.log(chance[row])
        return out

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        out = np.full(len(self), -np.inf)
        for page, listed, chance, own in self._each(clicks):
            total = chance[_same_set(listed, own)].sum()
            if total > 0:
                out[page] = math.log(total)
        return out

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        out = np.empty(self.starts[-1])
        for page, listed, chance, _ in self._each(_no_clicks(len(self))):
            out[self.starts[page] : self.starts[page + 1]] = chance @ listed.holds
        return out

    def next_click_prob(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """P(next click is here | clicks so far) [impression], and P(the session ends) [page]."""
        following, end = np.zeros(self.starts[-1]), np.ones(len(self))
        for page, listed, chance, own in self._each(clicks):
            prefix = tuple(sorted(own)) if self.top_down else own
            rows, then = listed.following(prefix)
            total = chance[rows].sum()
            if total <= 0:
                continue
            first, size = self.starts[page], listed.holds.shape[1]
            share = np.bincount(then, chance[rows], size + 1) / total
            end[page], following[first : first + size] = share[0], share[1:]
        return following, end

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        raise CannotAnswerError(
            "These pages have no satisfaction: their model does not say whether a session ended "
            "because a clicked ad satisfied the user. MultiClick, LuceClick, DBN and SDBN do."
        )

    def sample(self, rng: np.random.Generator) -> Clicks:
        """Draw one session for each page."""
        drawn: list[tuple[int, ...]] = []
        for _, listed, chance, _ in self._each(_no_clicks(len(self))):
            row = int(np.searchsorted(np.cumsum(chance), rng.random(), side="right"))
            drawn.append(listed.clicks[min(row, len(listed.clicks) - 1)])
        sizes = np.array([len(each) for each in drawn], np.int64)
        click = np.array([position for each in drawn for position in each], np.int32)
        return Clicks(click, starts_from_sizes(sizes))

    def top_sequences(self, length: int | None, top: int) -> TopSequences:
        """The most likely complete sequences of each page, of `length` clicks or of any number."""
        longest = int(np.diff(self.starts).max(initial=0))
        best = TopSequences(
            np.zeros((len(self), top, longest), np.int32),
            np.full((len(self), top), -1, np.int32),
            np.zeros((len(self), top)),
        )
        for page, listed, chance, _ in self._each(_no_clicks(len(self))):
            possible = chance > 0
            if length is not None:
                possible &= listed.length == length
            rows = np.flatnonzero(possible)
            rows = rows[np.argsort(-chance[rows], kind="stable")][:top]
            for rank, row in enumerate(rows):
                each = listed.clicks[row]
                best.sequences[page, rank, : len(each)] = each
                best.lengths[page, rank] = len(each)
                best.probabilities[page, rank] = chance[row]
        return best

    def ranks(self, clicks: Clicks, rows: Int64) -> SequenceRanks:
        """Rank the clicks of the pages `rows` among all sequences of their length [row]."""
        pages, own_clicks = self.select(rows), clicks.select(rows)
        check_rankable(np.diff(pages.starts), own_clicks.counts)
        out = np.zeros((4, len(pages)), np.int64)
        for page, listed, chance, own in pages._each(own_clicks):
            out[:, page] = _rank(listed, chance, own)
        return SequenceRanks(*out)


def _no_clicks(pages: int) -> Clicks:
    return Clicks(np.zeros(0, np.int32), np.zeros(pages + 1, np.int64))


def _same_set(listed: SequenceList, clicks: tuple[int, ...]) -> Bool:
    """Whether each sequence has the same clicks, in any order [sequence]."""
    holds = np.zeros(listed.holds.shape[1], np.bool_)
    holds[[position - 1 for position in clicks]] = True
    return np.asarray((listed.holds == holds).all(axis=1))


def _rank(listed: SequenceList, chance: Float64, own: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The fields of `SequenceRanks`; impossible sequences are tied with each other."""
    size, length = listed.holds.shape[1], len(own)
    as_long = listed.length == length
    rivals, same = chance[as_long], _same_set(listed, own)[as_long]
    row = listed.row.get(own)
    target = 0.0 if row is None else float(chance[row])
    above = int((rivals * (1.0 - TIE) > target).sum())
    best = float(rivals.max(initial=0.0))
    if best <= 0:  # every order of every set is impossible
        return 0, math.perm(size, length), math.perm(size, length), math.factorial(length)
    tied = int((rivals >= target * (1.0 - TIE)).sum()) - above
    if target <= 0:
        tied = math.perm(size, length) - above
    likeliest = rivals >= best * (1.0 - TIE)
    return above, tied, int(likeliest.sum()), int((likeliest & same).sum())
