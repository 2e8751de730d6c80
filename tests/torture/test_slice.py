"""A small, fixed part of every campaign of `make torture`, and that the campaigns can fail."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import reclick as rc
from torture.__main__ import format_table
from torture.bombs import BOMBS, Bombs, _count, many_members
from torture.campaign import Campaign, Failure, shrink
from torture.children import run_in_child
from torture.commands import CrashesAtSteps, FilesOfOthers, FullDisks, Kills, WritingCampaign
from torture.folders import ForgedEvaluations, ForgedFolders
from torture.logs import DamagedLogs, DamagedTables
from torture.numerics import Numerics
from torture.places import OddPlaces
from torture.rivals import Rivals
from torture.runner import Worker, add_tallies

SEED = 20261118
COMMANDS = {"split", "convert", "export qrels", "count"}
SLICE: list[tuple[type[Campaign], int]] = [
    (DamagedLogs, 40),
    (DamagedTables, 20),
    (ForgedFolders, 25),
    (ForgedEvaluations, 6),
    (Rivals, 2),
    (Numerics, 12),
    (Bombs, 2),
    (OddPlaces, 8),
]
WRITING: list[tuple[type[WritingCampaign], int]] = [
    (CrashesAtSteps, 20),
    (Kills, 8),
    (FullDisks, 8),
    (FilesOfOthers, 10),
]
FEW_MODELS = ("luceclick", "dbn", "multiclick", "scan")


def run_slice(campaign: Campaign, attempts: int, folder: Path) -> None:
    worker = Worker(folder / "work", SEED, 0, 1)
    failures = [worker.attempt(campaign, folder) for _ in range(attempts)]
    assert [each for each in failures if each is not None] == []


@pytest.fixture
def frugal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECLICK_THREADS", "1")
    monkeypatch.setattr("torture.campaign.SHRINK_ATTEMPTS", 5)
    monkeypatch.setattr(Bombs, "megabytes", (2, 8))
    monkeypatch.setattr(rc, "MODELS", {name: rc.MODELS[name] for name in FEW_MODELS})


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize(("kind", "attempts"), SLICE, ids=[kind.name for kind, _ in SLICE])
def test_a_slice_of_the_torture_is_withstood(
    kind: type[Campaign], attempts: int, tmp_path: Path
) -> None:
    campaign = kind()
    (tmp_path / "prepared").mkdir()
    campaign.prepare(tmp_path / "prepared")
    run_slice(campaign, attempts, tmp_path)


def test_the_members_of_an_archive_are_read(tmp_path: Path) -> None:
    """Its bomb says nothing if the archive is refused unread."""
    assert many_members in BOMBS.values()
    assert _count(many_members(tmp_path, 1 << 20)) == 32


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    campaign = Kills()
    campaign.commands = [each for each in campaign.commands if each.name in COMMANDS]
    campaign.prepare(tmp_path_factory.mktemp("prepared"))
    return vars(campaign)


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize(("kind", "attempts"), WRITING, ids=[kind.name for kind, _ in WRITING])
def test_commands_that_are_cut_short_leave_the_old_files_or_the_new(
    kind: type[WritingCampaign], attempts: int, tmp_path: Path, prepared: dict[str, Any]
) -> None:
    campaign = kind()
    vars(campaign).update(prepared)
    run_slice(campaign, attempts, tmp_path)


class Broken(Campaign):
    """A campaign that fails at every third attempt."""

    name = "broken"

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        (folder / "input").write_bytes(rng.randbytes(4))
        return Failure("crash", "as expected") if rng.random() < 0.3 else None


def test_failures_are_counted_kept_and_repeated_by_their_seed(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        worker = Worker(tmp_path / name, 1, 0, 1)
        (tmp_path / name).mkdir()
        found.append([worker.attempt(Broken(), tmp_path) is not None for _ in range(20)])
        worker._save()
    assert found[0] == found[1]
    total = add_tallies(tmp_path / "a", 1)
    assert total["broken"]["failures"] == {"crash": sum(found[0])}
    assert f"{sum(found[0])} crash" in format_table(total)
    kept = sorted((tmp_path / "a" / "failures").iterdir())
    assert len(kept) == sum(found[0]) > 0
    assert (kept[0] / "input").read_bytes() == (
        tmp_path / "b" / "failures" / kept[0].name / "input"
    ).read_bytes()
    assert "as expected" in (kept[0] / "FAILURE.txt").read_text()


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    first = Worker(tmp_path, 1, 0, 2)
    for _ in range(3):
        first.attempt(Broken(), tmp_path)
    first._save()
    again = Worker(tmp_path, 1, 0, 2)
    assert again.state["broken"]["next"] == 6
    assert again.state["broken"]["tries"] == 3


def test_a_failing_input_is_shrunk() -> None:
    assert shrink(b"x" * 50 + b"BAD" + b"y" * 70, lambda content: b"BAD" in content) == b"BAD"


def test_children_report_how_they_ended() -> None:
    def fail() -> None:
        raise KeyError("no ReclickError")

    def refuse() -> None:
        raise rc.LogError("on purpose")

    assert run_in_child(lambda: 7).value == 7
    assert run_in_child(refuse).status == "refused"
    assert run_in_child(fail).status == "traceback"
    aborted = run_in_child(os.abort)
    assert aborted.status == "killed"
    assert "test_children_report_how_they_ended" in aborted.message
    assert run_in_child(lambda: bytearray(300 << 20) and None).peak > 250 << 20
