"""Writes files past the checks of Reclick, as another program would."""

from __future__ import annotations

from pathlib import Path

from reclick.runtime.filesystem import AnyPath


def put_unchecked(path: AnyPath, content: bytes) -> None:
    """Write a local file or an object, also in the folder of a model."""
    if isinstance(path, Path):
        path.write_bytes(content)
        return
    filesystem, name = path._resolve()
    with filesystem.open_output_stream(name) as stream:
        stream.write(content)
