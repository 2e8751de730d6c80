"""Write files atomically, several as one, and never over files that Reclick did not write.

New files are staged in a private folder `.reclick-HEX` next to their targets, which its writer
keeps locked. Renaming the folder to `.reclick-commit` is the commit point; then its files are moved
to their places. If a run is killed in between, the next writer or reader that finds
`.reclick-commit` moves the rest. `.reclick-files.json` lists the files that Reclick wrote, so that
other files are not replaced. docs/decisions/0040-outputs.md has the reasons.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from reclick.errors import Argument, StoreError, UsageError, explain_write_errors
from reclick.runtime.filesystem import AnyPath, Location, RemotePath, as_path, is_text

PRIVATE_FOLDER = re.compile(r"\.reclick-[0-9a-f]{32}")
COMMIT_FOLDER = ".reclick-commit"
LIST_FILE = ".reclick-files.json"  # of the files that Reclick wrote to a folder
LOCK_FILE, PLAN_FILE, CONTENT = "lock", "plan.json", "content"  # in a private folder
MERGED_FILE = "merged.json"  # there: the list, merged with changes of another run
MANIFEST_FILE = "manifest.json"  # of the folder of a model or of counts, and how it starts
MANIFEST_START = re.compile(rb'\{\s*"kind":\s*"\w+",\s*"format":\s*\d')
MANIFEST_HEAD_BYTES = 256
LOCK_TIMEOUT = 10.0  # seconds that a process waits for another
LOCK_RETRY = 0.02  # seconds between two tries
LARGEST_LIST = 16 << 20  # bytes, of 100,000 files
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
UNCHANGED = "What was there before is unchanged."


# ---- what may be replaced


def refuse_source_files(
    target: Location, sources: Iterable[Location], what: str = "the log itself"
) -> None:
    """Raise if a target is one of the files being read, directly or through a link."""
    place = as_path(target)
    if not place.exists():
        return
    for source in map(as_path, sources):
        if isinstance(place, RemotePath) or isinstance(source, RemotePath):
            same = str(place) == str(source)
        else:
            same = source.exists() and place.samefile(source)
        if same:
            raise UsageError(
                f"{target} is {what}, which would be lost. Give another file to write to."
            )


def check_targets(targets: Iterable[Location], *, overwrite: bool = False) -> None:
    """Raise if a target is not a file, or is a file that Reclick did not write.

    Reclick wrote a file if the list of its folder has it with the same content. An empty file may
    be replaced, and with `overwrite` any file, but none in the folder of a model or of counts. For
    a remote file, the only other check is whether it can be written.
    """
    folders: set[AnyPath] = set()
    for target in map(as_path, targets):
        if isinstance(target, RemotePath):
            target.refuse_writing()
        elif not is_text(target):
            raise StoreError(
                f"{target} cannot be written: its path has bytes that are not UTF-8. "
                "Give a path that is text."
            )
        if target.parent not in folders:
            _refuse_artifact_folder(target)
            folders.add(target.parent)
        if isinstance(target, RemotePath):
            continue
        complete_commit(target.parent)
        try:
            status = target.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISDIR(status.st_mode):
            raise StoreError(
                f"{target} cannot be written: it is a folder. Give the path of a file."
            )
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise StoreError(
                f"{target} cannot be written: it is a device or a pipe. Give the path of a file."
            )
        if not overwrite and not _may_be_replaced(target, status):
            raise UsageError(
                f"{target} is there already, and Reclick did not write it, or it was changed "
                "since. Give another name, or replace it with ",
                Argument("overwrite", True, option="force"),
                ".",
            )


def _refuse_artifact_folder(target: AnyPath) -> None:
    """Raise if the folder of a target is that of a model or counts, which owns all its files."""
    manifest = target.parent / MANIFEST_FILE
    try:
        if not manifest.is_file():
            return
        with manifest.open("rb") as file:
            is_artifact = MANIFEST_START.match(file.read(MANIFEST_HEAD_BYTES))
    except OSError:
        return
    if is_artifact:
        raise UsageError(
            f"{target} is in the folder of a model or of counts, which has only the files that "
            "save() writes. Give a path outside this folder."
        )


def is_own_file(path: Path) -> bool:
    """Whether Reclick wrote a file, and it has not changed since."""
    try:
        status = path.lstat()
    except OSError:
        return False
    entry = _read_list(path.parent).get(path.name)
    if entry is None or not stat.S_ISREG(status.st_mode) or entry.get("bytes") != status.st_size:
        return False
    digest = _digest_once(path, status.st_ino, status.st_mtime_ns)
    return bool(digest == entry.get("sha256"))


def _may_be_replaced(path: Path, status: os.stat_result) -> bool:
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        return True
    while True:
        before = _list_digest(path.parent)
        if is_own_file(path):
            return True
        # Another run may have moved the file into place, but not the list yet.
        if not complete_commit(path.parent) and _list_digest(path.parent) == before:
            return False


def _read_list(folder: Path) -> dict[str, Any]:
    """Read the list of files that Reclick wrote to a folder; empty if it is missing or damaged."""
    try:
        files = json.loads(_read_private(folder / LIST_FILE))["files"]
        return {name: entry for name, entry in files.items() if isinstance(entry, dict)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _read_private(path: Path) -> bytes:
    """Read a plain file. Links are not followed, and a pipe does not block."""
    flags = os.O_RDONLY | _no_follow() | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        return file.read(LARGEST_LIST)


# ---- writing


def write_files(
    folder: Location, writers: Mapping[str, Callable[[Path], object]], *, overwrite: bool = False
) -> list[AnyPath]:
    """Write files to a folder atomically: after a kill it has all old files or all new files."""
    targets = [as_path(folder) / name for name in writers]
    with stage_files(targets, where=as_path(folder), overwrite=overwrite) as staged:
        for path, write in zip(staged, writers.values(), strict=True):
            write(path)
    return targets


def write_text(path: Path, text: str) -> None:
    """Write text to a file, with escapes for the bytes of a file name that are not UTF-8."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def atomic_file(target: Location, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to: moved into place at the end, or removed on error.

    An OSError of the body is reported as an error of writing only if the disk is full or if it
    names this file.
    """
    place = as_path(target)
    with stage_files([place], where=place, overwrite=overwrite) as (temporary,):
        yield temporary


@contextlib.contextmanager
def stage_files(
    targets: Sequence[AnyPath], *, where: AnyPath, overwrite: bool = False
) -> Iterator[list[Path]]:
    """Yield a temporary path per file of one folder; at the end all are moved into place at once.

    A target that was not staged is removed, if Reclick wrote it. Messages name `where`. Remote
    files are uploaded one by one.
    """
    check_targets(targets, overwrite=overwrite)
    remote = isinstance(where, RemotePath)
    with contextlib.ExitStack() as stack:
        with explain_write_errors(where):
            folder = temporary_folder() if remote else Path(str(targets[0].parent))
            stack.enter_context(_created_folder(folder))
            private = _PrivateFolder.open(folder, stack)
        staged = [private.content / target.name for target in targets]
        with explain_write_errors(where, files=staged):
            yield staged
        with explain_write_errors(where):
            if not remote:
                check_targets(targets, overwrite=overwrite)
                private.commit([target.name for target in targets])
        with explain_write_errors(where, "Every file there is whole."):
            for path, target in zip(staged, targets, strict=True):
                if isinstance(target, RemotePath):
                    _upload(path, target)


def _upload(staged: Path, target: RemotePath) -> None:
    if staged.exists():
        target.upload(staged)
    else:
        target.unlink(missing_ok=True)


@contextlib.contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder for temporary files, by default in the system's; it is removed at the end.

    The folder of a killed run is removed by the next run that needs one in the same place.
    """
    place = temporary_folder() if parent is None else parent
    with contextlib.ExitStack() as stack:
        with explain_write_errors(place, ""):
            private = _PrivateFolder.open(place, stack)
        yield private.content


