"""Files that tasks exchange: objects by name, in a folder that every task of an engine can reach.

An object is pickled, and its arrays follow the pickle, so that a task maps them into memory instead
of copying them. A file is written under a temporary name and then renamed; it is never changed.
Unpickling can run code, so only what this job has written is unpickled: a store has a secret key,
which is sent to the tasks with their functions and is in no file, and every object has a hash
(HMAC) with that key.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import pickle
import secrets
import shutil
import struct
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from reclick.errors import StoreError
from reclick.runtime.filesystem import AnyPath, Location, RemotePath, as_path
from reclick.runtime.outputs import scratch_file, temporary_folder
from reclick.runtime.parallel import parallel_map

MAGIC = b"reclick1"
HEAD = struct.Struct("<8s16sQQ")  # magic, hash, sizes of the file and of its table of contents
KEY_BYTES, HASH_BYTES = 32, 16
ALIGNMENT = 64  # of arrays, as NumPy and Arrow recommend
CACHE_SIZE = 64  # objects that a process keeps between tasks


Pieces = list[bytes | memoryview]  # of a packed object, one after another


class Store:
    """A private folder inside a shared one. A pickled store can be used by any process.

    >>> store = Store.create(None)
    >>> store.put("greeting", ["hello"])
    >>> store.load("greeting")
    'hello'
    >>> store.remove()
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder
        self._key = secrets.token_bytes(KEY_BYTES)

    @classmethod
    def create(cls, shared: Location | None) -> Store:
        """Create a folder inside a shared one, or in the temporary folder of this machine."""
        name = f"reclick-{uuid4().hex}"
        if shared is None:
            return cls(Path(tempfile.mkdtemp(prefix="reclick-", dir=temporary_folder())))
        folder = as_path(shared) / name
        if isinstance(folder, Path):
            try:
                folder.mkdir(mode=0o700, parents=True)
            except OSError as error:
                raise StoreError(
                    f"{shared}: the folder for the tasks' files cannot be made there ({error})."
                ) from error
        return cls(folder)

    def put(self, name: str, values: Sequence[object]) -> None:
        """Write objects to a file; each of them can be loaded separately."""
        self.put_packed(name, [pack(value) for value in values])

    def put_packed(self, name: str, packed: Sequence[Pieces]) -> None:
        """Write objects that `pack` has packed."""
        sizes = struct.pack(f"<{len(packed)}Q", *map(packed_size, packed))
        contents = sizes + b"".join(parallel_map(self._hash_pieces, packed))
        start = _align(HEAD.size + len(contents))
        total = start + sum(map(packed_size, packed))
        digest = self._hash(name.encode() + b"\0", contents)
        with scratch_file(self.folder / name) as path, path.open("wb") as file:
            file.write(HEAD.pack(MAGIC, digest, total, len(contents)))
            file.write(contents)
            file.write(bytes(start - HEAD.size - len(contents)))
            for parts in packed:
                for part in parts:
                    file.write(part)

    def load(self, name: str, item: int = 0) -> Any:
        """Load an object of a file. Arrays are mapped, and stay valid if the file is removed."""
        return _unpack(*self._read(name, item))

    def keep(self, name: str, item: int = 0) -> Any:
        """Load an object, and keep it in memory for the next tasks of this process."""
        key = f"{self.folder}/{name}#{item}"
        if key in _open_objects:
            _open_objects.move_to_end(key)
            return _open_objects[key]
        value = self.load(name, item)
        _open_objects[key] = value
        while len(_open_objects) > CACHE_SIZE:
            _open_objects.popitem(last=False)
        return value

    def _read(self, name: str, item: int) -> tuple[bytes, memoryview]:
        """Read the pickle of an object and its arrays, and check that this job has written them."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                return self._read_object(file, name, item, is_local=isinstance(path, Path))
        except (OSError, ValueError, struct.error) as error:
            raise StoreError(
                f"{path}, a file between tasks, cannot be read ({error}). Every task must reach "
                "the folder, and nothing else may change it."
            ) from error

    def _read_object(
        self, file: Any, name: str, item: int, *, is_local: bool
    ) -> tuple[bytes, memoryview]:
        magic, digest, total, length = HEAD.unpack(file.read(HEAD.size))
        contents = file.read(length)
        if magic != MAGIC or not hmac.compare_digest(
            self._hash(name.encode() + b"\0", contents), digest
        ):
            raise ValueError("its table of contents is damaged, or not of this job")
        count = length // (8 + HASH_BYTES)
        sizes = struct.unpack(f"<{count}Q", contents[: 8 * count])
        start = _align(HEAD.size + length) + sum(sizes[:item])
        if is_local:
            if file.seek(0, 2) != total:
                raise ValueError("it is cut short")
            # A private mapping: arrays that were writable are writable again, but not the file.
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
            data = data[start : start + sizes[item]]
        else:
            file.seek(start)
            data = memoryview(bytearray(file.read(sizes[item])))
        # The pickle is copied before it is hashed, as the file might change in between.
        size = _stream_end(data)
        stream, arrays = bytes(data[:size]), data[size:]
        place = 8 * count + HASH_BYTES * item
        if not hmac.compare_digest(
            self._hash(stream, arrays), contents[place : place + HASH_BYTES]
        ):
            raise ValueError("it is damaged, or not of this job")
        return stream, arrays

    def _hash(self, *pieces: bytes | memoryview) -> bytes:
        return self._hash_pieces(pieces)

    def _hash_pieces(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        # Most processors have instructions for SHA-256, which hash more than 1 GB/s.
        digest = hmac.new(self._key, digestmod="sha256")
        for piece in pieces:
            digest.update(piece)
        return digest.digest()[:HASH_BYTES]

    def discard(self, names: Iterable[str]) -> None:
        """Remove some files."""
        for name in names:
            with contextlib.suppress(OSError, StoreError):
                (self.folder / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove everything."""
        if isinstance(self.folder, RemotePath):
            with contextlib.suppress(StoreError):
                self.folder.remove_folder()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def remove_with(self, owner: object) -> None:
        """Remove everything when an object is garbage-collected, or when the process ends."""
        weakref.finalize(owner, self.remove)


