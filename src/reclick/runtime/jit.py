"""Compile kernels with numba and cache the machine code in the user's cache folder.

Importing this module imports numba, so only modules with kernels import it.

A cache entry is keyed by content: the bytecode of the kernel, the global constants it reads, the
same of every kernel it calls, the argument types, the processor and the versions of numba and
Python. An edit compiles what it changed and nothing else. Nothing is ever written to or deleted
from the installed package. Each entry is one file, written atomically, so two processes may
compile at the same time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast
from uuid import uuid4

import numba
import numpy as np
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
CACHE_VARIABLE = "RECLICK_CACHE_DIR"
CHECKSUM_BYTES = 32
logger = logging.getLogger(__name__)


def kernel(function: Kernel) -> Kernel:
    """Compile at first call, cache the machine code on disk, and release the GIL while it runs."""
    dispatcher: Any = numba.njit(nogil=True)(function)
    dispatcher._cache = KernelCache(cast(FunctionType, function))
    return cast(Kernel, dispatcher)


class KernelCache:
    """Machine code of one kernel on disk: what a numba dispatcher expects of its cache."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    @property
    def cache_path(self) -> str | None:
        """The folder of all kernels, or None where nothing can be cached."""
        folder = cache_folder()
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compile result of an earlier process, or None. A damaged entry counts as none."""
        target_context.refresh()
        path = self._entry(signature, target_context.codegen())
        if path is None:
            return None
        try:
            payload = _read_verified(path)
            if payload is None:
                return None
            rebuild: Callable[..., Any] = CompileResult._rebuild
            return rebuild(target_context, *pickle.loads(payload))  # noqa: S301
        except Exception as error:  # anything wrong with an entry: compile again and replace it
            logger.warning("%s cannot be used (%s): compiling again.", path, error)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write a compile result, unless the folder cannot be used."""
        path = self._entry(signature, result.codegen)
        if path is None or result.library.has_dynamic_globals or result.lifted:
            return
        serialise: Callable[[Any], bytes] = dumps
        payload = serialise(result._reduce())
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
            temporary.replace(path)
        except OSError as error:
            logger.warning("%s cannot be written (%s): the kernel is not cached.", path, error)
            temporary.unlink(missing_ok=True)

    def flush(self) -> None:
        """Nothing to do: an entry that no longer fits is never looked up."""

    enable = disable = flush

    def _entry(self, signature: Any, codegen: Any) -> Path | None:
        folder = cache_folder()
        if folder is None:
            return None
        parts = (signature, codegen.magic_tuple(), content_key(self._function), _versions())
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        return folder / f"{self._function.__name__}-{key}.kernel"


def cache_is_empty() -> bool:
    """Whether no kernel has been compiled before, so that the first use takes longer."""
    folder = cache_folder()
    return folder is None or not any(folder.glob("*.kernel"))


@cache
def cache_folder() -> Path | None:
    """The folder of compiled kernels, private to this user; None where there cannot be one.

    `RECLICK_CACHE_DIR` chooses another place than the user's cache folder.
    """
    folder = _user_cache() / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(folder):
            logger.warning("%s can be written by other users: kernels are not cached.", folder)
            return None
        probe = folder / f".probe.{uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        logger.warning("%s cannot be used (%s): kernels are not cached.", folder, error)
        return None
    return folder


def is_private(folder: Path) -> bool:
    """Whether only this user (and root) can change what the folder holds."""
    if os.name != "posix":
        return True  # the profile folder of a Windows user is private
    resolved = folder.resolve()
    return _belongs_to_user(resolved) and all(map(_is_protected, resolved.parents))


def _belongs_to_user(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_protected(folder: Path) -> bool:
    """Whether other users cannot replace what stands in a parent folder."""
    status = folder.stat()
    trusted = status.st_uid in {0, os.getuid()}
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return trusted and (not shared or bool(status.st_mode & stat.S_ISVTX))


def _user_cache() -> Path:
    from platformdirs import user_cache_path

    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path(user_cache_path("reclick", appauthor=False))


def _read_verified(path: Path) -> bytes | None:
    """The payload of an entry, or None where there is no entry or its checksum does not fit."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    checksum, payload = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    return payload if hashlib.sha256(payload).digest() == checksum else None


@cache
def content_key(function: FunctionType) -> str:
    """A hash of everything of the sources that the machine code of a kernel depends on."""
    digest = hashlib.sha256()
    for part in _contents(function, set()):
        digest.update(part)
    return digest.hexdigest()


def _contents(function: FunctionType, visited: set[FunctionType]) -> Iterator[bytes]:
    """Bytecode and constants of a kernel, and of every kernel it calls."""
    if function in visited:
        return
    visited.add(function)
    yield from _code_contents(function.__code__, function.__doc__)
    yield repr((function.__defaults__, function.__kwdefaults__)).encode()
    for name in sorted(_global_names(function.__code__)):
        value = function.__globals__.get(name)
        if isinstance(value, numba.core.dispatcher.Dispatcher):
            yield from _contents(value.py_func, visited)
        elif isinstance(value, bool | int | float | str | tuple | np.generic):
            yield f"{name}={value!r}".encode()
        elif isinstance(value, np.ndarray):
            yield name.encode() + str(value.dtype).encode() + value.tobytes()


def _code_contents(code: CodeType, docstring: str | None = None) -> Iterator[bytes]:
    """Bytecode and constants, without the docstring."""
    yield code.co_code
    yield repr((code.co_names, code.co_argcount)).encode()
    for constant in code.co_consts:
        if docstring is not None and constant == docstring:
            continue
        if isinstance(constant, CodeType):
            yield from _code_contents(constant)
        else:
            yield repr(constant).encode()


def _global_names(code: CodeType) -> set[str]:
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_global_names, nested))


def _versions() -> tuple[str, ...]:
    return (sys.version, numba.__version__, np.__version__)
