"""What is reported of long jobs, and who hears of it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.evaluation import evaluate
from reclick.models import MODELS, LuceClick
from reclick.runtime import progress as module
from reclick.runtime.progress import progress_to, report_progress, track_progress
from tests.support.enumeration import as_table, random_sessions
from tests.support.luce_world import PLAIN

LOG = as_table(random_sessions(np.random.default_rng(3), 300))
ITERATIVE = [name for name, model in MODELS.items() if "max_iterations" in model().get_params()]
Reports = list[tuple[str, int, int | None]]


def iterative(name: str, iterations: int) -> Any:
    model: Any = MODELS[name]
    fixed = PLAIN if name == "luceclick" else {}
    return model(max_iterations=iterations, tolerance=0, **fixed)


def searching() -> LuceClick:
    return LuceClick(components=1, satisfaction_strength=5.0, transition_strength=4.0)


def collect(model: Any) -> Reports:
    reports: Reports = []
    with progress_to(lambda *report: reports.append(report)):
        model.fit(LOG)
    return [report for report in reports if report[0] != "sessions"]


# ---- what is reported


@pytest.mark.parametrize("name", ITERATIVE)
def test_a_fit_reports_each_iteration_to_the_last(name: str) -> None:
    done = [done for what, done, _ in collect(iterative(name, 4)) if what == "iterations"]
    assert done[-3:] == [2, 3, 4]


def test_a_search_reports_how_many_hyperparameters_it_tried_before_it_iterates() -> None:
    reports = collect(searching())
    tried = [done for what, done, _ in reports if what == "hyperparameters tried"]
    assert tried == list(range(1, len(tried) + 1))
    assert len(tried) > 5
    names = [what for what, _, _ in reports]
    assert names[-1] == "iterations"
    assert "hyperparameters tried" not in names[names.index("iterations") :]


def test_an_evaluation_reports_its_fits_as_steps() -> None:
    reports: Reports = []
    models = {"U": iterative("ubm", 3), "L": searching()}
    evaluate(
        models,
        LOG,
        train=LOG,
        in_sample=True,
        resamples=100,
        progress=lambda *each: reports.append(each),
    )
    assert [each[1:] for each in reports if each[0] == "Fitting U"] == [
        (0, None),
        (1, None),
        (2, None),
        (3, None),
        (4, 4),
    ]
    luce = [each[1:] for each in reports if each[0] == "Fitting L"]
    assert [done for done, _ in luce] == list(range(len(luce)))  # never back
    assert luce[-1] == (len(luce) - 1, len(luce) - 1)


# ---- who hears of it


def test_a_report_reaches_the_innermost_listener_and_nobody_afterwards() -> None:
    outer: Reports = []
    inner: Reports = []

    def interrupt() -> None:
        with progress_to(lambda *report: inner.append(report)):
            report_progress("rows", 1)
            raise KeyboardInterrupt

    with progress_to(lambda *report: outer.append(report)):
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        assert (len(inner), len(outer)) == (1, 0)
        report_progress("rows", 2)
    report_progress("rows", 3)
    assert (len(inner), len(outer)) == (1, 1)


def test_progress_of_a_public_function_is_named_after_its_task() -> None:
    reports: Reports = []
    rc.count(LOG, progress=lambda *report: reports.append(report))
    assert reports[-1] == ("Counting table: sessions", 300, 300)
    reports.clear()
    iterative("ubm", 2).fit(LOG, progress=lambda *report: reports.append(report))
    assert {what for what, _, _ in reports} == {"Fitting UBM: sessions", "Fitting UBM: iterations"}


def test_false_silences_a_function_and_everything_in_it() -> None:
    reports: Reports = []
    with progress_to(lambda *report: reports.append(report)):
        iterative("ubm", 2).fit(LOG, progress=False)
        assert reports == []
        iterative("ubm", 2).fit(LOG)  # None: whoever listens hears it
    assert reports


# ---- the display


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("reclick.runtime.progress.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv("RECLICK_PROGRESS", raising=False)
    return Clock(monkeypatch)


def work(clock: Clock, seconds: float, steps: int) -> None:
    with track_progress(None, "Fitting X"):
        for step in range(1, steps + 1):
            clock.now += seconds / steps
            report_progress("iterations", step, steps)


def test_a_short_job_shows_nothing(clock: Clock, capfd: pytest.CaptureFixture[str]) -> None:
    work(clock, 1.9, 1000)
    assert capfd.readouterr() == ("", "")


def test_without_a_terminal_a_long_job_writes_a_line_every_eight_seconds(
    clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    work(clock, 32.0, 256)
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 4
    assert lines[0] == "reclick: Fitting X: iterations 64 of 256 (8 s)"


def test_a_line_comes_every_eight_seconds_without_any_report(
    clock: Clock, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes on is run here, with a clock that it moves by waiting."""
    monkeypatch.setattr(module, "thread_limit", lambda: 1)
    lines = module._Lines(clock.now)

    class Closed:
        def wait(self, seconds: float) -> bool:
            clock.now += seconds
            return clock.now > 145

        def is_set(self) -> bool:
            return False

    lines._closed = Closed()  # type: ignore[assignment]
    lines.update("Fitting X: trials", 3, 7, clock.now)
    lines._write_on()
    _, err = capfd.readouterr()
    assert err.splitlines() == [
        f"reclick: Fitting X: trials 3 of 7 ({s} s)" for s in (8, 16, 24, 32, 40)
    ]


