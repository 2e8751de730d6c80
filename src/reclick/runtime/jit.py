"""Compile kernels with numba and cache the machine code in the user's cache folder.

Importing this module imports numba, so only modules with kernels import it.

A cache entry is keyed by content: the bytecode of the kernel and the global constants it reads,
both also of every kernel it calls, the argument types, the processor, the compiler's options and
the versions of numba and Python. After an edit only the kernels that it affects are compiled again.
Nothing is ever written to or deleted from the installed package. Each entry is one file, written
atomically, so two processes may compile at the same time. An entry is only read if no other user
can have written it.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast
from uuid import uuid4

import llvmlite
import numba
import numpy as np
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.core.types import unliteral as untyped_unliteral

from reclick.runtime.progress import report_compilation

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
CACHE_VARIABLE = "RECLICK_CACHE_DIR"
OPTIONS = {"nogil": True, "no_cfunc_wrapper": True}
CHECKSUM_BYTES = 32
UNUSED_DAYS = 90  # after which an entry is removed
DAY = 86_400.0
logger = logging.getLogger(__name__)
unliteral: Callable[[Any], Any] = untyped_unliteral


def kernel(function: Kernel) -> Kernel:
    """Compile at first call, cache the machine code on disk, and release the GIL while it runs."""
    compile_later: Callable[..., Any] = numba.njit
    dispatcher = compile_later(**OPTIONS)(function)
    dispatcher._cache = KernelCache(cast(FunctionType, function))
    dispatcher.get_call_template = _widen_literals(dispatcher.get_call_template)
    dispatcher.compile = _pause_collector(dispatcher.compile)
    return cast(Kernel, dispatcher)


def subkernel(function: Kernel) -> Kernel:
    """Compile a function that only kernels call; a call from Python runs the plain function.

    It has no entry point for Python and no file in the cache, so it takes less time to compile.
    """
    compile_later: Callable[..., Any] = numba.njit
    dispatcher = compile_later(**OPTIONS, no_cpython_wrapper=True)(function)
    dispatcher._cache = NoCache(cast(FunctionType, function))
    dispatcher.get_call_template = _widen_literals(dispatcher.get_call_template)
    # A call from Python finds no machine code, asks for it, and calls what it gets: the function.
    dispatcher._insert = lambda *_: None
    dispatcher._compile_for_args = lambda *_, **__: function
    return cast(Kernel, dispatcher)


def inline_kernel(function: Kernel) -> Kernel:
    """Inline a function into its callers: for small functions of many arrays, as calls are slow."""
    compile_later: Callable[..., Any] = numba.njit
    return cast(Kernel, compile_later(**OPTIONS, inline="always")(function))


def _widen_literals(get_call_template: Callable[..., Any]) -> Callable[..., Any]:
    """Type literal arguments as int64 or float64, so that not every value is compiled for."""

    def call_template(args: Any, kwargs: Any) -> Any:
        args = tuple(map(unliteral, args))
        return get_call_template(args, {name: unliteral(kind) for name, kind in kwargs.items()})

    return call_template


def _pause_collector(compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without garbage collection, which takes a tenth of the time and frees nothing."""

    def compile_without_collector(signature: Any) -> Any:
        with COLLECTOR:
            return compile_kernel(signature)

    return compile_without_collector


