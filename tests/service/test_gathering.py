"""Small requests that come at once are answered together, each as if it were alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import reclick as rc
from reclick.errors import ReclickError
from reclick.service import HostedModel, ServiceLimits, answers, gathering
from reclick.service.gathering import PageGatherer, is_small
from reclick.service.schemas import PredictRequest
from tests.support.service import ADS, QUERIES, fit

LIMITS = ServiceLimits()


@pytest.fixture(scope="module")
def hosted(folders: dict[str, Path]) -> list[HostedModel]:
    return [HostedModel(name, "1", rc.load(folders[name])) for name in ("luceclick", "ubm")]


def request(i: int, **others: Any) -> PredictRequest:
    """Requests of one to three pages of one to five ads, some with clicks or unknown ads."""
    pages = []
    for j in range(1 + i % 3):
        ads = [*ADS[(i + j) % 3 :], "never"][: 1 + (i + 2 * j) % 5]
        pages.append({"query": QUERIES[(i + j) % 4], "ads": ads, "clicks": [1] * (i % 2)})
    return request_of(pages, **others)


def request_of(pages: list[dict[str, Any]], **others: Any) -> PredictRequest:
    return PredictRequest.model_validate({"pages": pages, **others})


def ask_at_once(
    asked: list[tuple[HostedModel, PredictRequest]], count: Any = lambda *_: None
) -> list[Any]:
    async def ask_all() -> list[Any]:
        gatherer = PageGatherer(LIMITS, count)
        asking = (gatherer.predict(*each) for each in asked)
        gathered = asyncio.gather(*asking, return_exceptions=True)
        return list(await asyncio.wait_for(gathered, 60))

    return asyncio.run(ask_all())


def test_together_they_get_the_answers_that_each_gets_alone(hosted: list[HostedModel]) -> None:
    asked = [(hosted[i % 2], request(i, top=i % 4)) for i in range(100)]
    alone = [answers.predict(*each, LIMITS, lambda *_: None) for each in asked]
    assert ask_at_once(asked) == alone


def test_one_call_answers_all_of_a_model(
    hosted: list[HostedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def predict_together(hosted: Any, requests: Any, *others: Any) -> Any:
        sizes.append(sum(len(each.pages) for each in requests))
        return answers.predict_together(hosted, requests, *others)

    monkeypatch.setattr(gathering, "predict_together", predict_together)
    ask_at_once([(hosted[0], request(0)) for _ in range(10)])
    assert sizes == [10]
    sizes.clear()
    ask_at_once([(hosted[0], request(2)) for _ in range(30)])
    assert sizes == [63, 27]  # of three pages each, and at most 64 at once


def test_a_bad_request_spoils_no_other(hosted: list[HostedModel]) -> None:
    bad = request_of([{"query": "tea", "ads": ["ad0"], "clicks": [2]}])
    got = ask_at_once([(hosted[0], request(1)), (hosted[0], bad), (hosted[0], request(2))])
    assert isinstance(got[1], ReclickError)
    for i in (1, 2):
        alone = answers.predict(hosted[0], request(i), LIMITS, lambda *_: None)
        assert got[0 if i == 1 else 2] == alone


def test_an_error_that_nobody_foresaw_reaches_all_that_wait(
    hosted: list[HostedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("a mistake")

    monkeypatch.setattr(gathering, "predict_together", fail)
    alone = [answers.predict(hosted[0], request(i), LIMITS, lambda *_: None) for i in (1, 2)]
    assert ask_at_once([(hosted[0], request(1)), (hosted[0], request(2))]) == alone
    monkeypatch.setattr(gathering, "predict", fail)
    got = ask_at_once([(hosted[0], request(1)), (hosted[0], request(2))])
    assert [type(each) for each in got] == [KeyError, KeyError]


def test_pages_are_counted_once(hosted: list[HostedModel]) -> None:
    counted: list[Any] = []
    ask_at_once([(hosted[0], request(2))] * 5, lambda *each: counted.append(each))
    assert sum(each[1] for each in counted) == 15


def test_a_request_that_was_given_up_is_left_alone(hosted: list[HostedModel]) -> None:
    async def run() -> Any:
        gatherer = PageGatherer(LIMITS, lambda *_: None)
        first = asyncio.create_task(gatherer.predict(hosted[0], request(0)))
        second = asyncio.create_task(gatherer.predict(hosted[0], request(1)))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(run())["pages"]


def test_long_pages_text_and_models_on_disk_need_a_thread(
    hosted: list[HostedModel], tmp_path: Path
) -> None:
    assert is_small(hosted[0], request(0))
    many = request_of([{"query": "q", "ads": ["a"]}] * 9)
    long = request_of([{"query": "q", "ads": list("abcdefg")}])
    text = request(0, text=[{"ad": "x", "title": "t"}])
    assert not any(is_small(hosted[0], each) for each in (many, long, text, request(0, top=4)))
    fit("ubm").save(tmp_path / "m", buckets=4)
    assert not is_small(HostedModel("m", "1", rc.load(tmp_path / "m")), request(0))
