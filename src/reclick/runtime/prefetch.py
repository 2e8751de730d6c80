"""Let a background thread prepare the next items while the consumer works on the present one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
END = object()
DEPTH = (
    3  # items kept ready: the time an item takes varies, and neither side should wait for the other
)


def read_ahead(
    items: Iterator[Item], depth: int = DEPTH, on_stop: Callable[[], object] = lambda: None
) -> Iterator[Item]:
    """Yield the items in their order; errors come through, and the thread ends when the consumer stops, however it stops.

    `on_stop` is called then: whoever makes an item for long can be told to give up.
    """
    ready: queue.Queue[object] = queue.Queue(depth)
    stop = threading.Event()
    failed: list[BaseException] = []
    worker = threading.Thread(
        target=_work, args=(items, ready, stop, failed), name="reclick-read", daemon=True
    )
    worker.start()
    try:
        while (item := ready.get()) is not END:
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        on_stop()
        _drain(ready)
        worker.join()
    if failed:
        raise failed[0]


def _work(
    items: Iterator[Item],
    ready: queue.Queue[object],
    stop: threading.Event,
    failed: list[BaseException],
) -> None:
    try:
        for item in items:
            if not _put(item, ready, stop):
                break
    except BaseException as error:  # the consumer's thread raises it
        failed.append(error)
    finally:
        close = getattr(items, "close", None)
        if close:
            close()
        _put(END, ready, stop)


def _put(item: object, ready: queue.Queue[object], stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False


def _drain(ready: queue.Queue[object]) -> None:
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        return
