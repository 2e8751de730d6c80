"""Judgments: the relevance of (query, ad) pairs with grades, batch by batch or as one table."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.frames import check_codes
from reclick.data.ragged import Float64, Int32
from reclick.errors import Argument, CannotAnswerError, UsageError, check_fitted_model
from reclick.exports.grade_statistics import GradeStatistics
from reclick.exports.request import PER_QUERY, Cuts, ExportRequest, ExportResult, GradingRule
from reclick.logs import as_pairs
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.extras import import_extra
from reclick.runtime.filesystem import AnyPath
from reclick.runtime.parallel import parallel_map, thread_limit
from reclick.runtime.progress import ProgressOption, report_progress, track_progress

logger = logging.getLogger("reclick")

EXTRA = "reclick[exports]"  # for pip
BATCH_PAIRS = 1 << 17  # the pairs of the last query are added to it
MAX_BATCHES_AT_ONCE = 8  # limits memory


@check_arguments
def judgments(
    model: ClickModel,
    *,
    pairs: object = None,
    cuts: Cuts = "quartiles",
    quantity: str = "relevance",
    bound: str = "low",
    min_support: float = 10.0,
    level: float = 0.9,
    progress: ProgressOption = None,
) -> pa.Table:
    """Graded pairs as a table: query, ad, the graded value, low, high, support and grade, from 0.

    `pairs` is a table with columns query and ad, by default all pairs of the training log. `cuts`
    are the cut points: numbers; "halves", "terciles", "quartiles", "quintiles" or "deciles" of the
    clicked pairs; or "per-query" for quarters of the best value of each query. `quantity` is what
    is graded: "relevance", "attractiveness" or "satisfaction". With `bound` "low" the cut points
    apply to the lower end of its interval of `level`, with "value" to the value itself.
    Pairs with fewer than `min_support` impressions are left out; their number is logged.

    The metadata "reclick" of the table's schema has the number of pairs left out, the cut points,
    the number of queries without a grade and with a single grade, and the share of comparisons (two
    ads of one query with different grades) whose intervals overlap.

    >>> log = {"query": ["pizza"] * 1001, "ads": [["a"]] * 1000 + [["b"]]}
    >>> log["clicks"] = [[1]] * 900 + [[]] * 100 + [[1]]
    >>> from reclick.models import DCTR
    >>> table = judgments(DCTR().fit(log), cuts=(0.25, 0.5, 0.75), min_support=1)
    >>> table.select(["ad", "grade"]).to_pylist()
    [{'ad': 'a', 'grade': 3}, {'ad': 'b', 'grade': 2}]
    """
    check_fitted_model(model)
    rule = GradingRule(cuts, quantity, bound, min_support, level)
    columns = {
        "query": "query",
        "ad": "ad",
        quantity: quantity,
        "low": f"{quantity}_low",
        "high": f"{quantity}_high",
        "support": "impressions",
        "grade": "grade",
    }
    with track_progress(progress, "Grading pairs"):
        graded_pairs = GradedPairs(model, pairs, rule)
        tables = [table.select(list(columns.values())) for table in graded_pairs.graded_tables()]
    for reason, n in graded_pairs.left_out.items():
        logger.warning("judgments: %s pairs left out, %s.", f"{n:,}", reason)
    settings = {
        **graded_pairs.settings(),
        "left_out": dict(graded_pairs.left_out),
        **graded_pairs.usefulness(),
    }
    return add_settings(pa.concat_tables(tables).rename_columns(list(columns)), settings)


class GradedPairs:
    """The pairs of a model with their relevance and grade, in batches.

    It counts the pairs of each grade and those left out. Quantiles as cut points need an additional
    pass, with one number per pair in memory.
    """

    def __init__(
        self, model: ClickModel, pairs: object = None, rule: GradingRule | None = None
    ) -> None:
        self.rule = rule or GradingRule()
        self.left_out: Counter[str] = Counter()
        self.grades: Counter[int] = Counter()
        self.statistics = GradeStatistics()
        self._total_queries = 0
        self._model = model
        self._batches = PairBatches(model, pairs)
        self._n_done = 0
        if self.rule.quantity == "satisfaction" and not model.satisfaction:
            raise CannotAnswerError(
                f"{type(model).__name__} has no satisfaction: grade ",
                Argument("quantity", "relevance"),
                " or ",
                Argument("quantity", "attractiveness"),
                ".",
            )
        values = self._clicked_values() if self.rule.uses_quantiles else np.zeros(0)
        self.cuts = self.rule.cut_points(values)

    @classmethod
    def from_request(cls, request: ExportRequest) -> GradedPairs:
        """The graded pairs for an export."""
        return cls(request.model, request.pairs, request.rule)

    def __len__(self) -> int:
        return sum(self.grades.values())

    def tables(self) -> Iterator[pa.Table]:
        """All pairs with the columns of `relevance` and `grade`, null without enough support."""
        for table in self._grade():
            self.statistics.add(table.filter(table["grade"].is_valid()), self.rule.quantity)
            yield table

    def graded_tables(self, *checks: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """The pairs that have a grade; `checks` can leave out more pairs with `leave_out`."""
        for table in self._grade():
            rows = table.filter(table["grade"].is_valid())
            for check in checks:
                rows = check(rows)
            self.statistics.add(rows, self.rule.quantity)
            if rows.num_rows:
                yield rows
        self.require_pairs()

    def leave_out(self, table: pa.Table, rows: pa.Array, reason: str) -> pa.Table:
        """Remove rows from the table, and from the counts of grades."""
        remaining_rows, removed_rows = table.filter(pc.invert(rows)), table.filter(rows)
        self.left_out[reason] += removed_rows.num_rows
        self.grades.subtract(_histogram(removed_rows["grade"].combine_chunks()))
        return remaining_rows

    def require_pairs(self) -> None:
        """Raise if no pair is left: a file without judgments would look like a valid one."""
        if not len(self):
            reasons = "; ".join(f"{n:,} {reason}" for reason, n in self.left_out.items())
            raise UsageError(
                f"No pair is left to grade: {reasons}. Try a smaller ", Argument("min_support"), "."
            )

    def settings(self) -> dict[str, Any]:
        """The settings of the grades, as JSON values."""
        rule = self.rule
        return {
            "model": self._model.name,
            "quantity": rule.quantity,
            "bound": rule.bound,
            "level": rule.level,
            "min_support": rule.min_support,
            "cuts": list(self.cuts),
            "quantiles": rule.cuts if rule.uses_quantiles else None,
            "per_query": rule.cuts == PER_QUERY,
        }

    def usefulness(self) -> dict[str, Any]:
        """How useful the grades are to compare ads of a query; complete after the last table."""
        return {
            "ungraded_queries": self._total_queries - self.statistics.queries,
            "single_grade_queries": self.statistics.single_grade_queries,
            "comparisons": self.statistics.comparisons,
            "overlap": self.statistics.overlap,
        }

    def result(self, files: Iterable[AnyPath], *notes: str) -> ExportResult:
        """The result of an export of the graded pairs; empty notes are left out."""
        return ExportResult(
            files=tuple(files),
            rows=len(self),
            queries=self.statistics.queries,
            grades={grade: self.grades[grade] for grade in range(len(self.cuts) + 1)},
            cuts=self.cuts,
            column=self.rule.column,
            rule=self.rule.describe_cuts(self.cuts, 4),
            left_out=dict(self.left_out),
            level=self.rule.level,
            **self.usefulness(),
            notes=tuple(filter(None, notes)),
        )

    def _grade(self) -> Iterator[pa.Table]:
        for table in self._relevance():
            has_support = self.rule.has_support(_to_numpy(table, "impressions"))
            query = table["query"].combine_chunks().dictionary_encode()
            values = self.rule.scale(
                _to_numpy(table, self.rule.column), query.indices.to_numpy(), has_support
            )
            column = pa.array(self.rule.grade(values, self.cuts), mask=~has_support)
            self._total_queries += len(query.dictionary)
            self._count(column)
            yield table.append_column("grade", column)

    def _count(self, grades: pa.Array) -> None:
        self.grades.update(_histogram(grades))
        if grades.null_count:
            self.left_out[self.rule.support_reason] += grades.null_count

    def _clicked_values(self) -> Float64:
        """The value of every pair with enough support and a click.

        Values of pairs without a click differ mainly by their support.
        """
        values, n_supported = [], 0
        for table in self._relevance():
            has_support = self.rule.has_support(_to_numpy(table, "impressions"))
            n_supported += int(has_support.sum())
            has_click = _to_numpy(table, "clicks") > 0
            values.append(_to_numpy(table, self.rule.column)[has_support & has_click])
        if not n_supported:
            self.left_out[self.rule.support_reason] = len(self._batches)
            self.require_pairs()
        if not sum(map(len, values)):
            raise UsageError(
                "None of the pairs to grade was clicked, so quantiles are not defined. Give cut"
                " points: ",
                Argument("cuts", (0.05, 0.2)),
                ".",
            )
        return np.concatenate(values)

    def _relevance(self) -> Iterator[pa.Table]:
        passes = 2 if self.rule.uses_quantiles else 1
        threads = min(MAX_BATCHES_AT_ONCE, thread_limit())
        relevance = partial(self._model.relevance, level=self.rule.level)
        for table in parallel_map(relevance, self._batches, threads=threads):
            self._n_done += table.num_rows
            report_progress("pairs", self._n_done, passes * len(self._batches))
            yield table


def add_settings(table: pa.Table, settings: dict[str, Any]) -> pa.Table:
    """Add settings to the metadata of the table's schema."""
    return table.replace_schema_metadata({"reclick": json.dumps(settings)})


