"""Commands that simulate, read, convert, describe, count and split logs."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result, print_text, progress_bar, progress_bars
from reclick.cli.inputs import (
    Ads,
    Columns,
    EngineName,
    EngineOptions,
    Force,
    FormatName,
    Logs,
    Master,
    MaxAds,
    OnError,
    QuickReturn,
    ReadOptions,
    SharedFolder,
    Tasks,
    Workers,
    complete_format,
    count_logs,
    on_error_choice,
    open_log,
    parse_assignments,
    parse_value,
    read_results,
    report_format,
    report_warnings,
    with_stdin,
)

if TYPE_CHECKING:
    from reclick.logs import SessionLog

OWN_FORMAT = (
    "sessions",
    "Reclick's own columns",
    "Parquet, CSV or JSON lines, one page per row, with the columns query, ads and clicks.",
)
TERMINAL_WIDTH = 79  # of a small terminal


@as_command
def simulate(
    to: Annotated[str, typer.Option(metavar="FOLDER", help="The folder to write to.")],
    sessions: Annotated[int, typer.Option(help="Sessions per week.")] = 100_000,
    weeks: Annotated[int, typer.Option(help="Number of weeks.")] = 3,
    queries: Annotated[
        int | None,
        typer.Option(help="Number of distinct queries. Default: one for every three sessions."),
    ] = None,
    ads_per_query: Annotated[
        int, typer.Option(help="Number of ads that compete for a query.")
    ] = 12,
    bots: Annotated[float, typer.Option(help="Share of sessions made by bots.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.")] = 0,
    outcomes: Annotated[
        bool, typer.Option("--outcomes", help="Write dwell_seconds and conversions too.")
    ] = False,
    auction: Annotated[
        str | None,
        typer.Option(
            metavar="vcg|gsp_model|gsp|first_price",
            help="Let a fitted model choose pages and prices with this mechanism.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="With --auction: the folder of a model fitted to this market."),
    ] = None,
    satisfaction_weight: Annotated[
        float, typer.Option(help="With --auction: the value of a satisfied session to you.")
    ] = 0.0,
    refit: Annotated[
        bool, typer.Option("--refit", help="With --auction: fit the model again to each week.")
    ] = False,
    force: Force = False,
) -> None:
    """Simulate weeks of clicks: ads made of real words, an auction, several types of users.

    The true parameters are saved with the logs.

    Example:  reclick simulate --to logs --sessions 50000 --bots 0.02

    The same market under another auction:  reclick simulate --auction vcg --model model --sessions 50000 --to vcg
    """  # noqa: E501
    from reclick.errors import UsageError
    from reclick.simulation import check_simulation_folder, simulate

    market: dict[str, Any] = {
        "weeks": weeks,
        "queries": queries,
        "ads_per_query": ads_per_query,
        "bots": bots,
        "seed": seed,
        "outcomes": outcomes,
    }
    if (auction is None) != (model is None):
        raise UsageError(
            "--auction needs --model, the folder of a fitted model, and --model needs --auction."
        )
    check_simulation_folder(to, weeks, overwrite=force)
    if auction is None or model is None:
        with progress_bar("Simulating"):
            paths = simulate(sessions, **market).save(to, overwrite=force)
    else:
        from reclick.auction import simulate_auctions
        from reclick.models import load

        with progress_bar("Simulating"):
            outcome = simulate_auctions(
                load(model),
                sessions,
                mechanism=auction,
                satisfaction_weight=satisfaction_weight,
                refit=refit,
                **market,
            )
            paths = outcome.simulation.save(to, overwrite=force)
        print_text(str(outcome))
    files = [str(path) for path in paths]
    data = {"to": to, "weeks": weeks, "sessions_per_week": sessions, "seed": seed, "files": files}
    print_result("\n".join(files), data)


@as_command
def check(
    logs: Logs, format: FormatName = None, column: Columns = None, max_ads: MaxAds = 100
) -> None:
    """Read a whole log and report valid rows, and bad rows by reason with examples.

    The exit code is 1 if any row is bad. The folder of a model or of counts can be checked too:
    every hash, table and index in it.

    Example:  reclick check 'logs/week2/*.parquet' --column query=search_term
    """
    from reclick.runtime import artifact

    if len(logs) == 1 and artifact.is_artifact(logs[0]):
        _check_folder(logs[0])
        return
    log = open_log(logs, ReadOptions(column, "drop", max_ads, format))
    with progress_bar(f"Checking {log.name}", log.num_rows):
        for _ in log.batches():
            pass
    print_result(str(log.summary), _describe_log(log))
    report_warnings(log)
    if log.summary.dropped:
        raise typer.Exit(1)


def _check_folder(folder: str) -> None:
    """Load the model or the counts of a folder; this raises an error if anything is damaged."""
    from reclick.data.counts import Counts
    from reclick.models import load
    from reclick.runtime import artifact

    kind, fingerprint = artifact.get_kind(folder), artifact.fingerprint(folder)
    counts: object
    if kind == "model":
        model = load(folder)
        model.check_folder()
        counts = model.training_totals
    else:
        counts = Counts.load(folder)
    data = {"folder": folder, "kind": kind, "fingerprint": fingerprint, "damaged": False}
    print_result(f"{folder} holds {kind}, undamaged: {counts}\n{fingerprint}", data)


@as_command
def convert(
    logs: Logs,
    to: Annotated[str, typer.Option(metavar="FILE", help="The Parquet file of sessions to write.")],
    format: FormatName = None,
    click: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION",
            help="With ubi: an action that counts as a click. Repeat for more. Default: click and "
            "click_through.",
        ),
    ] = None,
    pages: Annotated[
        str | None,
        typer.Option(
            metavar="hits|impressions",
            help="With ubi: what is on a page, the hits of the query or the impressions.",
        ),
    ] = None,
    first: Annotated[
        int | None, typer.Option(help="Keep only the first N ads of each page.")
    ] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Merge queries that differ only in case, spaces or Unicode form.",
        ),
    ] = False,
    max_clicks: Annotated[
        int | None, typer.Option(help="Drop sessions with more than N clicks.")
    ] = None,
    max_pages_per_hour: Annotated[
        int | None, typer.Option(help="Drop users with more than N pages in any hour (bots).")
    ] = None,
    max_clicks_per_hour: Annotated[
        int | None, typer.Option(help="Drop users with more than N clicks in any hour (bots).")
    ] = None,
    reload_seconds: Annotated[
        float | None,
        typer.Option(help="Merge a page with an earlier view by the same user within this time."),
    ] = None,
    column: Columns = None,
    on_error: OnError = "drop",
    max_bad: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="Fail if a larger share of the records is bad, such as 5% or 0.05.",
        ),
    ] = "5%",
    max_ads: MaxAds = 100,
    force: Force = False,
) -> None:
    """Convert a log of any format to a Parquet file of sessions, and report what was left out.

    Example:  reclick convert queries.ndjson events.ndjson --format ubi --to sessions.parquet
    """
    from reclick.logs import convert
    from reclick.logs.cleaning import Cleaning
    from reclick.logs.conversion import ads_path

    cleaning = Cleaning(
        first=first,
        normalise=normalise,
        max_clicks=max_clicks,
        max_pages_per_hour=max_pages_per_hour,
        max_clicks_per_hour=max_clicks_per_hour,
        reload_seconds=reload_seconds,
    )
    with progress_bars() as progress:
        log = convert(
            with_stdin(logs),
            to,
            format=format,
            columns=parse_assignments("--column", column),
            on_error=on_error_choice(on_error),
            max_bad=_parse_share("max_bad", max_bad),
            max_ads=max_ads,
            click=click,
            pages=cast(Literal["hits", "impressions"] | None, pages),
            cleaning=None if cleaning == Cleaning() else cleaning,
            overwrite=force,
            progress=progress,
        )
    report_format(log, format)
    report_warnings(log)
    files = [to] if log.ads is None else [to, str(ads_path(to))]
    print_result("\n".join([str(log.summary), *files]), {**_describe_log(log), "files": files})


@as_command
def describe(
    logs: Logs,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    quick_return_seconds: QuickReturn = 10.0,
    engine: EngineName = "local",
    workers: Workers = None,
    master: Master = None,
    shared_folder: SharedFolder = None,
    tasks: Tasks = None,
) -> None:
    """Print a profile of a log: clicks by query volume, first clicks, distances between clicks.

    Example:  reclick describe logs/week2.parquet
    """
    from reclick.profile import describe

    runner = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds, runner)
    profile = describe(count_logs(logs, options).data)
    print_result(str(profile), profile.to_dict())


@as_command
def count(
    logs: Logs,
    to: Annotated[str, typer.Option(metavar="FOLDER", help="The folder to write the counts to.")],
    visits: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read results of `reclick sql`: LOG holds `pairs`, this file `visits`.",
        ),
    ] = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    quick_return_seconds: QuickReturn = 10.0,
    engine: EngineName = "local",
    workers: Workers = None,
    master: Master = None,
    shared_folder: SharedFolder = None,
    tasks: Tasks = None,
) -> None:
    """Count a log once and save the counts.

    `describe`, and `fit` with its --history and --forget, accept the folder instead of the log.
    Counts are enough to fit multiclick and the click-rate models; luceclick needs the log itself.

    Example:  reclick count logs/2026-11-14.parquet --to counts/2026-11-14
    """
    from reclick.engines import as_counts
    from reclick.runtime import artifact

    artifact.check_target(to, "counts")
    runner = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds, runner)
    counts = (
        as_counts(count_logs(logs, options).data)
        if visits is None
        else read_results(logs, [visits])
    )
    counts.save(to)
    data = {
        "to": to,
        "sessions": counts.total,
        "queries": len(counts.queries),
        "ads": len(counts.ads),
        "pairs": len(counts.impressions),
        "logs": [record.to_dict() for record in counts.logs],
    }
    print_result(f"{counts!r}\n{to}", data)


@as_command
def sql(
    table: Annotated[
        str, typer.Option(metavar="TABLE", help="The table of sessions, as in your SQL.")
    ],
    dialect: Annotated[
        str,
        typer.Option(help="bigquery, clickhouse, duckdb, postgres or snowflake."),
    ],
    statement: Annotated[
        str | None,
        typer.Option(help="Print only one of the statements: pairs, visits or dropped."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Which rows to count, in SQL.")
    ] = None,
    column: Columns = None,
    max_ads: MaxAds = 100,
) -> None:
    """Print SQL that counts a log in a warehouse, without moving it.

    Run the statements `pairs` and `visits` there. `reclick count PAIRS --visits VISITS` turns their
    results into counts. `dropped` counts the bad rows by reason. Name a column of weights with
    --column weight=NAME; without one, every session counts once.

    Example:  reclick sql --dialect bigquery --table search.sessions --where "dt = '2026-11-14'"
    """
    from reclick.engines.warehouse import CountingSQL, counting_sql
    from reclick.errors import check_choice

    columns = parse_assignments("--column", column)
    statements = counting_sql(table, dialect=dialect, columns=columns, where=where, max_ads=max_ads)
    if statement is not None:
        check_choice("statement", statement, CountingSQL._fields)
        print_result(getattr(statements, statement), {statement: getattr(statements, statement)})
        return
    text = "\n\n".join(f"-- {name}\n{text};" for name, text in statements._asdict().items())
    print_result(text, statements._asdict())


@as_command
def split(
    logs: Logs,
    to: Annotated[str, typer.Option(metavar="FOLDER", help="The folder to write to.")],
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="A column with times, numbers, or the words history, train and test.",
        ),
    ] = "timestamp",
    cut: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Where train starts. Repeat it for where test starts."),
    ] = None,
    ads: Ads = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    force: Force = False,
) -> None:
    """Split a log into history.parquet, train.parquet and test.parquet, by time or by a column.

    Example:  reclick split logs/ --to parts --cut 2026-03-08 --cut 2026-03-15
    """
    from reclick.evaluation import split

    log = open_log(logs, ReadOptions(column, on_error, max_ads, format), ads)
    with progress_bars() as progress:
        cuts = None if cut is None else [parse_value(text) for text in cut]
        parts = split(log, to, by=by, cuts=cuts, overwrite=force, progress=progress)
    data = {
        name: {
            "sessions": 0 if part is None else part.num_rows or 0,
            "file": None if part is None else f"{to}/{name}.parquet",
        }
        for name, part in zip(parts._fields, parts, strict=True)
    }
    lines = (
        f"{name:<8} {part['sessions']:>12,} sessions  {part['file'] or ''}".rstrip()
        for name, part in data.items()
    )
    print_result("\n".join(lines), data)


@as_command
def formats(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A format, to see what Reclick reads from it.",
            autocompletion=complete_format,
        ),
    ] = None,
) -> None:
    """List the log formats. With a name: what is read from that format, and what is lost.

    Example:  reclick formats ubi
    """
    from reclick.logs.formats import get_format, list_formats

    if name is None:
        titles = {log_format.name: log_format.title for log_format in list_formats()}
        titles = {OWN_FORMAT[0]: OWN_FORMAT[1], **titles}
        data = [{"name": key, "title": title} for key, title in titles.items()]
        print_result("\n".join(_format_list(titles)), data)
        return
    page = OWN_FORMAT
    if name != OWN_FORMAT[0]:
        log_format = get_format(name)
        page = (log_format.name, log_format.title, log_format.about)
    data_of_one = dict(zip(("name", "title", "about"), page, strict=True))
    print_result("\n".join(_format_page(*page)), data_of_one)


def _parse_share(argument: str, text: str) -> float:
    """Parse a share, as a percentage or a number.

    >>> _parse_share("max_bad", "5%"), _parse_share("max_bad", "0.25")
    (0.05, 0.25)
    """
    from reclick.errors import SettingError

    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingError(argument, text, "a share such as 5% or 0.05")
    return share


def _describe_log(log: SessionLog) -> dict[str, Any]:
    """Describe a log that was read to the end, for --json."""
    log_format = OWN_FORMAT[0] if log.provenance is None else log.provenance.format
    return {"log": log.name, "format": log_format, "summary": log.summary.to_dict()}


def _format_list(titles: dict[str, str]) -> list[str]:
    """Return a line per format, and examples of commands."""
    width = max(map(len, titles)) + 2
    return [
        *(f"{name:<{width}}{title}" for name, title in titles.items()),
        "",
        "Details of a format:  reclick formats ubi",
        "To convert a log:     reclick convert LOG --format ubi --to sessions.parquet",
    ]


def _format_page(name: str, title: str, about: str) -> list[str]:
    """Return the lines that describe a format."""
    page = (
        "docs/reference/logs.md" if name == OWN_FORMAT[0] else f"docs/reference/formats/{name}.md"
    )
    return [
        f"{name}: {title}",
        "",
        *wrap(about, TERMINAL_WIDTH),
        "",
        f"More: {page} in the repository",
        f"Read one:  reclick check LOG --format {name}",
    ]