def temporary_folder() -> Path:
    """Return the system's folder for temporary files."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StoreError(
            f"There is no folder for temporary files ({error}). Set TMPDIR to one that can be "
            "written."
        ) from error


@contextlib.contextmanager
def scratch_file(target: AnyPath) -> Iterator[Path]:
    """Like `atomic_file`, for a file that is used in this run only: it is not synced or listed."""
    with contextlib.ExitStack() as stack:
        with explain_write_errors(target):
            if isinstance(target, RemotePath):
                path = stack.enter_context(scratch_folder()) / target.name
            else:
                path = target.with_name(f".{target.name}.{token_hex(16)}")
                stack.callback(path.unlink, missing_ok=True)
        with explain_write_errors(target, files=[path]):
            yield path
        with explain_write_errors(target):
            if isinstance(target, RemotePath):
                target.upload(path)
            else:
                path.replace(target)


@contextlib.contextmanager
def _created_folder(folder: Path) -> Iterator[None]:
    """Create a folder if needed; on error, remove new folders again if they are empty."""
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in new_folders:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


# ---- private folders


class _PrivateFolder:
    """A hidden folder with a lock, a plan and content, which no other user can open.

    The lock is held until the folder is removed or the process ends.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place / f".reclick-{token_hex(16)}"
        self._lock: int | None = None

    @classmethod
    def open(cls, place: Path, stack: contextlib.ExitStack) -> _PrivateFolder:
        """Create a folder that the stack removes, even if Ctrl-C comes before it is complete."""
        private = cls(place)
        stack.callback(private._close)
        private._create()
        return private

    @property
    def content(self) -> Path:
        """Where files are staged."""
        return self._path / CONTENT

    def _create(self) -> None:
        remove_leftovers(self._place)
        while True:
            self._path.mkdir(mode=0o700)
            # Until it is locked, another run may take the new folder for a leftover and remove it.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                self._lock = _make_lock(self._path / LOCK_FILE)
                self.content.mkdir()
                return
            self._path = self._place / f".reclick-{token_hex(16)}"

    def _close(self) -> None:
        try:
            self._remove()
        except KeyboardInterrupt:  # remove what is left
            self._remove()
            raise

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            _remove_private(self._path)
        if self._lock is not None:
            lock, self._lock = self._lock, None
            os.close(lock)

    def commit(self, names: Sequence[str]) -> None:
        """Move the staged files with these names into place; remove those that are not staged."""
        plan = _make_plan(self._place, self.content, names)
        _write_synced(self._path / PLAN_FILE, json.dumps(plan).encode())
        _write_synced(self._path / LIST_FILE, _merge_list(self._place, plan))
        for folder in (self.content, self._path):
            sync_folder(folder)
        goal = self._place / COMMIT_FOLDER
        try:
            while not _rename_folder(self._path, goal):
                complete_commit(self._place)
            sync_folder(self._place)
            _finish(self._place)
        except OSError:
            if all((goal / CONTENT / name).exists() for name in plan["files"]):
                goal.rename(self._path)  # nothing was moved yet: the old files stay
            raise
        except BaseException:  # Ctrl-C: complete a commit that has begun
            if self._lock is not None and is_file_at(self._lock, goal / LOCK_FILE):
                _finish(self._place)
            raise


