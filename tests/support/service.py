"""Models in folders and a running service, for the tests of the service and the lab."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx2 as httpx
import pyarrow as pa

import reclick as rc
from reclick.models import ClickModel

PATIENCE = 60.0  # seconds until a service is ready

QUERIES = ("running shoes", "tea", "garage door repair", "Running socks")
ADS = tuple(f"ad{i}" for i in range(6))
TEXTS = {
    "ad": list(ADS),
    "title": ["Fast shoes", "Cheap shoes", "Green tea", "Black tea", "Garage doors", "Wool socks"],
    "description": ["run free", "free shipping", "calm", "strong", "repaired today", "warm"],
    "display_url": ["a.test", "b.test", "c.test", "d.test", "e.test", "f.test"],
}


def small_log(seed: int = 0, sessions: int = 400) -> dict[str, list[object]]:
    """Pages of three ads, on which the first ads are clicked most."""
    import numpy as np

    rng = np.random.default_rng(seed)
    log: dict[str, list[object]] = {"query": [], "ads": [], "clicks": []}
    for _ in range(sessions):
        ads = [str(ad) for ad in rng.permutation(ADS)[:3]]
        clicked = [
            i + 1
            for i, ad in enumerate(ads)
            if rng.random() < (0.5 if ad in ADS[:2] else 0.15) / (i + 1)
        ]
        rng.shuffle(clicked)
        log["query"].append(QUERIES[int(rng.integers(len(QUERIES)))])
        log["ads"].append(ads)
        log["clicks"].append(clicked)
    return log


def fit(name: str, seed: int = 0) -> ClickModel:
    """A model fitted to the small log, with the text of its ads."""
    fixed = {"tune": "off"} if name == "luceclick" else {}
    return rc.MODELS[name](**fixed).fit(small_log(seed), ads=pa.table(TEXTS))


class ServiceClient(httpx.Client):
    """A client of a service, and the process that answers."""

    process: subprocess.Popen[str]


@contextmanager
def run_service(*arguments: str, token: str | None = None) -> Iterator[ServiceClient]:
    """`reclick serve` in a process of its own, ready, and a client of it."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("RECLICK_TOKEN", None)
    if token is not None:
        environment["RECLICK_TOKEN"] = token
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (a pipe that nobody reads would fill up)
    process = subprocess.Popen(
        [sys.executable, "-m", "reclick", "serve", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Serving on http"), _read(log)
        address = line.split()[-1]
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        with ServiceClient(base_url=address, headers=headers, timeout=30) as client:
            client.process = process
            wait_until_ready(client)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        errors = _read(log)
        log.close()
        assert "Traceback" not in errors, errors


def _read(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


def wait_until_ready(client: httpx.Client) -> None:
    """Wait until every model is loaded."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = client.get("/readyz")
        if answer.status_code == 200:
            return
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.05)


def save(folder: Path, name: str = "luceclick", seed: int = 0) -> ClickModel:
    """Fit a model, save it to a folder, and return it as loaded from there."""
    fit(name, seed).save(folder)
    return rc.load(folder)
