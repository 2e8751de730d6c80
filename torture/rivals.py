"""Concurrent processes: updates of one model, writers of one set of files, and readers."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import reclick as rc
from reclick.errors import ReclickError
from reclick.runtime import artifact
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import Outcome, run_in_child
from torture.inputs import make_log

SECONDS = 1.5


class Rivals(Campaign):
    """Readers see complete states; no update is lost; sets of files are not mixed."""

    name = "rivals"
    share = 2.0

    def prepare(self, folder: Path) -> None:
        """Compile what the processes use."""
        rc.MultiClick().fit(make_log(0, 40)).save(folder / "m")
        rc.load(folder / "m").update(make_log(9, 5))

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Run some processes at once."""
        return rng.choice([update_at_once, replace_and_read, split_at_once])(rng, folder)


def run_together(works: list[Callable[[], object]]) -> list[Outcome]:
    """Run functions at once, each in a separate child."""
    import threading

    outcomes: list[Outcome | None] = [None] * len(works)

    def run(i: int) -> None:
        outcomes[i] = run_in_child(works[i], timeout=120)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcome for outcome in outcomes if outcome is not None]


def update_at_once(rng: random.Random, folder: Path) -> Failure | None:
    """Three processes add days to one model: each day must be added once or refused."""
    rc.MultiClick().fit(make_log(0, 40)).save(folder / "m")
    start = rc.load(folder / "m").training_counts.total
    days = [make_log(10 + i, rng.randint(3, 20)) for i in range(3)]
    sizes = [sum(day["weight"].to_pylist()) for day in days]

    def add(i: int) -> Callable[[], object]:
        def work() -> bool:
            if i % 2:
                with rc.updating(folder / "m") as model:
                    model.update(days[i])
                return True
            for _ in range(50):
                model = rc.load(folder / "m").update(days[i])
                try:
                    model.save(folder / "m")
                except ReclickError:
                    continue
                return True
            return False

        return work

    outcomes = run_together([add(i) for i in range(3)])
    for outcome in outcomes:
        failure = explain_outcome(outcome, "updates at once")
        if failure is not None:
            return failure
    n_added = sum(
        size for size, outcome in zip(sizes, outcomes, strict=True) if outcome.value is True
    )
    total = rc.load(folder / "m").training_counts.total
    if abs(total - start - n_added) > 1e-6:
        return Failure("lost update", f"{total} sessions, expected {start + n_added}")
    return None


def replace_and_read(rng: random.Random, folder: Path) -> Failure | None:
    """Two states replace each other while two processes read: readers must see one of them."""
    counts = [rc.count(make_log(seed, 20 + seed)) for seed in (1, 2)]
    counts[0].save(folder / "c")
    totals = {state.total for state in counts}

    def write() -> int:
        end, writes = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            counts[writes % 2].save(folder / "c", overwrite=True)
            writes += 1
        return writes

    def read() -> int:
        end, reads = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            assert rc.Counts.load(folder / "c").total in totals
            assert artifact.get_kind(folder / "c") == "counts"
            reads += 1
        return reads

    for outcome in run_together([write, read, read]):
        failure = explain_outcome(outcome, "a reader or a writer")
        if failure is not None:
            return failure
        if outcome.status == "refused":
            return Failure("false alarm", outcome.message)
    return None


def split_at_once(rng: random.Random, folder: Path) -> Failure | None:
    """Two processes split different logs into one folder, which is then read."""
    sizes = {}
    logs = []
    for i in range(2):
        log = make_log(i, 30 + 30 * i)
        logs.append(log)
        parts = log["part"].to_pylist()
        sizes[i] = tuple(parts.count(name) for name in ("history", "train", "test"))
    rc.split(logs[0], folder / "parts", by="part")

    def write(i: int) -> Callable[[], object]:
        def work() -> None:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                rc.split(logs[i], folder / "parts", by="part")
                time.sleep(0.002 * (os.getpid() % 5))

        return work

    for outcome in run_together([write(0), write(1)]):
        failure = explain_outcome(outcome, "a writer")
        if failure is not None:
            return failure
        if outcome.status == "refused":
            return Failure("false alarm", outcome.message)
    part_sizes = tuple(
        rc.read_sessions(folder / "parts" / f"{name}.parquet").summary.kept
        for name in ("history", "train", "test")
    )
    if part_sizes not in sizes.values():
        return Failure("mixed state", f"parts of {part_sizes} sessions, expected one of {sizes}")
    return None