def _make_lock(path: Path) -> int | None:
    """Create and lock a file, and return its descriptor; None if there are no file locks."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _no_follow(), 0o600)
    is_locked = try_lock(lock)
    if is_locked is None:
        os.close(lock)  # an open file would keep Windows from renaming its folder
        return None
    if not is_locked or not is_file_at(lock, path):
        os.close(lock)
        raise BlockingIOError(f"{path} is held by another run")
    return lock


def remove_leftovers(place: Path) -> None:
    """Remove the private folders of killed processes: those whose lock is free."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if PRIVATE_FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _remove_abandoned(Path(entry.path))


def _remove_abandoned(folder: Path) -> None:
    if not _belongs_to_user(folder):
        return
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | _no_follow())
    except FileNotFoundError:
        folder.rmdir()  # which fails, as it should, if anything is in it
        return
    try:
        if try_lock(lock):
            _remove_private(folder)
    finally:
        os.close(lock)


def _remove_private(folder: Path) -> None:
    """Remove a private folder, the lock file last: without it the folder is not recognised."""
    if folder.is_dir():
        shutil.rmtree(folder / CONTENT, ignore_errors=True)
        for name in (MERGED_FILE, LIST_FILE, PLAN_FILE, LOCK_FILE):
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another run removed the empty folder
            folder.rmdir()


def _belongs_to_user(folder: Path) -> bool:
    """Whether a folder belongs to the user of this process."""
    return not hasattr(os, "geteuid") or folder.lstat().st_uid == os.geteuid()


# ---- commits


def complete_commit(folder: Path) -> bool:
    """Complete the commit of a killed run, and return whether there was one."""
    commit, deadline = folder / COMMIT_FOLDER, time.monotonic() + LOCK_TIMEOUT
    if not os.path.lexists(commit):
        return False
    while os.path.lexists(commit):
        with explain_write_errors(folder, ""), contextlib.suppress(FileNotFoundError):
            if _try_completion(folder, commit):
                break
        if time.monotonic() > deadline:
            raise StoreError(
                f"{folder} holds the files of a run that was killed before it had put all of them "
                f"in place, in {COMMIT_FOLDER}, and they cannot be put there now: another process "
                "or user holds them. Run any command of Reclick on this folder as their owner."
            )
        time.sleep(LOCK_RETRY)
    return True


