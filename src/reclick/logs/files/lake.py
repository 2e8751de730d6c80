"""Read lake tables, Delta and Iceberg, with their own readers, which leave out deleted rows.

A Delta table is a folder with a `_delta_log`, or a `DeltaTable`. An Iceberg table is its metadata
file, a pyiceberg `Table`, or a scan of one. Reading the data files would be wrong: some of them
have rows that were deleted or replaced later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from reclick.data.schema import Column
from reclick.errors import LogError
from reclick.logs.files.source import DELTA_LOG
from reclick.logs.files.stream import TABLE_NAME, ScanSource, open_scan
from reclick.runtime.extras import import_extra
from reclick.runtime.filesystem import AnyPath, RemotePath
from reclick.runtime.object_store import S3, explain_remote_errors, s3_options

ICEBERG_METADATA = ".metadata.json"
# Arrow's options of S3, and what they are called by the readers.
DELTA_OPTIONS = {
    "endpoint_override": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "anonymous": "AWS_SKIP_SIGNATURE",
    "force_virtual_addressing": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
}
ICEBERG_OPTIONS = {
    "endpoint_override": "s3.endpoint",
    "region": "s3.region",
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "anonymous": "s3.anonymous",
    "force_virtual_addressing": "s3.force-virtual-addressing",
}


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
    address, options = _describe_store(path, DELTA_OPTIONS)
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    with explain_remote_errors(path):
        return deltalake.DeltaTable(address, storage_options=options)


def _describe_store(path: RemotePath, names: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The address of a table, and how to reach its store, in the words of a reader.

    Readers have connections of their own: all that the address and the environment say is passed
    on. What they read from the environment themselves is not.
    """
    if path.scheme not in S3:
        if path.query:
            raise LogError(
                f"{path}: the readers of Delta and Iceberg take options of an address for S3 only. "
                "Leave out what follows the question mark, and set what their libraries read from "
                "the environment; or give the Parquet files of a copy of the table."
            )
        return f"{path.scheme}://{path.authority}{path.path}", {}
    arrow_options, bucket = s3_options(path.authority, path.query)
    if "endpoint_override" in arrow_options:
        scheme = arrow_options.get("scheme", "https")
        arrow_options["endpoint_override"] = f"{scheme}://{arrow_options['endpoint_override']}"
    text = {
        name: str(value).lower() if value in (True, False) else value
        for name, value in arrow_options.items()
    }
    options = {option: text[name] for name, option in names.items() if name in text}
    return f"{path.scheme}://{bucket}{path.path}", options


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
    address, options = _describe_store(path, ICEBERG_OPTIONS)
    with explain_remote_errors(path):
        return table.StaticTable.from_metadata(address, properties=options).scan()


def _open_iceberg(
    scan: Any, columns_to_read: Sequence[Column], mapping: dict[str, str], where: str
) -> ScanSource:
    def open_reader(columns: list[str] | None) -> Any:
        return (scan if columns is None else scan.select(*columns)).to_arrow_batch_reader()

    return open_scan(scan.projection().as_arrow(), open_reader, columns_to_read, mapping, where)