def _to_numpy(table: pa.Table, name: str) -> Float64:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False))


def _histogram(grades: pa.Array) -> dict[int, int]:
    counts = grades.drop_null().value_counts().to_pylist()
    return {entry["values"]: entry["counts"] for entry in counts}


# ---- pairs in batches


class PairBatches:
    """Distinct pairs, in batches; no query is in two batches.

    The pairs are ordered by query; those of a model in buckets by bucket, then by query. A model of
    ten million pairs is never one table. The batches can be iterated any number of times.
    """

    def __init__(self, model: ClickModel, pairs: object = None, *, size: int = BATCH_PAIRS) -> None:
        self._model, self._size = model, size
        self._requested_pairs = None if pairs is None else _encode_distinct(pairs)

    def __len__(self) -> int:
        return (
            self._model.training_totals.pairs
            if self._requested_pairs is None
            else len(self._requested_pairs[1])
        )

    def __iter__(self) -> Iterator[pa.Table]:
        if self._requested_pairs is None:
            yield from self._model.iterate_pairs(self._size)
            return
        names, *codes = self._requested_pairs
        start = 0
        for end in _batch_ends(codes[0], self._size):
            query, ad = (
                strings.take(pa.array(code[start:end]))
                for strings, code in zip(names, codes, strict=True)
            )
            yield pa.table({"query": query, "ad": ad})
            start = end


