"""Small files that unpack to large ones, and files of one long line or one large row."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import reclick as rc
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import run_in_child

TIMEOUT = 180.0


class Bombs(Campaign):
    """A hostile input below 200 MB is read or refused with at most 1 GB of memory."""

    name = "bombs"
    share = 1.0
    megabytes = (20, 100)  # from, to

    def prepare(self, folder: Path) -> None:
        """Read each file once in a small size, to compile the kernels."""
        for make in BOMBS.values():
            path = make(folder, 1 << 20)
            with contextlib.suppress(rc.ReclickError):
                _count(path)
            path.unlink()

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Write a file, and count its sessions."""
        kind = rng.choice(list(BOMBS))
        path = BOMBS[kind](folder, rng.randint(*self.megabytes) << 20)
        outcome = run_in_child(lambda: _count(path), timeout=TIMEOUT)
        failure = explain_outcome(outcome, f"{kind}, {path.stat().st_size >> 20} MB")
        path.unlink()
        return failure


def _count(path: Path) -> float:
    format_name = "ubi" if path.suffix == ".zip" else None  # Reclick's own columns are no members
    return float(rc.count(rc.read_sessions(path, format=format_name, on_error="drop")).total)


def one_line(folder: Path, size: int) -> Path:
    """JSON lines of one long line."""
    path = folder / "line.jsonl"
    path.write_bytes(b'{"query": "' + b"x" * size + b'", "ads": ["a"], "clicks": [1]}\n')
    return path


def one_array(folder: Path, size: int) -> Path:
    """A JSON array of sessions on one line."""
    row = b'{"query": "q", "ads": ["a", "b"], "clicks": [1]},'
    path = folder / "array.json"
    path.write_bytes(b"[" + row * (size // len(row)) + row[:-1] + b"]")
    return path


def packed_line(folder: Path, size: int) -> Path:
    """A gzip file with one line of ten times the size."""
    path = folder / "line.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(10):
            file.write(b"x" * size)
    return path


def fat_row(folder: Path, size: int) -> Path:
    """A Parquet file of a few rows with long texts."""
    path = folder / "fat.parquet"
    texts = ["x" * (size * 3)] * 2 + ["q"]
    table = pa.table({"query": texts, "ads": [["a"]] * 3, "clicks": [[1]] * 3})
    pq.write_table(table, path, compression="zstd")
    return path


def many_ads(folder: Path, size: int) -> Path:
    """A Parquet file with a page of millions of ads."""
    path = folder / "ads.parquet"
    table = pa.table({"query": ["q"] * 2, "ads": [["a"] * (size // 4)] * 2, "clicks": [[1]] * 2})
    pq.write_table(table, path, compression="zstd")
    return path


def many_members(folder: Path, size: int) -> Path:
    """A zip of thousands of small members, of a format that is read from archives."""
    path = folder / "many.zip"
    hits = '"timestamp":"2025-02-18T09:00:00Z","query_response_hit_ids":["a"]'
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(size >> 15):
            line = f'{{"query_id":"q{number}","user_query":"shoes",{hits}}}\n'
            archive.writestr(f"{number}.jsonl", line)
    return path


def old_line_ends(folder: Path, size: int) -> Path:
    """CSV whose lines end with CR alone."""
    path = folder / "cr.csv"
    path.write_bytes(b"query,ads,clicks\r" + b'q,"a b",1\r' * (size // 10))
    return path


def wide_rows(folder: Path, size: int) -> Path:
    """JSON lines with thousands of keys that are not read."""
    path, rows = folder / "wide.jsonl", io.BytesIO()
    number = 0
    while rows.tell() < size // 4:
        extra = {f"k{number}-{i}": i for i in range(2_000)}
        row = {"query": "q", "ads": ["a"], "clicks": [1], **extra}
        rows.write(json.dumps(row).encode() + b"\n")
        number += 1
    path.write_bytes(rows.getvalue())
    return path


def deep_rows(folder: Path, size: int) -> Path:
    """JSON lines nested thousands deep."""
    path = folder / "deep.jsonl"
    deep = b'{"query":"q","ads":["a"],"clicks":[1],"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
    path.write_bytes(deep * (size // 4 // len(deep)))
    return path


BOMBS: dict[str, Callable[[Path, int], Path]] = {
    "one line": one_line,
    "one array": one_array,
    "packed line": packed_line,
    "fat row": fat_row,
    "many ads": many_ads,
    "many members": many_members,
    "old line ends": old_line_ends,
    "wide rows": wide_rows,
    "deep rows": deep_rows,
}
