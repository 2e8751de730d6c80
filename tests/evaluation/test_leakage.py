"""A model that is tested on its training sessions is refused, or marked wherever it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reclick as rc
from tests.support.dated_logs import day

OPTIONS: dict[str, Any] = {"resamples": 100, "progress": False}
WEEK2 = pa.concat_tables([day(number) for number in range(8, 15)])
WEEK3 = pa.concat_tables([day(number) for number in range(15, 22)])


def test_training_on_the_test_log_is_refused() -> None:
    with pytest.raises(
        rc.SeenLogError, match=r"All test sessions are in the training log.*in_sample=True"
    ):
        rc.evaluate(["dctr"], WEEK3, train=WEEK3, **OPTIONS)
    both = pa.concat_tables([WEEK2, WEEK3])
    with pytest.raises(rc.SeenLogError):
        rc.evaluate(["dctr"], WEEK3, train=both, **OPTIONS)


def test_training_on_the_test_log_is_marked_when_it_is_asked_for() -> None:
    result = rc.evaluate(["dctr", "rctr"], WEEK3, train=WEEK3, in_sample=True, **OPTIONS)
    (warning,) = result.warnings
    assert warning.startswith(
        "DCTR, RCTR were fitted on all of the test sessions: those in table (840"
    )
    assert {about["test_share"] for about in result.details["models"].values()} == {1.0}


def test_a_model_fitted_on_the_test_sessions_is_marked_everywhere(tmp_path: Path) -> None:
    """The trap: fitted on all three weeks, then compared on the third."""
    leaked = rc.DCTR().fit(pa.concat_tables([WEEK2, WEEK3]))
    leaked.save(tmp_path / "m")
    models = {"leaked": rc.load(tmp_path / "m"), "honest": rc.DCTR()}
    result = rc.evaluate(models, WEEK3, train=WEEK2, folder=tmp_path / "work", **OPTIONS)
    (warning,) = result.warnings
    assert warning.startswith("leaked was fitted on all of the test sessions")
    assert result.details["models"]["honest"]["test_share"] == 0
    assert result.value("leaked", "first_click_accuracy") is not None  # by its name as given
    text, markdown = str(result), result.to_markdown()
    assert "leaked †" in text
    assert f"† {warning}" in text
    assert "honest †" not in text
    assert "| leaked † |" in markdown
    assert "> † leaked was fitted" in markdown
    html = result.to_html(tmp_path / "report.html").read_text()
    assert '<p class="warning">† leaked was fitted' in html
    assert "leaked †" in html


def test_a_partial_overlap_is_estimated() -> None:
    train = pa.concat_tables([WEEK2, *(day(number) for number in (15, 16, 17))])
    result = rc.evaluate(["dctr"], WEEK3, train=train, **OPTIONS)
    assert result.details["models"]["DCTR"]["test_share"] == pytest.approx(3 / 7, abs=0.03)
    assert "about 4" in result.warnings[0]


def test_days_that_were_added_one_by_one_add_up() -> None:
    model = rc.MultiClick().fit(WEEK2)
    for number in (15, 16, 17, 18):
        model.update(day(number))
    result = rc.evaluate({"daily": model}, WEEK3, **OPTIONS)
    assert result.details["models"]["daily"]["test_share"] == pytest.approx(4 / 7, abs=0.05)
    assert "and 3 more" in result.warnings[0]


def test_a_history_that_has_the_test_sessions_is_marked_too() -> None:
    model = rc.MultiClick().fit(WEEK2, history=WEEK3)
    result = rc.evaluate({"m": model}, WEEK3, **OPTIONS)
    assert "; history on" in result.warnings[0]


def test_honest_models_have_no_warning() -> None:
    result = rc.evaluate({"a": rc.DCTR().fit(WEEK2), "b": rc.RCTR()}, WEEK3, train=WEEK2, **OPTIONS)
    assert result.warnings == []
    assert "†" not in str(result)


def test_a_leak_is_found_without_times() -> None:
    names = ["query", "ads", "clicks"]
    numbered = WEEK3.select(names).set_column(
        0,
        "query",
        pa.array([f"{each}-{i % 400}" for i, each in enumerate(WEEK3["query"].to_pylist())]),
    )
    other = numbered.set_column(0, "query", pa.array([f"x{i}" for i in range(len(numbered))]))
    model = rc.DCTR().fit(pa.concat_tables([other, numbered]))
    assert rc.evaluate({"m": model}, numbered, **OPTIONS).warnings
    assert not rc.evaluate({"m": rc.DCTR().fit(other)}, numbered, **OPTIONS).warnings