def _encode_distinct(pairs: object) -> tuple[tuple[pa.Array, pa.Array], Int32, Int32]:
    """The distinct pairs of a table, sorted by query and ad: names, and the codes of each pair."""
    query, ad = as_pairs(pairs)
    groups = pa.table({"query": query, "ad": ad}).group_by(["query", "ad"], use_threads=False)
    distinct = groups.aggregate([]).sort_by([("query", "ascending"), ("ad", "ascending")])
    columns = [distinct[name].combine_chunks().dictionary_encode() for name in ("query", "ad")]
    codes = [column.indices.to_numpy().astype(np.int32) for column in columns]
    return (columns[0].dictionary, columns[1].dictionary), codes[0], codes[1]


def _batch_ends(query: Int32, size: int) -> list[int]:
    """The end of each batch: the first end of a query at or after `size` pairs."""
    query_ends = np.append(np.flatnonzero(np.diff(query)) + 1, len(query))
    ends: list[int] = []
    while not ends or ends[-1] < len(query):
        target = (ends[-1] if ends else 0) + size
        index = int(np.searchsorted(query_ends, target))
        ends.append(int(query_ends[min(index, len(query_ends) - 1)]))
    return ends


# ---- objects of other Python libraries, imported only when they are needed


@check_arguments
def to_ir_measures(table: pa.Table) -> list[Any]:
    """The table of `judgments` as a list of `ir_measures.Qrel`; texts are their own ids."""
    qrel = import_extra("ir_measures", EXTRA).Qrel
    return [qrel(*row) for row in zip(*_judgment_columns(table), strict=True)]


@check_arguments
def to_ranx(table: pa.Table) -> Any:
    """The table of `judgments` as `ranx.Qrels`; texts are their own ids."""
    grades: dict[str, dict[str, int]] = {}
    for query, ad, grade in zip(*_judgment_columns(table), strict=True):
        grades.setdefault(query, {})[ad] = grade
    return import_extra("ranx", EXTRA).Qrels(grades)


def _judgment_columns(table: pa.Table) -> list[list[Any]]:
    missing = [name for name in ("query", "ad", "grade") if name not in table.column_names]
    if missing:
        raise UsageError(
            f"The table has no {' and no '.join(missing)}: give the one from judgments()."
        )
    check_codes(table)
    return [table[name].to_pylist() for name in ("query", "ad", "grade")]
