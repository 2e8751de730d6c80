"""Paths that are not plain files, as logs and as targets to write to."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import reclick as rc
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import run_in_child
from torture.inputs import make_log, to_parquet

TIMEOUT = 20.0
SUFFIXES = ("parquet", "jsonl", "csv", "jsonl.gz", "zip")
NOBODY = 65534


class OddPlaces(Campaign):
    """A pipe, a device, a folder, a link that loops, a file that nobody may read or write."""

    name = "odd places"
    share = 0.5

    def prepare(self, folder: Path) -> None:
        """Fit a model to predict with, and compile what the attempts use."""
        self.log = to_parquet(make_log(sessions=40))
        (folder / "log.parquet").write_bytes(self.log)
        self.model = rc.DCTR().fit(folder / "log.parquet")
        for use in USES.values():
            use(self.model, folder / "log.parquet", folder)

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Create such a path, and read it or write to it."""
        kind, suffix = rng.choice(list(PLACES)), rng.choice(SUFFIXES)
        place = folder / f"place.{suffix}"
        good = folder / "log.parquet"
        good.write_bytes(self.log)
        PLACES[kind](place, good)
        before = os.lstat(place)
        use, as_nobody = rng.choice(list(USES)), rng.random() < 0.3
        target = folder / "out"
        if rng.random() < 0.3:
            use, target = "write", place
        folder.chmod(0o777)

        def work() -> None:
            if as_nobody and os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            USES[use](self.model, good if use == "write" else place, target)

        outcome = run_in_child(work, timeout=TIMEOUT)
        what = f"{kind} as {place.name}, {use}{', as nobody' * as_nobody}"
        failure = explain_outcome(outcome, what)
        after = os.lstat(place)
        same = (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
        if failure is None and not same and kind != "empty":  # empty files may be replaced
            return Failure("file of others", f"{what}: it was replaced")
        if kind in {"pipe", "socket"}:
            place.unlink()  # failed inputs are copied, and these cannot be
        return failure


def _count(model: rc.ClickModel, place: Path, target: Path) -> None:
    rc.count(rc.read_sessions(place, on_error="drop"))


def _count_folder(model: rc.ClickModel, place: Path, target: Path) -> None:
    rc.count(rc.read_sessions(place.parent, on_error="drop"))


def _predict(model: rc.ClickModel, place: Path, target: Path) -> None:
    rc.predict(model, place, target / "out.parquet")


def _load(model: rc.ClickModel, place: Path, target: Path) -> None:
    try:
        rc.load(place)
    except rc.StoreError:
        return


def _write(model: rc.ClickModel, place: Path, target: Path) -> None:
    for write in (
        lambda: rc.convert(place, target),
        lambda: rc.predict(model, place, target),
        lambda: rc.export(model, target, format="qrels", min_support=1),
        lambda: model.save(target),
        lambda: rc.count(place).save(target),
    ):
        try:
            write()
        except rc.ReclickError:
            continue


USES: dict[str, Callable[[rc.ClickModel, Path, Path], None]] = {
    "count": _count,
    "count its folder": _count_folder,
    "predict": _predict,
    "load": _load,
    "write": _write,
}


def _make_pipe(place: Path, good: Path) -> None:
    os.mkfifo(place)


def _make_folder(place: Path, good: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("mine")


def _make_loop(place: Path, good: Path) -> None:
    place.symlink_to(place.name)


def _link_to(target: str) -> Callable[[Path, Path], None]:
    def make(place: Path, good: Path) -> None:
        place.symlink_to(target)

    return make


def _make_socket(place: Path, good: Path) -> None:
    folder = Path.cwd()
    os.chdir(place.parent)  # the name of a socket has at most about a hundred characters
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(place.name)
    finally:
        os.chdir(folder)


def _make_unreadable(place: Path, good: Path) -> None:
    shutil.copy(good, place)
    place.chmod(0)


def _make_empty(place: Path, good: Path) -> None:
    place.touch()


def _make_hard_link(place: Path, good: Path) -> None:
    os.link(good, place)


PLACES: dict[str, Callable[[Path, Path], None]] = {
    "pipe": _make_pipe,
    "folder": _make_folder,
    "loop": _make_loop,
    "link to itself": _link_to("."),
    "link to the log": _link_to("log.parquet"),
    "dangling link": _link_to("nowhere"),
    "null": _link_to("/dev/null"),
    "endless zeros": _link_to("/dev/zero"),
    "full": _link_to("/dev/full"),
    "own memory": _link_to("/proc/self/mem"),
    "socket": _make_socket,
    "unreadable": _make_unreadable,
    "empty": _make_empty,
    "hard link": _make_hard_link,
}
