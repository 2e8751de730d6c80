"""Data sets: the same data from the cache as made anew."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reclick as rc
from reclick import datasets
from reclick.runtime.jit import cache_folder

SMALL: dict[str, Any] = {"sessions": 300, "weeks": 2, "queries": 15}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of data sets, empty."""
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path / "kernels")
    return tmp_path / "datasets"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, pa.Table):
        return bool(one.column_names == other.column_names and one.to_pydict() == other.to_pydict())
    if isinstance(one, list):
        return all(map(same, one, other)) and len(one) == len(other)
    if isinstance(one, rc.Truth | rc.Simulation):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def test_the_cached_market_is_the_simulated_one(folder: Path) -> None:
    made = rc.datasets.market(**SMALL)
    (kept,) = folder.iterdir()
    stamp = (kept / "truth.json").stat().st_mtime_ns
    read = rc.datasets.market(**SMALL)
    assert same(made, read)
    assert made.weeks[0].equals(read.weeks[0])
    assert same(read, rc.simulate(300, weeks=2, queries=15))
    assert (kept / "truth.json").stat().st_mtime_ns == stamp
    assert list(folder.iterdir()) == [kept]


def test_other_arguments_and_another_version_of_the_simulation_are_other_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rc.datasets.market(**SMALL)
    other = rc.datasets.market(**SMALL, seed=1)
    assert not same(one.weeks, other.weeks)
    monkeypatch.setattr(datasets, "_simulation_source", lambda: b"changed")
    rc.datasets.market(**SMALL)
    assert len(list(folder.iterdir())) == 3


def test_a_damaged_copy_is_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = rc.datasets.market(**SMALL)
    (kept,) = folder.iterdir()
    (kept / "ads.parquet").write_bytes(b"broken")
    with caplog.at_level(logging.WARNING, "reclick"):
        assert same(made, rc.datasets.market(**SMALL))
    assert "is damaged" in caplog.text
    assert same(made, rc.datasets.market(**SMALL))


@pytest.fixture
def blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be written."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path / "file" / "kernels")


@pytest.mark.usefixtures("blocked")
def test_without_room_the_data_is_made_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reclick"):
        assert len(rc.datasets.market(**SMALL).weeks) == 2
    assert "cannot be kept" in caplog.text


def test_without_a_cache_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "cache_folder", lambda: None)
    assert len(rc.datasets.market(**SMALL).weeks) == 2


def test_data_sets_are_kept_beside_compiled_kernels() -> None:
    kernels = cache_folder()
    found = datasets._dataset_folder("market", {"sessions": 1})
    assert found is None if kernels is None else found.parent == kernels.parent / "datasets"  # type: ignore[union-attr]
