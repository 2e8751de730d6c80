"""A folder that holds a model or counts: manifest.json and Parquet files. No pickle.

The manifest is the commit point. Data files have the hash of their content in their names and are
written first; then the manifest is replaced in one step; then files that it no longer names are
removed. If the writer is killed at any time, the folder holds the last complete state. In a local
folder writers take turns. An object store has no locks: the last manifest wins, and files that no
manifest names stay for an hour, as another writer may still need them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from reclick.errors import Argument, LogError, StoreError, explain_write_errors
from reclick.runtime.filesystem import (
    AnyPath,
    Location,
    RemotePath,
    arrow_input,
    as_path,
    describe_missing,
    is_location,
    resolve,
)
from reclick.runtime.outputs import (
    MANIFEST_FILE,
    is_file_at,
    scratch_folder,
    sync_folder,
    try_lock,
)
from reclick.runtime.parallel import thread_limit

logger = logging.getLogger("reclick")

FORMAT_VERSION = 2
MANIFEST = MANIFEST_FILE
ROW_GROUP = 1 << 20
TEXT_ROW_GROUP = 1 << 17  # rows; their strings are copied in memory to write them
EXPECTED_FOLDER = "Give a folder that save(), `reclick fit --to` or `reclick count --to` wrote."
LOG_SUFFIXES = frozenset({".parquet", ".pq", ".csv", ".tsv", ".jsonl", ".ndjson", ".json"})
KIND_NAMES = {
    "model": "a model",
    "counts": "counts",
    "scores": "the scores of a model",
    "bucket": "a bucket of a model, whose folder is two levels above",
}
KIND_WRITERS = {
    "model": ", which save() and `reclick fit --to` write",
    "counts": ", which save() and `reclick count --to` write",
}
DATA_FILE = re.compile(r"(?P<table>.+)-(?P<digest>[0-9a-f]{16})\.parquet")
PARTS_FOLDER = re.compile(r"parts-[0-9a-f]{16}")  # of an artifact that is written in parts
UNFINISHED_FILE = re.compile(r"\.(?P<table>.+)\.[0-9a-f]+\.writing")
FILE_TEXTS = ("file", "sha256")  # of a file in the manifest
LOCK_FILE = ".lock"
LOCK_TIMEOUT = 10.0  # seconds that a writer waits for another
LOCK_RETRY = 0.05  # seconds between two tries
ABANDONED_SECONDS = 3600.0  # after which an object that no manifest names is removed
MOST_DECODED_BYTES = 256 << 20  # of a table, plus MOST_EXPANSION for every byte of its file
MOST_EXPANSION = 200
LEAST_VALUE_BYTES = 4  # of a number in a table
MOST_MANIFEST_BYTES = 768 << 20  # in memory; UBM for pages of 2,000 ads takes half of it
VALUE_BYTES, ENTRY_BYTES = 64, 150  # in memory, at most, per value and per key of JSON
READ_ATTEMPTS = 20  # of a folder that is being replaced again and again
UNCHANGED_ATTEMPTS = 3  # … of one whose manifest is still the same

_locks = threading.local()  # .folders: those that this thread has locked


@dataclass(frozen=True, slots=True)
class Artifact:
    """The content of a folder."""

    kind: str
    settings: dict[str, Any]
    tables: dict[str, pa.Table]
    fingerprint: str  # of all its content


# ---- reading


def read(folder: Location, *, kind: str | None = None, leave_out: Collection[str] = ()) -> Artifact:
    """Read a folder; raise if it is incomplete, altered or of another format version.

    `leave_out` are tables that are not needed.
    """
    path = as_path(folder)
    manifest, unchanged = _read_manifest(path), 0
    for _ in range(READ_ATTEMPTS):
        if kind is not None and manifest["kind"] != kind:
            actual = KIND_NAMES.get(manifest["kind"], manifest["kind"])
            raise StoreError(
                f"{path} holds {actual}, expected {KIND_NAMES[kind]}{KIND_WRITERS.get(kind, '')}."
            )
        try:
            tables = {
                name: _read_table(path, name, entry)
                for name, entry in manifest["files"].items()
                if name not in leave_out
            }
            return Artifact(
                manifest["kind"], manifest["settings"], tables, _hash_manifest(manifest)
            )
        except (StoreError, OSError, pa.ArrowException, UnicodeDecodeError) as error:
            before, manifest = manifest, _read_manifest(path)
            if manifest != before:
                unchanged = 0
                continue
            # In between, another writer may have replaced the manifest and removed a file of it.
            unchanged += 1
            if unchanged == UNCHANGED_ATTEMPTS:
                raise _as_store_error(error, path) from error
            time.sleep(LOCK_RETRY)
    raise StoreError(
        f"{path} was written again at each of {READ_ATTEMPTS} attempts to read it. "
        "Try again when the writer is done."
    )


def _as_store_error(error: Exception, folder: AnyPath) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreError(f"{folder} cannot be read ({error}). Check its files and permissions.")


def is_artifact(folder: object) -> bool:
    """Whether this is the path of a folder that Reclick wrote."""
    if not is_location(folder):
        return False
    path = as_path(folder)  # type: ignore[arg-type]
    is_remote_log = isinstance(path, RemotePath) and path.suffix in LOG_SUFFIXES
    if is_remote_log and path.is_file():  # looked for first, so that an error names it
        return False
    return (path / MANIFEST).is_file()


def fingerprint(folder: Location) -> str:
    """Return a hash of all that a folder holds, as its manifest has the hash of every file."""
    return _hash_manifest(_read_manifest(as_path(folder)))


def get_kind(folder: Location) -> str:
    """Return the kind of a folder: "model", "counts" or "scores"."""
    return str(_read_manifest(as_path(folder))["kind"])


def _read_table(folder: AnyPath, name: str, entry: dict[str, Any]) -> pa.Table:
    path = folder / str(entry["file"])
    if path.parent != folder or path.name != entry["file"]:
        raise StoreError(
            f"{folder / MANIFEST} names the file {entry['file']!r}, which is outside the folder: "
            "do not load it."
        )
    if not path.is_file():
        raise StoreError(
            f"{folder} is incomplete: {path.name} ({name}) is missing. "
            "Fit and save again, or restore the folder from a copy."
        )
    # A remote file is fetched once; a local file is hashed, then mapped by Arrow.
    content = path.read_bytes() if isinstance(path, RemotePath) else None
    size = path.stat().st_size if content is None else len(content)
    digest = _digest(path if content is None else content)
    if size != entry.get("bytes") or digest != entry["sha256"]:
        raise StoreError(
            f"{path} was altered after it was saved (its contents do not match the manifest). "
            "Fit and save again."
        )
    table = _read_parquet(path, content, size)
    if table.num_rows != entry.get("rows"):
        raise StoreError(
            f"{path} has {table.num_rows:,} rows, and the manifest says {entry.get('rows')!r}: it "
            "was altered. Fit and save again."
        )
    return table


def _read_parquet(path: AnyPath, content: bytes | None, size: int) -> pa.Table:
    """Read a table; raise if it needs far more memory than a valid file of this size.

    `content` are the bytes of a remote file.
    """
    most = MOST_DECODED_BYTES + MOST_EXPANSION * size
    coded_columns: list[str] = []
    with _open_parquet(path, content) as file:
        is_flat = all(arrow_types.is_primitive(kind) for kind in file.schema_arrow.types)
        least = file.metadata.num_rows * len(file.schema_arrow.types) * LEAST_VALUE_BYTES
        if not is_flat:  # lists may be long, and every row may repeat a text that is stored once
            least, largest, texts = _measure(path, content)
            coded_columns = texts if largest > most else []
        if least > most:
            raise _expansion_error(path, least)
        if not coded_columns:
            return file.read(use_threads=thread_limit() > 1)
    with _open_parquet(path, content, coded_columns) as file:
        return _decode(file.read(use_threads=thread_limit() > 1), path, most)


def _open_parquet(
    path: AnyPath, content: bytes | None, coded_columns: Sequence[str] = ()
) -> pq.ParquetFile:
    source = arrow_input(path) if content is None else pa.BufferReader(content)
    return pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(coded_columns))


def _measure(path: AnyPath, content: bytes | None) -> tuple[int, int, list[str]]:
    from reclick.runtime.parquet_layout import read_layout

    try:
        return read_layout(path, str(path), content).decoded_bytes()
    except LogError as error:
        raise StoreError(str(error)) from error


def _decode(table: pa.Table, path: AnyPath, most: int) -> pa.Table:
    """Replace codes by texts in a table."""
    columns = [
        pa.chunked_array([_decode_array(chunk, path, most) for chunk in column.chunks])
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _decode_array(array: pa.Array, path: AnyPath, most: int) -> pa.Array:
    if arrow_types.is_dictionary(array.type):
        size = _text_bytes(array)
        if size > most:
            raise _expansion_error(path, size)
        return array.dictionary_decode()
    if arrow_types.is_list(array.type) or arrow_types.is_large_list(array.type):
        values = _decode_array(array.values, path, most)
        return type(array).from_arrays(array.offsets, values)
    return array


def _text_bytes(codes: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(codes.dictionary)
    return int(pc.sum(lengths.take(codes.indices).cast(pa.int64())).as_py() or 0)


def _expansion_error(path: AnyPath, size: int) -> StoreError:
    return StoreError(
        f"{path} would take {size >> 20:,} MB of memory, far more than a file of its size holds: "
        "it was altered. Do not load it."
    )


def _read_manifest(folder: AnyPath) -> dict[str, Any]:
    path = folder / MANIFEST
    if not folder.exists():
        raise StoreError(f"{describe_missing(folder)} {EXPECTED_FOLDER}")
    if not path.is_file():
        raise StoreError(f"{_describe_other(folder)} {EXPECTED_FOLDER}")
    try:
        manifest = _parse_manifest(path)
        version = int(manifest["format"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}): it was altered. Fit again and save to a new folder."
        ) from error
    if version != FORMAT_VERSION:
        advice = (
            "Upgrade reclick to load it."
            if version > FORMAT_VERSION
            else "It is of an earlier version: fit or count again, and save to a new folder."
        )
        raise StoreError(
            f"{folder} has format {version}; this Reclick ({_version()}) reads "
            f"{FORMAT_VERSION}. {advice}"
        )
    missing_keys = {"kind", "settings", "files"} - set(manifest)
    if missing_keys:
        raise StoreError(
            f"{path} lacks {', '.join(sorted(missing_keys))}: it was altered. "
            "Fit again and save to a new folder."
        )
    if manifest.pop("sha256", None) != _hash_manifest(manifest):
        raise StoreError(
            f"{path} was altered after it was saved (its contents do not match its hash). "
            "Fit again and save to a new folder."
        )
    if not _has_right_types(manifest):
        raise StoreError(
            f"{path} has values of wrong types: it was altered. Fit again and save to a new folder."
        )
    return dict(manifest)


def _parse_manifest(path: AnyPath) -> Any:
    """Parse a manifest; raise if it might take too much memory."""
    if isinstance(path, Path) and path.stat().st_size > MOST_MANIFEST_BYTES:
        raise ValueError("it is too large")
    content = path.read_bytes()
    values = sum(map(content.count, (b",", b"[", b"{")))
    size = len(content) + VALUE_BYTES * values + ENTRY_BYTES * content.count(b":")
    if size > MOST_MANIFEST_BYTES:
        raise ValueError("it is too large")
    return json.loads(content)


def _has_right_types(manifest: dict[str, Any]) -> bool:
    """Whether the parts of a manifest have the right types: a valid hash does not ensure it."""
    files = manifest["files"]
    return (
        isinstance(manifest["kind"], str)
        and isinstance(manifest["settings"], dict)
        and isinstance(files, dict)
        and all(isinstance(entry, dict) for entry in files.values())
        and all(isinstance(entry.get(key), str) for entry in files.values() for key in FILE_TEXTS)
        and isinstance(manifest.get("folders", []), list)
        and all(isinstance(name, str) for name in manifest.get("folders", []))
    )


def _describe_other(folder: AnyPath) -> str:
    """Describe what is there instead of an artifact: a file, a parent folder, a log, or another."""
    if folder.is_file():
        return f"{folder} is a file, not the folder of a model or of counts."
    message = f"{folder} has no {MANIFEST}: it is not a Reclick folder, or it was half deleted."
    subfolders = sorted(str(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
    if subfolders:
        return f"{message} There is one inside: {', '.join(subfolders)}."
    logs = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in LOG_SUFFIXES and not DATA_FILE.fullmatch(path.name)
    )
    if logs:
        more = f" and {len(logs) - 3} more" if len(logs) > 3 else ""
        return (
            f"{message} It holds {', '.join(logs[:3])}{more}: if that is a log, "
            "fit a model to it first, with `reclick fit`."
        )
    return message


# ---- writing


def write(
    folder: Location,
    *,
    kind: str,
    settings: dict[str, Any],
    tables: dict[str, pa.Table],
    replaces: str | None = None,
    folders: Sequence[str] = (),
) -> str:
    """Write tables and settings; if the run is killed or the disk is full, nothing changes.

    `replaces` is the fingerprint of the state that may be replaced; any other state raises an
    error. `folders` are subfolders that belong to the artifact and have been written before. The
    subfolders of the replaced state stay until the next write, for readers that still use them.
    Returns the fingerprint of the new state.
    """
    path = as_path(folder)
    check_target(path, kind)
    with explain_write_errors(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        with lock_folder(path):
            check_target(path, kind, tables)
            if replaces is not None:
                _refuse_changed(path, replaces)
            before = _read_manifest(path) if is_artifact(path) else {"files": ()}
            names = {*tables, *before["files"]}
            try:
                files = {name: _write_table(path, name, table) for name, table in tables.items()}
                manifest = {
                    "kind": kind,
                    "format": FORMAT_VERSION,
                    "reclick": _version(),
                    "settings": settings,
                    "files": files,
                }
                if folders:
                    manifest["folders"] = list(folders)
                if replaces is not None and isinstance(path, RemotePath):
                    _refuse_changed(path, replaces)  # again, as it is not locked
                _sync(path)
                _write_manifest(path / MANIFEST, _encode_manifest(manifest))
                _sync(path)
            finally:
                _remove_unnamed(path, names, before.get("folders", ()))
    return _hash_manifest(manifest)


def _refuse_changed(folder: AnyPath, expected: str) -> None:
    """Raise if the folder was written since the state to replace was read."""
    if not is_artifact(folder):
        return
    manifest = _read_manifest(folder)
    if _hash_manifest(manifest) != expected:
        is_model = manifest["kind"] == "model"
        lock = ", inside rc.updating(folder), which locks the folder" if is_model else ""
        raise StoreError(
            f"{folder} was changed since it was loaded: saving would discard what another process "
            f"added. Load it again and repeat the update{lock}, or save with ",
            Argument("overwrite", True),
            ".",
        )


def check_target(folder: Location, kind: str, tables: Collection[str] | None = None) -> None:
    """Raise if a folder has other files, or an artifact of another kind.

    `tables` are the names of the tables that will be written, if they are known.
    """
    path = as_path(folder)
    if isinstance(path, RemotePath):
        path.refuse_writing()
    if path.is_file():
        raise StoreError(f"{path} is a file. Give a folder to write to.")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not (path / MANIFEST).is_file():
        # A killed first write may be repeated; a running one moves its files in the meantime.
        if not all(
            entry.name == LOCK_FILE
            or PARTS_FOLDER.fullmatch(entry.name)
            or _is_own_file(entry, tables)
            or not entry.exists()
            for entry in path.iterdir()
        ):
            raise StoreError(
                f"{path} holds other files. Give a new or empty folder, or one that Reclick wrote."
            )
        return
    old = _read_manifest(path)["kind"]
    if old != kind:
        raise StoreError(
            f"{path} holds {KIND_NAMES.get(old, old)}; {KIND_NAMES[kind]} would overwrite it. "
            "Give another folder."
        )


def _write_table(folder: AnyPath, name: str, table: pa.Table) -> dict[str, Any]:
    with _staging_file(folder / name) as staged:
        with _create_file(staged) as file:
            pq.write_table(
                table,
                file,
                row_group_size=TEXT_ROW_GROUP if _has_text(table) else ROW_GROUP,
                compression="zstd",
                use_dictionary=_list_repeating(table),
                dictionary_pagesize_limit=64 << 20,
            )
        digest, size = _digest(staged), staged.stat().st_size
        target = folder / f"{name}-{digest[:16]}.parquet"
        _put(staged, target)
    return {"file": target.name, "rows": table.num_rows, "bytes": size, "sha256": digest}


def _has_text(table: pa.Table) -> bool:
    return not all(arrow_types.is_primitive(kind) for kind in table.schema.types)


def _list_repeating(table: pa.Table) -> list[str]:
    """Return the columns to write with a dictionary, as their values repeat.

    Codes, and the texts of a table with one column, are written without: in half the space, and
    they are read in half the time.
    """
    texts = () if table.num_columns > 1 else (pa.string(), pa.large_string())
    names = [
        field.name
        for field in table.schema
        if not arrow_types.is_integer(field.type) and field.type not in texts
    ]
    return [leaf for name in names for leaf in (name, f"{name}.list.element")]


def _write_manifest(path: AnyPath, content: bytes) -> None:
    with _staging_file(path) as staged:
        with _create_file(staged) as file:
            file.write(content)
        _put(staged, path)


@contextlib.contextmanager
def _staging_file(target: AnyPath) -> Iterator[Path]:
    """Yield a path to write a file to, before it is moved; the next write removes leftovers."""
    if isinstance(target, RemotePath):
        with scratch_folder() as folder:
            yield folder / target.name
    else:
        yield target.with_name(f".{target.name}.{token_hex(8)}.writing")


def _sync(folder: AnyPath) -> None:
    if isinstance(folder, Path):
        sync_folder(folder)


def _create_file(path: Path) -> IO[bytes]:
    """Create a file; raise if the path exists, also as a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def _put(staged: Path, target: AnyPath) -> None:
    if isinstance(target, RemotePath):
        target.upload(staged)
        return
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    staged.replace(target)


