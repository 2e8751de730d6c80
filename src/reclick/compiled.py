"""The one way a function becomes machine code. Importing this module imports numba, so it is imported only by modules with kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Compile at first call, keep the result on disk, and let other threads run meanwhile."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(function))


def forget_stale_kernels(package: Path) -> bool:
    """Remove kernels compiled from other sources than these; whether none are left.

    A kernel holds the code of the kernels it calls, but numba looks only at its own file to see whether it is still good.
    """
    sources = sorted(package.rglob("*.py"))
    fingerprint = "\n".join(f"{path.relative_to(package)} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in sources)
    stamp = package / "__pycache__" / "kernels.txt"
    with contextlib.suppress(OSError):  # a read-only installation never changes
        if stamp.is_file() and stamp.read_text() == fingerprint:
            return False
        for kernel in package.rglob("__pycache__/*.nb[ic]"):
            kernel.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(fingerprint)
    return True


FIRST_RUN = forget_stale_kernels(Path(__file__).parent)  # whether kernels are still to be compiled
