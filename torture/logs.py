"""Damaged logs and tables: refused or counted correctly; no crash, and no silent error."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import reclick as rc
from torture.campaign import Campaign, Failure, explain_outcome, shrink
from torture.children import run_in_child
from torture.inputs import (
    CONTAINERS,
    SeedFile,
    ads_table,
    bids_table,
    encode_texts,
    labels_table,
    make_log,
    pack,
    seed_files,
    to_csv,
    to_json_lines,
    to_parquet,
)
from torture.mutations import (
    encode_wrongly,
    mutate_bytes,
    mutate_json_lines,
    mutate_table,
    spoil_offset,
)

TIMEOUT = 60.0
TABLES = ("ads", "labels", "pairs", "features", "pages", "bids")
Row = tuple[str, tuple[str, ...], tuple[int, ...]]
NEEDED = ("query", "ads", "clicks")


class DamagedLogs(Campaign):
    """A damaged log of any format, read first with bad rows dropped, then with bad rows refused."""

    name = "damaged logs"
    share = 4.0

    def prepare(self, folder: Path) -> None:
        """Read every valid file once, to import modules and compile kernels."""
        for seed in seed_files():
            path = folder / seed.name
            path.write_bytes(seed.content)
            format_name = None if seed.format == "sessions" else seed.format
            read_log(path, format_name)
            count_log(path, format_name)
            for read in OTHER_READERS.get(seed.name.split(".", 1)[-1], []):
                with contextlib.suppress(Exception):
                    read(path)

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Damage a file and read it; compare with other readers if it has Reclick's columns."""
        seed = rng.choice(seed_files())
        content = damage(seed, rng)
        name, file_content = pack(seed.name, content, rng.choice(CONTAINERS))
        if name != seed.name and rng.random() < 0.3:
            file_content = mutate_bytes(file_content, rng, b"")
        failure = _try(folder, name, file_content, seed.format)
        if failure is None:
            return None
        small = shrink(
            file_content, lambda shorter: _fails_alike(folder, name, shorter, seed, failure)
        )
        (folder / name).write_bytes(small)
        return failure


def damage(seed: SeedFile, rng: random.Random) -> bytes:
    """Damage the content of a valid file in a way that suits its type."""
    other_content = rng.choice(seed_files()).content
    if seed.name.endswith(".parquet") and len(seed.content) < 100_000 and rng.random() < 0.5:
        table = pq.read_table(io.BytesIO(seed.content))
        for _ in range(rng.choice([1, 1, 2])):
            table = mutate_table(table, rng)
        try:
            return to_parquet(table, compression=rng.choice(["none", "snappy", "zstd"]))
        except (pa.ArrowException, OverflowError, ValueError, IndexError, UnicodeError):
            return mutate_bytes(seed.content, rng, other_content)
    if seed.name.endswith(("json", "jsonl")) and rng.random() < 0.6:
        return mutate_json_lines(seed.content, rng)
    return mutate_bytes(seed.content, rng, other_content)


def _fails_alike(
    folder: Path, name: str, content: bytes, seed: SeedFile, first_failure: Failure
) -> bool:
    failure = _try(folder, name, content, seed.format)
    return failure is not None and (failure.kind, failure.message[-60:]) == (
        first_failure.kind,
        first_failure.message[-60:],
    )


def _try(folder: Path, name: str, content: bytes, format_name: str) -> Failure | None:
    path = folder / name
    path.write_bytes(content)
    format_option = None if format_name == "sessions" else format_name
    outcome = run_in_child(lambda: read_log(path, format_option), timeout=TIMEOUT)
    failure = explain_outcome(outcome, f"drop, {name} as {format_name}")
    if failure is None and outcome.status == "done" and format_name == "sessions":
        failure = compare_with_others(path, outcome.value)
    if failure is None:
        strict = run_in_child(lambda: count_log(path, format_option), timeout=TIMEOUT)
        failure = explain_outcome(strict, f"raise, {name} as {format_name}")
        if failure is None and strict.status == outcome.status == "done":
            failure = _compare_passes(outcome.value, strict.value)
    return failure


