"""What an evaluation keeps in its folder, so that a second run, or one that was stopped, does not do it again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from reclick import __version__
from reclick.errors import StoreError
from reclick.metrics import SessionSums
from reclick.models import ClickModel, load
from reclick.runtime import artifact
from reclick.runtime.atomic_write import write_files

Done = TypeVar("Done")
Key = dict[str, Any]  # everything that the result depends on


def timed(work: Callable[[], Done]) -> tuple[Done, float]:
    """What the work gives, and the seconds it took."""
    start = time.perf_counter()
    done = work()
    return done, time.perf_counter() - start


class Kept:
    """The folder of an evaluation: models/NAME and scores/NAME, each with the key of what it was made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(
        self, name: str, key: Key | None, fit: Callable[[], ClickModel]
    ) -> tuple[ClickModel, float]:
        """The model that an earlier run left for the same key, or one made now and left there; without a key it is always made."""
        folder = self.folder / "models" / _plain(name)
        note = folder.with_name(f"{folder.name}.json")
        known = _read_note(note)
        if (
            key is not None
            and known.get("key") == _digest(key)
            and known.get("seal") == _seal(folder)
        ):
            return load(folder), float(known["seconds"])
        fitted, seconds = timed(fit)
        fitted.save(folder)
        told = json.dumps(
            {
                "key": None if key is None else _digest(key),
                "seal": _seal(folder),
                "seconds": seconds,
            }
        )
        write_files(note.parent, {note.name: lambda path: path.write_text(told, encoding="utf-8")})
        return fitted, seconds

    def sums(
        self, name: str, key: Key, score: Callable[[], SessionSums]
    ) -> tuple[SessionSums, float]:
        """The sums that an earlier run left for this model and the same key, or those made now and left there."""
        folder, digest = (
            self.folder / "scores" / _plain(name),
            _digest({**key, "of": _seal(self.folder / "models" / _plain(name))}),
        )
        try:
            stored = artifact.read(folder, kind="scores") if artifact.is_stored(folder) else None
        except StoreError:
            stored = None  # altered, or half gone: made again
        if stored is not None and stored.settings.get("key") == digest:
            return SessionSums.from_tables(stored.tables), float(stored.settings["seconds"])
        sums, seconds = timed(score)
        artifact.write(
            folder,
            kind="scores",
            settings={"key": digest, "seconds": seconds},
            tables=sums.to_tables(),
        )
        return sums, seconds


def _read_note(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _seal(folder: Path) -> str | None:
    """A hash of all that a model's folder holds; None where there is no whole model."""
    try:
        artifact.read(folder, kind="model")
        return artifact.seal_of(folder)
    except StoreError:
        return None


def _digest(key: Key) -> str:
    return hashlib.sha256(
        json.dumps({**key, "reclick": __version__}, sort_keys=True, default=str).encode()
    ).hexdigest()


def _plain(name: str) -> str:
    """A name as that of a folder: letters and digits, and never one that leads elsewhere."""
    kept = "".join(letter if letter.isalnum() else "-" for letter in name.casefold())[:60]
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
