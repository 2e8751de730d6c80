"""Runs campaigns for some minutes in several processes, counts, and can continue later."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from torture.arguments import HostileArguments
from torture.bombs import Bombs
from torture.campaign import Campaign, Failure
from torture.commands import CrashesAtSteps, FilesOfOthers, FullDisks, Kills
from torture.folders import ForgedEvaluations, ForgedFolders
from torture.logs import DamagedLogs, DamagedTables
from torture.numerics import Numerics
from torture.places import OddPlaces
from torture.rivals import Rivals

CAMPAIGNS: list[type[Campaign]] = [
    *(DamagedLogs, DamagedTables, Bombs, ForgedFolders, ForgedEvaluations, CrashesAtSteps, Kills),
    *(FullDisks, FilesOfOthers, OddPlaces, Rivals, Numerics, HostileArguments),
]
TURN_SECONDS = 8.0  # time of one campaign before the next one
Tally = dict[str, Any]  # of a campaign: next attempt, tries, seconds, failures by kind


class Worker:
    """One process, which makes its share of the attempts of every campaign."""

    def __init__(self, folder: Path, seed: int, number: int, workers: int) -> None:
        self.folder, self.seed, self.number, self.workers = folder, seed, number, workers
        self.state_path = folder / f"worker-{number}.json"
        self.state: dict[str, Tally] = {}
        if self.state_path.exists():
            self.state = json.loads(self.state_path.read_text(encoding="utf-8"))

    def run(self, seconds: float, campaigns: list[type[Campaign]]) -> None:
        """Run the campaigns in turn until the time is over."""
        with tempfile.TemporaryDirectory(prefix="torture-") as name:
            scratch = Path(name)
            ready: dict[str, Campaign] = {}
            while self.measure_time() < seconds:
                kind = min(campaigns, key=self._weight)
                if kind.name not in ready:
                    ready[kind.name] = self._prepare(kind, scratch)
                end = time.monotonic() + min(TURN_SECONDS, seconds - self.measure_time())
                while time.monotonic() < end:
                    self.attempt(ready[kind.name], scratch)
                self._save()

    def measure_time(self) -> float:
        """Sum the seconds of all attempts so far."""
        return float(sum(tally["seconds"] for tally in self.state.values()))

    def _weight(self, kind: type[Campaign]) -> float:
        return float(self._tally(kind.name)["seconds"]) / kind.share

    def _tally(self, name: str) -> Tally:
        empty = {"next": self.number, "tries": 0, "seconds": 0.0, "failures": {}}
        return self.state.setdefault(name, empty)

    def _prepare(self, kind: type[Campaign], scratch: Path) -> Campaign:
        campaign, start = kind(), time.monotonic()
        folder = scratch / kind.name
        folder.mkdir()
        campaign.prepare(folder)
        self._tally(kind.name)["seconds"] += time.monotonic() - start
        return campaign

    def attempt(self, campaign: Campaign, scratch: Path) -> Failure | None:
        """Make the next attempt of a campaign."""
        tally = self._tally(campaign.name)
        number, start = tally["next"], time.monotonic()
        folder = scratch / f"{campaign.name} {number}"
        folder.mkdir()
        rng = random.Random(f"{self.seed} {campaign.name} {number}")
        try:
            failure = campaign.attempt(rng, folder)
        except Exception:  # an error of the campaign itself is a failure too
            failure = Failure("campaign", traceback.format_exc(limit=-6))
        if failure is not None:
            tally["failures"][failure.kind] = tally["failures"].get(failure.kind, 0) + 1
            self._keep(campaign.name, number, folder, failure)
        shutil.rmtree(folder, ignore_errors=True)
        tally["next"] += self.workers
        tally["tries"] += 1
        tally["seconds"] += time.monotonic() - start
        return failure

    def _keep(self, name: str, number: int, folder: Path, failure: Failure) -> None:
        """Save the input of a failure and its message."""
        place = self.folder / "failures" / f"{name} {number}".replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        with contextlib.suppress(OSError):  # a killed child may still remove files
            shutil.copytree(folder, place, symlinks=True, dirs_exist_ok=True)
        text = f"{failure.kind}\n\n{failure.message}\n"
        (place / "FAILURE.txt").write_text(text, encoding="utf-8", errors="replace")
        sys.stdout.write(f"{name} {number}: {failure.kind}: {failure.message[-300:]}\n")
        sys.stdout.flush()

    def _save(self) -> None:
        temporary = self.state_path.with_suffix(".new")
        temporary.write_text(json.dumps(self.state), encoding="utf-8")
        temporary.replace(self.state_path)


def run_campaigns(
    folder: Path, seed: int, minutes: float, workers: int, names: list[str] | None = None
) -> dict[str, Tally]:
    """Run campaigns until all workers have used their time; returns the totals of all workers."""
    campaigns = [campaign for campaign in CAMPAIGNS if names is None or campaign.name in names]
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_work, args=(folder, seed, number, workers, minutes * 60, campaigns))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    total = add_tallies(folder, workers)
    for process in processes:
        if process.exitcode:
            failures = total.setdefault("worker", {"tries": 0, "seconds": 0.0, "failures": {}})
            failures["failures"]["crash"] = failures["failures"].get("crash", 0) + 1
    return total


def _work(
    folder: Path, seed: int, number: int, workers: int, seconds: float, campaigns: Any
) -> None:
    os.environ["RECLICK_THREADS"] = "1"  # per child, because the workers share the processors
    os.environ["RECLICK_PROGRESS"] = "0"
    logging.getLogger("reclick").setLevel(logging.ERROR)
    Worker(folder, seed, number, workers).run(seconds, campaigns)


def add_tallies(folder: Path, workers: int) -> dict[str, Tally]:
    """Add up the tallies of all workers."""
    total: dict[str, Tally] = {}
    for number in range(workers):
        path = folder / f"worker-{number}.json"
        if not path.exists():
            continue
        for name, tally in json.loads(path.read_text(encoding="utf-8")).items():
            into = total.setdefault(name, {"tries": 0, "seconds": 0.0, "failures": {}})
            into["tries"] += tally["tries"]
            into["seconds"] += tally["seconds"]
            into["failures"] = dict(Counter(into["failures"]) + Counter(tally["failures"]))
    return total