def test_the_variable_silences_the_display(
    clock: Clock, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECLICK_PROGRESS", "0")
    work(clock, 32.0, 256)
    assert capfd.readouterr() == ("", "")


def test_in_a_notebook_a_long_job_has_a_bar_from_two_seconds_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Output:
        def update(self, html: Any) -> None:
            shown.append(html.data)

    def display(html: Any, *, display_id: bool) -> Output:
        assert display_id
        return Output()

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    work(clock, 4.0, 32)
    assert shown[0].startswith("<div><progress value='16' max='32'></progress> Fitting X: iter")
    assert len(shown) < 12  # not one per report
    assert shown[-1] == ""


def test_the_display_hears_of_compilations_and_listeners_do_not() -> None:
    reports: Reports = []
    with progress_to(lambda *report: reports.append(report)):
        module.report_compilation()
    assert reports == []


TERMINAL = """
import reclick.runtime.progress as module
module.DISPLAY_DELAY = 0.0
from reclick.runtime.parallel import limit_threads
import threading
with limit_threads({threads}), module.track_progress(None, "Fitting X"):
    for step in range(50):
        module.report_progress("iterations", step, 50)
    assert threading.active_count() == {threads}, threading.enumerate()
print("done")
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_in_a_terminal_there_is_a_bar_that_goes_at_the_end(tmp_path: Path, threads: int) -> None:
    command = [sys.executable, "-c", TERMINAL.format(threads=threads)]
    shown = run_in_terminal(command, tmp_path)
    assert "Fitting X: iterations" in shown
    assert shown.endswith("\x1b[2K")  # the line is cleared


def test_the_command_shows_trials_and_iterations_in_a_terminal(tmp_path: Path) -> None:
    pq.write_table(LOG, tmp_path / "log.parquet")
    fixed = ("components=1", "satisfaction_strength=5", "transition_strength=4")
    options = [part for setting in fixed for part in ("--set", setting)]
    command = [sys.executable, "-m", "reclick", "fit", "log.parquet", "--model", "luceclick"]
    command += [*options, "--to", "model"]
    shown = run_in_terminal(command, tmp_path)
    assert "Fitting LuceClick: hyperparameters tried" in shown
    assert "Fitting LuceClick: iterations" in shown


def run_in_terminal(command: list[str], cwd: Path) -> str:
    """What a command writes to standard error where that is a terminal."""
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "RECLICK_PROGRESS": "1"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=theirs, env=env
    ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert process.returncode == 0, shown
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when nobody writes any more
        return b""