class Collector:
    """A context in which garbage collection is off, until no thread is in it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_on:
                gc.enable()


COLLECTOR = Collector()


class KernelCache:
    """The machine code of one kernel on disk, with the methods that numba expects of a cache."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self._first_key: str | None = None

    @property
    def cache_path(self) -> str | None:
        """The folder of all kernels; None if nothing can be cached."""
        folder = cache_folder()
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Load the compile result of an earlier process; None if there is none or it is damaged."""
        target_context.refresh()
        result = self._load(self._entry(signature, target_context.codegen()), target_context)
        if result is None:
            report_compilation()
        return result

    def _load(self, path: Path | None, target_context: Any) -> Any:
        if path is None:
            return None
        try:
            payload = _read_entry(path)
            if payload is None:
                return None
            rebuild: Callable[..., Any] = CompileResult._rebuild
            return rebuild(target_context, *pickle.loads(payload))  # noqa: S301
        except Exception as error:  # whatever is wrong with the entry: it is compiled and replaced
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
            temporary.touch(mode=0o600)
            temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
            temporary.replace(path)
            _remove_unused(path.parent)
        except OSError as error:
            logger.warning("%s cannot be written (%s): the kernel is not cached.", path, error)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def flush(self) -> None:
        """Do nothing: an outdated entry is never looked up."""

    enable = disable = flush

    def _entry(self, signature: Any, codegen: Any) -> Path | None:
        """Return the file of a signature; None if nothing can be cached."""
        folder, content = cache_folder(), self.content_key()
        if folder is None or content is None:
            return None
        name = f"{self._function.__module__}.{self._function.__qualname__}"  # entries refer to it
        parts = (name, signature, codegen.magic_tuple(), content, _compiler())
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
        return folder / f"{self._function.__name__}-{key}.kernel"

    def content_key(self) -> str | None:
        """Return a hash of all sources that the machine code depends on.

        It is None if a constant of this kernel, or of one that it calls, has changed since its
        first use: numba compiles constants in, so the machine code may have either value.
        """
        key = content_key(self._function)
        self._first_key = self._first_key or key
        caches = (dispatcher._cache for dispatcher in _called_kernels(self._function))
        is_changed = any(
            isinstance(kernel_cache, KernelCache)
            and kernel_cache._first_key not in (None, content_key(kernel_cache._function))
            for kernel_cache in caches
        )
        return None if is_changed or key != self._first_key else key


class NoCache(KernelCache):
    """The cache of a subkernel, which is compiled into its callers: keys only, nothing on disk."""

    def load_overload(self, signature: Any, target_context: Any) -> None:
        """Load nothing. From now on, constants of the subkernel must not change."""
        target_context.refresh()
        self.content_key()

    def save_overload(self, signature: Any, result: Any) -> None:
        """Do nothing."""


# ---- the folder


def cache_is_empty() -> bool:
    """Whether no kernel has been compiled yet, so that the first use takes longer."""
    folder = cache_folder()
    return folder is None or not any(folder.glob("*.kernel"))


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels, private to this user; None if there cannot be one.

    It is `RECLICK_CACHE_DIR` if that is set, else the user's cache folder, else (if that cannot be
    written) a private folder in the system's temporary folder.
    """
    problems = []
    for folder in _candidate_folders():
        problem = _prepare_folder(folder)
        if problem is None:
            return folder
        problems.append(f"{folder} {problem}")
    why = "; ".join(problems) or "there is neither a home nor a temporary folder"
    logger.warning("Compiled kernels are not cached: %s.", why)
    return None


def _candidate_folders() -> Iterator[Path]:
    from platformdirs import user_cache_path

    cache_dir = os.environ.get(CACHE_VARIABLE)
    if cache_dir:
        yield Path(cache_dir) / "kernels"
        return
    for find in (lambda: user_cache_path("reclick", appauthor=False), _temporary_folder):
        try:
            folder = find()
        except (OSError, RuntimeError):  # an account without a home, a computer without a /tmp
            continue
        if folder is not None:
            yield folder / "kernels"


def _temporary_folder() -> Path | None:
    """Return the path of this user's folder in the temporary folder."""
    if os.name != "posix":
        return None
    return Path(tempfile.gettempdir()) / f"reclick-{os.getuid()}"


def _prepare_folder(folder: Path) -> str | None:
    """Create and check a folder; return what is wrong with it, or None."""
    try:
        for path in (*reversed(folder.parents), folder):  # `parents=True` would ignore the mode
            path.mkdir(mode=0o700, exist_ok=True)
        if not is_private(folder):
            return "can be written by other users"
        probe = folder / f".probe.{uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        return f"cannot be used ({error})"
    return None


def is_private(folder: Path) -> bool:
    """Whether only this user (and root) can change what the folder holds."""
    if os.name != "posix":
        return True  # the profile folder of a Windows user is private
    resolved = folder.resolve()
    return _belongs_to_user(resolved.stat()) and all(map(_is_protected, resolved.parents))


