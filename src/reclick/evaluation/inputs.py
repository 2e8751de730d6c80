"""The logs of an evaluation: each is read once, and identified by a hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.log_record import LogRecord
from reclick.engines import Engine, as_counts, as_engine, as_grouped
from reclick.errors import Argument, SeenLogError, SettingError, UsageError
from reclick.logs import SessionLog, as_log, read_ads, read_labels
from reclick.models import ClickModel
from reclick.models.provenance import SeenLog, describe_share, find_overlaps, to_seen_logs
from reclick.runtime.progress import rename_progress


class _HashedLog:
    """Passes the batches of a log on to an engine, and hashes them at the same time."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self.fingerprint: str | None = None  # known after the first complete pass

    @property
    def name(self) -> str:
        return self._log.name

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        digest = hashlib.sha256()
        for batch in self._log.batches(with_rows=with_rows):
            _hash_batch(digest, batch)
            yield batch
        self.fingerprint = digest.hexdigest()

    def require_rows(self) -> None:
        self._log.require_rows()

    # For engines that read parts of the log in other processes: then nothing is hashed here.

    @property
    def frame(self) -> Any:
        return self._log.frame

    def to_frame_reader(self) -> Any:
        return self._log.to_frame_reader()

    def split(self, n: int) -> list[SessionLog] | None:
        return self._log.split(n)

    def accept_parts(self, reports: Sequence[Any]) -> None:
        self._log.accept_parts(reports)


class EvaluationLog:
    """A log that is read once for its counts, its fingerprint and, if needed, grouped sessions."""

    def __init__(
        self, source: object, ads: object, title: str, engine: Engine, *, grouped: bool = False
    ) -> None:
        self.log: SessionLog = as_log(source, ads=ads)
        self._hashed_log = _HashedLog(self.log)
        self._title = title
        self._engine = engine
        self._needs_groups = grouped

    @cached_property
    def groups(self) -> GroupedSessions:
        """The grouped sessions, for models that need more than counts."""
        with rename_progress(f"Reading {self._title}"):
            return as_grouped(self._hashed_log, engine=self._engine)

    @cached_property
    def counts(self) -> Counts:
        """The counts of the log."""
        if self._needs_groups:
            return self.groups.counts
        with rename_progress(f"Reading {self._title}"):
            return as_counts(self._hashed_log, engine=self._engine)

    def get_data(self, kind: str) -> Counts | GroupedSessions | SessionLog:
        """The data for models that learn from this `kind` (`ClickModel.learns_from`)."""
        if kind == "log":
            return self.log
        return self.counts if kind == "counts" else self.groups

    @property
    def record(self) -> LogRecord:
        """The record of the log, by which its sessions are recognised in other logs."""
        return self.counts.logs[0]

    @property
    def fingerprint(self) -> str:
        """A hash of the sessions; if tasks of an engine read them, their order has no effect."""
        if self._hashed_log.fingerprint is None:
            _ = self.counts
        if self._hashed_log.fingerprint is None:
            return _counts_fingerprint(self.counts)
        return str(self._hashed_log.fingerprint)

    def describe(self) -> dict[str, Any]:
        """The name, the sessions and the dropped rows, for the report."""
        summary = self.log.summary
        return {
            "name": self.log.name,
            "sessions": summary.kept,
            "dropped": dict(summary.dropped),
        }


class EvaluationInputs(NamedTuple):
    """The data that models are fitted to and scored on."""

    test: EvaluationLog
    train: EvaluationLog | None
    history: EvaluationLog | None
    text: pa.Table | None  # of the ads
    labels: pa.Table | None

    @property
    def logs(self) -> dict[str, EvaluationLog]:
        """The logs by name, without those that are missing."""
        logs = {"test": self.test, "train": self.train, "history": self.history}
        return {name: log for name, log in logs.items() if log is not None}

    def key(self, *names: str) -> dict[str, str | None]:
        """The fingerprints of the named logs and of the ad texts."""
        logs = self.logs
        return {
            **{name: logs[name].fingerprint if name in logs else None for name in names},
            "ads": None if self.text is None else _table_fingerprint(self.text),
        }


