"""Arguments that make no sense, of every public function and method in turn: only ReclickErrors.

The numbers of findings are those of the reliability campaign.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import reclick as rc
from tests.support.public_calls import HOSTILE, LOG, PAGES, public_calls, wrong_offsets
from torture.children import run_in_child

SLICES = 8  # so that several workers share them
PER_ARGUMENT = 3  # hostile values; all of them with RECLICK_HOSTILE=all, and in `make torture`
# What not every model answers, or cannot do twice: refused with right arguments too.
MAY_REFUSE = re.compile(
    r".*\.(check_uses_history|noise_prob|update)|BucketedModel\.fit|SparkEngine|register"
)


@pytest.fixture(scope="module")
def model() -> Any:
    return rc.UBM().fit(LOG)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reclick.datasets.cache_folder", lambda: tmp_path / "cache")


def hostile_values(call: int, argument: int, many: int) -> list[str]:
    """Some of the hostile values, others for each argument."""
    titles = list(HOSTILE)
    if os.environ.get("RECLICK_HOSTILE") == "all":
        return titles
    return [titles[(17 * call + 7 * argument + 11 * n) % len(titles)] for n in range(many)]


def test_every_public_callable_has_arguments_that_are_right() -> None:
    """A callable without an entry in the table is a LookupError."""
    names = {call.name for call in public_calls()}
    assert len(names) > 400
    for name in rc.__all__:
        what = getattr(rc, name)
        if callable(what) and not isinstance(what, type):
            assert name in names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(SLICES))
def test_hostile_arguments_raise_only_errors_of_reclick(part: int) -> None:
    """Findings 21 and 22, and every argument of every public callable."""
    wrong: dict[str, str] = {}
    for number, call in list(enumerate(public_calls()))[part::SLICES]:
        is_model = isinstance(owner := getattr(rc, call.name.split(".")[0]), type) and (
            issubclass(owner, rc.ClickModel) and owner is not rc.UBM
        )
        try:
            call.run()
        except rc.CannotAnswerError:
            pass
        except rc.ReclickError as error:
            if not MAY_REFUSE.fullmatch(call.name):
                wrong[call.name] = str(error)
        for place, argument in enumerate(call.valid):
            for title in hostile_values(number, place, 1 if is_model else PER_ARGUMENT):
                breach = call.find_breach({argument: title})
                if breach is not None:
                    wrong[f"{call.name}({argument}={title})"] = breach
    assert wrong == {}


def test_a_damaged_table_is_not_printed_nor_taken_apart() -> None:
    """Its repr, and a list of its columns, may crash: no message may hold them."""
    wrong = wrong_offsets()

    def call_all() -> list[str]:
        return [
            str(call.find_breach({argument: "offsets outside"}))
            for call in public_calls()
            if call.name in {"to_ranx", "UBM", "UBM.rank_sequences", "convert", "datasets.market"}
            for argument in call.valid
        ]

    with pytest.raises(rc.SettingError, match=r"top: got a pyarrow.Table, expected") as error:
        rc.Predictor(rc.UBM().fit(LOG), top=wrong)
    assert error.value.got is wrong
    outcome = run_in_child(call_all)
    assert outcome.status == "done", outcome
    assert set(outcome.value) == {"None"}


# ---- 21: the list


def test_what_is_no_model_is_named(model: Any) -> None:
    """Finding 21."""
    for call in (
        lambda: rc.judgments("x"),  # type: ignore[arg-type]
        lambda: rc.predict("x", PAGES, "out.parquet"),  # type: ignore[arg-type]
        lambda: rc.monitor("x", LOG),  # type: ignore[arg-type]
    ):
        with pytest.raises(rc.SettingError, match="model: got 'x'"):
            call()
    counts = rc.count(LOG)
    for change in (lambda: counts + 5, lambda: counts - None):  # type: ignore[operator]
        with pytest.raises(rc.UsageError, match=r"Counts are added to and subtracted from"):
            change()


def test_a_relation_or_a_lazy_frame_that_fails_is_an_error() -> None:
    """Finding 21: errors of DuckDB and Polars came through."""
    failing = duckdb.sql(
        "SELECT CASE WHEN range > 3 THEN error('boom') ELSE 'q' END AS query, ['a'] AS ads, "
        "[1] AS clicks FROM range(10)"
    )
    frame = pl.LazyFrame({"query": ["a"], "ads": [["x"]], "clicks": [[1]]})
    lazy = frame.with_columns(pl.col("query").cast(pl.Int64).alias("number"))
    for source in (failing, lazy, frame.with_columns(pl.col("nothing"))):
        with pytest.raises(rc.LogError, match="could not be read to the end"):
            rc.count(source)


def test_tables_that_arrow_refuses_are_an_error() -> None:
    """Finding 21: pandas with two columns of one name, and sparse ones."""
    sparse = pd.DataFrame(LOG | {"weight": pd.arrays.SparseArray([1.0] * 4)})
    for frame in (HOSTILE["two columns of one name"](), sparse):
        with pytest.raises(rc.LogError, match="cannot be read through Arrow"):
            rc.count(frame)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": 1e999}', "[]", "null", "\x00"])
def test_a_manifest_of_any_text_is_refused(tmp_path: Path, text: str) -> None:
    """Finding 21: RecursionError, OverflowError."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    for load in (rc.load, rc.Counts.load):
        with pytest.raises(rc.StoreError, match="cannot be read"):
            load(folder)


# ---- 22: nothing is misread without a word


def test_an_empty_path_and_a_file_listed_twice_are_refused(tmp_path: Path) -> None:
    """Finding 22: the current folder was read, and the file counted twice."""
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"query": "q", "ads": ["a"], "clicks": [1]}) + "\n"
    )
    with pytest.raises(rc.LogError, match="The path to read is empty"):
        rc.read_sessions("")
    for files in (["a.jsonl", "a.jsonl"], ["a.jsonl", str(tmp_path / "a.jsonl")], ["*.jsonl"] * 2):
        with pytest.raises(rc.LogError, match=r"a\.jsonl is listed twice"):
            rc.read_sessions(files)


def test_text_is_not_a_list_of_ads(model: Any) -> None:
    """Finding 22: its letters were taken for ads."""
    with pytest.raises(rc.UsageError, match="give its query and its ads"):
        model.rank_sequences("q", "xy")


def test_messages_are_short_and_show_control_characters() -> None:
    """Finding 22: 15,000 characters of names, and escape sequences as they are."""
    wide: dict[str, list[int]] = {f"{'x' * 500}{number}": [1] for number in range(1000)}
    with pytest.raises(rc.LogError) as caught:
        rc.read_sessions(wide)
    assert len(str(caught.value)) < 3000
    with pytest.raises(rc.LogError, match=r"a\\x1b\[31mred"):
        rc.read_sessions({"a\x1b[31mred": [1]})
