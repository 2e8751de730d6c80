"""Statistics of graded judgments: queries with a single grade, and intervals that overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Bool, Float64, Int64


@dataclass(slots=True)
class GradeStatistics:
    """Statistics of graded pairs, added up over tables; each query must be in one table only.

    A comparison is two ads of one query with different grades. It is uncertain if their intervals
    overlap: the log does not show that the ad with the higher grade is better.

    >>> statistics = GradeStatistics()
    >>> columns = {"query": ["q", "q", "q"], "grade": [0, 2, 2]}
    >>> columns |= {"relevance_low": [0.1, 0.2, 0.5], "relevance_high": [0.3, 0.4, 0.6]}
    >>> statistics.add(pa.table(columns), "relevance")
    >>> statistics.comparisons, statistics.overlapping, statistics.single_grade_queries
    (2, 1, 0)
    """

    queries: int = 0  # with a graded pair
    single_grade_queries: int = 0  # all graded pairs of the query have the same grade
    comparisons: int = 0
    overlapping: int = 0

    def add(self, table: pa.Table, quantity: str) -> None:
        """Add pairs that all have a grade; `quantity` is the value that is graded."""
        if not table.num_rows:
            return
        query = table["query"].combine_chunks().dictionary_encode().indices.to_numpy()
        grade = table["grade"].to_numpy()
        low, high = (table[f"{quantity}{end}"].to_numpy() for end in ("_low", "_high"))
        by_query = query.astype(np.int64)
        by_grade = by_query * (int(grade.max()) + 1) + grade
        grades_of_query = np.unique(
            np.unique(by_grade) // (int(grade.max()) + 1), return_counts=True
        )
        n_comparisons = _count_pairs(by_query) - _count_pairs(by_grade)
        n_disjoint = _count_disjoint(by_query, low, high) - _count_disjoint(by_grade, low, high)
        self.queries += len(grades_of_query[0])
        self.single_grade_queries += int((grades_of_query[1] == 1).sum())
        self.comparisons += n_comparisons
        self.overlapping += n_comparisons - n_disjoint

    @property
    def overlap(self) -> float | None:
        """Share of comparisons whose intervals overlap; None without a comparison."""
        return self.overlapping / self.comparisons if self.comparisons else None


def _count_pairs(group: Int64) -> int:
    """The number of pairs of rows in the same group."""
    sizes = np.unique(group, return_counts=True)[1]
    return int((sizes * (sizes - 1) // 2).sum())


def _count_disjoint(group: Int64, low: Float64, high: Float64) -> int:
    """The number of pairs of intervals in the same group that do not overlap.

    All ends are sorted within their group. The upper ends before the start of an interval are
    those of the intervals entirely below it.
    """
    groups, values = np.concatenate([group, group]), np.concatenate([low, high])
    is_end: Bool = np.repeat([False, True], len(group))
    order = np.lexsort(
        (is_end, values, groups)
    )  # among equal values starts come first: such intervals overlap
    ends_before = np.cumsum(is_end[order])
    groups, is_end = groups[order], is_end[order]
    starts = np.flatnonzero(np.append(True, np.diff(groups) != 0))
    before_group = np.append(0, ends_before)[starts]
    sizes = np.diff(np.append(starts, len(groups)))
    return int((ends_before - np.repeat(before_group, sizes))[~is_end].sum())