def _encode_manifest(manifest: dict[str, Any]) -> bytes:
    """Encode a manifest with its hash, so that any change is detected."""
    complete = {**manifest, "sha256": _hash_manifest(manifest)}
    return (json.dumps(complete, indent=2, ensure_ascii=False) + "\n").encode()


def _hash_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _is_own_file(path: AnyPath, tables: Collection[str] | None) -> bool:
    """Whether name and content are those of a file of these tables (None: of any tables)."""
    data = DATA_FILE.fullmatch(path.name)
    match = data or UNFINISHED_FILE.fullmatch(path.name)
    if match is None or not path.is_file():
        return False
    if tables is not None and match["table"] not in tables and (data or match["table"] != MANIFEST):
        return False
    try:
        return data is None or _digest(path)[:16] == data["digest"]
    except FileNotFoundError:
        return False


def _remove_unnamed(
    folder: AnyPath, tables: Collection[str], earlier_folders: Collection[str] = ()
) -> None:
    """Remove data files of earlier or failed writes, which the manifest does not name."""
    with contextlib.suppress(StoreError, OSError):
        names = set(earlier_folders)
        if is_artifact(folder):
            manifest = _read_manifest(folder)
            names |= {entry["file"] for entry in manifest["files"].values()}
            names |= set(manifest.get("folders", ()))
        for path in folder.iterdir():
            if path.name in names:
                continue
            if PARTS_FOLDER.fullmatch(path.name):
                _remove_folder(path)
            elif _is_abandoned(path, folder) and _is_own_file(path, tables):
                path.unlink()


