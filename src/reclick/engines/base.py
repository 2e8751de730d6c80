"""The contract of an engine: the same answers from every engine, wherever the data is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.runtime.filesystem import Location


@runtime_checkable
class Log(Protocol):
    """What an engine needs of a log: `SessionLog`, or something that passes its batches on."""

    @property
    def name(self) -> str:
        """A short description for messages."""

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """The clean sessions in row order."""

    def require_rows(self) -> None:
        """Raise when the last pass left no row."""


class Additive(Protocol):
    """What adds up over blocks: a monoid."""

    def __add__(self, other: Self) -> Self: ...


ParametersT = TypeVar("ParametersT")
BlockT = TypeVar("BlockT")
NewBlockT = TypeVar("NewBlockT")
SumT = TypeVar("SumT", bound=Additive)


def as_it_is(block: BlockT) -> BlockT:
    """For `prepare`: the same block, held where the engine reduces it."""
    return block


@runtime_checkable
class Engine(Protocol):
    """Where logs are reduced, and where the blocks of an iterative fit are.

    A step and its parameters must pickle: steps are functions of a module, with the parameters as
    their first argument, so that an engine may run them in another process.
    """

    def count(self, log: Log) -> Counts:
        """The counts of a log."""

    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""

    def prepare(
        self, function: Callable[[BlockT], NewBlockT], blocks: Sequence[BlockT]
    ) -> Sequence[NewBlockT]:
        """function(block) of every block, to be reduced many times."""

    def reduce(
        self,
        step: Callable[[ParametersT, BlockT], SumT],
        parameters: ParametersT,
        blocks: Sequence[BlockT],
    ) -> SumT:
        """Σ step(parameters, block) over the blocks, in their order."""

    def map(
        self,
        function: Callable[[SessionBatch], pa.RecordBatch],
        log: Log,
        target: Location,
    ) -> int:
        """Write function(sessions) of a log to a Parquet file, and return the number of rows.

        `function` gets some sessions at a time, whose `rows` are the source's own columns. The
        results are in the order of the log; the file appears when it is complete.
        """
