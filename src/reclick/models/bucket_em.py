"""EM over buckets: the parameters and sums of pairs and queries stay in the file of their bucket.

In each round, a task runs the M-step of the rows of its bucket, given the totals of all buckets.
Then it runs the E-step, and returns only totals. The driver runs the same M-step for a bucket
without rows, which gives the parameters that are common to all rows; it needs no compiled kernels.
The loop is that of `run_em`, but the driver holds only the common parameters and the names of the
files with the rows.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

from reclick.data.ragged import Float64
from reclick.engines import LocalEngine
from reclick.engines.bucketed_log import BucketTasks
from reclick.engines.store import Store
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics, iterate_em

P = TypeVar("P")


class RowFiles:
    """Files with the parameters and sums of the rows of each bucket, deleted with this object."""

    def __init__(self, store: Store, buckets: Iterable[int]) -> None:
        self.name = f"rows-{uuid4().hex}"
        weakref.finalize(self, store.discard, [f"{self.name}-{bucket}" for bucket in buckets])


@dataclass(eq=False)
class BucketedParameters(Generic[P]):
    """The parameters of a log in buckets, as the driver knows them."""

    common: P  # with no rows
    rows: RowFiles  # the rows of the buckets, which `_evaluate` writes
    origin: RowFiles | None = None  # the rows that they are computed from
    totals: Mapping[str, Float64] | None = None  # input of the M-step; None: EM starts here


def load_rows(store: Store, name: str, bucket: int) -> tuple[Any, PairSums]:
    """Load the parameters of a bucket, and the sums of its rows under them."""
    return cast("tuple[Any, PairSums]", store.load(f"{name}-{bucket}"))


class BucketedProblem(Generic[P]):
    """The problem that EM maximises; the rows of each bucket are in a file.

    `name` is the name of the files. `common` is the problem of a bucket without rows.
    """

    def __init__(self, name: str, common: EMProblem[P], tasks: BucketTasks) -> None:
        self.name, self._tasks = name, tasks
        self.sums = _add_sums(common, tasks.each(partial(_get_sums, name), ""))
        self.common: EMProblem[P] = replace(cast(Any, common), **self.sums)

    def maximise(
        self, last: BucketedParameters[P] | None, **limits: Any
    ) -> FitResult[BucketedParameters[P], Statistics]:
        """Run EM from the start, or from where an earlier EM ended."""
        return iterate_em(
            self._start(last),
            self._evaluate,
            self._m_step,
            log_prior=lambda now: self.common.log_prior(now.common),
            sessions=self.common.sessions,
            **limits,
        )

    def _start(self, last: BucketedParameters[P] | None) -> BucketedParameters[P]:
        if last is None:
            return BucketedParameters(self.common.start(None), self._new_rows())
        return BucketedParameters(self.common.start(last.common), self._new_rows(), last.rows)

    def _new_rows(self) -> RowFiles:
        return RowFiles(self._tasks.store, self._tasks.buckets())

    def _evaluate(self, now: BucketedParameters[P]) -> Statistics:
        """Run one round: compute the rows of every bucket, and return the sum of the totals."""
        origin = None if now.origin is None else now.origin.name
        function = partial(_run_round, self.name, self.sums, origin, now.totals, now.rows.name)
        statistics = self._tasks.add(function)
        now.origin = now.totals = None  # the files of the previous step can be deleted
        return statistics

    def _m_step(self, now: BucketedParameters[P], statistics: Statistics) -> BucketedParameters[P]:
        common = self.common.m_step(now.common, statistics)
        return BucketedParameters(common, self._new_rows(), now.rows, statistics.totals)


def _add_sums(common: EMProblem[Any], bucket_sums: Mapping[int, Any]) -> dict[str, Any]:
    sums = [bucket_sums[bucket] for bucket in sorted(bucket_sums)]
    return {name: sum(values[name] for values in sums) for name in common.sums}


# ---- in the tasks


def _get_sums(name: str, store: Store, bucket: int) -> dict[str, Any]:
    problem = store.keep(f"{name}-{bucket}")
    return {field: getattr(problem, field) for field in problem.sums}


def _run_round(
    name: str,
    sums: Mapping[str, Any],
    origin: str | None,
    totals: Mapping[str, Float64] | None,
    target: str,
    store: Store,
    bucket: int,
) -> Statistics:
    """Compute and store the next parameters of a bucket, run its E-step, and return the totals.

    The log-likelihood includes the log-density of the prior of the rows.
    """
    problem: EMProblem[Any] = replace(store.keep(f"{name}-{bucket}"), **sums)
    last = None if origin is None else load_rows(store, origin, bucket)
    if totals is None or last is None:
        now = problem.start(None if last is None else last[0])
    else:
        now = problem.m_step(last[0], Statistics(0.0, totals, last[1]))
    statistics = LocalEngine().reduce(problem.e_step, now, problem.blocks)
    store.put(f"{target}-{bucket}", [(now, statistics.pairs)])
    value = statistics.log_likelihood + problem.log_row_prior(now)
    return Statistics(value, statistics.totals, statistics.pairs.without_rows())
