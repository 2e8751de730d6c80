"""Converting a generated User Behavior Insights log of 5 GB: speed, memory, pages and clicks.

With RECLICK_UBI_GB=0.2 the log has 0.2 GB.
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
CHUNK = 20_000  # pages generated at a time
CLICKED, CLICKED_AGAIN, KEYLESS = 0.35, 0.15, 0.01  # shares: of pages; of clicked pages; of events
WARM = """
import reclick as rc
small = {{"query": ["q"], "ads": [["a"]], "clicks": [[1]]}}
rc.convert(small, {to!r})  # loads the compiled kernels
"""


def main() -> bool:
    """Print the table, and return whether every limit holds."""
    size = float(os.environ.get("RECLICK_UBI_GB", "5"))
    folder = WORK / f"ubi-{size:g}"
    generated = _generate_log(folder, int(size * 1e9))
    to = WORK / "ubi-sessions.parquet"
    print(
        f"\nUBI: {generated.events / 1e6:.1f} M events, {generated.pages / 1e6:.2f} M pages of "
        f"{PAGE}, {size:g} GB of JSON lines\n"
    )
    conversion = measure(
        f"rc.convert({str(folder / '*.ndjson')!r}, {str(to)!r}, format='ubi')",
        setup=WARM.format(to=str(to)),
        runs=1,
    )
    pages, clicks = _count(to)
    to.unlink()
    rate = generated.events / conversion.seconds
    return all(
        [
            print_row("events per second", f"{rate:,.0f}", "≥ 300,000", rate >= 300_000),
            print_row("seconds", f"{conversion.seconds:,.1f}", "", True),
            print_row(
                "peak memory",
                f"{conversion.memory:,.0f} MB",
                "≤ 1,000 MB",
                conversion.memory <= 1_000,
            ),
            print_row(
                "sessions written",
                f"{pages:,}",
                f"= {generated.pages:,} pages",
                pages == generated.pages,
            ),
            print_row(
                "clicks", f"{clicks:,}", f"= {generated.clicks:,}", clicks == generated.clicks
            ),
        ]
    )


@dataclass
class GeneratedLog:
    """The contents of a generated log; events are all its lines, including queries."""

    events: int = 0
    pages: int = 0
    clicks: int = 0
    size: int = 0


def _generate_log(folder: Path, size: int) -> GeneratedLog:
    """Write queries.ndjson and events.ndjson, unless they exist already."""
    summary_path = folder / "made.json"
    if summary_path.exists():
        return GeneratedLog(**json.loads(summary_path.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    rng, generated = np.random.default_rng(6), GeneratedLog()
    with (
        (folder / "queries.ndjson").open("wb") as queries,
        (folder / "events.ndjson").open("wb") as events,
    ):
        while generated.size < size:
            _write_chunk(rng, generated, queries, events)
    summary_path.write_text(json.dumps(generated.__dict__))
    return generated


def _write_chunk(
    rng: np.random.Generator, generated: GeneratedLog, queries: IO[bytes], events: IO[bytes]
) -> None:
    weights = np.cumsum(1 / np.arange(1, QUERIES + 1))
    query = np.searchsorted(weights, rng.random(CHUNK) * weights[-1])
    ad = (
        query[:, None] * POOL + (rng.integers(0, POOL, CHUNK)[:, None] + np.arange(PAGE)) % POOL
    )  # [page, slot]
    start = 1_717_236_000_000 + generated.pages * 50 + rng.integers(0, 1_000_000, CHUNK)
    ids = {
        "key": _uuids(rng),
        "user": _uuids(rng),
        "session": _uuids(rng),
        "query": _words("query words ", query),
    }
    generated.size += _write(queries, _query_lines(ids, start, _words("product-", ad.ravel())))
    page, slot, time, action = _events(rng, start)
    order = np.argsort(time, kind="stable")
    keyless = rng.random(len(order)) < KEYLESS * (action[order] == "view")
    lines = _event_lines(
        ids, page[order], ad[page, slot][order], slot[order], time[order], action[order], keyless
    )
    generated.size += _write(events, lines)
    generated.events, generated.pages = (
        generated.events + CHUNK + len(lines),
        generated.pages + CHUNK,
    )
    generated.clicks += int((action == "click").sum())


def _events(
    rng: np.random.Generator, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The page, the slot (from 0), the time and the action of each event.

    Every ad has an impression event; some ads are clicked and then viewed.
    """
    page, slot = np.repeat(np.arange(CHUNK), PAGE), np.tile(np.arange(PAGE), CHUNK)
    clicked_pages = np.flatnonzero(rng.random(CHUNK) < CLICKED)
    has_second_click = rng.random(len(clicked_pages)) < CLICKED_AGAIN
    clicks = np.concatenate([clicked_pages, clicked_pages[has_second_click]])
    at = (rng.random(len(clicked_pages)) ** 2 * PAGE).astype(np.int64)
    at = np.concatenate(
        [at, (at[has_second_click] + rng.integers(1, PAGE, has_second_click.sum())) % PAGE]
    )
    click_time = start[clicks] + 3000 + rng.integers(0, 60_000, len(clicks))
    action = np.repeat(["impression", "click", "view"], [len(page), len(clicks), len(clicks)])
    return (
        np.concatenate([page, clicks, clicks]),
        np.concatenate([slot, at, at]),
        np.concatenate([start[page] + 20 * slot, click_time, click_time + 900]),
        action,
    )


def _query_lines(ids: dict[str, pa.Array], start: np.ndarray, ads: pa.Array) -> pa.Array:
    quoted_ads = pc.binary_join_element_wise('"', ads, '"', "")
    hits = pc.binary_join(
        pa.ListArray.from_arrays(np.arange(0, len(ads) + 1, PAGE, dtype=np.int32), quoted_ads), ","
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
    quoted_keys = pc.if_else(
        pa.array(keyless), "null", pc.binary_join_element_wise('"', key, '"', "")
    )
    return _join_text(
        '{"application":"shop","action_name":"', pa.array(action),
        '","query_id":', quoted_keys,
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
    uuid_digits = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    return pa.array(uuid_digits.view("S36").ravel()).cast(pa.string())


def _words(prefix: str, codes: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(
        prefix, pc.utf8_lpad(pa.array(codes).cast(pa.string()), 7, "0"), ""
    )


def _write(file: IO[bytes], lines: pa.Array) -> int:
    """Write the text buffer of an array without copying it."""
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
