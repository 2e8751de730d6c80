"""The protocol of engines: every engine gives the same results, wherever the data is."""

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
        """Raise if the last pass found no good row."""


class Additive(Protocol):
    """A result that can be summed over blocks."""

    def __add__(self, other: Self) -> Self: ...


ParametersT = TypeVar("ParametersT")
BlockT = TypeVar("BlockT")
NewBlockT = TypeVar("NewBlockT")
SumT = TypeVar("SumT", bound=Additive)


def identity(block: BlockT) -> BlockT:
    """Return the block itself: `prepare` with this only moves blocks to where they are reduced."""
    return block


@runtime_checkable
class Engine(Protocol):
    """Reduces logs, and holds the blocks of an iterative fit.

    A step and its parameters must pickle, as an engine may run them in another process: steps are
    functions of a module, with the parameters as their first argument.
    """

    def count(self, log: Log) -> Counts:
        """The counts of a log."""

    def group(self, log: Log) -> GroupedSessions:
        """The distinct sessions of a log."""

    def prepare(
        self, function: Callable[[BlockT], NewBlockT], blocks: Sequence[BlockT]
    ) -> Sequence[NewBlockT]:
        """Apply a function to every block; the result is reduced many times."""

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
