"""A folder that holds a model or counts: manifest.json and Parquet files. No pickle.

The manifest is the commit point. Data files carry their content's hash in their names and are written first; then the manifest is replaced in one
step; then files it no longer names are removed. Whenever the writer is killed, the folder holds the last good state, whole. Writers take turns.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.errors import StoreError, clear_write_errors

logger = logging.getLogger("reclick")

FORMAT = 1
MANIFEST = "manifest.json"
WANTED = "Give a folder that save(), `reclick fit --to` or `reclick count --to` wrote."
LOGS = frozenset(
    {".parquet", ".pq", ".csv", ".tsv", ".jsonl", ".ndjson", ".json"}
)  # endings of files that may be a log
NAMES = {"model": "a model", "counts": "counts", "scores": "the scores of a model"}
WRITERS = {
    "model": ", which save() and `reclick fit --to` write",
    "counts": ", which save() and `reclick count --to` write",
}
DATA = re.compile(r"(?P<table>.+)-(?P<digest>[0-9a-f]{16})\.parquet")
HALF = re.compile(r"\.(?P<table>.+)\.\d+\.writing")  # a file in the making
LOCK = ".lock"
WAIT, PAUSE = 10.0, 0.05  # seconds: how long a writer waits for another, and how often it looks
ATTEMPTS = 20  # to read a folder that is being replaced again and again

_mine = threading.local()  # .folders: those that this thread holds


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder holds."""

    kind: str
    settings: dict[str, Any]
    tables: dict[str, pa.Table]


def write(
    folder: str | Path, *, kind: str, settings: dict[str, Any], tables: dict[str, pa.Table]
) -> None:
    """Write tables and settings to a folder; a killed run or a full disk leaves what was there before."""
    folder = Path(folder)
    check_target(folder, kind)
    with clear_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            check_target(folder, kind, tables)
            known = {*tables, *(_manifest(folder)["files"] if is_stored(folder) else ())}
            try:
                files = {name: _write_table(folder, name, table) for name, table in tables.items()}
                manifest = {
                    "kind": kind,
                    "format": FORMAT,
                    "reclick": _version(),
                    "settings": settings,
                    "files": files,
                }
                _replace(folder / MANIFEST, _sealed(manifest))
            finally:
                _remove_unnamed(folder, known)


@contextlib.contextmanager
def writing(folder: str | Path) -> Iterator[None]:
    """Hold a folder that exists, so that nobody else writes to it: from loading a model, say, until the changed one is saved.

    `write` holds it too, and may be called inside. Another writer, in this process or another, waits a little, then is refused. The system lets
    go of the folder when the process ends, however it ends. Readers are never held up.
    """
    folder = Path(folder)
    mine = _mine.__dict__.setdefault("folders", set())
    here = folder.resolve()
    if here in mine:
        yield
        return
    with clear_write_errors(folder):
        lock = _take(folder)
    mine.add(here)
    try:
        yield
    finally:
        mine.discard(here)
        _let_go(folder, lock)


def read(folder: str | Path, *, kind: str | None = None) -> Stored:
    """Read a folder, refusing one that is incomplete, altered or of a newer format."""
    folder = Path(folder)
    manifest = _manifest(folder)
    for _ in range(ATTEMPTS):
        if kind is not None and manifest["kind"] != kind:
            held = NAMES.get(manifest["kind"], manifest["kind"])
            raise StoreError(
                f"{folder} holds {held}, expected {NAMES[kind]}{WRITERS.get(kind, '')}."
            )
        try:
            tables = {
                name: _read_table(folder, name, entry) for name, entry in manifest["files"].items()
            }
            return Stored(manifest["kind"], manifest["settings"], tables)
        except (StoreError, OSError):
            before, manifest = manifest, _manifest(folder)
            if manifest == before:
                raise
    raise StoreError(
        f"{folder} was written again at each of {ATTEMPTS} attempts to read it. Try again when the writer is done."
    )


def is_stored(folder: object) -> bool:
    """Whether this is the path of a folder that Reclick wrote."""
    return isinstance(folder, str | Path) and (Path(folder) / MANIFEST).is_file()


def seal_of(folder: str | Path) -> str:
    """A hash of all that a folder holds: its manifest names the hash of every file."""
    return _seal(_manifest(Path(folder)))


def kind_of(folder: str | Path) -> str:
    """What a folder holds: "model" or "counts"."""
    return str(_manifest(Path(folder))["kind"])


def _write_table(folder: Path, name: str, table: pa.Table) -> dict[str, Any]:
    beside = folder / f".{name}.{os.getpid()}.writing"
    pq.write_table(table, beside, compression="zstd", dictionary_pagesize_limit=64 << 20)
    digest = _digest(beside)
    target = folder / f"{name}-{digest[:16]}.parquet"
    _sync(beside)
    beside.replace(target)
    return {
        "file": target.name,
        "rows": table.num_rows,
        "bytes": target.stat().st_size,
        "sha256": digest,
    }