def _try_completion(folder: Path, commit: Path) -> bool:
    """Complete a commit, if it can be locked."""
    if commit.is_symlink() or not _belongs_to_user(commit):
        return False
    try:
        lock = os.open(commit / LOCK_FILE, os.O_RDWR | _no_follow())
    except FileNotFoundError:
        return False
    try:
        if try_lock(lock) is False or not is_file_at(lock, commit / LOCK_FILE):
            return False
        _finish(folder)
    finally:
        os.close(lock)
    return True


def _finish(folder: Path) -> None:
    """Carry out the plan of a commit, and remove its folder; steps done before are skipped."""
    commit = folder / COMMIT_FOLDER
    plan = _read_plan(commit)
    for name in plan["files"]:
        with contextlib.suppress(FileNotFoundError):
            (commit / CONTENT / name).replace(folder / name)
    for name in plan["removed"]:
        if is_own_file(folder / name):
            (folder / name).unlink(missing_ok=True)
    if (commit / LIST_FILE).exists():
        if plan["before"] != _list_digest(folder):
            _write_synced(commit / MERGED_FILE, _merge_list(folder, plan))
            (commit / MERGED_FILE).replace(commit / LIST_FILE)
        (commit / LIST_FILE).replace(folder / LIST_FILE)
    sync_folder(folder)
    leftover = folder / f".reclick-{token_hex(16)}"  # frees the name at once, for the next commit
    try:
        commit.rename(leftover)
        _remove_private(leftover)
    except KeyboardInterrupt:  # remove the rest
        _remove_private(leftover)
        raise


def _read_plan(commit: Path) -> dict[str, Any]:
    """Read and check the plan of a commit; a damaged plan is an error, not carried out in part."""
    try:
        plan = json.loads(_read_private(commit / PLAN_FILE))
        files, removed = plan["files"], plan["removed"]
        are_dicts = all(isinstance(entry, dict) for entry in files.values())
        if are_dicts and isinstance(removed, list) and all(map(_is_plain_name, [*files, *removed])):
            return {"files": files, "removed": removed, "before": plan.get("before")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise StoreError(
        f"{commit / PLAN_FILE} is damaged: the files of a run that was killed cannot be put in "
        f"place. Move the folder {COMMIT_FOLDER} away, and run the command that wrote it again."
    )


def _make_plan(place: Path, content: Path, names: Sequence[str]) -> dict[str, Any]:
    """Make the plan of a commit: files to move and to remove, and the hash of the old list."""
    files, removed = {}, []
    for name in names:
        path = content / name
        if path.exists():
            _sync_file(path)
            files[name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
        elif is_own_file(place / name):
            removed.append(name)
    return {"files": files, "removed": removed, "before": _list_digest(place)}


def _merge_list(folder: Path, plan: dict[str, Any]) -> bytes:
    """Make the list of a folder after a commit, without files that no longer exist."""
    files = {**_read_list(folder), **plan["files"]}
    entries = {
        name: entry
        for name, entry in files.items()
        if name in plan["files"] or (name not in plan["removed"] and os.path.lexists(folder / name))
    }
    return (json.dumps({"files": entries}, indent=1, ensure_ascii=False) + "\n").encode()


def _list_digest(folder: Path) -> str | None:
    try:
        return hashlib.sha256(_read_private(folder / LIST_FILE)).hexdigest()
    except OSError:
        return None


def _rename_folder(source: Path, target: Path) -> bool:
    """Rename a folder; False if the target exists."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) or target.is_dir():
            return False
        raise
    return True


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and name not in {"", ".", ".."} and Path(name).name == name


# ---- locks and syncs


def try_lock(file: int) -> bool | None:
    """Lock an open file; False if another process holds it, None if there are no file locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except ImportError:  # Windows
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return None
    return True


def is_file_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on disk, if the system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1024)
def _digest_once(path: Path, inode: int, modified: int) -> str:
    """Return the hash of a file; cached, as a run needs it several times."""
    return _digest(path)


def _no_follow() -> int:
    return getattr(os, "O_NOFOLLOW", 0)
