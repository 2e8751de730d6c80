"""Make counts from the two tables that SQL computes from a log: pairs and click sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.arrow_checks import check_batch
from reclick.data.ragged import Float64, Int64, join_codes, split_codes
from reclick.errors import LogError

PAIR_RESULT = ("query", "ad", "impressions", "clicks", "last_clicks")
VISIT_RESULT = ("query", "click_sequence", "page_length", "sessions")
TEXT_RESULT = ("query", "ad", "click_sequence")  # the text columns of both tables
TOTALS_TOLERANCE = 1e-6  # relative, of totals that are in both tables: weights may be rounded


def tables_from_results(pairs: object, visits: object) -> dict[str, pa.Table]:
    """Convert results of `counting_sql` to tables of `Counts.to_tables`, adding up equal keys."""
    pair_table, visit_table = _as_table(pairs, PAIR_RESULT), _as_table(visits, VISIT_RESULT)
    queries, pair_query, visit_query = _encode(pair_table["query"], visit_table["query"])
    ads, pair_ad = _encode(pair_table["ad"])
    lists = _parse_sequences(visit_table["click_sequence"])
    sequences = sorted(set(lists))
    code = {sequence: number for number, sequence in enumerate(sequences)}
    visit_sequence = np.array([code[each] for each in lists], np.int64)
    lengths = _numbers(visit_table, "page_length").astype(np.int64)
    sizes = np.array([len(each) for each in lists], np.int64)
    sessions = _numbers(visit_table, "sessions")
    pair_totals = [_numbers(pair_table, name) for name in PAIR_RESULT[2:]]
    _check_agreement(pair_totals, sessions, lengths, sizes)
    pair_keys, pair_sums = _add_up(join_codes(pair_query, pair_ad), pair_totals)
    visit_keys, (visit_sums,) = _add_up(join_codes(visit_query, visit_sequence), [sessions])
    length_keys, (length_sums,) = _add_up(join_codes(lengths, sizes), [sessions])
    return {
        "queries": pa.table({"query": queries}),
        "ads": pa.table({"ad": ads}),
        "pairs": pa.table(
            {
                **_split_keys(pair_keys, "query", "ad"),
                **dict(zip(PAIR_RESULT[2:], pair_sums, strict=True)),
            }
        ),
        "sequences": pa.table({"clicks": pa.array(sequences, pa.large_list(pa.int32()))}),
        "visits": pa.table(
            {**_split_keys(visit_keys, "query", "sequence"), "sessions": visit_sums}
        ),
        "lengths": pa.table({**_split_keys(length_keys, "ads", "clicks"), "sessions": length_sums}),
    }


def _as_table(source: Any, names: tuple[str, ...]) -> pa.Table:
    """A result as an Arrow table with these columns; a warehouse may write names in capitals."""
    if isinstance(source, Mapping):
        table = pa.table(dict(source))
    elif isinstance(source, pa.Table):
        table = source
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
    elif hasattr(source, "fetch_record_batch"):  # an ADBC cursor
        table = source.fetch_record_batch().read_all()
    else:
        raise LogError(
            f"Counts.from_tables takes two tables of Arrow, pandas or Polars, or cursors of ADBC: "
            f"got a {type(source).__name__}. For pages, use rc.count."
        )
    source_names = {name.lower(): name for name in table.column_names}
    missing = [name for name in names if name not in source_names]
    if missing:
        raise LogError(
            f"The table of {'pairs' if 'ad' in names else 'visits'} has no column "
            f"{', '.join(missing)}; it has {', '.join(table.column_names)}. Give the results of "
            "`reclick sql` in their order: pairs, visits."
        )
    table = table.select([source_names[name] for name in names]).rename_columns(list(names))
    for batch in table.to_batches():
        check_batch(batch, f"The table of {'pairs' if 'ad' in names else 'visits'}")
    if any(table[name].null_count for name in names):
        raise LogError("A result of `reclick sql` has a null, which its statements never make.")
    if not table.num_rows:
        raise LogError("A result of `reclick sql` is empty: the table has no good row.")
    return table


def _encode(*columns: pa.ChunkedArray) -> tuple[Any, ...]:
    """The distinct texts, sorted, and the code of every text of each column."""
    texts = [column.cast(pa.large_string()).combine_chunks() for column in columns]
    distinct = pc.unique(pa.chunked_array(texts))
    distinct = distinct.take(pc.array_sort_indices(distinct))
    codes = (pc.index_in(text, value_set=distinct) for text in texts)
    return distinct, *(np.asarray(each, np.int64) for each in codes)


def _parse_sequences(column: pa.ChunkedArray) -> list[tuple[int, ...]]:
    """Parse click sequences, which are text such as '2,1', or lists."""
    try:
        return [
            tuple(
                int(part)
                for part in (sequence.split(",") if isinstance(sequence, str) else sequence)
                if part
            )
            for sequence in column.to_pylist()
        ]
    except (ValueError, TypeError) as error:
        raise LogError(
            f"click_sequence in the table of visits: expected positions such as '2,1': {error}."
        ) from error


def _numbers(table: pa.Table, name: str) -> Float64:
    try:
        return np.asarray(table[name].cast(pa.float64()))
    except pa.ArrowException as error:
        raise LogError(f"{name} in a result of `reclick sql`: expected numbers. {error}") from error


def _check_agreement(
    pair_totals: list[Float64], sessions: Float64, lengths: Int64, sizes: Int64
) -> None:
    """Raise if the totals of impressions and clicks differ between the tables."""
    impressions, clicks, _ = (float(each.sum()) for each in pair_totals)
    for name, of_pairs, of_visits in (
        ("impressions", impressions, float(sessions @ lengths)),
        ("clicks", clicks, float(sessions @ sizes)),
    ):
        if not np.isclose(of_pairs, of_visits, rtol=TOTALS_TOLERANCE, atol=TOTALS_TOLERANCE):
            raise LogError(
                f"The tables are not of one log: the pairs have {of_pairs:,.10g} {name}, the "
                f"visits {of_visits:,.10g}. Run both statements on the same rows."
            )


def _add_up(keys: Int64, totals: list[Float64]) -> tuple[Int64, list[Float64]]:
    distinct, row = np.unique(keys, return_inverse=True)
    return distinct, [np.bincount(row, each, len(distinct)).astype(np.float64) for each in totals]


def _split_keys(keys: Int64, high: str, low: str) -> dict[str, npt.NDArray[Any]]:
    return dict(zip((high, low), split_codes(keys), strict=True))
