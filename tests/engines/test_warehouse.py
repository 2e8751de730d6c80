"""SQL that counts where the log lies, run on DuckDB and on a real PostgreSQL server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import sqlglot
from typer.testing import CliRunner

import reclick as rc
from reclick.cli import app
from reclick.engines.warehouse import DIALECTS, counting_sql
from reclick.errors import LogError, SettingError
from tests.support.plain_metrics import as_table, random_log
from tests.support.postgres import run_postgres

BAD = [
    (None, ["a"], [1], 1.0),
    ("", ["a"], [1], 1.0),
    ("x" * 70_000, ["a"], [1], 1.0),
    ("q", None, [1], 1.0),
    ("q", [], [], 1.0),
    ("q", ["a"] * 101, [], 1.0),
    ("q", ["a", None], [1], 1.0),
    ("q", ["", "a"], [1], 1.0),
    ("q", ["a", "x" * 70_000], [1], 1.0),
    ("q", ["a"], [1], None),
    ("q", ["a"], [1], -1.0),
    ("q", ["a"], [1], float("nan")),
    ("q", ["a"], [1], float("inf")),
    ("q", ["a"], [1], 1e17),
    ("q", ["a", "b"], [1, None], 1.0),
    ("q", ["a", "b"], [3], 1.0),
    ("q", ["a", "b"], [0, 1], 1.0),
]
UNUSUAL = [
    ("q", ["a", "b", "a"], [3, 1, 3, 1], 1.0),  # a repeated ad, repeated clicks
    ("q", ["a", "b"], None, 2.0),  # null is no click
    ("only weight 0", ["z"], [1], 0.0),
    ("It's ☕, “it”", ["ä,b", "\t"], [2], 1.0),
]


def make_table(seed: int, *, bad: bool = True) -> pa.Table:
    clean = as_table(random_log(seed, 300))
    rows = [*UNUSUAL, *(BAD if bad else [])]
    columns = zip(*rows, strict=True)
    more = pa.table(
        {
            name: pa.array(values, clean.schema.field(name).type)
            for name, values in zip(clean.column_names, columns, strict=True)
        }
    )
    return pa.concat_tables([clean, more])


Run = Callable[[str], pa.Table]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    from adbc_driver_postgresql import dbapi

    with run_postgres() as address, dbapi.connect(address) as connection:
        yield connection


@pytest.fixture(params=["duckdb", "postgres"])
def warehouse(request: pytest.FixtureRequest) -> tuple[str, Callable[[pa.Table], Run]]:
    """The name of a dialect, and a function that loads a log and returns one that runs SQL."""
    if request.param == "duckdb":

        def load_duckdb(log: pa.Table) -> Run:
            connection = duckdb.connect()
            connection.register("sessions", log)
            return lambda sql: connection.sql(sql).to_arrow_table()

        return request.param, load_duckdb
    connection = request.getfixturevalue("postgres")

    def load_postgres(log: pa.Table) -> Run:
        with connection.cursor() as cursor:
            cursor.execute("drop table if exists sessions")
            cursor.execute(
                "create table sessions (query text, ads text[], clicks bigint[], weight float8)"
            )
            cursor.adbc_ingest("sessions", log, mode="append")

        def run(sql: str) -> pa.Table:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetch_arrow_table()

        return run

    return request.param, load_postgres


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("weighted", [True, False])
def test_counts_of_sql_are_those_of_the_log(warehouse: Any, seed: int, weighted: bool) -> None:
    dialect, load = warehouse
    log = make_table(seed) if weighted else make_table(seed, bad=False)
    columns = {"weight": "weight"} if weighted else None
    sql, run = counting_sql("sessions", dialect=dialect, columns=columns), load(log)
    kept = log if weighted else log.drop_columns("weight")
    opened = rc.read_sessions(kept, on_error="drop")
    assert rc.Counts.from_tables(run(sql.pairs), run(sql.visits)) == rc.count(opened)
    dropped = {row["reason"]: row["dropped"] for row in run(sql.dropped).to_pylist()}
    assert dropped == opened.summary.dropped


def test_models_fit_from_the_results(warehouse: Any) -> None:
    dialect, load = warehouse
    log = make_table(7, bad=False)
    sql, run = counting_sql("sessions", dialect=dialect, columns={"weight": "weight"}), load(log)
    counts = rc.Counts.from_tables(run(sql.pairs), run(sql.visits))
    for name in ("gctr", "rctr", "dctr", "icm", "multiclick"):
        mine, theirs = (rc.MODELS[name]().fit(each) for each in (counts, log))
        np.testing.assert_array_equal(mine.click_prob(log), theirs.click_prob(log))
    for name in ("multiclick", "icm", "dctr"):
        assert (
            rc.MODELS[name]().fit(counts).relevance().equals(rc.MODELS[name]().fit(log).relevance())
        )
    with pytest.raises(LogError, match="Counts do not say which ads and clicks"):
        rc.MODELS["ubm"]().fit(counts)


def test_a_condition_other_columns_and_a_limit_are_used(warehouse: Any) -> None:
    dialect, load = warehouse
    log = make_table(2, bad=False)
    options: dict[str, Any] = {"columns": {"query": "upper(query)"}, "where": "weight > 0"}
    sql, run = counting_sql("sessions", dialect=dialect, max_ads=4, **options), load(log)
    rows = [
        {**row, "query": row["query"].upper(), "weight": 1.0}
        for row in log.to_pylist()
        if row["weight"] > 0
    ]
    opened = rc.read_sessions(
        pa.Table.from_pylist(rows, schema=log.schema), max_ads=4, on_error="drop"
    )
    assert rc.Counts.from_tables(run(sql.pairs), run(sql.visits)) == rc.count(opened)


def test_an_adbc_cursor_is_a_log(postgres: Any, warehouse: Any) -> None:
    dialect, load = warehouse
    if dialect != "postgres":
        return
    log = make_table(5, bad=False)
    load(log)
    with postgres.cursor() as cursor:
        cursor.execute("select * from sessions")
        assert rc.count(cursor) == rc.count(log)
        cursor.execute("select * from sessions")
        opened = rc.read_sessions(cursor)
        assert rc.count(opened) == rc.count(opened) == rc.count(log)
        sql = counting_sql("sessions", dialect="postgres", columns={"weight": "weight"})
        cursor.execute(sql.pairs)
        pairs = cursor.fetch_arrow_table()
        cursor.execute(sql.visits)
        assert rc.Counts.from_tables(pairs, cursor) == rc.count(log)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_statements_are_of_their_dialect(dialect: str) -> None:
    for statement in counting_sql("a.b", dialect=dialect, columns={"weight": "w"}, where="x = 1"):
        parsed = cast(Any, sqlglot.parse_one(statement, dialect=dialect))
        tables = {table.name for table in parsed.find_all(sqlglot.exp.Table)}
        assert tables & {"b", "source", "checked", "session"}
        assert "{" not in statement.replace("'{}'", "")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_sql_of_bigquery_counts_the_same_when_it_is_translated(seed: int) -> None:
    log, connection = make_table(seed), duckdb.connect()
    connection.register("sessions", log)

    def run(sql: str) -> pa.Table:
        translated = sqlglot.transpile(sql, read="bigquery", write="duckdb")[0]
        # The translator leaves two things as they are: what counts bytes, and that BigQuery
        # counts offsets from 0.
        translated = translated.replace("OCTET_LENGTH(", "STRLEN(").replace("place + 1", "place")
        return connection.sql(translated).to_arrow_table()

    sql = counting_sql("sessions", dialect="bigquery", columns={"weight": "weight"})
    opened = rc.read_sessions(log, on_error="drop")
    assert rc.Counts.from_tables(run(sql.pairs), run(sql.visits)) == rc.count(opened)
    dropped = {row["reason"]: row["dropped"] for row in run(sql.dropped).to_pylist()}
    assert dropped == opened.summary.dropped


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(SettingError, match="dialect: got 'oracle', expected one of 'bigquery'"):
        counting_sql("t", dialect="oracle")
    with pytest.raises(SettingError, match="table: got"):
        counting_sql("t; drop table t", dialect="duckdb")
    with pytest.raises(LogError, match="names day"):
        counting_sql("t", dialect="duckdb", columns={"day": "d"})
    with pytest.raises(SettingError, match="names of query, ads, clicks, weight only"):
        counting_sql("t", dialect="duckdb", columns={"dwell_seconds": "d"})


# ---- results


def results(log: pa.Table) -> tuple[pa.Table, pa.Table]:
    connection = duckdb.connect()
    connection.register("sessions", log)
    sql = counting_sql("sessions", dialect="duckdb", columns={"weight": "weight"})
    return connection.sql(sql.pairs).to_arrow_table(), connection.sql(sql.visits).to_arrow_table()


def test_results_in_other_forms_are_the_same() -> None:
    log = make_table(4, bad=False)
    pairs, visits = results(log)
    expected = rc.count(log)
    capitals = [
        table.rename_columns([n.upper() for n in table.column_names]) for table in (pairs, visits)
    ]
    assert rc.Counts.from_tables(*capitals) == expected
    assert rc.Counts.from_tables(pairs.to_pandas(), visits.to_pandas()) == expected
    assert rc.Counts.from_tables(pairs.to_reader(), visits.to_pydict()) == expected
    lists = [
        [int(part) for part in text.split(",") if part]
        for text in visits["click_sequence"].to_pylist()
    ]
    as_lists = visits.drop_columns("click_sequence").append_column(
        "click_sequence", pa.array(lists)
    )
    assert rc.Counts.from_tables(pairs, as_lists) == expected
    decimals = pairs.set_column(2, "impressions", pairs["impressions"].cast(pa.decimal128(20, 2)))
    assert rc.Counts.from_tables(decimals, visits) == expected
    days = [log.slice(0, 100), log.slice(100)]
    parts = [results(day) for day in days]
    together = [pa.concat_tables(tables) for tables in zip(*parts, strict=True)]
    assert rc.Counts.from_tables(*together) == expected


def test_tables_that_are_no_results_are_refused() -> None:
    pairs, visits = results(make_table(4, bad=False))
    with pytest.raises(LogError, match="pairs has no column ad, impressions"):
        rc.Counts.from_tables(visits, pairs)
    with pytest.raises(LogError, match=r"are not of one log: the pairs have .* impressions"):
        rc.Counts.from_tables(pairs, visits.slice(1))
    wrong = pa.array(["x"] * visits.num_rows)
    place = visits.column_names.index("click_sequence")
    with pytest.raises(LogError, match="expected positions such as '2,1'"):
        rc.Counts.from_tables(pairs, visits.set_column(place, "click_sequence", wrong))
    with pytest.raises(LogError, match="is empty"):
        rc.Counts.from_tables(pairs.slice(0, 0), visits)
    with pytest.raises(LogError, match="got a int"):
        rc.Counts.from_tables(3, visits)


def test_the_commands_print_sql_and_count_its_results(tmp_path: Path) -> None:
    log = make_table(6, bad=False)
    pairs, visits = results(log)
    pq.write_table(pairs, tmp_path / "pairs.parquet")
    pa.csv.write_csv(visits, tmp_path / "visits.csv")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    out = run(
        "sql", "--dialect", "duckdb", "--table", "t", "--column", "weight=w", "--where", "d = 1"
    )
    sql = counting_sql("t", dialect="duckdb", columns={"weight": "w"}, where="d = 1")
    assert all(statement in out for statement in sql)
    one = run("sql", "--dialect", "duckdb", "--table", "t", "--statement", "visits")
    assert one.strip() == counting_sql("t", dialect="duckdb").visits
    as_json = run("sql", "--dialect", "postgres", "--table", "t", "--json")
    assert json.loads(as_json)["pairs"] == counting_sql("t", dialect="postgres").pairs
    files = (str(tmp_path / "pairs.parquet"), "--visits", str(tmp_path / "visits.csv"))
    run("count", *files, "--to", str(tmp_path / "counts"))
    assert rc.Counts.load(tmp_path / "counts") == rc.count(log)
    run("fit", str(tmp_path / "counts"), "--model", "multiclick", "--to", str(tmp_path / "model"))
