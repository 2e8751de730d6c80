"""A folder that holds a model or counts: manifest.json and Parquet files. No pickle.

The manifest is the commit point. Data files carry their content's hash in their names and are
written first; then the manifest is replaced in one step; then files it no longer names are removed.
Whenever the writer is killed, the folder holds the last good state, whole. In a local folder
writers take turns. An object store has no locks: there the last manifest wins, and files that no
manifest names stay for an hour, as they may be of a writer that is not done.
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
from pyarrow import types as kind_of

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
from reclick.runtime.outputs import is_file_at, scratch_folder, sync_folder, try_lock
from reclick.runtime.parallel import thread_limit

logger = logging.getLogger("reclick")

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
ROW_GROUP = 1 << 20
TEXT_ROW_GROUP = 1 << 17  # rows whose strings are in memory once more while they are written
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
MOST_DECODED_BYTES = 256 << 20  # of a table, and for every byte of its file so many more:
MOST_EXPANSION = 200
LEAST_VALUE_BYTES = 4  # of a number in a table
MOST_MANIFEST_BYTES = 768 << 20  # in memory; that of UBM for pages of 2,000 ads takes half of it
VALUE_BYTES, ENTRY_BYTES = 64, 150  # in memory, of a value and of a key in JSON, at most
READ_ATTEMPTS = 20  # of a folder that is being replaced again and again
UNCHANGED_ATTEMPTS = 3  # … of one whose manifest is still the same

_held = threading.local()  # .folders: those that this thread has locked


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a folder holds."""

    kind: str
    settings: dict[str, Any]
    tables: dict[str, pa.Table]
    fingerprint: str  # of all that it holds


# ---- reading


def read(folder: Location, *, kind: str | None = None, leave_out: Collection[str] = ()) -> Artifact:
    """Read a folder, refusing one that is incomplete, altered or of a newer format.

    `leave_out` are tables that are not needed.
    """
    path = as_path(folder)
    manifest, unchanged = _read_manifest(path), 0
    for _ in range(READ_ATTEMPTS):
        if kind is not None and manifest["kind"] != kind:
            held = KIND_NAMES.get(manifest["kind"], manifest["kind"])
            raise StoreError(
                f"{path} holds {held}, expected {KIND_NAMES[kind]}{KIND_WRITERS.get(kind, '')}."
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
        except (StoreError, OSError, pa.ArrowException) as error:
            before, manifest = manifest, _read_manifest(path)
            if manifest != before:
                unchanged = 0
                continue
            # It may have been another one in the meantime, whose writer removed a file of this one.
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
    return is_location(folder) and (as_path(folder) / MANIFEST).is_file()  # type: ignore[arg-type]


def fingerprint(folder: Location) -> str:
    """A hash of all that a folder holds: its manifest names the hash of every file."""
    return _hash_manifest(_read_manifest(as_path(folder)))


def get_kind(folder: Location) -> str:
    """What a folder holds: "model", "counts" or "scores"."""
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
    # A remote file is fetched once, a local one is mapped by Arrow after it was hashed.
    content = path.read_bytes() if isinstance(path, RemotePath) else path
    size = len(content) if isinstance(content, bytes) else path.stat().st_size
    if size != entry.get("bytes") or _digest(content) != entry["sha256"]:
        raise StoreError(
            f"{path} was altered after it was saved (its contents do not match the manifest). "
            "Fit and save again."
        )
    table = _read_remote(content) if isinstance(content, bytes) else _read_local(path, size)
    if table.num_rows != entry.get("rows"):
        raise StoreError(
            f"{path} has {table.num_rows:,} rows, and the manifest says {entry.get('rows')!r}: it "
            "was altered. Fit and save again."
        )
    return table


def _read_remote(content: bytes) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(content), pre_buffer=False) as file:
        return file.read(use_threads=thread_limit() > 1)


