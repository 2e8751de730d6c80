"""Signals: those that arrive at a bad moment wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

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


def test_a_signal_while_handlers_are_restored_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: lambda number, _: seen.append(number),
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    set_handler = signal.signal

    def set_and_interrupt(number: signal.Signals, handler: Any) -> Any:
        old = set_handler(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)
        return old

    monkeypatch.setattr(signal, "signal", set_and_interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), hold_interrupts():
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM] * 2
    finally:
        for number, handler in before.items():
            set_handler(number, handler)


@pytest.mark.parametrize("handler", [None, signal.SIG_DFL, signal.SIG_IGN])
def test_a_handler_that_is_not_in_python_stays(
    monkeypatch: pytest.MonkeyPatch, handler: Any
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: handler)
    monkeypatch.setattr(signal, "signal", None)
    with hold_interrupts():
        pass


def test_other_threads_hold_nothing() -> None:
    done = []

    def work() -> None:
        with hold_interrupts():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGINT)]


LOST = """
import gc, signal, time, weakref
from reclick.runtime.interrupts import handle_signals, keep_recording, raise_lost_interrupt
class Thing: pass
def library(number, frame):
    calls.append(number)
    raise KeyboardInterrupt
calls, thing = [], Thing()
{handle}
signal.signal(signal.SIGINT, library)
keep_recording()
collected = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
del thing  # Python prints the KeyboardInterrupt of this callback, and goes on
assert calls == [signal.SIGINT]
raise_lost_interrupt()
print("went on")
"""


@pytest.mark.parametrize("is_handled", [True, False])
def test_an_interrupt_that_a_callback_lost_is_raised_later(is_handled: bool) -> None:
    program = LOST.format(handle="handle_signals()" if is_handled else "")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout == "went on\n") == (not is_handled), done.stderr
    assert ("Exception ignored in" in done.stderr) == (not is_handled)
