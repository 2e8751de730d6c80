"""A file of somebody else, or the log itself, is never replaced or deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc

LOG = {
    "query": ["q"] * 3,
    "ads": [["a", "b"]] * 3,
    "clicks": [[1], [], [2]],
    "part": ["history", "train", "test"],
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    pq.write_table(pa.table(LOG), tmp_path / "train.parquet")
    return tmp_path / "train.parquet"


def same(path: Path) -> Path:
    return path


def symbolic_link(path: Path) -> Path:
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    return link


def hard_link(path: Path) -> Path:
    link = path.with_name("hard.parquet")
    os.link(path, link)
    return link


@pytest.mark.parametrize("name", [same, symbolic_link, hard_link])
def test_predictions_and_conversions_do_not_replace_the_log(
    log: Path, name: Callable[[Path], Path]
) -> None:
    model, before, target = rc.DCTR().fit(LOG), log.read_bytes(), name(log)
    with pytest.raises(rc.UsageError, match="is the log itself"):
        rc.predict(model, log, target)
    with pytest.raises(rc.UsageError, match="is the log itself"):
        rc.convert(log, target)
    assert log.read_bytes() == before


def test_parts_do_not_replace_the_log(log: Path) -> None:
    before = log.read_bytes()
    with pytest.raises(rc.UsageError, match="is the log itself"):
        rc.split(log, log.parent, by="part")
    assert log.read_bytes() == before
    assert sorted(path.name for path in log.parent.iterdir()) == ["train.parquet"]


def test_the_text_of_the_ads_is_not_replaced(log: Path) -> None:
    model, to = rc.DCTR().fit(LOG), log.parent / "parts"
    theirs = to / "train.parquet"
    to.mkdir()
    pq.write_table(pa.table({"ad": ["a"], "title": ["mine"]}), theirs)
    before = theirs.read_bytes()
    for pages, text in ((log, theirs), (rc.read_sessions(log, ads=str(theirs)), None)):
        with pytest.raises(rc.UsageError, match="is the text of the ads"):
            rc.predict(model, pages, theirs, text=text, overwrite=True)
    with pytest.raises(rc.UsageError, match="is the text of the ads"):
        rc.split(log, to, by="part", ads=theirs, overwrite=True)
    assert theirs.read_bytes() == before
    assert sorted(path.name for path in to.iterdir()) == ["train.parquet"]


def test_nothing_is_written_into_the_folder_of_a_model(log: Path) -> None:
    model, folder = rc.DCTR().fit(LOG), log.parent / "model"
    model.save(folder)
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with pytest.raises(rc.UsageError, match="in the folder of a model"):
        rc.export(model, folder / "manifest.json", format="opensearch", overwrite=True)
    with pytest.raises(rc.UsageError, match="in the folder of a model"):
        rc.simulate(50, queries=5).save(folder)
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before


def test_another_manifest_is_no_model(log: Path) -> None:
    log.with_name("manifest.json").write_text('{"name": "an app"}', encoding="utf-8")
    target = log.with_name("predictions.parquet")
    assert rc.predict(rc.DCTR().fit(LOG), log, target).pages == 3


def test_an_ads_table_of_somebody_else_stays(log: Path) -> None:
    target, theirs = log.with_name("s.parquet"), log.with_name("s.ads.parquet")
    pq.write_table(pa.table({"ad": ["a"], "title": ["mine"]}), theirs)
    before = theirs.read_bytes()
    with pytest.raises(rc.UsageError, match="did not write it"):
        rc.convert(log, target)
    assert theirs.read_bytes() == before
    assert not target.exists()
