"""Read graded judgments and runs back: TREC files, CSV, Parquet, OpenSearch JSON and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.schema import NUMBER, PAIR_COLUMNS, Column
from reclick.errors import Argument, LogError, SettingError
from reclick.exports.text_rows import ONE_WORD_CODES, TEXT
from reclick.logs.files.log_file import LogFile
from reclick.logs.files.source import abbreviate, is_paths, open_sources, shorten_names
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import as_path

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson")
QUERY_NAMES = ("query", "query_text", "query_id", "qid")
AD_NAMES = ("ad", "docid", "doc_id", "document_id", "docno")
GRADE_NAMES = ("grade", "rating", "relevance", "label", "rel")
SCORE_NAMES = ("score", "rank", "position", "relevance")  # of a run
RANK_NAMES = ("rank", "position")  # the best ad has rank 1
QRELS_FIELDS, RUN_FIELDS = 4, 6
ENCODED = re.compile("|".join(re.escape(code) for code in ONE_WORD_CODES.values()))


@check_arguments
def read_judgments(source: object) -> pa.Table:
    """Read judgments as a table of query, ad and grade, sorted by query and ad.

    `source` is a file of TREC qrels, a CSV or Parquet file with columns of these names (or docid
    and rating, as in Quepid), an OpenSearch judgment list (`.json`), or a table such as that of
    `judgments`. Pairs without a grade are left out.

    >>> table = {"query": ["pizza", "pizza"], "ad": ["b", "a"], "grade": [2, 0]}
    >>> read_judgments(table).to_pylist()
    [{'query': 'pizza', 'ad': 'a', 'grade': 0.0}, {'query': 'pizza', 'ad': 'b', 'grade': 2.0}]
    """
    suffix = _suffix(source)
    if suffix == ".json":
        table = _read_opensearch(source)
    elif suffix is not None and suffix not in TABLE_SUFFIXES:
        table = _read_trec(source, QRELS_FIELDS, value=3)
    else:
        table = _read_columns(source, GRADE_NAMES)
    return _check_pairs(table, "grade", source)


def read_run(source: object) -> pa.Table:
    """Read a run as a table of query, ad and score; the best ad has the highest score.

    `source` is a TREC run file, a CSV or Parquet file or a table with columns query, ad and score
    (or rank, from 1, or relevance), or a dict of queries and their ads, best first.

    >>> read_run({"pizza": ["b", "a"]}).to_pylist()
    [{'query': 'pizza', 'ad': 'a', 'score': -2.0}, {'query': 'pizza', 'ad': 'b', 'score': -1.0}]
    """
    suffix = _suffix(source)
    if isinstance(source, Mapping) and not set(source) & {"ad", *SCORE_NAMES}:
        table = _rankings_table(source)
    elif suffix is not None and suffix not in TABLE_SUFFIXES:
        table = _read_trec(source, RUN_FIELDS, value=4)
    else:
        table = _read_columns(source, SCORE_NAMES)
    return _check_pairs(table, "score", source)


def _suffix(source: object) -> str | None:
    """The suffix of a single file; None for anything else."""
    if not is_paths(source) or (isinstance(source, Sequence) and not isinstance(source, str)):
        return None
    path = as_path(source)  # type: ignore[arg-type]
    if not path.is_file():
        raise LogError(f"{source} does not exist or is not a file.")
    return path.suffix.lower()


def _read_trec(source: Any, fields: int, value: int) -> pa.Table:
    """Read a file whose fields are split at white space: query, ad, and the field `value`."""
    queries, ads, values = [], [], []
    for number, line in LogFile(source, shorten_names([source])[0]).lines():
        words = line.decode("utf-8", "replace").split()
        score = _parse_number(words[value]) if len(words) == fields else None
        if score is None:
            what = "query 0 ad grade" if fields == QRELS_FIELDS else "query Q0 ad rank score name"
            raise LogError(
                f"{source} line {number}: got {abbreviate(line.decode('utf-8', 'replace'))}, "
                f"expected {what}."
            )
        queries.append(_decode_query(words[0]))
        ads.append(words[2])
        values.append(score)
    return pa.table({"query": pa.array(queries, TEXT), "ad": pa.array(ads, TEXT), "value": values})


def _decode_query(text: str) -> str:
    """Decode a query whose white space is percent-encoded, as `export` writes it.

    >>> _decode_query("50%25%20off"), _decode_query("a%41")
    ('50% off', 'a%41')
    """
    return ENCODED.sub(lambda code: unquote(code[0]), text)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _read_opensearch(source: Any) -> pa.Table:
    """Read the ratings of a judgment list."""
    try:
        content = json.loads(as_path(source).read_text(encoding="utf-8"))
        rows = [
            (str(query_ratings["query"]), str(rating["docId"]), float(rating["rating"]))
            for query_ratings in content["judgmentRatings"]
            for rating in query_ratings["ratings"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(
            f"{source} is not a judgment list of OpenSearch ({error!r}). It has judgmentRatings, "
            "each with a query and ratings of docId and rating."
        ) from error
    return _to_table(rows)


def _rankings_table(rankings: Mapping[Any, Sequence[Any]]) -> pa.Table:
    for query, ads in rankings.items():
        if not isinstance(query, str | int) or not isinstance(ads, list | tuple | np.ndarray):
            raise SettingError("run", rankings, "the ads of each query, best first: {'q': ['a']}")
    return _to_table(
        [
            (str(query), str(ad), -float(rank))
            for query, ads in rankings.items()
            for rank, ad in enumerate(ads, start=1)
        ]
    )


def _to_table(rows: Sequence[tuple[str, str, float]]) -> pa.Table:
    kinds = {"query": TEXT, "ad": TEXT, "value": pa.float64()}
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {name: pa.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)}
    )


def _read_columns(source: Any, value_names: Sequence[str]) -> pa.Table:
    """Read the columns query, ad and a value, under the first of their names in the table."""
    first_error: LogError | None = None
    for names in _column_names(value_names):
        columns = (*PAIR_COLUMNS, Column(value_names[0], NUMBER))
        try:
            sources = open_sources(
                source, columns, dict(zip(_canonical(columns), names, strict=True))
            )
        except LogError as error:
            first_error = first_error or error
            continue
        batches = [
            pa.table(
                {
                    "query": batch.columns["query"].cast(TEXT),
                    "ad": batch.columns["ad"].cast(TEXT),
                    "value": pc.cast(batch.columns[value_names[0]], pa.float64()),
                }
            )
            for rows_source in sources
            for batch in rows_source.read(with_rows=False)
        ]
        table = pa.concat_tables([_to_table([]), *batches])
        is_rank = names[2] in RANK_NAMES
        return table.set_column(2, "value", pc.negate(table["value"])) if is_rank else table
    if first_error is None:
        raise LogError(f"{source} cannot be read.")
    raise _explain_columns(first_error, value_names)


def _explain_columns(error: LogError, value_names: Sequence[str]) -> LogError:
    """Replace the advice to map columns, for which these functions have no argument."""
    if not any(isinstance(part, Argument) and part.name == "columns" for part in error.args):
        return error
    problem = str(error.args[0]).rpartition(". ")[0]
    names = (QUERY_NAMES, AD_NAMES, value_names)
    columns = ", ".join(f"{first} (or {', '.join(others)})" for first, *others in names)
    return LogError(f"{problem}. Name its columns {columns}.")


def _column_names(value_names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for value in value_names:
        for ad in AD_NAMES:
            for query in QUERY_NAMES:
                yield query, ad, value


def _canonical(columns: Sequence[Column]) -> list[str]:
    return [column.name for column in columns]


def _check_pairs(table: pa.Table, name: str, source: object) -> pa.Table:
    """The pairs that have a value, sorted; raises if a pair has two values."""
    table = table.rename_columns(["query", "ad", name]).filter(table.column(2).is_valid())
    label = f"{source}" if is_paths(source) else "the table"
    if not table.num_rows:
        raise LogError(f"{label} has no {name}s.")
    for column in ("query", "ad"):
        if missing := table[column].null_count:
            raise LogError(f"{label}: {missing:,} rows have no {column}.")
    order = [("query", "ascending"), ("ad", "ascending"), (name, "descending")]
    table = table.sort_by(order).combine_chunks()
    same = pc.and_(
        *(
            pc.equal(table[key_column].slice(1), table[key_column].slice(0, len(table) - 1))
            for key_column in ("query", "ad")
        )
    )
    duplicate_rows = np.flatnonzero(same.to_numpy(zero_copy_only=False) if len(table) > 1 else [])
    if len(duplicate_rows):
        row = table.slice(int(duplicate_rows[0]), 1).to_pylist()[0]
        pair = f"query {abbreviate(row['query'])} and ad {abbreviate(row['ad'])}"
        raise LogError(
            f"{label}: {pair} occur {len(duplicate_rows) + 1:,} times. Keep one of them."
        )
    return table
