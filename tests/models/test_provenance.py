"""What a model has seen: a day that comes twice is refused, and the daily job goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reclick as rc
from reclick.models.provenance import TOTAL_SAMPLE_SIZE, provenance_to_table, to_seen_logs
from tests.support.dated_logs import day

MODELS = [rc.MultiClick(), rc.LuceClick(tune="off", components=1, max_iterations=3)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_same_day_twice_is_refused_and_changes_nothing(
    model: rc.ClickModel, tmp_path: Path
) -> None:
    fitted = model.clone().fit(day(1)).update(day(2))
    fitted.save(tmp_path / "model")
    before = fitted.relevance()
    for each in (fitted, rc.load(tmp_path / "model")):
        for seen in (1, 2):
            with pytest.raises(
                rc.SeenLogError, match=r"seen before. All of its sessions .* again=True"
            ):
                each.update(day(seen))
        assert each.relevance().equals(before)
        assert [(seen.use, seen.log.sessions) for seen in each.provenance_] == [
            ("fit", 120),
            ("update", 120),
        ]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_day_is_added_again_when_it_is_asked_for(model: rc.ClickModel) -> None:
    fitted = model.clone().fit(day(1)).update(day(1), again=True)
    assert fitted.training_counts.total == 240
    assert len(fitted.provenance_) == 2


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_day_that_is_part_of_a_week_is_recognised(model: rc.ClickModel) -> None:
    week = pa.concat_tables([day(number) for number in range(1, 8)])
    fitted = model.clone().fit(week)
    with pytest.raises(rc.SeenLogError, match=r"table: seen before. All of its sessions"):
        fitted.update(day(5))
    half = pa.concat_tables([day(7), day(8)])
    with pytest.raises(rc.SeenLogError, match=r"About [45]\d % of its sessions"):
        fitted.update(half)
    assert len(fitted.update(day(8)).provenance_) == 2


def test_days_without_times_are_refused_only_as_a_whole() -> None:
    week = pa.concat_tables([day(number, times=False) for number in range(1, 8)])
    fitted = rc.MultiClick().fit(week)
    with pytest.raises(rc.SeenLogError):
        fitted.update(week)
    assert fitted.update(day(5, times=False)).training_counts.total == 960


def test_counts_remember_their_logs(tmp_path: Path) -> None:
    rc.count(day(1)).save(tmp_path / "day1")
    model = rc.MultiClick().fit(day(1))
    with pytest.raises(rc.SeenLogError):
        model.update(tmp_path / "day1")
    both = rc.count(day(1)) + rc.count(day(2))
    assert [log.period for log in both.logs] == ["2026-03-01", "2026-03-02"]
    assert [log.period for log in (both - rc.count(day(1))).logs] == ["2026-03-02"]


def test_a_day_that_was_subtracted_may_come_again() -> None:
    model = rc.MultiClick().fit(day(1)).update(day(2), forget=day(1))
    assert [each.log.period for each in model.provenance_] == ["2026-03-02"]
    assert model.update(day(1)).training_counts.total == 240


def test_a_history_may_be_added_later() -> None:
    model = rc.MultiClick().fit(day(2), history=day(1))
    assert [each.use for each in model.provenance_] == ["fit", "history"]
    assert len(model.update(day(1)).provenance_) == 3


def test_the_manifest_has_the_logs(tmp_path: Path) -> None:
    import json

    rc.DCTR().fit(day(1)).save(tmp_path / "model")
    (seen,) = json.loads((tmp_path / "model" / "manifest.json").read_text())["settings"][
        "provenance"
    ]
    assert seen["name"] == "table"
    assert seen["sessions"] == 120
    assert seen["use"] == "fit"
    assert seen["start"].startswith("2026-03-01T")
    assert seen["end"].startswith("2026-03-01T")
    assert seen["date"][:3] == "202"
    assert len(seen["content"]) == 16


def test_samples_of_many_days_stay_small() -> None:
    record = rc.count(day(1, 9000)).logs[0]
    assert len(record.sample.keys) > 5000
    year = to_seen_logs([record] * 365, "update")
    table = provenance_to_table(year)
    assert sum(map(len, table["keys"])) <= TOTAL_SAMPLE_SIZE


def test_a_model_saved_without_provenance_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reclick.runtime import artifact

    write = artifact.write

    def write_as_before(folder: Path, *, settings: dict[str, Any], **rest: Any) -> None:
        del settings["provenance"], rest["tables"]["provenance"]
        write(folder, settings=settings, **rest)

    monkeypatch.setattr(artifact, "write", write_as_before)
    rc.MultiClick().fit(day(1)).save(tmp_path / "old")
    loaded = rc.load(tmp_path / "old")
    assert loaded.provenance_ == ()
    assert len(loaded.update(day(1)).provenance_) == 1
