"""Judgments as the objects of Python libraries that evaluate rankings. They are imported here only, when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa

from reclick.errors import MissingExtraError, SettingError


def to_ir_measures(table: pa.Table) -> list[Any]:
    """The table of `judgments` as a list of `ir_measures.Qrel`; queries and ads are their own ids."""
    make = _extra("ir_measures").Qrel
    return [make(*row) for row in zip(*_columns(table), strict=True)]


def to_ranx(table: pa.Table) -> Any:
    """The table of `judgments` as `ranx.Qrels`; queries and ads are their own ids."""
    judged: dict[str, dict[str, int]] = {}
    for query, ad, grade in zip(*_columns(table), strict=True):
        judged.setdefault(query, {})[ad] = grade
    return _extra("ranx").Qrels(judged)


def _columns(table: pa.Table) -> list[list[Any]]:
    missing = [name for name in ("query", "ad", "grade") if name not in table.column_names]
    if missing:
        raise SettingError(
            f"The table has no {' and no '.join(missing)}: give the one from judgments()."
        )
    return [table[name].to_pylist() for name in ("query", "ad", "grade")]


def _extra(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{name} is not installed. Install it with: pip install 'reclick[exports]'"
        ) from error
