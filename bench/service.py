"""The HTTP service: requests per second, latency, memory, correct answers, and model swaps.

A second process sends the load over loopback for a limited time. On a busy machine the rates are
lower bounds; the CPU seconds of the service per request are printed next to them.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import numpy as np
import psutil
import pyarrow as pa

import reclick as rc
from bench.measure import print_row
from reclick.runtime import artifact
from reclick.service.arrow_bodies import ARROW_STREAM, read_stream, write_stream

LEAST_RATES = {1: 1_500, 500: 60_000}  # pages per request → pages per second; one of them must hold
JSON = "application/json"
WARM_UP, FAST_SECONDS = 2.0, 10.0
MEGABYTE = 1 << 20
CONNECTIONS = 16
SWAPS = 200


class Load(NamedTuple):
    """What the load client measured."""

    requests: int
    seconds: float
    p99: float  # seconds
    failures: int


def main(minutes: float = 10.0) -> bool:
    """Print each figure with its limit; `minutes` is how long the service is under load."""
    print(f"\nService: one worker, pages of 4 ads, {CONNECTIONS} connections over loopback\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        market = rc.simulate(20_000, weeks=1, queries=300, seed=1)
        log = market.weeks[0]
        models = [rc.LuceClick(tune="off").fit(log), rc.UBM().fit(log)]
        pages = _pages(models[0])
        good = [_judge_load(folder, models[0], pages, 60 * minutes)]
        good.append(_judge_swaps(folder, models, pages))
    return all(good)


def _pages(model: Any) -> list[dict[str, Any]]:
    """Pages of four ads for the most frequent queries."""
    counts = model.training_counts
    pages = []
    for query in np.argsort(-counts.volumes)[:200]:
        rows = np.flatnonzero(counts.pair_query == query)
        ads = counts.ads.take(pa.array(counts.pair_ad[rows])).to_pylist()[:4]
        pages.append({"query": counts.queries[int(query)].as_py(), "ads": ads})
    return [page for page in pages if len(page["ads"]) == 4]


def _serve(folder: Path, *options: str) -> tuple[Any, int]:
    """Start a service; returns its process and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reclick", "serve", str(folder), "--port", "0", "--quiet", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline().rsplit(":", 1)[1].strip("/\n"))
    deadline = time.monotonic() + 60
    while b"200 OK" not in asyncio.run(_get(port, "/readyz")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process, port


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    content = await reader.read()
    writer.close()
    return content


def _requests(pages: list[dict[str, Any]], batch: int) -> list[bytes]:
    """The bytes of whole HTTP requests: JSON of one page, or Arrow batches of pages."""
    requests = []
    for i in range(50):
        pages_in_request = [pages[(i * 7 + j) % len(pages)] for j in range(batch)]
        if batch == 1:
            path, kind, body = "/v1/predict", JSON, json.dumps({"pages": pages_in_request})
            content = body.encode()
        else:
            path, kind = "/v1/predict?top=0", ARROW_STREAM
            columns = {name: [page[name] for page in pages_in_request] for name in ("query", "ads")}
            content = write_stream(pa.record_batch(columns))
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
        requests.append(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return requests


def _run_load(port: int, requests: list[bytes], rate: float | None, seconds: float) -> Load:
    """Send requests from a separate process for some seconds, as fast as possible or at a rate."""
    with mp.get_context("spawn").Pool(1) as pool:
        return Load(*pool.apply(_load_process, (port, requests, rate, seconds)))


def _load_process(
    port: int, requests: list[bytes], rate: float | None, seconds: float
) -> tuple[int, float, float, int]:
    return asyncio.run(_ask_for(port, requests, rate, seconds))


async def _ask_for(
    port: int, requests: list[bytes], rate: float | None, seconds: float
) -> tuple[int, float, float, int]:
    latencies: list[float] = []
    failures = 0
    start = time.perf_counter()

    async def ask_on_one_connection(number: int) -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        i = 0
        while (now := time.perf_counter()) - start < seconds:
            if rate is not None:
                due = start + (number + i * CONNECTIONS) / rate
                if due > now:
                    await asyncio.sleep(due - now)
                now = max(due, start)  # latency counts from when the request was due
            writer.write(requests[(number + i) % len(requests)])
            status, _ = await _read_answer(reader)
            failures += status != 200
            latencies.append(time.perf_counter() - now)
            i += 1
        writer.close()

    await asyncio.gather(*(ask_on_one_connection(number) for number in range(CONNECTIONS)))
    duration = time.perf_counter() - start
    return len(latencies), duration, float(np.quantile(latencies, 0.99)), failures


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    return int(head.split()[1]), await reader.readexactly(length)


def _judge_load(folder: Path, model: Any, pages: list[dict[str, Any]], seconds: float) -> bool:
    """Measure the highest rates, then latency, failures and memory at half of each rate."""
    model.save(folder / "load")
    process, port = _serve(folder / "load")
    try:
        requests = {batch: _requests(pages, batch) for batch in LEAST_RATES}
        for batch_requests in requests.values():
            _run_load(port, batch_requests, None, WARM_UP)
        rates = {batch: _find_rate(process.pid, port, requests[batch]) for batch in requests}
        fast = [
            print_row(
                f"pages/s in requests of {batch} (CPU {cpu * 1e3:.2f} ms per request)",
                f"{rate * batch:,.0f}",
                f"≥ {LEAST_RATES[batch]:,}, or the other limit",
                rate * batch >= LEAST_RATES[batch],
            )
            for batch, (rate, cpu) in rates.items()
        ]
        good = [any(fast), _judge_answers(port, folder / "load", pages)]
        memory = psutil.Process(process.pid).memory_info().rss / MEGABYTE
        for batch, (rate, _) in rates.items():
            soak = _run_load(port, requests[batch], rate / 2, seconds / len(rates))
            what = f"{soak.seconds:.0f} s at half that rate, {soak.requests:,} requests of {batch}"
            print_row(f"{what}: p99", f"{soak.p99 * 1e3:.1f} ms", "≤ 20 ms", soak.p99 <= 0.02)
            good += [
                soak.p99 <= 0.02,
                print_row("failures", str(soak.failures), "0", soak.failures == 0),
            ]
        after = psutil.Process(process.pid).memory_info().rss / MEGABYTE
        memory_change = f"{memory:.0f} → {after:.0f} MB"
        good.append(print_row("memory", memory_change, "≤ 30 MB more", after - memory <= 30))
    finally:
        process.terminate()
        process.wait(60)
    return all(good)


def _judge_answers(port: int, folder: Path, pages: list[dict[str, Any]]) -> bool:
    """Check that answers as JSON (page by page, all pages) and Arrow are those of `rc.load`."""
    model = rc.load(folder)
    columns = {name: [page[name] for page in pages] for name in ("query", "ads")}
    batch = pa.record_batch(columns)
    prediction = rc.Predictor(model, next_click=True, satisfaction=model.satisfaction)(batch)
    names = ["click_prob", "expected_clicks", "next_click_prob", "end_prob", "satisfaction_prob"]
    expected = prediction.select(names).to_pylist()
    single_answers = [
        page
        for request_page in pages
        for page in _post(port, JSON, json.dumps({"pages": [request_page]}))
    ]
    joint_answers = _post(port, JSON, json.dumps({"pages": pages}))
    arrow = read_stream(_post(port, ARROW_STREAM, write_stream(batch)))
    wrong = sum(
        {name: page[name] for name in names} != right
        for answers in (single_answers, joint_answers)
        for page, right in zip(answers, expected, strict=True)
    )
    wrong += not arrow.equals(prediction)
    return print_row(
        f"{2 * len(pages)} JSON answers and Arrow: differences from rc.load",
        f"{wrong}",
        "0",
        not wrong,
    )


def _post(port: int, kind: str, body: str | bytes) -> Any:
    content = body.encode() if isinstance(body, str) else body
    request = Request(f"http://127.0.0.1:{port}/v1/predict", content, {"content-type": kind})
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        reply = answer.read()
    return reply if kind == ARROW_STREAM else json.loads(reply)["pages"]


def _find_rate(pid: int, port: int, requests: list[bytes]) -> tuple[float, float]:
    """Measure the highest rate, and the CPU seconds of the service per request."""
    service = psutil.Process(pid)
    before = sum(service.cpu_times()[:2])
    load = _run_load(port, requests, None, FAST_SECONDS)
    assert load.failures == 0
    cpu = (sum(service.cpu_times()[:2]) - before) / load.requests
    return load.requests / load.seconds, cpu


def _judge_swaps(folder: Path, models: list[Any], pages: list[dict[str, Any]]) -> bool:
    """Replace the model repeatedly under load: each answer must come from exactly one version."""
    target = folder / "swaps"
    versions = {}
    for model in models:
        model.save(target)
        pages_to_ask = pages[:20]
        table = {name: [page[name] for page in pages_to_ask] for name in ("query", "ads")}
        versions[artifact.fingerprint(target)[:12]] = rc.load(target).click_prob(table).tolist()
    process, port = _serve(target, "--watch-seconds", "0.1")
    body = json.dumps({"pages": pages[:20], "top": 0}).encode()
    head = "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    wrong = n_answers = 0
    versions_seen: set[str] = set()

    async def ask() -> None:
        nonlocal wrong, n_answers
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not swaps_over.is_set():
            writer.write(head.encode() + body)
            status, content = await _read_answer(reader)
            n_answers += 1
            answer = json.loads(content) if status == 200 else {}
            expected = versions.get(answer.get("version", ""))
            click_prob = [page["click_prob"] for page in answer.get("pages", [])]
            wrong += click_prob != expected
            versions_seen.add(answer.get("version", ""))
        writer.close()

    async def swap() -> None:
        for turn in range(SWAPS):
            await asyncio.to_thread(models[turn % 2].save, target, overwrite=True)
            await asyncio.sleep(0.15)
        swaps_over.set()

    async def run() -> None:
        await asyncio.gather(swap(), *(ask() for _ in range(4)))

    swaps_over = asyncio.Event()
    try:
        asyncio.run(run())
    finally:
        process.terminate()
        process.wait(60)
    counts = f"{SWAPS} swaps, {n_answers:,} answers, {len(versions_seen)} versions"
    name = f"{counts}: mixed or failed answers"
    return print_row(name, str(wrong), "0", wrong == 0 and len(versions_seen) == 2)
