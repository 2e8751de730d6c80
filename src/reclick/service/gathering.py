"""Answer small requests that arrive at the same time by one call of the model.

A small prediction spends most of its time on calls, not on pages: sixteen pages together take
little longer than one. A request waits only for requests that have already arrived, so a single
request is answered at once. Predictions are the same as for each request alone, to the last bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from reclick.models.bucketed_model import BucketedModel
from reclick.service.answers import CountPages, predict, predict_together
from reclick.service.hosting import HostedModel
from reclick.service.protection import ServiceLimits
from reclick.service.schemas import PredictRequest

# The limits of a small request. A page of six ads has 1,957 click sequences, one of eight 109,601:
# then the search for the most likely sequences may take too long for other requests to wait.
SMALL_PAGES, SMALL_ADS, SMALL_TOP = 8, 6, 3
MOST_PAGES = 64  # predicted by one call, so that no request waits for long


class PendingRequest(NamedTuple):
    """A request and the future of its answer."""

    hosted: HostedModel
    request: PredictRequest
    answer: asyncio.Future[dict[str, Any]]


class PageGatherer:
    """Gathers the small requests that arrive in one iteration of the event loop."""

    def __init__(self, limits: ServiceLimits, count: CountPages) -> None:
        self._limits, self._count = limits, count
        self._queue: list[PendingRequest] = []

    async def predict(self, hosted: HostedModel, request: PredictRequest) -> dict[str, Any]:
        """Answer a small request."""
        loop = asyncio.get_running_loop()
        if not self._queue:
            loop.call_soon(self._answer_all)
        pending = PendingRequest(hosted, request, loop.create_future())
        self._queue.append(pending)
        return await pending.answer

    def _answer_all(self) -> None:
        requests, self._queue = self._queue, []
        loop = asyncio.get_running_loop()
        for group in _group(requests):  # between two groups the loop does other work
            loop.call_soon(self._answer_group, group)

    def _answer_group(self, group: list[PendingRequest]) -> None:
        """Answer requests to the same model together; if that fails, one by one."""
        hosted = group[0].hosted
        requests = [pending.request for pending in group]
        try:
            answers = predict_together(hosted, requests, self._limits, self._count)
        except Exception:  # each request gets its own error below
            answers = None
        for i, pending in enumerate(group):
            if pending.answer.done():  # nobody waits for it any more
                continue
            try:
                pending.answer.set_result(
                    predict(hosted, pending.request, self._limits, self._count)
                    if answers is None
                    else answers[i]
                )
            except Exception as error:  # of this request, whose route turns it into an answer
                pending.answer.set_exception(error)


def is_small(hosted: HostedModel, request: PredictRequest) -> bool:
    """Whether answering takes less time than starting it in a thread."""
    if request.text or request.top > SMALL_TOP or len(request.pages) > SMALL_PAGES:
        return False
    if isinstance(hosted.model, BucketedModel):  # it may have to read a file
        return False
    return all(len(page.ads) <= SMALL_ADS for page in request.pages)


def _group(requests: list[PendingRequest]) -> Iterator[list[PendingRequest]]:
    """Yield groups that one call can answer: to the same model, with the same `top`."""
    groups: dict[tuple[int, int], list[PendingRequest]] = {}
    for pending in requests:
        groups.setdefault((id(pending.hosted), pending.request.top), []).append(pending)
    for group in groups.values():
        start = pages = 0
        for i, pending in enumerate(group):
            more = len(pending.request.pages)
            if pages + more > MOST_PAGES:
                yield group[start:i]
                start, pages = i, 0
            pages += more
        yield group[start:]
