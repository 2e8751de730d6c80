"""Converting a generated log of User Behavior Insights of 5 GB: speed, memory, pages and clicks.

RECLICK_UBI_GB=0.2 generates and converts a smaller one.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measure import WORK, measure, print_row

QUERIES, POOL, PAGE = 200_000, 24, 10  # POOL: ads that compete for a query
CHUNK = 20_000  # pages made at a time
CLICKED, CLICKED_AGAIN, KEYLESS = 0.35, 0.15, 0.01  # share of pages; of those; of events
WARM = """
import reclick as rc
small = {{"query": ["q"], "ads": [["a"]], "clicks": [[1]]}}
rc.convert(small, {to!r})  # loads the compiled kernels
"""


def main() -> bool:
    """Print the table; whether every limit holds."""
    size = float(os.environ.get("RECLICK_UBI_GB", "5"))
    folder = WORK / f"ubi-{size:g}"
    made = _generate_log(folder, int(size * 1e9))
    to = WORK / "ubi-sessions.parquet"
    print(
        f"\nUBI: {made.events / 1e6:.1f} M events, {made.pages / 1e6:.2f} M pages of {PAGE}, "
        f"{size:g} GB of JSON lines\n"
    )
    took = measure(
        f"rc.convert({str(folder / '*.ndjson')!r}, {str(to)!r}, format='ubi')",
        setup=WARM.format(to=str(to)),
        runs=1,
    )
    pages, clicks = _count(to)
    to.unlink()
    speed = made.events / took.seconds
    return all(
        [
            print_row("events per second", f"{speed:,.0f}", "≥ 300,000", speed >= 300_000),
            print_row("seconds", f"{took.seconds:,.1f}", "", True),
            print_row("peak memory", f"{took.memory:,.0f} MB", "≤ 1,000 MB", took.memory <= 1_000),
            print_row(
                "sessions made", f"{pages:,}", f"= {made.pages:,} pages", pages == made.pages
            ),
            print_row("clicks", f"{clicks:,}", f"= {made.clicks:,}", clicks == made.clicks),
        ]
    )


@dataclass
class GeneratedLog:
    """What a generated log holds; events are all its lines, queries among them."""

    events: int = 0
    pages: int = 0
    clicks: int = 0
    size: int = 0


def _generate_log(folder: Path, size: int) -> GeneratedLog:
    """Write queries.ndjson and events.ndjson, unless they are there already."""
    known = folder / "made.json"
    if known.exists():
        return GeneratedLog(**json.loads(known.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    rng, made = np.random.default_rng(6), GeneratedLog()
    with (
        (folder / "queries.ndjson").open("wb") as queries,
        (folder / "events.ndjson").open("wb") as events,
    ):
        while made.size < size:
            _write_chunk(rng, made, queries, events)
    known.write_text(json.dumps(made.__dict__))
    return made


def _write_chunk(
    rng: np.random.Generator, made: GeneratedLog, queries: IO[bytes], events: IO[bytes]
) -> None:
    weights = np.cumsum(1 / np.arange(1, QUERIES + 1))
    query = np.searchsorted(weights, rng.random(CHUNK) * weights[-1])
    ad = (
        query[:, None] * POOL + (rng.integers(0, POOL, CHUNK)[:, None] + np.arange(PAGE)) % POOL
    )  # [page, slot]
    start = 1_717_236_000_000 + made.pages * 50 + rng.integers(0, 1_000_000, CHUNK)
    ids = {
        "key": _uuids(rng),
        "user": _uuids(rng),
        "session": _uuids(rng),
        "query": _words("query words ", query),
    }
    made.size += _write(queries, _query_lines(ids, start, _words("product-", ad.ravel())))
    page, slot, time, action = _events(rng, start)
    order = np.argsort(time, kind="stable")
    keyless = rng.random(len(order)) < KEYLESS * (action[order] == "view")
    lines = _event_lines(
        ids, page[order], ad[page, slot][order], slot[order], time[order], action[order], keyless
    )
    made.size += _write(events, lines)
    made.events, made.pages = made.events + CHUNK + len(lines), made.pages + CHUNK
    made.clicks += int((action == "click").sum())


def _events(
    rng: np.random.Generator, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Page, slot from 0, time and action of each event.

    Every ad is shown, some are clicked and then viewed.
    """
    page, slot = np.repeat(np.arange(CHUNK), PAGE), np.tile(np.arange(PAGE), CHUNK)
    clicked = np.flatnonzero(rng.random(CHUNK) < CLICKED)
    again = rng.random(len(clicked)) < CLICKED_AGAIN
    clicks = np.concatenate([clicked, clicked[again]])
    at = (rng.random(len(clicked)) ** 2 * PAGE).astype(np.int64)
    at = np.concatenate([at, (at[again] + rng.integers(1, PAGE, again.sum())) % PAGE])
    when = start[clicks] + 3000 + rng.integers(0, 60_000, len(clicks))
    action = np.repeat(["impression", "click", "view"], [len(page), len(clicks), len(clicks)])
    return (
        np.concatenate([page, clicks, clicks]),
        np.concatenate([slot, at, at]),
        np.concatenate([start[page] + 20 * slot, when, when + 900]),
        action,
    )


