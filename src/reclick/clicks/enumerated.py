"""Pages whose click sequences are enumerated, for families without a simpler form."""

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
    after: dict[tuple[int, ...], tuple[Int64, Int64]]  # results of `following`, by prefix

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
        """The sequences that begin with these clicks, and their next click, or 0 at the end."""
        if prefix not in self.after:
            n = len(prefix)
            rows = [row for row, each in enumerate(self.clicks) if each[:n] == prefix]
            next_click = [(*self.clicks[row], 0)[n] for row in rows]
            self.after[prefix] = np.array(rows, np.int64), np.array(next_click, np.int64)
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
        """The probability of each sequence of the list of a page [sequence]."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _iterate_pages(
        self, clicks: Clicks
    ) -> Iterator[tuple[int, SequenceList, Float64, tuple[int, ...]]]:
        """Yield each page with its list of sequences, their probabilities, and its clicks."""
        sizes = np.diff(self.starts).tolist()
        for page, size in enumerate(sizes):
            sequence = clicks.click[clicks.starts[page] : clicks.starts[page + 1]].tolist()
            yield page, self.list_sequences(size), self.probabilities(page), tuple(sequence)

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        out = np.full(len(self), -np.inf)
        for page, sequences, chance, sequence in self._iterate_pages(clicks):
            row = sequences.row.get(sequence)
            if row is not None and chance[row] > 0:
                out[page] = math.log(chance[row])
        return out

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        out = np.full(len(self), -np.inf)
        for page, sequences, chance, sequence in self._iterate_pages(clicks):
            total = chance[_same_set(sequences, sequence)].sum()
            if total > 0:
                out[page] = math.log(total)
        return out

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        out = np.empty(self.starts[-1])
        for page, sequences, chance, _ in self._iterate_pages(_no_clicks(len(self))):
            out[self.starts[page] : self.starts[page + 1]] = chance @ sequences.holds
        return out

    def next_click_prob(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """P(next click is here | clicks so far) [impression], and P(the session ends) [page]."""
        following, end = np.zeros(self.starts[-1]), np.ones(len(self))
        for page, sequences, chance, sequence in self._iterate_pages(clicks):
            prefix = tuple(sorted(sequence)) if self.top_down else sequence
            rows, next_click = sequences.following(prefix)
            total = chance[rows].sum()
            if total <= 0:
                continue
            first, size = self.starts[page], sequences.holds.shape[1]
            share = np.bincount(next_click, chance[rows], size + 1) / total
            end[page], following[first : first + size] = share[0], share[1:]
        return following, end

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        raise CannotAnswerError(
            "These pages have no satisfaction: their model does not say whether a session ended "
            "because a clicked ad satisfied the user. MultiClick, LuceClick, DBN, SDBN and scan do."
        )

    def sample(self, rng: np.random.Generator) -> Clicks:
        """Draw one session for each page."""
        samples: list[tuple[int, ...]] = []
        for _, sequences, chance, _ in self._iterate_pages(_no_clicks(len(self))):
            row = int(np.searchsorted(np.cumsum(chance), rng.random(), side="right"))
            samples.append(sequences.clicks[min(row, len(sequences.clicks) - 1)])
        sizes = np.array([len(each) for each in samples], np.int64)
        click = np.array([position for each in samples for position in each], np.int32)
        return Clicks(click, starts_from_sizes(sizes))

    def top_sequences(self, length: int | None, top: int) -> TopSequences:
        """The most likely complete sequences of each page, of `length` clicks or of any number."""
        longest = int(np.diff(self.starts).max(initial=0))
        best = TopSequences(
            np.zeros((len(self), top, longest), np.int32),
            np.full((len(self), top), -1, np.int32),
            np.zeros((len(self), top)),
        )
        for page, sequences, chance, _ in self._iterate_pages(_no_clicks(len(self))):
            possible = chance > 0
            if length is not None:
                possible &= sequences.length == length
            rows = np.flatnonzero(possible)
            rows = rows[np.argsort(-chance[rows], kind="stable")][:top]
            for rank, row in enumerate(rows):
                each = sequences.clicks[row]
                best.sequences[page, rank, : len(each)] = each
                best.lengths[page, rank] = len(each)
                best.probabilities[page, rank] = chance[row]
        return best

    def ranks(self, clicks: Clicks, rows: Int64) -> SequenceRanks:
        """Rank the clicks of the pages `rows` among all sequences of their length [row]."""
        pages, row_clicks = self.select(rows), clicks.select(rows)
        check_rankable(np.diff(pages.starts), row_clicks.counts)
        out = np.zeros((4, len(pages)), np.int64)
        for page, sequences, chance, sequence in pages._iterate_pages(row_clicks):
            out[:, page] = _rank(sequences, chance, sequence)
        return SequenceRanks(*out)


def _no_clicks(pages: int) -> Clicks:
    return Clicks(np.zeros(0, np.int32), np.zeros(pages + 1, np.int64))


def _same_set(sequences: SequenceList, clicks: tuple[int, ...]) -> Bool:
    """Whether each sequence has the same clicks, in any order [sequence]."""
    holds = np.zeros(sequences.holds.shape[1], np.bool_)
    holds[[position - 1 for position in clicks]] = True
    return np.asarray((sequences.holds == holds).all(axis=1))


def _rank(
    sequences: SequenceList, chance: Float64, sequence: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """The fields of `SequenceRanks`; impossible sequences are tied with each other."""
    size, length = sequences.holds.shape[1], len(sequence)
    same_length = sequences.length == length
    rivals, same = chance[same_length], _same_set(sequences, sequence)[same_length]
    row = sequences.row.get(sequence)
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
