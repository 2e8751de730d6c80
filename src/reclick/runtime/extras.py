"""Imports of optional libraries."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from reclick.errors import MissingExtraError


def import_extra(module: str, install: str) -> Any:
    """Import a module of a library that is not a dependency; `install` is what pip installs.

    >>> import_extra("no_such_library", "reclick[plot]")
    Traceback (most recent call last):
    reclick.errors.MissingExtraError: no_such_library is not installed. Install it with: \
pip install 'reclick[plot]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.split(".", maxsplit=1)[0]
        raise MissingExtraError(
            f"{library} is not installed. Install it with: pip install '{install}'"
        ) from error
