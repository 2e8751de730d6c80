"""Dictionary codes and offsets out of range, in any column: an error, never a crash or a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pytest

import reclick as rc
from tests.support.damaged_arrow import FAR, code_outside, move_offset, write_code_outside
from torture.children import run_in_child

ROWS = 20
LOG: dict[str, Any] = {
    "query": ["q"] * ROWS,
    "ads": [["a", "b"]] * ROWS,
    "clicks": [[1], [2, 1]] * (ROWS // 2),
}
TIMES = ["2026-03-01T00:00:00"] * ROWS
PAIRS: dict[str, Any] = {"query": ["q"] * 2, "ad": ["a", "b"]}
Use = Callable[[Any, rc.ClickModel, Path], object]


@pytest.fixture(scope="module")
def model() -> rc.ClickModel:
    return rc.UBM(max_iterations=2).fit(LOG)


USES: dict[str, tuple[dict[str, Any], str, Use]] = {
    "predict, an extra column": (
        LOG | {"extra": ["x"] * ROWS},
        "extra",
        lambda log, model, to: rc.predict(model, log, to / "out.parquet"),
    ),
    "predict to CSV": (
        LOG | {"extra": ["x"] * ROWS},
        "extra",
        lambda log, model, to: rc.predict(model, log, to / "out.csv"),
    ),
    "convert": (
        LOG | {"extra": ["x"] * ROWS},
        "extra",
        lambda log, _, to: rc.convert(log, to / "out.parquet"),
    ),
    "cleaning": (
        LOG | {"user": ["u"] * ROWS, "timestamp": TIMES},
        "user",
        lambda log, _, to: rc.convert(
            log, to / "out.parquet", cleaning=rc.Cleaning(max_pages_per_hour=5)
        ),
    ),
    "describe": (LOG | {"timestamp": TIMES}, "timestamp", lambda log, *_: rc.describe(log)),
    "count": (LOG | {"timestamp": TIMES}, "timestamp", lambda log, *_: rc.count(log)),
    "split": (
        LOG | {"part": ["train"] * ROWS},
        "part",
        lambda log, _, to: rc.split(log, to / "parts", by="part"),
    ),
    "noise of users": (
        LOG | {"user": ["u"] * ROWS},
        "user",
        lambda log, *_: rc.PBM(noise="user", max_iterations=2).fit(log),
    ),
    "ads": (
        {"ad": ["a", "b"], "title": ["t"] * 2},
        "title",
        lambda ads, *_: rc.UBM(max_iterations=2).fit(LOG, ads=ads),
    ),
    "labels": (PAIRS | {"relevance": [1, 2]}, "query", lambda table, *_: rc.read_labels(table)),
    "bids": (PAIRS | {"bid": [1, 2]}, "query", lambda table, *_: rc.read_bids(table)),
    "pairs": (
        PAIRS,
        "query",
        lambda table, model, to: rc.export(model, to / "out.qrels", pairs=table),
    ),
    "judgments": (PAIRS | {"grade": [1, 2]}, "query", lambda table, *_: rc.read_judgments(table)),
}


def use_all(make: Callable[[str], Any], model: rc.ClickModel, folder: Path) -> dict[str, str]:
    """How each use ends that is not an error of Reclick, or that leaves a file."""

    def run_all() -> dict[str, str]:
        breaches = {}
        for number, (name, (_, _, use)) in enumerate(USES.items()):
            to = folder / str(number)
            to.mkdir()
            try:
                use(make(name), model, to)
                breaches[name] = "no error"
            except rc.LogError as error:
                if "outside its dictionary" not in str(error) or any(to.rglob("*.*")):
                    breaches[name] = str(error)
            except Exception as error:
                breaches[name] = repr(error)
        return breaches

    outcome = run_in_child(run_all)  # a crash does not end the tests
    assert outcome.status == "done", outcome
    breaches: dict[str, str] = outcome.value
    return breaches


def test_codes_outside_the_dictionary_of_any_column_of_a_file_are_errors(
    model: rc.ClickModel, tmp_path: Path
) -> None:
    def write(name: str) -> Path:
        columns, column, _ = USES[name]
        path = tmp_path / f"{list(USES).index(name)}.parquet"
        return write_code_outside(path, columns, column)

    assert use_all(write, model, tmp_path) == {}


def test_codes_outside_the_dictionary_of_any_column_in_memory_are_errors(
    model: rc.ClickModel, tmp_path: Path
) -> None:
    def make(name: str) -> pa.Table:
        columns, column, _ = USES[name]
        return pa.table(columns | {column: code_outside(columns[column])})

    assert use_all(make, model, tmp_path) == {}


@pytest.mark.parametrize("column", ["session_id", "query", "ad", "timestamp"])
def test_codes_outside_the_dictionary_of_a_log_in_another_format_are_errors(
    column: str, tmp_path: Path
) -> None:
    columns = {"session_id": ["s"] * 2, "query": ["q"] * 2, "ad": ["a"] * 2, "position": [1, 2]}
    columns |= {"clicked": [1, 0], "timestamp": TIMES[:2]}
    path = write_code_outside(tmp_path / "log.parquet", columns, column)
    with pytest.raises(rc.LogError, match=f"{column} has a dictionary code outside"):
        rc.read_sessions(path, format="long", on_error="drop")


def test_a_page_to_predict_with_codes_outside_the_dictionary_is_an_error(
    model: rc.ClickModel,
) -> None:
    predictor = rc.Predictor(model)
    for rows in (2, 200):
        pages = pa.record_batch(
            {
                "query": ["q"] * rows,
                "ads": [["a", "b"]] * rows,
                "user": code_outside(["u"] * rows),
            }
        )
        with pytest.raises(rc.LogError, match="the batch is damaged: user has a dictionary code"):
            predictor(pages)


# ---- offsets


def damage_offset(name: str, row: int, offset: int) -> pa.Table:
    table = pa.table(LOG | {"extra": ["x"] * ROWS}).combine_chunks()
    column = move_offset(table[name].chunk(0), row, offset)
    return table.set_column(table.column_names.index(name), name, column)


DAMAGED_OFFSETS = {
    f"{name}, {offset} after row {row}": (name, row, offset)
    for name in ("query", "ads", "clicks", "extra")
    for row, offset in ((3, FAR), (5, 1), (3, -7))
}


@pytest.mark.parametrize("case", DAMAGED_OFFSETS)
def test_offsets_that_are_out_of_range_are_errors(
    case: str, model: rc.ClickModel, tmp_path: Path
) -> None:
    table = damage_offset(*DAMAGED_OFFSETS[case])
    is_read = not case.startswith("extra")
    uses: list[Callable[[], object]] = [
        lambda: rc.predict(model, table, tmp_path / "out.parquet"),
        lambda: rc.predict(model, iter(table.to_batches()), tmp_path / "out.parquet"),
        lambda: rc.Predictor(model)(table.to_batches()[0]),
        lambda: rc.convert(table, tmp_path / "out.parquet"),
    ]
    if is_read:
        uses += [
            lambda: rc.count(table),
            lambda: rc.count(iter(table.slice(1).to_batches())),
        ]
    if case.startswith("ads, 9"):
        uses.append(lambda: rc.count(table, engine=rc.PoolEngine(1)))

    def run_all() -> list[str]:
        breaches = []
        for number, use in enumerate(uses):
            try:
                use()
                breaches.append(f"{number}: no error")
            except rc.LogError as error:
                if "is damaged" not in str(error):
                    breaches.append(f"{number}: {error}")
            except Exception as error:
                breaches.append(f"{number}: {error!r}")
        return breaches

    outcome = run_in_child(run_all)
    assert (outcome.status, outcome.value) == ("done", [])


def test_offsets_that_are_out_of_range_in_a_feather_file_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "log.feather"
    feather.write_feather(pa.table(LOG), path, compression="uncompressed")
    data = path.read_bytes()
    offsets = b"".join((2 * row).to_bytes(4, "little") for row in range(6))  # of ads
    assert data.count(offsets) == 1
    place = data.index(offsets) + 12
    path.write_bytes(data[:place] + FAR.to_bytes(4, "little") + data[place + 4 :])

    def count(source: Any) -> str:
        with pytest.raises(rc.LogError, match="is damaged") as error:
            rc.count(source)
        return str(error.value)

    for source in (feather.read_table(path, memory_map=False), ds.dataset(path, format="ipc")):
        outcome = run_in_child(partial(count, source))
        assert outcome.status == "done", outcome
