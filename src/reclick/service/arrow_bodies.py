"""Batches of pages as Arrow IPC streams, which are untrusted and therefore checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from reclick.errors import LogError

ARROW_STREAM = "application/vnd.apache.arrow.stream"
CONTINUATION = 0xFFFFFFFF
DICTIONARY_BATCH, RECORD_BATCH = 2, 3  # types of an IPC message
HEADER_SLOT, BATCH_COMPRESSION_SLOT, DICTIONARY_DATA_SLOT = 2, 3, 1


def read_stream(body: bytes) -> pa.RecordBatch:
    """Read and validate a stream; several batches are concatenated to one.

    A compressed stream raises an error, as a few bytes of it could take all memory.
    """
    try:
        if any(_is_compressed(message) for message in _messages(body)):
            raise LogError("The Arrow stream is compressed. Send it uncompressed.")
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, struct.error, ValueError, OSError, IndexError) as error:
        raise LogError(f"The body is not an Arrow stream: {error}") from error
    if not batches:
        raise LogError("The Arrow stream has no batch: give at least one page.")
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def write_stream(batch: pa.RecordBatch) -> bytes:
    """Write a batch to a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _messages(body: bytes) -> Iterator[bytes]:
    """Yield the metadata of each message of a stream."""
    place = 0
    while place + 4 <= len(body):
        (size,) = struct.unpack_from("<I", body, place)
        place += 4
        if size == CONTINUATION:
            (size,) = struct.unpack_from("<I", body, place)
            place += 4
        if size == 0:
            return
        metadata = body[place : place + size]
        if len(metadata) < size:
            raise ValueError("it ends within a message.")
        yield metadata
        place += size + _body_length(metadata)


def _body_length(metadata: bytes) -> int:
    field = _field(metadata, struct.unpack_from("<I", metadata, 0)[0], 3)
    length = struct.unpack_from("<q", metadata, field)[0] if field else 0
    if length < 0:
        raise ValueError("a message has a negative length.")
    return int(length)


def _is_compressed(metadata: bytes) -> bool:
    """Whether the batch of a message is compressed, read from its flatbuffer."""
    root = struct.unpack_from("<I", metadata, 0)[0]
    kind_field, header_field = _field(metadata, root, 1), _field(metadata, root, HEADER_SLOT)
    kind = metadata[kind_field] if kind_field else 0
    if kind not in (DICTIONARY_BATCH, RECORD_BATCH) or not header_field:
        return False
    table = header_field + struct.unpack_from("<I", metadata, header_field)[0]
    if kind == DICTIONARY_BATCH:
        data = _field(metadata, table, DICTIONARY_DATA_SLOT)
        if not data:
            return False
        table = data + struct.unpack_from("<I", metadata, data)[0]
    return _field(metadata, table, BATCH_COMPRESSION_SLOT) != 0


def _field(metadata: bytes, table: int, slot: int) -> int:
    """Return the offset of a field in a table of a flatbuffer; 0 if it is not there."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    entry = 4 + 2 * slot
    if entry + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + offset if offset else 0
