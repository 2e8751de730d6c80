"""Signals: those that arrive at a bad moment wait."""

from __future__ import annotations

import signal
import threading

import pytest

from reclick.runtime.interrupts import hold_interrupts


def interrupt_and_go_on(done: list[str]) -> None:
    with hold_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")


def test_a_signal_takes_effect_after_what_must_not_be_interrupted() -> None:
    before = signal.getsignal(signal.SIGINT)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupt_and_go_on(done)
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_is_not_hidden_and_the_handlers_are_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="wrong"), hold_interrupts():
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_hold_nothing() -> None:
    done = []

    def work() -> None:
        with hold_interrupts():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGINT)]
