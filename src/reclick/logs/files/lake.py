"""Read lake tables, Delta and Iceberg, with their own readers, which leave out deleted rows.

A Delta table is a folder with a `_delta_log`, or a `DeltaTable`. An Iceberg table is its metadata
file, a pyiceberg `Table`, or a scan of one. Reading the data files would be wrong: some of them
have rows that were deleted or replaced later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from reclick.data.schema import Column
from reclick.errors import LogError
from reclick.logs.files.source import DELTA_LOG
from reclick.logs.files.stream import TABLE_NAME, ScanSource, open_scan
from reclick.runtime.extras import import_extra
from reclick.runtime.filesystem import AnyPath, RemotePath

ICEBERG_METADATA = ".metadata.json"


def open_lake_path(
    path: AnyPath, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> ScanSource | None:
    """Open the lake table at a path; None if there is none."""
    if path.name.endswith(ICEBERG_METADATA) and path.is_file():
        return _open_iceberg(_load_iceberg(path), columns_to_read, mapping, path.name)
    if not path.is_dir():
        return None
    if (path / DELTA_LOG).is_dir():
        return _open_delta(_load_delta(path), columns_to_read, mapping, path.name)
    files = sorted((path / "metadata").glob(f"*{ICEBERG_METADATA}"))
    if files:
        raise LogError(
            f"{path} is an Iceberg table, whose catalog knows which of its {len(files)} metadata "
            f"files is the current one. Give that file, such as {files[-1]}, or in Python the "
            "table of the catalog."
        )
    return None


def open_lake_table(
    source: Any, columns_to_read: Sequence[Column], mapping: dict[str, str]
) -> ScanSource | None:
    """Open a `DeltaTable`, or a table or scan of pyiceberg; None for anything else."""
    library, kind = type(source).__module__.partition(".")[0], type(source).__name__
    if (library, kind) == ("deltalake", "DeltaTable"):
        return _open_delta(source, columns_to_read, mapping, TABLE_NAME)
    if library == "pyiceberg" and hasattr(source, "scan"):
        return _open_iceberg(source.scan(), columns_to_read, mapping, TABLE_NAME)
    if library == "pyiceberg" and hasattr(source, "to_arrow_batch_reader"):
        return _open_iceberg(source, columns_to_read, mapping, TABLE_NAME)
    return None


def _load_delta(path: AnyPath) -> Any:
    deltalake = import_extra("deltalake", "reclick[delta]")
    if not isinstance(path, RemotePath):
        return deltalake.DeltaTable(str(path))
    user, _, authority = path.authority.rpartition("@")
    if path.scheme not in {"s3", "s3a"}:
        authority, user = path.authority, ""
    options: dict[str, str] = {}
    if user:
        key, _, secret = user.partition(":")
        options |= {"AWS_ACCESS_KEY_ID": unquote(key), "AWS_SECRET_ACCESS_KEY": unquote(secret)}
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return deltalake.DeltaTable(f"{path.scheme}://{authority}{path.path}", storage_options=options)


def _open_delta(
    table: Any, columns_to_read: Sequence[Column], mapping: dict[str, str], where: str
) -> ScanSource:
    def open_reader(columns: list[str] | None) -> Any:
        return pa.RecordBatchReader.from_stream(table.scan(columns=columns))

    return open_scan(open_reader(None).schema, open_reader, columns_to_read, mapping, where)


def _load_iceberg(path: AnyPath) -> Any:
    table = import_extra("pyiceberg.table", "reclick[iceberg]")
    if not isinstance(path, RemotePath):
        return table.StaticTable.from_metadata(path.resolve().as_uri()).scan()
    options = {"s3.endpoint": endpoint} if (endpoint := os.environ.get("AWS_ENDPOINT_URL")) else {}
    return table.StaticTable.from_metadata(
        f"{path.scheme}://{path.authority}{path.path}", properties=options
    ).scan()


def _open_iceberg(
    scan: Any, columns_to_read: Sequence[Column], mapping: dict[str, str], where: str
) -> ScanSource:
    def open_reader(columns: list[str] | None) -> Any:
        return (scan if columns is None else scan.select(*columns)).to_arrow_batch_reader()

    return open_scan(scan.projection().as_arrow(), open_reader, columns_to_read, mapping, where)
