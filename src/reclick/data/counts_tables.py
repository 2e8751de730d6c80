"""Counts as Arrow tables: written, read back, and checked while they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reclick.data.counts_checks import COUNT_ROUNDING
from reclick.data.outcomes import OUTCOME_NAMES, OutcomeCounts
from reclick.data.ragged import Float64
from reclick.data.stored_tables import (
    MOST_CELLS,
    read_codes,
    read_lists,
    read_numbers,
    read_strings,
    require_ascending,
    table_error,
)

if TYPE_CHECKING:
    from reclick.data.counts import Counts


def counts_to_tables(counts: Counts) -> dict[str, pa.Table]:
    """The counts as Arrow tables."""
    outcomes = {} if counts.outcomes is None else _outcome_tables(counts.outcomes)
    return {
        "queries": pa.table({"query": counts.queries}),
        "ads": pa.table({"ad": counts.ads}),
        "pairs": pa.table(
            {
                "query": counts.pair_query,
                "ad": counts.pair_ad,
                "impressions": counts.impressions,
                "clicks": counts.clicks,
                "last_clicks": counts.last_clicks,
            }
        ),
        "sequences": pa.table(
            {
                "clicks": pa.LargeListArray.from_arrays(
                    counts.sequence_starts, counts.sequence_clicks
                )
            }
        ),
        "visits": pa.table(
            {
                "query": counts.visit_query,
                "sequence": counts.visit_sequence,
                "sessions": counts.sessions,
            }
        ),
        "lengths": lengths_to_table(counts.lengths),
        **outcomes,
    }


def read_counts(tables: dict[str, pa.Table]) -> dict[str, Any]:
    """Read the fields of counts from tables; raises if one does not fit the others."""
    queries = read_strings(tables, "queries", "query", ascending=True)
    ads = read_strings(tables, "ads", "ad", ascending=True)
    pair_query = read_codes(tables, "pairs", "query", len(queries))
    n_pairs = len(pair_query)
    pair_ad = read_codes(tables, "pairs", "ad", len(ads), n_pairs)
    require_ascending("pairs", pair_query, pair_ad)
    starts, positions = read_lists(tables, "sequences", "clicks", low=1, high=MOST_CELLS)
    visit_query = read_codes(tables, "visits", "query", len(queries))
    visit_sequence = read_codes(tables, "visits", "sequence", len(starts) - 1, len(visit_query))
    require_ascending("visits", visit_query, visit_sequence)
    return {
        "queries": queries,
        "ads": ads,
        "pair_query": pair_query,
        "pair_ad": pair_ad,
        "impressions": _read_totals(tables, "pairs", "impressions", n_pairs),
        "clicks": _read_totals(tables, "pairs", "clicks", n_pairs),
        "last_clicks": _read_totals(tables, "pairs", "last_clicks", n_pairs),
        "sequence_starts": starts,
        "sequence_clicks": positions,
        "visit_query": visit_query,
        "visit_sequence": visit_sequence,
        "sessions": _read_totals(tables, "visits", "sessions", len(visit_query)),
        "lengths": read_lengths(tables),
        "outcomes": _outcomes_from_tables(tables, n_pairs, len(visit_query)),
    }


def _outcome_tables(outcomes: OutcomeCounts) -> dict[str, pa.Table]:
    tables = {
        "pair_outcomes": outcomes.last,
        "visit_outcomes": outcomes.visits,
        "earlier_outcomes": outcomes.earlier[None, :],
    }
    return {
        name: pa.table(dict(zip(OUTCOME_NAMES, np.ascontiguousarray(table.T), strict=True)))
        for name, table in tables.items()
    }


def _read_totals(tables: dict[str, pa.Table], table: str, column: str, length: int) -> Float64:
    totals = read_numbers(tables, table, column, length=length, low=-COUNT_ROUNDING)
    return totals.astype(np.float64, copy=False)


def lengths_to_table(lengths: Float64) -> pa.Table:
    """The sessions by page length and number of clicks, for `read_lengths`."""
    length, number = np.nonzero(lengths)
    return pa.table({"ads": length, "clicks": number, "sessions": lengths[length, number]})


def read_lengths(tables: dict[str, pa.Table]) -> Float64:
    """The sessions by page length and number of clicks, as a table of reasonable size."""
    ads = read_codes(tables, "lengths", "ads", MOST_CELLS)
    clicks = read_codes(tables, "lengths", "clicks", MOST_CELLS, len(ads))
    shape = int(ads.max(initial=0)) + 1, int(clicks.max(initial=0)) + 1
    if shape[0] * shape[1] > MOST_CELLS:
        raise table_error("lengths", f"a page of {shape[0] - 1:,} ads with {shape[1] - 1:,} clicks")
    dense = np.zeros(shape)
    dense[ads, clicks] = _read_totals(tables, "lengths", "sessions", len(ads))
    return dense


def _outcomes_from_tables(
    tables: dict[str, pa.Table], n_pairs: int, n_visits: int
) -> OutcomeCounts | None:
    if "pair_outcomes" not in tables:
        return None
    last, visits, earlier = (
        np.stack([_read_totals(tables, name, each, length) for each in OUTCOME_NAMES], axis=1)
        for name, length in (
            ("pair_outcomes", n_pairs),
            ("visit_outcomes", n_visits),
            ("earlier_outcomes", 1),
        )
    )
    return OutcomeCounts(last, visits, earlier[0])
