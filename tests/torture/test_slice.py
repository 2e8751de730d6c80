"""A small, fixed part of every campaign of `make torture`, and that the campaigns can fail."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import reclick as rc
from torture.__main__ import format_table
from torture.campaign import Campaign, Failure, shrink
from torture.children import run_in_child
from torture.commands import CrashesAtSteps, FilesOfOthers, FullDisks, Kills
from torture.folders import ForgedEvaluations, ForgedFolders
from torture.logs import DamagedLogs, DamagedTables
from torture.numerics import Numerics
from torture.rivals import Rivals
from torture.runner import Worker, add_tallies

SEED = 20261118
COMMANDS = {"split", "convert", "export qrels", "count", "predict"}
SLICE: list[tuple[type[Campaign], int]] = [
    (DamagedLogs, 60),
    (DamagedTables, 25),
    (ForgedFolders, 25),
    (ForgedEvaluations, 8),
    (CrashesAtSteps, 25),
    (Kills, 10),
    (FullDisks, 10),
    (FilesOfOthers, 15),
    (Rivals, 2),
    (Numerics, 15),
]


@pytest.mark.parametrize(("kind", "attempts"), SLICE, ids=[kind.name for kind, _ in SLICE])
def test_a_slice_of_the_torture_is_withstood(
    kind: type[Campaign], attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECLICK_THREADS", "1")
    if hasattr(kind, "commands"):
        few = [each for each in kind.commands if each.name in COMMANDS]
        monkeypatch.setattr(kind, "commands", few)
    if kind is ForgedFolders:
        models = {name: rc.MODELS[name] for name in ("luceclick", "ubm", "multiclick")}
        monkeypatch.setattr(rc, "MODELS", models)
    if kind is Numerics:
        models = {name: rc.MODELS[name] for name in ("luceclick", "dbn", "multiclick", "scan")}
        monkeypatch.setattr(rc, "MODELS", models)
    campaign = kind()
    (tmp_path / "prepared").mkdir()
    campaign.prepare(tmp_path / "prepared")
    worker = Worker(tmp_path / "work", SEED, 0, 1)
    failures = [worker.attempt(campaign, tmp_path) for _ in range(attempts)]
    assert [each for each in failures if each is not None] == []


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
    assert run_in_child(os.abort).status == "killed"
    assert run_in_child(lambda: bytearray(300 << 20) and None).peak > 250 << 20