def _belongs_to_user(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_protected(folder: Path) -> bool:
    """Whether other users cannot replace the entries of a parent folder."""
    status = folder.stat()
    is_trusted = status.st_uid in {0, os.getuid()}
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_trusted and (not is_shared or bool(status.st_mode & stat.S_ISVTX))


def _read_entry(path: Path) -> bytes | None:
    """Read the payload of an entry; None if it is missing, damaged or of another user."""
    try:
        file = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        )
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as stream:
        status = os.fstat(stream.fileno())
        if os.name == "posix" and not _belongs_to_user(status):
            return None
        content = stream.read()
    checksum, payload = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    if hashlib.sha256(payload).digest() != checksum:
        return None
    if time.time() - status.st_mtime > DAY:
        with contextlib.suppress(OSError):
            os.utime(path)  # it is in use
    return payload


@cache
def _remove_unused(folder: Path) -> None:
    """Remove entries that no process has used for long, once per process."""
    oldest = time.time() - UNUSED_DAYS * DAY
    unfinished = folder.glob(f".*.kernel.{'[0-9a-f]' * 32}")
    for path in (*folder.glob("*.kernel"), *unfinished):  # the folder may have other files
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


# ---- the content of a kernel


def content_key(function: FunctionType) -> str:
    """Return a hash of all sources that the machine code of a kernel depends on."""
    digest = hashlib.sha256()
    for part in _contents(function, set()):
        digest.update(part + b"\0")
    return digest.hexdigest()


def _contents(function: FunctionType, visited: set[FunctionType]) -> Iterator[bytes]:
    """Yield bytecode and constants of a kernel, and of every kernel it calls."""
    if function in visited:
        return
    visited.add(function)
    yield from _code_contents(function.__code__, function.__doc__)
    yield from _value_contents((function.__defaults__, function.__kwdefaults__), visited)
    for name, value in _outer_values(function):
        yield name.encode()
        yield from _value_contents(value, visited)


def _code_contents(code: CodeType, docstring: str | None = None) -> Iterator[bytes]:
    """Yield bytecode and constants, without the docstring and the names of local variables."""
    yield code.co_code
    yield code.co_exceptiontable
    yield repr((code.co_names, code.co_argcount, code.co_flags)).encode()
    for constant in code.co_consts:
        if docstring is not None and constant == docstring:
            continue
        if isinstance(constant, CodeType):
            yield from _code_contents(constant)
        else:
            yield from _value_contents(constant, set())


def _outer_values(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals and closure variables of a kernel, and attributes of modules it uses."""
    names = sorted(_used_names(function.__code__))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        yield name, cell.cell_contents
    for name in names:
        value = function.__globals__.get(name)
        if not isinstance(value, ModuleType):
            yield name, value
        elif value.__name__.split(".")[0] not in {"numpy", "math", "numba"}:
            for attribute in names:
                yield f"{name}.{attribute}", getattr(value, attribute, None)


def _value_contents(value: Any, visited: set[FunctionType]) -> Iterator[bytes]:
    """Yield what numba compiles in: arrays whole, tuples by element, kernels by content."""
    if isinstance(value, Dispatcher):
        yield f"inline {value.targetoptions.get('inline')}".encode()
        yield from _contents(value.py_func, visited)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype, value.shape)).encode() + value.tobytes()
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}".encode()
        for element in value:
            yield from _value_contents(element, visited)
    elif isinstance(value, frozenset):
        yield repr(sorted(map(repr, value))).encode()
    elif isinstance(value, bool | int | float | complex | str | bytes | np.generic | type | None):
        fields = getattr(value, "_fields", "") if isinstance(value, type) else ""
        yield repr((value, fields)).encode()


def _called_kernels(function: FunctionType) -> set[Any]:
    """Return all kernels that a kernel calls, directly or indirectly."""
    kernels: set[Any] = set()
    functions = [function]
    while functions:
        values = (value for _, value in _outer_values(functions.pop()))
        new = {value for value in values if isinstance(value, Dispatcher)} - kernels
        kernels |= new
        functions += [dispatcher.py_func for dispatcher in new]
    return kernels


def _used_names(code: CodeType) -> set[str]:
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_used_names, nested))


def _compiler() -> tuple[object, ...]:
    """Return what machine code depends on besides sources, types and the processor."""
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    config: Any = numba.config
    options = (
        config.BOUNDSCHECK,
        str(config.OPT),
        config.DEBUGINFO_DEFAULT,
        sorted(OPTIONS.items()),
    )
    return (*versions, *options)
