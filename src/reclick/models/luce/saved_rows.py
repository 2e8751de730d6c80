"""The saved parameters of LuceClick: tables with a row per pair or query, or for the whole log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64, Int64, run_of_elements
from reclick.data.stored_tables import read_lists, read_numbers, table_error
from reclick.fitting.factors import PastChoices
from reclick.models.luce.parameters import POSITION_BITS, Layout, LuceParameters

TABLE_ROWS = {  # of what each saved table has a row; "log": it holds for the whole log
    "luce_appeal": "pair",
    "luce_cells": "pair",
    "luce_satisfaction": "pair",
    "luce_queries": "query",
    "luce_classes": "log",
    "luce_outcomes_rates": "log",
    "luce_outcomes_clicks": "log",
    "luce_transition_factors": "log",
    "luce_transition_past": "log",
    "luce_outside_factors": "log",
    "luce_outside_past": "log",
}


def to_row_tables(layout: Layout, fitted: LuceParameters) -> dict[str, pa.Table]:
    """The parameters as tables with a row per pair or per query, or for the whole log.

    So the rows of some queries are a model of these queries.
    """
    appeal, outside, mixing = fitted.appeal, fitted.query_outside, fitted.mixing
    starts = np.searchsorted(layout.cell_pair, np.arange(len(layout.pair_class) + 1))
    cells = {"position": layout.cell_position, **appeal.past._asdict()}
    lists = {"mixing": mixing.weights, "members": mixing.members}
    queries: dict[str, Any] = outside.past._asdict()
    if layout.has_positions:
        cells["factor"] = appeal.level(3)
        lists["position_factors"] = appeal.level(2).reshape(-1, layout.longest)
    if len(outside.index) > 1:
        queries["factor"] = outside.level(1)
    for name, rows in lists.items():
        queries[name] = _to_lists(np.arange(len(rows) + 1) * rows.shape[1], rows.ravel())
    return {
        **{name: each for name, each in fitted.to_tables("luce").items() if name in TABLE_ROWS},
        "luce_appeal": pa.table({"factor": appeal.level(0)}),
        "luce_cells": pa.table({name: _to_lists(starts, each) for name, each in cells.items()}),
        "luce_queries": pa.table(queries),
        "luce_classes": pa.table({"appeal": appeal.level(1), "outside": outside.level(0)}),
    }


def from_row_tables(
    layout: Layout, components: int, tables: Mapping[str, pa.Table]
) -> tuple[Layout, dict[str, pa.Table]]:
    """The layout with its cells, and the tables that `LuceParameters.from_tables` takes."""
    sizes = len(layout.pair_class), len(layout.query_class)
    high = (1 << POSITION_BITS) - 1
    starts, position = read_lists(tables, "luce_cells", "position", low=0, high=high)
    layout = layout.add_cells(run_of_elements(starts), position)
    keys = layout._keys(run_of_elements(starts), position)
    if len(starts) != sizes[0] + 1 or not np.array_equal(layout.cell, keys):
        raise table_error("luce_cells", "its rows are not those of the pairs, or not in order")
    if position.max(initial=0) >= layout.longest:
        raise table_error("luce_cells", "a position beyond the longest page")
    past = {name: read_lists(tables, "luce_cells", name, low=0)[1] for name in PastChoices._fields}
    appeal = [
        read_numbers(tables, "luce_appeal", "factor", length=sizes[0]),
        read_numbers(tables, "luce_classes", "appeal"),
    ]
    if layout.has_positions:
        appeal.append(_read_rows(tables, "position_factors", (sizes[1], layout.longest)))
        appeal.append(read_lists(tables, "luce_cells", "factor", low=0)[1])
    outside = [read_numbers(tables, "luce_classes", "outside")]
    queries = tables["luce_queries"]
    if "factor" in queries.column_names:
        outside.append(read_numbers(tables, "luce_queries", "factor"))
    shape = sizes[1], components
    mixing = {
        "weights": _read_rows(tables, "mixing", shape),
        "members": _read_rows(tables, "members", shape),
    }
    return layout, {
        **tables,
        "luce_appeal_factors": pa.table({"factor": np.concatenate(appeal)}),
        "luce_appeal_past": pa.table(past),
        "luce_query_outside_factors": pa.table({"factor": np.concatenate(outside)}),
        "luce_query_outside_past": queries.select(PastChoices._fields),
        "luce_mixing": pa.table(mixing),
    }


def _to_lists(starts: Int64, values: Float64 | Int64) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(pa.array(starts), pa.array(values))


def _read_rows(tables: Mapping[str, pa.Table], column: str, shape: tuple[int, int]) -> Float64:
    """A column of `luce_queries` with a list of one length per query, end to end."""
    starts, values = read_lists(tables, "luce_queries", column, low=0)
    if not np.array_equal(starts, np.arange(shape[0] + 1) * shape[1]):
        raise table_error("luce_queries", f"{column}: its lists are not those of the queries")
    return np.asarray(values)