def _is_abandoned(path: AnyPath, folder: AnyPath) -> bool:
    """Whether an object is too old to belong to a running writer: stores have no locks.

    Both times are of the store's clock. If it has none, nothing is removed.
    """
    if isinstance(path, Path):
        return True
    commit_time, file_time = (folder / MANIFEST).stat().st_mtime, path.stat().st_mtime
    if not commit_time or not file_time:
        return False
    return commit_time - file_time > ABANDONED_SECONDS


def _remove_folder(folder: AnyPath) -> None:
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in list(folder.rglob("*")):
        if path.is_file() and _is_abandoned(path, folder.parent):
            path.unlink(missing_ok=True)


def _digest(content: AnyPath | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    if isinstance(content, RemotePath):
        return hashlib.sha256(content.read_bytes()).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version() -> str:
    from reclick import __version__

    return __version__


# ---- one writer at a time


@contextlib.contextmanager
def lock_folder(folder: Location) -> Iterator[None]:
    """Keep other writers away from a folder, for example while a model is loaded and saved again.

    `write` locks too, and may be called inside. Another writer, in this process or another one,
    waits for a while, then gets an error. The system releases the lock when the process ends, for
    any reason. Readers never wait. A remote folder cannot be locked.
    """
    path, locked_folders = as_path(folder), _locks.__dict__.setdefault("folders", set())
    here = resolve(path)
    if isinstance(path, RemotePath) or here in locked_folders:
        yield
        return
    with explain_write_errors(path):
        lock = _acquire(path)
    locked_folders.add(here)
    try:
        yield
    finally:
        locked_folders.discard(here)
        _release(path, lock)


def _acquire(folder: Path) -> int:
    """Lock the lock file of a folder, and return its descriptor."""
    path, deadline = folder / LOCK_FILE, time.monotonic() + LOCK_TIMEOUT
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        lock = os.open(path, flags, 0o666)
        # The holder removes the file at the end, so check that the locked file is still at path.
        if _try_lock(lock, folder) and is_file_at(lock, path):
            return lock
        os.close(lock)
        if time.monotonic() > deadline:
            raise StoreError(
                f"{folder} cannot be written: another process is writing to it, still after "
                f"{LOCK_TIMEOUT:g} seconds. Try again later."
            )
        time.sleep(LOCK_RETRY)


def _try_lock(lock: int, folder: Path) -> bool:
    is_locked = try_lock(lock)
    if is_locked is None:
        logger.warning("%s has no file locks: let one process at a time write to it.", folder)
    return is_locked is not False


def _release(folder: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        (folder / LOCK_FILE).unlink()
    os.close(lock)
