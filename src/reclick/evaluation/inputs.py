"""The logs of an evaluation, opened once: counted, grouped where a model needs it, and known again by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import Sessions, as_sessions
from reclick.engines.local.counter import Counter
from reclick.errors import SettingError
from reclick.logs import SessionLog, as_log, read_ads, read_labels
from reclick.runtime.progress import Progress, Told


class Log:
    """A log that is read at most once for its counts, and once for its groups."""

    def __init__(self, source: object, ads: object, progress: Progress | None) -> None:
        self.log: SessionLog = as_log(source, ads=ads)
        self._progress = progress
        self._digest = hashlib.sha256()

    @cached_property
    def counts(self) -> Counts:
        """The counts; the pass that makes them makes the fingerprint too."""
        counter = Counter()
        counter.add_batches(_digested(self.log.batches(progress=self._progress), self._digest))
        self.log.refuse_nothing()
        return counter.finish()

    @cached_property
    def groups(self) -> Sessions:
        """Equal sessions grouped, for the models that need them."""
        return as_sessions(self.log, progress=self._progress)

    @property
    def fingerprint(self) -> str:
        """The same for the same sessions in the same order."""
        _ = self.counts
        return self._digest.hexdigest()

    def about(self) -> dict[str, Any]:
        """What the report says of it."""
        return {
            "name": self.log.name,
            "sessions": self.log.summary.kept,
            "dropped": dict(self.log.summary.dropped),
        }


class Inputs(NamedTuple):
    """What models are fitted on and judged by."""

    test: Log
    train: Log | None
    history: Log | None
    text: pa.Table | None  # of the ads
    labels: pa.Table | None

    def key(self, *parts: str) -> dict[str, str | None]:
        """The fingerprints of some of them: what was made from the same ones is the same."""
        known: dict[str, Log | None] = {
            "test": self.test,
            "train": self.train,
            "history": self.history,
        }
        logs = {
            part: None if (log := known[part]) is None else log.fingerprint
            for part in parts
            if part in known
        }
        return logs | (
            {"ads": None if self.text is None else table_fingerprint(self.text)}
            if "ads" in parts
            else {}
        )


def open_inputs(
    test: object, train: object, history: object, ads: object, labels: object, tell: Told
) -> Inputs:
    """Open the logs, the text of the ads and the labels; what is wrong with any of them is said before anything is fitted."""
    if test is None:
        raise SettingError("test: got None, expected a log to judge the models on.")
    text = None if ads is None else read_ads(ads)
    judging = Log(test, text, partial(tell, "Reading the test log"))
    others = [
        None if log is None else Log(log, text, partial(tell, f"Reading the {name}"))
        for name, log in (("training log", train), ("history", history))
    ]
    return Inputs(
        judging,
        others[0],
        others[1],
        judging.log.ads if text is None else text,
        open_labels(labels),
    )


def _digested(batches: Iterator[SessionBatch], digest: Any) -> Iterator[SessionBatch]:
    """The batches, digested on their way."""
    for batch in batches:
        _digest_batch(digest, batch)
        yield batch


def _digest_batch(digest: Any, batch: SessionBatch) -> None:
    for text in (batch.queries, batch.ads):
        digest.update(table_fingerprint(pa.table({"text": text})).encode())
    for array in (batch.query, batch.ad, batch.page, batch.click, batch.clicks, batch.weight):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)


def table_fingerprint(table: pa.Table) -> str:
    """The same for the same rows of a table."""
    digest = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for batch in table.combine_chunks().to_batches():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        digest.update(sink.getvalue())
    return digest.hexdigest()


def open_labels(labels: object) -> pa.Table | None:
    """The editors' labels, checked; a pair listed twice is one pair of the mean label."""
    if labels is None:
        return None
    table = read_labels(labels)
    joined = table.group_by(["query", "ad"], use_threads=False).aggregate([("relevance", "mean")])
    return joined.rename_columns(["query", "ad", "relevance"])


def refuse_unfitted(names: list[str], train: object) -> None:
    """Models that are not fitted need something to be fitted on."""
    if names and train is None:
        raise SettingError(
            f"{', '.join(names)} not fitted yet. Give train=…, a log to fit them on, or models that are fitted."
        )
