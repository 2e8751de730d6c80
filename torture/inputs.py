"""Valid inputs to damage: a log of every format and file type, and the other tables."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.format_samples import NAMES, write_sample

CONTAINERS = (
    *("", "", "", "", "", "gz", "gz", "zip", "zip", "tar.gz"),
    *("gz of gz", "gz members", "gz and more", "not gz", "zip of many", "gz as zip"),
)


class SeedFile(NamedTuple):
    """A valid file: its name, its format ("sessions" for Reclick's columns) and its content."""

    name: str
    format: str
    content: bytes


def make_log(seed: int = 0, sessions: int = 300) -> pa.Table:
    """A log in Reclick's own columns, with outcomes and further columns."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for number in range(sessions):
        n = int(rng.integers(1, 5))
        ads = [f"ad{int(code)}" for code in rng.permutation(12)[:n]]
        clicks = [int(code) + 1 for code in rng.permutation(n)[: int(rng.integers(0, n + 1))]]
        time = np.datetime64("2026-03-01T00:00:00", "ms") + np.timedelta64(number * 3_600_000, "ms")
        rows.append(
            {
                "session_id": f"s{number}",
                "user": f"u{int(rng.integers(20))}",
                "timestamp": time.item(),
                "query": f"query {int(rng.integers(8))}",
                "ads": ads,
                "clicks": clicks,
                "weight": float(rng.integers(1, 4)),
                "part": ("history", "train", "test")[number * 3 // sessions],
            }
        )
    return pa.Table.from_pylist(rows)


def add_outcomes(log: pa.Table) -> pa.Table:
    """A log with what happened after its clicks."""
    clicks = log["clicks"].to_pylist()
    dwell_seconds = [[float(5 + 60 * (position % 2)) for position in each] for each in clicks]
    conversions = [[position % 3 == 0 for position in each] for each in clicks]
    return log.append_column("dwell_seconds", [dwell_seconds]).append_column(
        "conversions", [conversions]
    )


def ads_table() -> pa.Table:
    """The text of the ads of `make_log`."""
    names = [f"ad{number}" for number in range(12)]
    titles = [f"Title {number % 4} of shoes" for number in range(12)]
    urls = [f"{name}.example" for name in names]
    return pa.table({"ad": names, "title": titles, "description": titles, "display_url": urls})


def labels_table() -> pa.Table:
    """Judgments of pairs."""
    pairs = [(query, ad) for query in range(8) for ad in range(12)]
    return pa.table(
        {
            "query": [f"query {query}" for query, _ in pairs],
            "ad": [f"ad{ad}" for _, ad in pairs],
            "relevance": [(query + ad) % 5 for query, ad in pairs],
        }
    )


def bids_table() -> pa.Table:
    """Bids for an auction."""
    labels = labels_table()
    bids = np.linspace(0.1, 2.0, labels.num_rows)
    return labels.drop_columns("relevance").append_column("bid", pa.array(bids))


@cache
def seed_files() -> tuple[SeedFile, ...]:
    """A file of every format, and of every file type of Reclick's own columns."""
    table = make_log()
    return (
        SeedFile("own.parquet", "sessions", to_parquet(table)),
        SeedFile("plain.parquet", "sessions", to_parquet(table, use_dictionary=False)),
        SeedFile("v2.parquet", "sessions", to_parquet(table, data_page_version="2.0")),
        SeedFile("small.parquet", "sessions", to_parquet(table, row_group_size=40)),
        SeedFile("large.parquet", "sessions", to_parquet(_large_log(), compression="none")),
        SeedFile("categories.parquet", "sessions", _to_plain_parquet(encode_texts(table))),
        SeedFile("long.parquet", "long", _to_plain_parquet(encode_texts(_long_log()))),
        SeedFile("own.jsonl", "sessions", to_json_lines(table)),
        SeedFile("own.csv", "sessions", to_csv(table, b",")),
        SeedFile("own.tsv", "sessions", to_csv(table, b"\t")),
        *_format_files(),
    )


def encode_texts(table: pa.Table) -> pa.Table:
    """A table with every column of text as categories, which Parquet keeps."""
    columns = {
        name: table[name].dictionary_encode()
        if pa.types.is_string(table[name].type)
        else table[name]
        for name in table.column_names
    }
    return pa.table(columns)


def _to_plain_parquet(table: pa.Table) -> bytes:
    """A table as Parquet in which a changed byte is a changed code: nothing is compressed."""
    return to_parquet(table, compression="none", write_statistics=False)


def _long_log() -> pa.Table:
    """A log with an impression a row, for the format `long`."""
    names = ("session_id", "user", "timestamp", "query")
    rows = [
        {name: row[name] for name in names}
        | {"timestamp": str(row["timestamp"])}
        | {"ad": ad, "position": position, "clicked": position in row["clicks"]}
        for row in make_log(sessions=60).to_pylist()
        for position, ad in enumerate(row["ads"], start=1)
    ]
    return pa.Table.from_pylist(rows)


def _large_log() -> pa.Table:
    """A log with enough rows for the reader to use the codes of a dictionary."""
    table = make_log(sessions=2_000).select(["query", "ads", "clicks"])
    return pa.concat_tables([table] * 26).combine_chunks()


def _format_files() -> list[SeedFile]:
    files = []
    with TemporaryDirectory() as folder:
        for name in NAMES:
            path = write_sample(name, Path(folder))
            files.append(SeedFile(path.name, name, path.read_bytes()))
    return [*files, _ga4_file(), _snowplow_file(), _ubi_parquet()]


def _ga4_file() -> SeedFile:
    from tests.logs.formats import test_ga4 as ga4

    events = []
    for number in range(20):
        start = number * 60_000_000
        items = [ga4.item(f"ad{(number + i) % 7}", i + 1, title="shoe") for i in range(4)]
        events.append(ga4.view(start, *items, session=number, search_term="shoes"))
        events.append(ga4.click(start + 1_000_000, items[number % 4], session=number))
    return SeedFile("ga4.parquet", "ga4", to_parquet(pa.Table.from_pylist(events, ga4.NESTED)))


def _snowplow_file() -> SeedFile:
    from tests.logs.formats import test_snowplow as snowplow

    events = []
    for number in range(20):
        items = [snowplow.product(f"ad{(number + i) % 7}", i + 1, "shoe") for i in range(4)]
        events.append(snowplow.view(number * 60, *items, page=f"p{number}"))
        events.append(snowplow.click(number * 60 + 5, items[number % 4], page=f"p{number}"))
    table = pa.Table.from_pylist(events, snowplow.TABLE)
    return SeedFile("snowplow.parquet", "snowplow", to_parquet(table))


def _ubi_parquet() -> SeedFile:
    rows: list[dict[str, Any]] = []
    for number in range(15):
        time = f"2025-02-18T09:{number:02d}:00Z"
        hits = [f"ad{(number + i) % 7}" for i in range(4)]
        common_fields = {"query_id": f"q{number}", "client_id": "c", "timestamp": time}
        rows.append({**common_fields, "user_query": "shoes", "query_response_hit_ids": hits})
        target = {
            "object": {"object_id": hits[number % 4]},
            "position": {"ordinal": number % 4 + 1},
        }
        rows.append({**common_fields, "action_name": "click", "event_attributes": target})
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return SeedFile("ubi.parquet", "ubi", to_parquet(pa.table(columns)))


def to_parquet(table: pa.Table, **options: Any) -> bytes:
    """A table as Parquet."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def to_json_lines(table: pa.Table) -> bytes:
    """A table as JSON lines."""
    rows = (json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist())
    return "".join(f"{row}\n" for row in rows).encode()


def to_csv(table: pa.Table, separator: bytes) -> bytes:
    """A table as CSV, with lists as JSON."""
    comma = separator.decode()
    lines = [comma.join(table.column_names)]
    for row in table.to_pylist():
        cells = [json.dumps(v) if isinstance(v, list) else str(v) for v in row.values()]
        lines.append(comma.join('"' + cell.replace('"', '""') + '"' for cell in cells))
    return "\n".join([*lines, ""]).encode()


def pack(name: str, content: bytes, container: str) -> tuple[str, bytes]:
    """The name and the bytes of a file in a container, such as gzip or none."""
    buffer = io.BytesIO()
    if container == "gz":
        return f"{name}.gz", gzip.compress(content, 1)
    if container == "gz of gz":
        return f"{name}.gz", gzip.compress(gzip.compress(content, 1), 1)
    if container == "gz members":  # several members, as from `cat a.gz b.gz`
        third = len(content) // 3
        parts = (content[:third], b"", content[third:])
        return f"{name}.gz", b"".join(gzip.compress(part, 1) for part in parts)
    if container == "gz and more":
        return f"{name}.gz", gzip.compress(content, 1) + b"more"
    if container == "not gz":
        return f"{name}.gz", content
    if container == "gz as zip":
        return f"{name}.zip", gzip.compress(content, 1)
    if container == "zip of many":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside in (name, f"../{name}", "/etc/passwd", f"folder/{name}", "notes.txt", "e/"):
                archive.writestr(inside, b"" if inside == "e/" else content)
        return f"{name}.zip", buffer.getvalue()
    if container == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
        return f"{name}.zip", buffer.getvalue()
    if container == "tar.gz":
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        return f"{name}.tar.gz", buffer.getvalue()
    return name, content