def open_inputs(
    test: object,
    train: object,
    history: object,
    ads: object,
    labels: object,
    *,
    models: Sequence[ClickModel],
    engine: Engine | None,
) -> EvaluationInputs:
    """Open the logs, the text of the ads and the labels; raises their errors before any fit."""
    if test is None:
        raise SettingError("test", test, "a log to score the models on")
    engine = as_engine(engine)
    text = None if ads is None else read_ads(ads)
    grouped = any(not model.fitted and model.learns_from == "sessions" for model in models)
    test_log = EvaluationLog(test, text, "the test log", engine)
    return EvaluationInputs(
        test=test_log,
        train=None
        if train is None
        else EvaluationLog(train, text, "the training log", engine, grouped=grouped),
        history=None if history is None else EvaluationLog(history, text, "the history", engine),
        text=test_log.log.ads if text is None else text,
        labels=_open_labels(labels),
    )


def require_train(names: Sequence[str], train: object) -> None:
    """Raise if there are models to fit but no training log."""
    if names and train is None:
        raise UsageError(
            f"{', '.join(names)}: not fitted yet. Give ",
            Argument("train", ...),
            ", a log to fit on, or models that are fitted.",
        )


class Leakage(NamedTuple):
    """Test sessions that models were fitted on."""

    shares: dict[str, float]  # model → share of the test sessions that it was fitted on
    warnings: list[str]


def find_leakage(
    models: Mapping[str, ClickModel], inputs: EvaluationInputs, *, in_sample: bool
) -> Leakage:
    """Find models that are fitted on test sessions, or will be.

    Raises if the training log has all test sessions, unless `in_sample`.
    """
    test = inputs.test.record
    shares: dict[str, float] = {}
    warnings: list[str] = []
    new = [name for name, model in models.items() if not model.fitted]
    train = to_seen_logs([inputs.train.record] if inputs.train and new else [], "fit")
    for seen_log, share in find_overlaps(test, train):
        if share > 0.995 and not in_sample:
            raise SeenLogError(
                f"All test sessions are in the training log ({seen_log.log.name}), so scores "
                "would be too optimistic. Give another log to test on, or, to score on the "
                "training sessions all the same, ",
                Argument("in_sample", True),
                ".",
            )
        shares |= dict.fromkeys(new, share)
        warnings.append(_describe_leakage(new, [(seen_log, share)]))
    for name, model in models.items():
        overlaps = find_overlaps(test, model.provenance_) if model.fitted else []
        if overlaps:
            shares[name] = min(1.0, sum(share for _, share in overlaps))
            warnings.append(_describe_leakage([name], overlaps))
    return Leakage(shares, warnings)


def _describe_leakage(names: list[str], overlaps: list[tuple[SeenLog, float]]) -> str:
    verb = "were" if len(names) > 1 else "was"
    total = min(1.0, sum(share for _, share in overlaps))
    largest = max(overlaps, key=lambda overlap: overlap[1])[0]
    more = f" and {len(overlaps) - 1} more" if len(overlaps) > 1 else ""
    return (
        f"{', '.join(names)} {verb} fitted on {describe_share(total)} the test sessions: those in "
        f"{largest}{more}. Such scores are too optimistic: they say nothing about new sessions."
    )


def _open_labels(labels: object) -> pa.Table | None:
    """The checked labels; a pair that occurs twice becomes one pair with the mean label."""
    if labels is None:
        return None
    groups = read_labels(labels).group_by(["query", "ad"], use_threads=False)
    return groups.aggregate([("relevance", "mean")]).rename_columns(["query", "ad", "relevance"])


def _hash_batch(digest: Any, batch: SessionBatch) -> None:
    for strings in (batch.queries, batch.ads):
        digest.update(_table_fingerprint(pa.table({"text": strings})).encode())
    for array in (batch.query, batch.ad, batch.page, batch.click, batch.clicks, batch.weight):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    if batch.outcomes is not None:
        digest.update(b"outcomes")
        digest.update(np.ascontiguousarray(batch.outcomes.outcome).data)


def _counts_fingerprint(counts: Counts) -> str:
    """A hash of the counted sessions and of the outcomes of their clicks."""
    (record,) = counts.logs
    digest = hashlib.sha256(repr(sorted(record.to_dict().items(), key=str)).encode())
    if counts.outcomes is not None:
        for table in (counts.outcomes.last, counts.outcomes.visits, counts.outcomes.earlier):
            digest.update(np.ascontiguousarray(table).data)
    return digest.hexdigest()


def _table_fingerprint(table: pa.Table) -> str:
    """A hash of the rows of a table."""
    digest = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for batch in table.combine_chunks().to_batches():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        digest.update(sink.getvalue())
    return digest.hexdigest()
