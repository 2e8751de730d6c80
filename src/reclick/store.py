"""A folder that holds a model or counts: manifest.json and Parquet files. No pickle.

The manifest is the commit point. Data files carry their content's hash in their names and are written first; then the manifest is replaced in one
step; then files it no longer names are removed. Whenever the writer is killed, the folder holds the last good state, whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.errors import StoreError

FORMAT = 1
MANIFEST = "manifest.json"
NAMES = {"model": "a model", "counts": "counts"}
OURS = re.compile(r"\..*\.writing|.+-[0-9a-f]{16}\.parquet")  # files that a write makes beside the manifest
ATTEMPTS = 20  # to read a folder that is being replaced again and again


@dataclass(frozen=True, slots=True)
class Stored:
    """What a folder holds."""

    kind: str
    settings: dict[str, Any]
    tables: dict[str, pa.Table]


def write(folder: str | Path, *, kind: str, settings: dict[str, Any], tables: dict[str, pa.Table]) -> None:
    """Write tables and settings to a folder; a killed run or a full disk leaves what was there before."""
    folder = Path(folder)
    check_target(folder, kind)
    with _clear_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            files = {name: _write_table(folder, name, table) for name, table in tables.items()}
            manifest = {"kind": kind, "format": FORMAT, "reclick": _version(), "settings": settings, "files": files}
            _replace(folder / MANIFEST, _sealed(manifest))
        finally:
            _remove_unnamed(folder)


def read(folder: str | Path, *, kind: str | None = None) -> Stored:
    """Read a folder, refusing one that is incomplete, altered or of a newer format."""
    folder = Path(folder)
    manifest = _manifest(folder)
    for _ in range(ATTEMPTS):
        if kind is not None and manifest["kind"] != kind:
            raise StoreError(f"{folder} holds {NAMES.get(manifest['kind'], manifest['kind'])}, expected {NAMES[kind]}.")
        try:
            tables = {name: _read_table(folder, name, entry) for name, entry in manifest["files"].items()}
            return Stored(manifest["kind"], manifest["settings"], tables)
        except (StoreError, OSError):
            before, manifest = manifest, _manifest(folder)
            if manifest == before:
                raise
    raise StoreError(f"{folder} was written again at each of {ATTEMPTS} attempts to read it. Try again when the writer is done.")


def is_stored(folder: object) -> bool:
    """Whether this is the path of a folder that Reclick wrote."""
    return isinstance(folder, str | Path) and (Path(folder) / MANIFEST).is_file()


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
    return {"file": target.name, "rows": table.num_rows, "bytes": target.stat().st_size, "sha256": digest}


def _read_table(folder: Path, name: str, entry: dict[str, Any]) -> pa.Table:
    path = folder / str(entry["file"])
    if path.parent != folder or path.name != entry["file"]:
        raise StoreError(f"{folder / MANIFEST} names the file {entry['file']!r}, which is outside the folder: do not load it.")
    if not path.is_file():
        raise StoreError(f"{folder} is incomplete: {path.name} ({name}) is missing. Fit and save again, or restore the folder from a copy.")
    if path.stat().st_size != entry["bytes"] or _digest(path) != entry["sha256"]:
        raise StoreError(f"{path} was altered after it was saved (its contents do not match the manifest). Fit and save again.")
    return pq.read_table(path)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.exists():
        raise StoreError(f"{folder} does not exist. Give the folder that was saved with save() or `reclick fit --to`.")
    if not path.is_file():
        raise StoreError(f"{folder} has no {MANIFEST}: it is not a Reclick folder, or it was half deleted.")
    try:
        manifest = json.loads(path.read_bytes())
        number = int(manifest["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({error}): it was altered. Fit again and save to a new folder.") from error
    if number > FORMAT:
        raise StoreError(f"{folder} has format {number}; this Reclick ({_version()}) reads up to {FORMAT}. Upgrade reclick to load it.")
    missing = {"kind", "settings", "files"} - set(manifest)
    if missing:
        raise StoreError(f"{path} lacks {', '.join(sorted(missing))}: it was altered. Fit again and save to a new folder.")
    if manifest.pop("sha256", None) != _seal(manifest):
        raise StoreError(f"{path} was altered after it was saved (its contents do not match its hash). Fit again and save to a new folder.")
    return dict(manifest)


def _sealed(manifest: dict[str, Any]) -> bytes:
    """The manifest as it is written, with a hash of itself, so that a change of any value is seen."""
    return (json.dumps({**manifest, "sha256": _seal(manifest)}, indent=2, ensure_ascii=False) + "\n").encode()


def _seal(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def check_target(folder: str | Path, kind: str) -> None:
    """Never write into somebody else's folder, nor over another kind of ours."""
    folder = Path(folder)
    if folder.is_file():
        raise StoreError(f"{folder} is a file. Give a folder to write to.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        if not all(OURS.fullmatch(path.name) for path in folder.iterdir()):  # a first write that was killed may be done again
            raise StoreError(f"{folder} holds other files. Give a new or empty folder, or one that Reclick wrote.")
        return
    held = _manifest(folder)["kind"]
    if held != kind:
        raise StoreError(f"{folder} holds {NAMES.get(held, held)}; {NAMES[kind]} would overwrite it. Give another folder.")


def _remove_unnamed(folder: Path) -> None:
    """Remove data files that the manifest does not name: of an earlier save, or of one that failed."""
    with contextlib.suppress(StoreError, OSError):
        named = {entry["file"] for entry in _manifest(folder)["files"].values()} if (folder / MANIFEST).is_file() else set()
        for path in folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in named:
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


@contextlib.contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
        advice = "The disk is full: free some space or give another folder." if full else "Give a folder that can be written."
        raise StoreError(f"{folder} cannot be written ({error}). {advice} What was there before is unchanged.") from error


def _version() -> str:
    from reclick import __version__

    return __version__
