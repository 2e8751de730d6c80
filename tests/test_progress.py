"""Who is told how far a fit is, and what."""

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

from reclick.evaluation import evaluate
from reclick.models import MODELS, LuceClick
from reclick.runtime.progress import listening
from tests.support.enumeration import as_table, random_sessions

LOG = as_table(random_sessions(np.random.default_rng(3), 300))
LOOPS = [name for name, model in MODELS.items() if "max_iterations" in model().get_params()]


def looping(name: str, iterations: int) -> Any:
    made: Any = MODELS[name]
    return made(max_iterations=iterations, tolerance=0)


def heard(model: Any) -> list[tuple[str, int]]:
    said: list[tuple[str, int]] = []
    with listening(lambda what, done, total: said.append((what, done))):
        model.fit(LOG)
    return said


@pytest.mark.parametrize("name", LOOPS)
def test_a_fit_that_iterates_tells_each_iteration_to_the_last(name: str) -> None:
    told = [done for what, done in heard(looping(name, 4)) if what == "iterations"]
    assert told[-3:] == [2, 3, 4]


def test_a_fit_that_decides_tells_how_many_settings_it_tried_before_it_iterates() -> None:
    said = heard(LuceClick(kinds=1, satisfaction_strength=5.0, transition_strength=4.0))
    tried = [done for what, done in said if what == "settings tried"]
    assert tried == list(range(1, len(tried) + 1))
    assert len(tried) > 5
    assert [what for what, _ in said] == sorted((what for what, _ in said), reverse=True)


def test_nobody_is_told_after_listening_or_where_another_listens() -> None:
    outer: list[str] = []
    inner: list[str] = []
    model = looping("ubm", 1)

    def stopped() -> None:
        with listening(lambda what, done, total: inner.append(what)):
            model.fit(LOG)
            raise KeyboardInterrupt

    with listening(lambda what, done, total: outer.append(what)):
        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert (len(inner), len(outer)) == (1, 0)
        model.fit(LOG)
    model.fit(LOG)
    assert (len(inner), len(outer)) == (1, 1)


def test_an_evaluation_tells_how_far_its_fits_are() -> None:
    said: list[tuple[str, int, int | None]] = []
    models = {
        "U": looping("ubm", 3),
        "L": LuceClick(kinds=1, satisfaction_strength=5.0, transition_strength=4.0),
    }
    evaluate(models, LOG, train=LOG, resamples=100, progress=lambda *told: said.append(told))
    assert [told[1:] for told in said if told[0] == "Fitting U"] == [
        (0, None),
        (1, None),
        (2, None),
        (3, None),
        (4, 4),
    ]
    luce = [told[1:] for told in said if told[0] == "Fitting L"]
    assert [done for done, _ in luce] == list(
        range(len(luce))
    )  # settings tried, then iterations, and never back
    assert luce[-1] == (len(luce) - 1, len(luce) - 1)


def test_on_a_terminal_the_command_shows_settings_and_iterations(tmp_path: Path) -> None:
    pq.write_table(LOG, tmp_path / "log.parquet")
    command = [
        sys.executable,
        "-m",
        "reclick",
        "fit",
        "log.parquet",
        "--model",
        "luceclick",
        "--set",
        "kinds=1",
        "--to",
        "model",
    ]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    ):
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert "Fitting luceclick: settings tried" in shown
    assert "Fitting luceclick: iterations" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when nobody writes any more
        return b""
