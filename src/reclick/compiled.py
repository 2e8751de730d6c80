"""The one way a function becomes machine code. Importing this module imports numba, so it is imported only by modules with kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """Compile at first call, keep the result on disk, and let other threads run meanwhile."""
    return cast(Kernel, numba.njit(cache=True, nogil=True)(function))
