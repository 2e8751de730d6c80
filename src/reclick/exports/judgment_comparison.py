"""Compare two lists of judgments: agreement, Kendall's τ, and what changed most."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64
from reclick.errors import UsageError, check_whole
from reclick.exports.judgment_files import read_judgments
from reclick.runtime.arguments import check_arguments
from reclick.runtime.notebook import render_text


@dataclass(frozen=True)
class JudgmentComparison:
    """The comparison of two lists of judgments, a and b, on their common pairs."""

    pairs: int  # in both
    only_a: int
    only_b: int
    queries: int  # with a pair in both
    agreement: float  # share of the pairs with the same grade
    kendall_tau: float | None  # mean of τ-b over queries; None if no query has one
    tau_queries: int  # queries whose grades differ in both lists, so that τ is defined
    grades: dict[str, int]  # "grade in a → grade in b": pairs
    moves: tuple[dict[str, Any], ...]  # pairs whose grade changed most: query, ad, a, b

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return render_text(self)

    def __str__(self) -> str:
        tau = "none" if self.kendall_tau is None else f"{self.kendall_tau:.3f}"
        facts = {
            "pairs": f"{self.pairs:,} in both, {self.only_a:,} only in the first, "
            f"{self.only_b:,} only in the second",
            "agreement": f"{self.agreement:.1%} of the pairs have the same grade",
            "Kendall's tau": f"{tau}, mean over {self.tau_queries:,} of {self.queries:,} queries",
            "grades": "   ".join(f"{change}: {pairs:,}" for change, pairs in self.grades.items()),
        }
        lines = [f"{name:<15}{fact}" for name, fact in facts.items()]
        if self.moves:
            width = max(len(move["query"]) for move in self.moves)
            lines.append("largest changes")
            lines += [
                f"  {move['a']:g} → {move['b']:g}   {move['query']:<{width}}   {move['ad']}"
                for move in self.moves
            ]
        return "\n".join(lines)


@check_arguments
def compare_judgments(a: object, b: object, *, top: int = 10) -> JudgmentComparison:
    """Compare two lists of judgments, such as those of two weeks, two models, or a rater.

    `a` and `b` are anything that `read_judgments` reads: a file of qrels, CSV, Parquet or
    OpenSearch JSON, or a table of query, ad and grade. Kendall's τ-b compares the two orders of the
    ads of a query; 1 is the same order, −1 the reverse. `top` is the number of changes to list.

    >>> a = {"query": ["pizza"] * 3, "ad": ["x", "y", "z"], "grade": [2, 1, 0]}
    >>> b = {"query": ["pizza"] * 3, "ad": ["x", "y", "z"], "grade": [2, 0, 1]}
    >>> comparison = compare_judgments(a, b)
    >>> round(comparison.agreement, 3), round(comparison.kendall_tau, 3), comparison.moves[0]["ad"]
    (0.333, 0.333, 'y')
    """
    top = check_whole("top", top, 0)
    first, second = read_judgments(a), read_judgments(b)
    common_pairs = first.join(second, ["query", "ad"], join_type="inner", right_suffix="_b")
    if not common_pairs.num_rows:
        raise UsageError("The two lists have no pair of query and ad in common.")
    common_pairs = common_pairs.sort_by(
        [("query", "ascending"), ("ad", "ascending")]
    ).combine_chunks()
    grade_a, grade_b = common_pairs["grade"].to_numpy(), common_pairs["grade_b"].to_numpy()
    starts = _query_starts(common_pairs)
    taus = [kendall_tau(grade_a[start:end], grade_b[start:end]) for start, end in pairwise(starts)]
    defined_taus = [tau for tau in taus if tau is not None]
    return JudgmentComparison(
        pairs=common_pairs.num_rows,
        only_a=first.num_rows - common_pairs.num_rows,
        only_b=second.num_rows - common_pairs.num_rows,
        queries=len(taus),
        agreement=float(np.mean(grade_a == grade_b)),
        kendall_tau=float(np.mean(defined_taus)) if defined_taus else None,
        tau_queries=len(defined_taus),
        grades=_count_changes(grade_a, grade_b),
        moves=_largest_moves(common_pairs, grade_a, grade_b, top),
    )


def kendall_tau(a: Float64, b: Float64) -> float | None:
    """Kendall's τ-b of two scores of the same items; None if all values of one score are tied.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    upper = np.triu_indices(len(a), 1)
    order_a, order_b = (np.sign(scores[:, None] - scores[None, :])[upper] for scores in (a, b))
    scale = np.sqrt(float(np.abs(order_a).sum()) * float(np.abs(order_b).sum()))
    return float((order_a * order_b).sum() / scale) if scale else None


def _query_starts(table: pa.Table) -> list[int]:
    codes = table["query"].combine_chunks().dictionary_encode().indices.to_numpy()
    return [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]


def _count_changes(a: Float64, b: Float64) -> dict[str, int]:
    changes, pairs = np.unique(np.stack([a, b], axis=1), axis=0, return_counts=True)
    return {f"{one:g} → {two:g}": int(n) for (one, two), n in zip(changes, pairs, strict=True)}


def _largest_moves(
    common_pairs: pa.Table, a: Float64, b: Float64, top: int
) -> tuple[dict[str, Any], ...]:
    """The pairs whose grades differ most; ties are in the order of query and ad."""
    order = np.argsort(-np.abs(b - a), kind="stable")[:top]
    rows = [int(row) for row in order if a[row] != b[row]]
    return tuple(
        {
            "query": common_pairs["query"][row].as_py(),
            "ad": common_pairs["ad"][row].as_py(),
            "a": float(a[row]),
            "b": float(b[row]),
        }
        for row in rows
    )