def read_log(path: Path, format_name: str | None) -> tuple[int, int, Counter[Row]]:
    """Read a log with bad rows dropped; returns the rows, the dropped rows and the sessions."""
    log = rc.read_sessions(path, format=format_name, on_error="drop")
    sessions: Counter[Row] = Counter()
    for batch in log.batches():
        _check_batch(batch)
        queries, ads = batch.queries.to_pylist(), batch.ads.to_pylist()
        for i in range(len(batch.query)):
            page = batch.ad[batch.page[i] : batch.page[i + 1]]
            clicks = batch.click[batch.clicks[i] : batch.clicks[i + 1]]
            row = (
                queries[batch.query[i]],
                tuple(ads[ad] for ad in page),
                tuple(clicks.tolist()),
            )
            sessions[row] += 1
    summary = log.summary
    n_dropped = sum(summary.dropped.values())
    n_kept = sum(sessions.values())
    assert n_kept == summary.kept, f"{n_kept} sessions, but {summary.kept} kept"
    if format_name is None:
        assert summary.kept + n_dropped == summary.rows, (
            f"{summary.kept} + {n_dropped}: {summary.rows}"
        )
    return summary.rows, n_dropped, sessions


def count_log(path: Path, format_name: str | None) -> float:
    """Count all sessions of a log; bad rows are refused."""
    counts = rc.count(rc.read_sessions(path, format=format_name))
    assert np.isfinite(counts.clicks).all()
    assert (counts.clicks <= counts.impressions + 1e-9).all()
    return float(counts.total)


def _check_batch(batch: Any) -> None:
    """Check that every code and position of a batch is valid."""
    assert len(batch.query) == 0 or (
        batch.query.min() >= 0 and batch.query.max() < len(batch.queries)
    )
    assert len(batch.ad) == 0 or (batch.ad.min() >= 0 and batch.ad.max() < len(batch.ads))
    assert (np.diff(batch.page) > 0).all()
    assert (np.diff(batch.clicks) >= 0).all()
    assert batch.page[-1] == len(batch.ad)
    lengths = np.repeat(np.diff(batch.page), np.diff(batch.clicks))
    assert ((batch.click >= 1) & (batch.click <= lengths)).all()
    batch.queries.validate(full=True)
    batch.ads.validate(full=True)


def _compare_passes(pass_result: Any, total: float) -> Failure | None:
    """A log whose bad rows would be dropped must be refused when they are not dropped."""
    rows, n_dropped, _ = pass_result
    if n_dropped and total:
        return Failure("wrong answer", f"{n_dropped} of {rows} rows dropped, but none refused")
    return None


# ---- other readers of the same file


def compare_with_others(path: Path, pass_result: Any) -> Failure | None:
    """A failure if a session was read that no other reader finds in the file."""
    _, _, sessions = pass_result
    if not sessions:
        return None
    readers = OTHER_READERS.get(path.name.split(".", 1)[1], [])
    if not readers:
        return None
    reasons: list[str] = []
    for read in readers:
        outcome = run_in_child(lambda read=read: set(read(path)), timeout=TIMEOUT, memory=None)  # type: ignore[misc]
        if outcome.status != "done":
            reasons.append(f"{read.__name__}: {outcome.message[-200:]}")
            continue
        unknown = [row for row in sessions if row not in outcome.value]
        if not unknown:
            return None
        reasons.append(f"{read.__name__} has no {unknown[0]!r:.300}")
    return Failure("wrong answer", f"{path.name}: " + "; ".join(reasons))


def _rows(queries: Iterable[Any], pages: Iterable[Any], clicks: Iterable[Any]) -> Iterable[Row]:
    for query, ads, positions_clicked in zip(queries, pages, clicks, strict=True):
        if isinstance(ads, list):
            positions = positions_clicked if isinstance(positions_clicked, list) else []
            try:
                whole = tuple(
                    dict.fromkeys(int(position) for position in positions if position is not None)
                )
            except (TypeError, ValueError, OverflowError):
                continue
            yield _as_text(query), tuple(map(_as_text, ads)), whole


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def pyarrow_reads(path: Path) -> Iterable[Row]:
    """The rows as pyarrow reads them."""
    file = pq.ParquetFile(path)
    columns_in_file = [name for name in NEEDED if name in file.schema_arrow.names]
    table = file.read(columns=columns_in_file)
    table.validate(full=True)
    if "clicks" not in columns_in_file:  # a log without clicks is a log of pages
        table = table.append_column("clicks", pa.nulls(len(table)))
    columns = [table[name].to_pylist() for name in NEEDED]
    return list(_rows(*columns))


