"""A request that takes too long is answered with 408, and its work stops by itself."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import reclick as rc
from reclick.auction import candidates, slates
from reclick.models import batching
from reclick.predictor import Predictor
from reclick.runtime import time_limit
from reclick.service import ServiceLimits, answers, app, create_app, schemas
from reclick.service.hosting import HostedModel, QueryIndex
from tests.service.conftest import ready_client
from tests.support.service import ADS

PAGES = [{"query": "tea", "ads": list(ADS[:3]), "clicks": [2]}] * 40
BIDS = {ad: 1.0 + i / 10 for i, ad in enumerate(ADS)}
WORK: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "predict": ("ubm", answers.predict, schemas.PredictRequest, {"pages": PAGES}),
    "rank": ("luceclick", answers.rank, schemas.RankRequest, {"query": "tea", "ads": list(ADS)}),
    "rank by bounds": (
        "multiclick", answers.rank, schemas.RankRequest, {"query": "tea", "ads": list(ADS)}
    ),
    "rank by asking": (
        "ubm", answers.rank, schemas.RankRequest, {"query": "tea", "ads": list(ADS)}
    ),
    "auction": (
        "luceclick", answers.auction, schemas.AuctionRequest, {"query": "tea", "bids": BIDS}
    ),
    "compare": (
        "luceclick", answers.compare, schemas.CompareRequest, {"old": PAGES, "new": PAGES}
    ),
    "monitor": ("luceclick", answers.monitor_day, schemas.MonitorRequest, {"pages": PAGES}),
}  # fmt: skip


class StepClock:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the time more often than is needed for so little work."""
    monkeypatch.setattr(batching, "CHUNK_SESSIONS", 6)
    monkeypatch.setattr(candidates, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(slates, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(candidates, "PAGES_AT_ONCE", 32)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", WORK)
def test_work_looks_at_the_time_again_and_again(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model, function, request, body = WORK[name]
    hosted = HostedModel(model, "1", rc.load(folders[model]))

    def run(seconds: float) -> float:
        clock = StepClock()
        with monkeypatch.context() as patch:
            patch.setattr(time_limit, "time", SimpleNamespace(monotonic=clock.monotonic))
            with time_limit.time_limit(seconds):
                function(hosted, request(**body), ServiceLimits(), lambda *_: None)
        return clock.seconds

    looks = run(1e9)
    assert looks > 5
    with pytest.raises(time_limit.TimeLimitError, match="Send a smaller request"):
        run(looks // 2)


def test_there_is_no_limit_by_default(folders: dict[str, Path]) -> None:
    pages = pa.RecordBatch.from_pylist(PAGES)
    model = rc.load(folders["ubm"])
    assert Predictor(model)(pages).num_rows == len(PAGES)
    time_limit.check_time()


@pytest.mark.parametrize("path", ["rank", "auction", "compare", "monitor", "predict"])
def test_after_a_408_the_thread_stops(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Work without an end, which looks at the time as all work does."""
    stopped = threading.Event()

    def work_on(*_: Any) -> dict[str, Any]:
        try:
            while True:
                time_limit.check_time()
        finally:
            stopped.set()

    routes = tuple(each._replace(function=work_on) for each in app.JSON_ROUTES)
    monkeypatch.setattr(app, "JSON_ROUTES", routes)
    body = {
        "rank": {"query": "tea", "ads": list(ADS)},
        "auction": {"query": "tea", "bids": BIDS},
        "compare": {"old": PAGES, "new": PAGES},
        "monitor": {"pages": PAGES},
        "predict": {"pages": PAGES},
    }[path]
    with ready_client(create_app(folders, limits=ServiceLimits(seconds=0.2))) as client:
        answer = client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 408
        assert "Send a smaller request" in answer.json()["message"]
        assert stopped.wait(60)


def test_type_ahead_has_the_time_limit_too(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()

    def find(*_: Any) -> list[Any]:
        try:
            while True:
                time_limit.check_time()
        finally:
            stopped.set()

    monkeypatch.setattr(QueryIndex, "find", find)
    with ready_client(create_app(folders, limits=ServiceLimits(seconds=0.2))) as client:
        assert client.get("/v1/queries").status_code == 408
        assert stopped.wait(60)