def _read_local(path: AnyPath, size: int) -> pa.Table:
    """Read a table, unless it takes far more memory than a file of this size can honestly hold."""
    most = MOST_DECODED_BYTES + MOST_EXPANSION * size
    coded: list[str] = []
    with pq.ParquetFile(arrow_input(path), pre_buffer=False) as file:
        flat = all(kind_of.is_primitive(kind) for kind in file.schema_arrow.types)
        least = file.metadata.num_rows * len(file.schema_arrow.types) * LEAST_VALUE_BYTES
        if not flat:  # lists may be long, and a text that is written once may be in every row
            least, largest, texts = _measure(path)
            coded = texts if largest > most else []
        if least > most:
            raise _expansion_error(path, least)
        if not coded:
            return file.read(use_threads=thread_limit() > 1)
    with pq.ParquetFile(arrow_input(path), pre_buffer=False, read_dictionary=coded) as file:
        return _decode(file.read(use_threads=thread_limit() > 1), path, most)


def _measure(path: AnyPath) -> tuple[int, int, list[str]]:
    from reclick.runtime.parquet_layout import read_layout

    try:
        return read_layout(path, str(path)).decoded_bytes()
    except LogError as error:
        raise StoreError(str(error)) from error


def _decode(table: pa.Table, path: AnyPath, most: int) -> pa.Table:
    """The same table with texts in place of codes."""
    columns = [
        pa.chunked_array([_decode_array(each, path, most) for each in column.chunks])
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _decode_array(array: pa.Array, path: AnyPath, most: int) -> pa.Array:
    if kind_of.is_dictionary(array.type):
        size = _text_bytes(array)
        if size > most:
            raise _expansion_error(path, size)
        return array.dictionary_decode()
    if kind_of.is_list(array.type) or kind_of.is_large_list(array.type):
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
    missing = {"kind", "settings", "files"} - set(manifest)
    if missing:
        raise StoreError(
            f"{path} lacks {', '.join(sorted(missing))}: it was altered. "
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
    """The JSON of a manifest, refused if it might take too much memory."""
    if isinstance(path, Path) and path.stat().st_size > MOST_MANIFEST_BYTES:
        raise ValueError("it is too large")
    content = path.read_bytes()
    values = sum(map(content.count, (b",", b"[", b"{")))
    size = len(content) + VALUE_BYTES * values + ENTRY_BYTES * content.count(b":")
    if size > MOST_MANIFEST_BYTES:
        raise ValueError("it is too large")
    return json.loads(content)


def _has_right_types(manifest: dict[str, Any]) -> bool:
    """Whether the parts of a manifest, whose hash anybody can make right, are what they must be."""
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
    """What is there in place of an artifact: a file, a folder around one, a log, or anything."""
    if folder.is_file():
        return f"{folder} is a file, not the folder of a model or of counts."
    message = f"{folder} has no {MANIFEST}: it is not a Reclick folder, or it was half deleted."
    inside = sorted(str(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
    if inside:
        return f"{message} There is one inside: {', '.join(inside)}."
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
    """Write tables and settings; a killed run or a full disk leaves what was there before.

    `replaces` is the fingerprint of what may be replaced; anything else that is there is refused.
    `folders` are those inside that belong to it, which were written before. Those of what is
    replaced stay until the next write, for readers that still use them.
    The result is the fingerprint of what was written.
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
            known = {*tables, *before["files"]}
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
                _remove_unnamed(path, known, before.get("folders", ()))
    return _hash_manifest(manifest)


def _refuse_changed(folder: AnyPath, expected: str) -> None:
    """Refuse to write over a state that was written since ours was read."""
    if is_artifact(folder) and _hash_manifest(_read_manifest(folder)) != expected:
        raise StoreError(
            f"{folder} was changed since it was loaded: saving would undo what somebody else "
            "added. Load it again and repeat the update, with rc.updating(folder) so that nobody "
            "comes between, or save with ",
            Argument("overwrite", True),
            ".",
        )


def check_target(folder: Location, kind: str, tables: Collection[str] | None = None) -> None:
    """Refuse to write into somebody else's folder, or over an artifact of another kind.

    `tables` are the names that will be written, when they are known.
    """
    path = as_path(folder)
    if isinstance(path, RemotePath):
        path.refuse_writing()
    if path.is_file():
        raise StoreError(f"{path} is a file. Give a folder to write to.")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not (path / MANIFEST).is_file():
        # A first write that was killed may be done again; a running one moves its files meanwhile.
        if not all(
            each.name == LOCK_FILE
            or PARTS_FOLDER.fullmatch(each.name)
            or _is_own_file(each, tables)
            or not each.exists()
            for each in path.iterdir()
        ):
            raise StoreError(
                f"{path} holds other files. Give a new or empty folder, or one that Reclick wrote."
            )
        return
    held = _read_manifest(path)["kind"]
    if held != kind:
        raise StoreError(
            f"{path} holds {KIND_NAMES.get(held, held)}; {KIND_NAMES[kind]} would overwrite it. "
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
    return not all(kind_of.is_primitive(kind) for kind in table.schema.types)


def _list_repeating(table: pa.Table) -> list[str]:
    """The columns whose values repeat: not codes, nor texts that are all of a table.

    Without a dictionary these take half the space, and are read in half the time.
    """
    texts = () if table.num_columns > 1 else (pa.string(), pa.large_string())
    names = [
        field.name
        for field in table.schema
        if not kind_of.is_integer(field.type) and field.type not in texts
    ]
    return [leaf for name in names for leaf in (name, f"{name}.list.element")]


def _write_manifest(path: AnyPath, content: bytes) -> None:
    with _staging_file(path) as staged:
        with _create_file(staged) as file:
            file.write(content)
        _put(staged, path)


@contextlib.contextmanager
def _staging_file(target: AnyPath) -> Iterator[Path]:
    """Where a file is written before it is put in place; a later write removes what a kill left."""
    if isinstance(target, RemotePath):
        with scratch_folder() as folder:
            yield folder / target.name
    else:
        yield target.with_name(f".{target.name}.{token_hex(8)}.writing")


def _sync(folder: AnyPath) -> None:
    if isinstance(folder, Path):
        sync_folder(folder)


def _create_file(path: Path) -> IO[bytes]:
    """A new file, never one that is there or that a link leads to."""
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
    """The manifest as it is written, with a hash of itself, so that any change is seen."""
    complete = {**manifest, "sha256": _hash_manifest(manifest)}
    return (json.dumps(complete, indent=2, ensure_ascii=False) + "\n").encode()


def _hash_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _is_own_file(path: AnyPath, tables: Collection[str] | None) -> bool:
    """Whether a write of these tables (None: of any) made this file, by its name and content."""
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
    """Remove data files that the manifest does not name: of an earlier save, or a failed one."""
    with contextlib.suppress(StoreError, OSError):
        named = set(earlier_folders)
        if is_artifact(folder):
            manifest = _read_manifest(folder)
            named |= {entry["file"] for entry in manifest["files"].values()}
            named |= set(manifest.get("folders", ()))
        for path in folder.iterdir():
            if path.name in named:
                continue
            if PARTS_FOLDER.fullmatch(path.name):
                _remove_folder(path)
            elif _is_abandoned(path, folder) and _is_own_file(path, tables):
                path.unlink()


def _is_abandoned(path: AnyPath, folder: AnyPath) -> bool:
    """Whether an object is too old to be of a writer that is not done: stores have no locks.

    Both times are of the store's clock. Where it has none, nothing is removed.
    """
    if isinstance(path, Path):
        return True
    committed, written = (folder / MANIFEST).stat().st_mtime, path.stat().st_mtime
    return bool(committed and written) and committed - written > ABANDONED_SECONDS  # type: ignore[operator]


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
    """Keep other writers away from a folder, from loading a model, say, until it is saved again.

    `write` locks too, and may be called inside. Another writer, in this process or another, waits
    a little, then is refused. The system releases the lock when the process ends, however it ends.
    Readers are never held up. A remote folder cannot be locked.
    """
    path, mine = as_path(folder), _held.__dict__.setdefault("folders", set())
    here = resolve(path)
    if isinstance(path, RemotePath) or here in mine:
        yield
        return
    with explain_write_errors(path):
        lock = _acquire(path)
    mine.add(here)
    try:
        yield
    finally:
        mine.discard(here)
        _release(path, lock)


def _acquire(folder: Path) -> int:
    """The descriptor of a lock file that is locked by us."""
    path, deadline = folder / LOCK_FILE, time.monotonic() + LOCK_TIMEOUT
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        lock = os.open(path, flags, 0o666)
        # The holder removes the file, so what is locked must still be what stands there.
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
    locked = try_lock(lock)
    if locked is None:
        logger.warning("%s has no file locks: let one process at a time write to it.", folder)
    return locked is not False


def _release(folder: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        (folder / LOCK_FILE).unlink()
    os.close(lock)
