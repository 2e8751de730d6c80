from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reclick.runtime.prefetch import read_ahead


def running() -> int:
    return sum(thread.name == "reclick-read" for thread in threading.enumerate())


def endless(closed: list[bool]) -> Iterator[int]:
    try:
        number = 0
        while True:
            yield number
            number += 1
    finally:
        closed.append(True)


def test_items_come_in_their_order() -> None:
    assert list(read_ahead(iter(range(100)))) == list(range(100))
    assert running() == 0


def test_the_next_item_is_made_while_the_consumer_works() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        made.set()
        yield 2

    ahead = read_ahead(items())
    assert next(ahead) == 1
    assert made.wait(5)
    assert list(ahead) == [2]


def test_an_error_comes_through_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="disk"):
        next(ahead)
    assert running() == 0


def test_a_consumer_that_stops_early_ends_the_thread_and_closes_the_source() -> None:
    closed: list[bool] = []
    ahead = read_ahead(endless(closed))
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert closed == [True]
    assert running() == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_in_the_consumer_ends_the_thread(error: type[BaseException]) -> None:
    closed: list[bool] = []

    def consume() -> None:
        for _ in read_ahead(endless(closed)):
            raise error

    with pytest.raises(error):
        consume()
    assert closed == [True]
    assert running() == 0
