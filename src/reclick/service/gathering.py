"""Small requests that come at the same time, answered by one call of the model.

Most of the time of a small prediction is spent on calls, not on pages: sixteen pages together take
little more than one. A request waits only for those that are already there, so one that is alone
is answered at once. The pages of a request are predicted as they would be alone, to the last bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from reclick.models.partitioned import PartitionedModel
from reclick.service.answers import CountPages, predict, predict_together
from reclick.service.hosting import HostedModel
from reclick.service.protection import ServiceLimits
from reclick.service.schemas import PredictRequest

# Of a request that may be gathered. A page of six ads has 1,957 click sequences, one of eight
# 109,601: the search of the likeliest may then take too long for the others to wait.
SMALL_PAGES, SMALL_ADS, SMALL_TOP = 8, 6, 3
MOST_PAGES = 64  # predicted by one call, so that no request waits long


class Waiting(NamedTuple):
    """A request and where its answer is awaited."""

    hosted: HostedModel
    request: PredictRequest
    answer: asyncio.Future[dict[str, Any]]


class PageGatherer:
    """Gathers the small requests of one turn of the event loop."""

    def __init__(self, limits: ServiceLimits, count: CountPages) -> None:
        self._limits, self._count = limits, count
        self._waiting: list[Waiting] = []

    async def predict(self, hosted: HostedModel, request: PredictRequest) -> dict[str, Any]:
        """The answer to a small request."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer_all)
        waiting = Waiting(hosted, request, loop.create_future())
        self._waiting.append(waiting)
        return await waiting.answer

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        for group in _group(waiting):  # between two of them the loop does other work
            loop.call_soon(self._answer_group, group)

    def _answer_group(self, group: list[Waiting]) -> None:
        """Answer requests of the same model together; if that fails, each alone."""
        hosted = group[0].hosted
        requests = [each.request for each in group]
        try:
            together = predict_together(hosted, requests, self._limits, self._count)
        except Exception:  # each gets its own
            together = None
        for i, each in enumerate(group):
            if each.answer.done():  # nobody waits for it any more
                continue
            try:
                each.answer.set_result(
                    predict(hosted, each.request, self._limits, self._count)
                    if together is None
                    else together[i]
                )
            except Exception as error:  # the request's own, which its route answers
                each.answer.set_exception(error)


def is_small(hosted: HostedModel, request: PredictRequest) -> bool:
    """Whether the answer takes less time than handing it to a thread."""
    if request.text or request.top > SMALL_TOP or len(request.pages) > SMALL_PAGES:
        return False
    if isinstance(hosted.model, PartitionedModel):  # which may have to read a file
        return False
    return all(len(page.ads) <= SMALL_ADS for page in request.pages)


def _group(waiting: list[Waiting]) -> Iterator[list[Waiting]]:
    """The requests that one call can answer: of the same model, for as many sequences."""
    groups: dict[tuple[int, int], list[Waiting]] = {}
    for each in waiting:
        groups.setdefault((id(each.hosted), each.request.top), []).append(each)
    for group in groups.values():
        start = pages = 0
        for i, each in enumerate(group):
            more = len(each.request.pages)
            if pages + more > MOST_PAGES:
                yield group[start:i]
                start, pages = i, 0
            pages += more
        yield group[start:]
