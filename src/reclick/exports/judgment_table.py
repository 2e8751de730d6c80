"""Judgments: the relevance of pairs with grades, in slices, and the count of what was graded and what was left out."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.batch import Float64
from reclick.errors import CannotAnswerError, SettingError
from reclick.exports.grading import Grading, Rule, takes_grading
from reclick.exports.pair_batches import PairSlices, side_by_side
from reclick.models.base import ClickModel
from reclick.runtime.progress import Progress

logger = logging.getLogger("reclick")


class Judged:
    """The pairs of a model with what it believes of them and their grade, slice by slice; counts what it gives and what it leaves out.

    Quantiles as cut points take a pass of their own, which keeps one number a pair.
    """

    def __init__(
        self,
        model: ClickModel,
        pairs: object = None,
        rule: Rule | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        self.rule = rule or Rule()
        self.left_out: Counter[str] = Counter()
        self.grades: Counter[int] = Counter()
        self.queries = 0
        self._model = model
        self._slices = PairSlices(model, pairs)
        self._progress = progress
        self._done = 0
        if self.rule.by == "satisfaction" and not model.satisfaction:
            raise CannotAnswerError(
                f'{type(model).__name__} learns no satisfaction: grade by="relevance" or by="attractiveness".'
            )
        self.cuts = (
            self.rule.cut_points(self._figures())
            if isinstance(self.rule.cuts, str)
            else self.rule.cuts
        )

    def __len__(self) -> int:
        return sum(self.grades.values())

    def tables(self) -> Iterator[pa.Table]:
        """Every pair, with all columns of `relevance` and `grade`, which is null where the support is too small."""
        for table in self._relevance():
            supported = self.rule.supported(_numbers(table, "impressions"))
            grades = pa.array(
                self.rule.grades(_numbers(table, self.rule.figure), self.cuts), mask=~supported
            )
            self._count(table, grades)
            yield table.append_column("grade", grades)

    def graded(self, *checks: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """The pairs that have a grade; `checks` may leave out more of them, and call `leave_out` when they do."""
        for table in self.tables():
            kept = table.filter(table["grade"].is_valid())
            for check in checks:
                kept = check(kept)
            if kept.num_rows:
                yield kept
        self.refuse_nothing()

    def leave_out(self, table: pa.Table, rows: pa.Array, reason: str) -> pa.Table:
        """The table without these rows, which were counted as graded and are left out after all, for this reason."""
        kept, lost = table.filter(pc.invert(rows)), table.filter(rows)
        self.left_out[reason] += lost.num_rows
        self.grades.subtract(_histogram(lost["grade"].combine_chunks()))
        self.queries -= _many(table["query"]) - _many(kept["query"])
        return kept

    def refuse_nothing(self) -> None:
        """Raise when no pair is left: a file without judgments would pass for one."""
        if not len(self):
            reasons = "; ".join(f"{many:,} {reason}" for reason, many in self.left_out.items())
            raise SettingError(
                f"No pair is left to be judged: {reasons}. Ask for less with a smaller min_support."
            )

    def settings(self) -> dict[str, Any]:
        """What grades were made with, as JSON holds it."""
        rule = self.rule
        return {
            "model": self._model.name,
            "by": rule.by,
            "bound": rule.bound,
            "level": rule.level,
            "min_support": rule.min_support,
            "cuts": list(self.cuts),
            "quantiles": rule.cuts if isinstance(rule.cuts, str) else None,
        }

    def _count(self, table: pa.Table, grades: pa.Array) -> None:
        self.queries += _many(table["query"].filter(grades.is_valid()))
        self.grades.update(_histogram(grades))
        if grades.null_count:
            self.left_out[self.rule.unsupported] += grades.null_count

    def _figures(self) -> Float64:
        """The figure of every pair that is to be graded and was clicked: without a click, figures differ by hardly more than support."""
        figures, supported = [], 0
        for table in self._relevance():
            kept = self.rule.supported(_numbers(table, "impressions"))
            supported += int(kept.sum())
            figures.append(
                _numbers(table, self.rule.figure)[kept & (_numbers(table, "clicks") > 0)]
            )
        if not supported:
            self.left_out[self.rule.unsupported] = len(self._slices)
            self.refuse_nothing()
        if not sum(map(len, figures)):
            raise SettingError(
                "None of the pairs to be judged was clicked, so quantiles mean nothing. "
                "Give cut points: cuts=(0.05, 0.2) (on the command line --cuts 0.05,0.2)."
            )
        return np.concatenate(figures)

    def _relevance(self) -> Iterator[pa.Table]:
        passes = 2 if isinstance(self.rule.cuts, str) else 1
        for table in side_by_side(
            partial(self._model.relevance, level=self.rule.level), self._slices
        ):
            self._done += table.num_rows
            if self._progress is not None:
                self._progress(self._done, passes * len(self._slices))
            yield table


@takes_grading
def judgments(
    model: ClickModel,
    *,
    pairs: object = None,
    progress: Progress | None = None,
    **grading: Unpack[Grading],
) -> pa.Table:
    """Graded pairs as a table: query, ad, the value graded by, low, high, support (impressions) and grade, from 0.

    `pairs` is a table with columns query and ad, by default all pairs of the training log. `cuts` are the cut points, `by` the value and `bound` the
    figure they are on: "low", the lower end of the interval of `level`, or the "value" itself. Pairs shown less than `min_support` times are left
    out; their number is logged. It is kept in the table's schema too, under "reclick", with the cut points.

    >>> log = {"query": ["pizza"] * 1001, "ads": [["a"]] * 1000 + [["b"]], "clicks": [[1]] * 900 + [[]] * 100 + [[1]]}
    >>> from reclick.models import DCTR
    >>> found = judgments(DCTR().fit(log), cuts=(0.25, 0.5, 0.75), min_support=1)
    >>> found.select(["ad", "grade"]).to_pylist()
    [{'ad': 'a', 'grade': 3}, {'ad': 'b', 'grade': 2}]
    """
    rule = Rule.of(**grading)
    judged, by = Judged(model, pairs, rule, progress=progress), rule.by
    columns = {
        "query": "query",
        "ad": "ad",
        by: by,
        "low": f"{by}_low",
        "high": f"{by}_high",
        "support": "impressions",
        "grade": "grade",
    }
    table = pa.concat_tables(
        [part.select(list(columns.values())) for part in judged.graded()]
    ).rename_columns(list(columns))
    for reason, many in judged.left_out.items():
        logger.warning("judgments: %s pairs left out, %s.", f"{many:,}", reason)
    return with_settings(table, {**judged.settings(), "left_out": dict(judged.left_out)})


def with_settings(table: pa.Table, settings: dict[str, Any]) -> pa.Table:
    """The table with these settings in its schema."""
    return table.replace_schema_metadata({"reclick": json.dumps(settings)})


def _numbers(table: pa.Table, name: str) -> Float64:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False))


def _many(queries: pa.ChunkedArray) -> int:
    return len(queries.unique())


def _histogram(grades: pa.Array) -> dict[int, int]:
    return {
        entry["values"]: entry["counts"] for entry in grades.drop_null().value_counts().to_pylist()
    }