def _query_lines(ids: dict[str, pa.Array], start: np.ndarray, ads: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', ads, '"', "")
    hits = pc.binary_join(
        pa.ListArray.from_arrays(np.arange(0, len(ads) + 1, PAGE, dtype=np.int32), quoted), ","
    )
    return _join_text(
        '{"application":"shop","query_id":"', ids["key"],
        '","client_id":"', ids["user"],
        '","user_query":"', ids["query"],
        '","timestamp":"', _times(start),
        '","query_attributes":{"page":1},"query_response_hit_ids":[', hits, "]}\n",
    )  # fmt: skip


def _event_lines(
    ids: dict[str, pa.Array],
    page: np.ndarray,
    ad: np.ndarray,
    slot: np.ndarray,
    time: np.ndarray,
    action: np.ndarray,
    keyless: np.ndarray,
) -> pa.Array:
    key, user, session, query = (
        ids[name].take(pa.array(page)) for name in ("key", "user", "session", "query")
    )
    keyed = pc.if_else(pa.array(keyless), "null", pc.binary_join_element_wise('"', key, '"', ""))
    return _join_text(
        '{"application":"shop","action_name":"', pa.array(action),
        '","query_id":', keyed,
        ',"session_id":"', session,
        '","client_id":"', user,
        '","timestamp":"', _times(time),
        '","user_query":"', query,
        '","event_attributes":{"object":{"object_id":"', _words("product-", ad),
        '","object_id_field":"sku"},"position":{"ordinal":', pa.array(slot).cast(pa.string()),
        "}}}\n",
    )  # fmt: skip


def _join_text(*parts: str | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _times(millis: np.ndarray) -> pa.Array:
    return pc.replace_substring(
        pa.array(millis).cast(pa.timestamp("ms", "UTC")).cast(pa.string()), " ", "T"
    )


def _uuids(rng: np.random.Generator) -> pa.Array:
    digits = np.frombuffer(rng.bytes(16 * CHUNK).hex().encode(), np.uint8).reshape(CHUNK, 32)
    dashed = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    return pa.array(dashed.view("S36").ravel()).cast(pa.string())


def _words(prefix: str, codes: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(
        prefix, pc.utf8_lpad(pa.array(codes).cast(pa.string()), 7, "0"), ""
    )


def _write(file: IO[bytes], lines: pa.Array) -> int:
    """Write the text of an array as it lies in memory."""
    start, end = np.frombuffer(lines.buffers()[1], np.int32)[
        [lines.offset, lines.offset + len(lines)]
    ]
    return file.write(memoryview(lines.buffers()[2])[start:end])


def _count(path: Path) -> tuple[int, int]:
    pages = clicks = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["clicks"]):
        pages += batch.num_rows
        clicks += len(batch["clicks"].flatten())
    return pages, clicks
