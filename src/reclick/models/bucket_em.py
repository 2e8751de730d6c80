"""EM over buckets: the parameters and sums of pairs and queries stay in the bucket's own file.

In each round a task takes the M-step of its bucket's rows, given the totals of all buckets, then
its E-step, and returns totals alone. The driver takes the same M-step as a bucket without rows,
which gives it the parameters that are common to all rows. So the loop is that of `run_em`, over
parameters of which the driver holds only the common ones and the name of the files.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, Generic, TypeVar, cast
from uuid import uuid4

from reclick.data.ragged import Float64
from reclick.engines import LocalEngine
from reclick.engines.bucketed_log import BucketTasks
from reclick.engines.store import Store
from reclick.fitting.em import EMProblem, FitResult, PairSums, Statistics, iterate_em

P = TypeVar("P")


class RowFiles:
    """Files with the parameters and sums of the rows of each bucket, which go with this object."""

    def __init__(self, store: Store, buckets: Iterable[int]) -> None:
        self.name = f"rows-{uuid4().hex}"
        weakref.finalize(self, store.discard, [f"{self.name}-{bucket}" for bucket in buckets])


@dataclass(eq=False)
class BucketedParameters(Generic[P]):
    """The parameters of a log in buckets, as the driver knows them."""

    common: P  # with no rows
    rows: RowFiles  # those of the buckets, which an evaluation writes
    origin: RowFiles | None = None  # the rows that they follow from
    totals: Mapping[str, Float64] | None = None  # of the M-step that leads to them; None: a start


def load_rows(store: Store, name: str, bucket: int) -> tuple[Any, PairSums]:
    """The parameters of a bucket, and the sums of its rows under them."""
    return cast("tuple[Any, PairSums]", store.load(f"{name}-{bucket}"))


class BucketedProblem(Generic[P]):
    """What EM maximises, of which every bucket has its own rows in a file.

    `name` is that of the files, and `own` the problem of a bucket without rows.
    """

    def __init__(self, name: str, own: EMProblem[P], tasks: BucketTasks) -> None:
        self.name, self._tasks = name, tasks
        self.sums = _add_sums(own, tasks.each(partial(_get_sums, name), ""))
        self.own: EMProblem[P] = replace(cast(Any, own), **self.sums)

    def maximise(
        self, last: BucketedParameters[P] | None, **limits: Any
    ) -> FitResult[BucketedParameters[P], Statistics]:
        """EM from the start, or from where an earlier EM ended."""
        return iterate_em(
            self._start(last),
            self._evaluate,
            self._m_step,
            log_prior=lambda now: self.own.log_prior(now.common),
            sessions=self.own.sessions,
            **limits,
        )

    def _start(self, last: BucketedParameters[P] | None) -> BucketedParameters[P]:
        if last is None:
            return BucketedParameters(self.own.start(None), self._new_rows())
        return BucketedParameters(self.own.start(last.common), self._new_rows(), last.rows)

    def _new_rows(self) -> RowFiles:
        return RowFiles(self._tasks.store, self._tasks.buckets())

    def _evaluate(self, now: BucketedParameters[P]) -> Statistics:
        """One round: the rows of every bucket follow from those before, and the totals add up."""
        before = None if now.origin is None else now.origin.name
        function = partial(_run_round, self.name, self.sums, before, now.totals, now.rows.name)
        found = self._tasks.add(function)
        now.origin = now.totals = None  # the files of the step before may go
        empty = [self.own.e_step(now.common, block) for block in self.own.blocks]
        return reduce(add, empty) + found

    def _m_step(self, now: BucketedParameters[P], statistics: Statistics) -> BucketedParameters[P]:
        common = self.own.m_step(now.common, statistics)
        return BucketedParameters(common, self._new_rows(), now.rows, statistics.totals)


def _add_sums(own: EMProblem[Any], found: Mapping[int, Any]) -> dict[str, Any]:
    buckets = [found[bucket] for bucket in sorted(found)]
    return {name: sum(each[name] for each in buckets) for name in own.sums}


# ---- in the tasks


def _get_sums(name: str, store: Store, bucket: int) -> dict[str, Any]:
    problem = store.keep(f"{name}-{bucket}")
    return {each: getattr(problem, each) for each in problem.sums}


def _run_round(
    name: str,
    sums: Mapping[str, Any],
    before: str | None,
    totals: Mapping[str, Float64] | None,
    target: str,
    store: Store,
    bucket: int,
) -> Statistics:
    """The next parameters of a bucket, and its E-step under them; what it returns is totals.

    The log-density of the rows is part of the log-likelihood.
    """
    problem: EMProblem[Any] = replace(store.keep(f"{name}-{bucket}"), **sums)
    last = None if before is None else load_rows(store, before, bucket)
    if totals is None or last is None:
        now = problem.start(None if last is None else last[0])
    else:
        now = problem.m_step(last[0], Statistics(0.0, totals, last[1]))
    found = LocalEngine().reduce(problem.e_step, now, problem.blocks)
    store.put(f"{target}-{bucket}", [(now, found.pairs)])
    return Statistics(found.log_likelihood + problem.log_row_prior(now), found.totals)