class BlockFile(NamedTuple):
    """A file with consecutive blocks, for one task."""

    name: str
    n_blocks: int
    rows: Any  # of the log, from the first to the last block; None if blocks have no rows


class StoredBlocks(Sequence[Any]):
    """Blocks in files of a store. Tasks load them from the files; indexing loads them here."""

    def __init__(self, store: Store, files: Sequence[BlockFile]) -> None:
        self.store, self.files = store, list(files)
        weakref.finalize(self, store.discard, [file.name for file in files])

    def __len__(self) -> int:
        return sum(file.n_blocks for file in self.files)

    def __iter__(self) -> Iterator[Any]:
        for file in self.files:
            yield from self.store.load(file.name)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        for file in self.files:
            if at < file.n_blocks:
                return self.store.load(file.name)[at]
            at -= file.n_blocks
        raise IndexError(index)


def write_blocks(store: Store, name: str, blocks: Sequence[Any]) -> BlockFile:
    """Write consecutive blocks to a file."""
    store.put(name, [list(blocks)])
    first, last = (getattr(blocks[i], "rows", None) for i in (0, -1))
    return BlockFile(name, len(blocks), None if first is None else first.up_to(last))


_open_objects: OrderedDict[str, Any] = OrderedDict()  # of this process, the last used at the end


def pack(value: object) -> Pieces:
    """Pickle an object, as pieces: a table of its arrays, the pickle, and the arrays."""
    buffers: list[memoryview] = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=lambda b: buffers.append(b.raw()))
    table = [len(stream), *(2 * len(buffer) + buffer.readonly for buffer in buffers)]
    head = struct.pack(f"<Q{len(table)}Q", len(table), *table)
    pieces: Pieces = []
    contents: Pieces = [head, stream, *buffers]
    for piece in contents:
        pieces += [piece, bytes(_align(len(piece)) - len(piece))]
    return pieces


def _stream_end(data: memoryview) -> int:
    """Return where the pickle of an object ends and its arrays begin."""
    length, stream_size = struct.unpack_from("<QQ", data)
    return min(_align(8 + 8 * length) + _align(stream_size), len(data))


def unpack(data: memoryview) -> Any:
    """Unpickle an object from the concatenation of its pieces."""
    size = _stream_end(data)
    return _unpack(bytes(data[:size]), data[size:])


def _unpack(stream: bytes, arrays: memoryview) -> Any:
    (length,) = struct.unpack_from("<Q", stream)
    _, *entries = struct.unpack_from(f"<{length}Q", stream, 8)
    at, buffers = 0, []
    for entry in entries:
        size, read_only = entry >> 1, bool(entry & 1)
        piece = arrays[at : at + size]
        buffers.append(piece.toreadonly() if read_only else piece)
        at += _align(size)
    start = _align(8 + 8 * length)
    return pickle.loads(memoryview(stream)[start:], buffers=buffers)  # noqa: S301, see the module's docstring


def packed_size(pieces: Pieces) -> int:
    """Return the size of a packed object in bytes."""
    return sum(map(len, pieces))


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