def _read_table(folder: Path, name: str, entry: dict[str, Any]) -> pa.Table:
    path = folder / str(entry["file"])
    if path.parent != folder or path.name != entry["file"]:
        raise StoreError(
            f"{folder / MANIFEST} names the file {entry['file']!r}, which is outside the folder: do not load it."
        )
    if not path.is_file():
        raise StoreError(
            f"{folder} is incomplete: {path.name} ({name}) is missing. Fit and save again, or restore the folder from a copy."
        )
    if path.stat().st_size != entry["bytes"] or _digest(path) != entry["sha256"]:
        raise StoreError(
            f"{path} was altered after it was saved (its contents do not match the manifest). Fit and save again."
        )
    return pq.read_table(path)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.exists():
        raise StoreError(f"{folder} does not exist. {WANTED}")
    if not path.is_file():
        raise StoreError(f"{_no_manifest(folder)} {WANTED}")
    try:
        manifest = json.loads(path.read_bytes())
        number = int(manifest["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): it was altered. Fit again and save to a new folder."
        ) from error
    if number > FORMAT:
        raise StoreError(
            f"{folder} has format {number}; this Reclick ({_version()}) reads up to {FORMAT}. Upgrade reclick to load it."
        )
    missing = {"kind", "settings", "files"} - set(manifest)
    if missing:
        raise StoreError(
            f"{path} lacks {', '.join(sorted(missing))}: it was altered. Fit again and save to a new folder."
        )
    if manifest.pop("sha256", None) != _seal(manifest):
        raise StoreError(
            f"{path} was altered after it was saved (its contents do not match its hash). Fit again and save to a new folder."
        )
    return dict(manifest)


def _no_manifest(folder: Path) -> str:
    """What is there in place of a model or counts: a file, a folder around one, a log, or something else."""
    if folder.is_file():
        return f"{folder} is a file, not the folder of a model or of counts."
    told = f"{folder} has no {MANIFEST}: it is not a Reclick folder, or it was half deleted."
    inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if inside:
        return f"{told} There is one inside: {', '.join(map(str, inside))}."
    found = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in LOGS and not DATA.fullmatch(path.name)
    )
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return f"{told} It holds {', '.join(found[:3])}{more}: if that is a log, fit a model to it first, with `reclick fit`."
    return told


def _sealed(manifest: dict[str, Any]) -> bytes:
    """The manifest as it is written, with a hash of itself, so that a change of any value is seen."""
    return (
        json.dumps({**manifest, "sha256": _seal(manifest)}, indent=2, ensure_ascii=False) + "\n"
    ).encode()


def _seal(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_target(folder: str | Path, kind: str, tables: Collection[str] | None = None) -> None:
    """Never write into somebody else's folder, nor over another kind of ours; `tables` are the names that will be written, when they are known."""
    folder = Path(folder)
    if folder.is_file():
        raise StoreError(f"{folder} is a file. Give a folder to write to.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        # A first write that was killed may be done again; one that is going on moves its files while we look.
        if not all(
            path.name == LOCK or _is_ours(path, tables) or not path.exists()
            for path in folder.iterdir()
        ):
            raise StoreError(
                f"{folder} holds other files. Give a new or empty folder, or one that Reclick wrote."
            )
        return
    held = _manifest(folder)["kind"]
    if held != kind:
        raise StoreError(
            f"{folder} holds {NAMES.get(held, held)}; {NAMES[kind]} would overwrite it. Give another folder."
        )


def _is_ours(path: Path, tables: Collection[str] | None) -> bool:
    """Whether a write of these tables (None: of any) made this file: a data file is named after its table and its content."""
    data = DATA.fullmatch(path.name)
    found = data or HALF.fullmatch(path.name)
    if found is None or not path.is_file():
        return False
    if tables is not None and found["table"] not in tables and (data or found["table"] != MANIFEST):
        return False
    try:
        return data is None or _digest(path)[:16] == data["digest"]
    except FileNotFoundError:
        return False


def _remove_unnamed(folder: Path, tables: Collection[str]) -> None:
    """Remove data files that the manifest does not name: of an earlier save, or of one that failed."""
    with contextlib.suppress(StoreError, OSError):
        named = (
            {entry["file"] for entry in _manifest(folder)["files"].values()}
            if (folder / MANIFEST).is_file()
            else set()
        )
        for path in folder.iterdir():
            if path.name not in named and _is_ours(path, tables):
                path.unlink()


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.writing")
    beside.write_bytes(data)
    _sync(beside)
    beside.replace(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _take(folder: Path) -> int:
    """An open lock file that is locked by us."""
    path, deadline = folder / LOCK, time.monotonic() + WAIT
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if _locked(lock, folder) and _is_file_at(
            lock, path
        ):  # else another holds it, or removed it while we waited
            return lock
        os.close(lock)
        if time.monotonic() > deadline:
            raise StoreError(
                f"{folder} cannot be written: another process is writing to it, still after {WAIT:g} seconds. Try again later."
            )
        time.sleep(PAUSE)


def _locked(lock: int, folder: Path) -> bool:
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except ImportError:  # Windows
        logger.debug(
            "No file locks here: see to it that one process at a time writes to %s.", folder
        )
    except OSError as error:
        if error.errno not in (
            errno.ENOLCK,
            errno.ENOSYS,
            errno.EOPNOTSUPP,
        ):  # a file system without locks
            raise
        logger.warning(
            "%s has no file locks: see to it that one process at a time writes to it.", folder
        )
    return True


def _is_file_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _let_go(folder: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        (folder / LOCK).unlink()
    os.close(lock)


def _version() -> str:
    from reclick import __version__

    return __version__