def duckdb_reads(path: Path) -> Iterable[Row]:
    """The rows as DuckDB reads them."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        sql = "SELECT query, ads, clicks FROM read_parquet($1)"
        rows = connection.execute(sql, [str(path)]).fetchall()
    return list(_rows(*([row[i] for row in rows] for i in range(3))))


def python_reads_json(path: Path) -> Iterable[Row]:
    """The rows by Python's json, line by line; lines that it cannot read are left out."""
    content = path.read_bytes()
    if path.name.endswith(".gz"):
        content = gzip.decompress(content)
    content = content.removeprefix(codecs.BOM_UTF8)
    rows: list[Row] = []
    for line in content.split(b"\n"):
        for encoding in (
            "utf-8",
            "latin-1",
        ):  # latin-1: fields that are not read may have invalid bytes
            try:
                row = json.loads(line.decode(encoding))
                fields = [[row.get(name)] for name in NEEDED]
            except (ValueError, RecursionError, AttributeError):
                continue
            rows.extend(_rows(*fields))
    return rows


OTHER_READERS: dict[str, list[Callable[[Path], Iterable[Row]]]] = {
    "parquet": [pyarrow_reads, duckdb_reads],
    "jsonl": [python_reads_json],
    "jsonl.gz": [python_reads_json],
}


# ---- other tables


class DamagedTables(Campaign):
    """Damaged tables of ads, labels, judgments and pairs; and predictions for damaged pages."""

    name = "damaged tables"
    share = 2.0

    def prepare(self, folder: Path) -> None:
        """Fit a model to use the tables with, and use valid tables once, to compile."""
        self.model = rc.UBM(max_iterations=3).fit(make_log(), ads=ads_table())
        for what in TABLES:
            (folder / what).mkdir()
            path = folder / what / f"{what}.parquet"
            path.write_bytes(to_parquet(_make_table(what)))
            with contextlib.suppress(rc.ReclickError):
                self._use(what, path, folder / what)

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Damage a table and use it."""
        what = rng.choice([*TABLES, "indices"])
        if what == "indices":
            return self._use_wrong_indices(rng, folder)
        table = _make_table(what)
        if rng.random() < 0.3:
            table = encode_texts(table)
        if rng.random() < 0.6:
            table = mutate_table(table, rng)
        writers = {"parquet": to_parquet, "csv": _comma_csv, "jsonl": to_json_lines}
        suffix = rng.choice(list(writers))
        try:
            content = writers[suffix](table)
        except (pa.ArrowException, OverflowError, ValueError, TypeError, IndexError, UnicodeError):
            content = to_parquet(labels_table())
        if rng.random() < 0.6:
            content = mutate_bytes(content, rng, b"")
        path = folder / f"{what}.{suffix}"
        path.write_bytes(content)
        outcome = run_in_child(lambda: self._use(what, path, folder), timeout=TIMEOUT)
        return explain_outcome(outcome, path.name)

    def _use_wrong_indices(self, rng: random.Random, folder: Path) -> Failure | None:
        """Use a table in memory with a code or an offset out of range, if its column is used."""
        what, damage = rng.choice(TABLES), rng.choice([encode_wrongly, spoil_offset])
        wrong = damage(_make_table(what), rng)
        outcome = run_in_child(lambda: self._use(what, wrong, folder), timeout=TIMEOUT)
        # Predictions have all columns; of other tables, some columns are not read.
        if outcome.status == "done" and what == "pages":
            return Failure("wrong answer", f"{what}: an index out of range was used")
        return explain_outcome(outcome, f"{what}: an index out of range")

    def _use(self, what: str, path: Any, folder: Path) -> None:
        on_error: Literal["drop"] = "drop"
        if what == "ads":
            text = rc.read_ads(path, on_error=on_error)
            self.model.click_prob({"query": ["q"], "ads": [["new", "ad1"]]}, text=text)
        elif what == "labels":
            rc.read_labels(path, on_error=on_error)
        elif what == "pairs":
            rc.export(self.model, folder / "out.qrels", pairs=path, on_error=on_error)
        elif what == "features":
            rc.export(self.model, folder / "out.letor", features=path, on_error=on_error)
        elif what == "pages":
            log = rc.read_sessions(path, on_error=on_error, clicks_required=False)
            rc.predict(self.model, log, folder / "out.parquet")
            _check_predictions(folder / "out.parquet")
        else:
            from reclick.auction import run_auctions

            run_auctions(self.model, path)


def _make_table(what: str) -> pa.Table:
    tables = {"ads": ads_table, "pages": make_log, "bids": bids_table}
    return tables.get(what, labels_table)()


def _comma_csv(table: pa.Table) -> bytes:
    return to_csv(table, b",")


def _check_predictions(path: Path) -> None:
    table = pq.read_table(path)
    for chance in table["click_prob"].combine_chunks().flatten().to_pylist():
        assert -1e-9 <= chance <= 1 + 1e-9, f"a click probability of {chance}"
