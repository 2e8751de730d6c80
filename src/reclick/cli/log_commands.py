"""Commands that simulate, read, convert, describe, count and split logs."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Annotated, Any, Literal, cast

import typer

from reclick.cli.console import progress_bar, progress_bars
from reclick.cli.inputs import (
    Ads,
    Columns,
    FormatName,
    Logs,
    MaxAds,
    OnError,
    QuickReturn,
    ReadOptions,
    count_logs,
    on_error_choice,
    open_log,
    parse_assignments,
    parse_value,
    report_format,
    report_no_clicks,
)

OWN_FORMAT = (
    "sessions",
    "Reclick's own columns",
    "Parquet, CSV or JSON lines, one page per row, with the columns query, ads and clicks.",
)
TERMINAL_WIDTH = 79  # of a small terminal


def simulate(
    to: Annotated[str, typer.Option(help="The folder to write to.")],
    sessions: Annotated[int, typer.Option(help="Sessions per week.")] = 100_000,
    weeks: Annotated[int, typer.Option(help="Number of weeks.")] = 3,
    queries: Annotated[
        int | None,
        typer.Option(help="Distinct queries. By default one for every three sessions."),
    ] = None,
    ads_per_query: Annotated[int, typer.Option(help="Ads that compete for a query.")] = 12,
    bots: Annotated[float, typer.Option(help="Share of sessions made by bots.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.")] = 0,
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
        float, typer.Option(help="With --auction: what a satisfied session is worth to you.")
    ] = 0.0,
    refit: Annotated[
        bool, typer.Option("--refit", help="With --auction: fit the model again to each week.")
    ] = False,
) -> None:
    """Simulate weeks of clicks: ads of real words, an auction, users of several types.

    The truth is saved with the logs.

    Example:  reclick simulate --to logs --sessions 50000 --bots 0.02

    The same market under another auction:  reclick simulate --auction vcg --model model --sessions 50000 --to vcg
    """  # noqa: E501
    from reclick.errors import UsageError
    from reclick.simulation import simulate

    market: dict[str, Any] = {
        "weeks": weeks,
        "queries": queries,
        "ads_per_query": ads_per_query,
        "bots": bots,
        "seed": seed,
    }
    if (auction is None) != (model is None):
        raise UsageError("--auction and --model, the folder of a fitted model, go together.")
    if auction is None or model is None:
        with progress_bar("Simulating"):
            written = simulate(sessions, **market).save(to)
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
            written = outcome.simulation.save(to)
        typer.echo(outcome)
    for path in written:
        typer.echo(path)


def check(
    logs: Logs, format: FormatName = None, column: Columns = None, max_ads: MaxAds = 100
) -> None:
    """Read a log to the end and report valid rows, and bad rows by reason with examples.

    The exit code is 1 if any row is bad.

    Example:  reclick check 'logs/week2/*.parquet' --column query=search_term
    """
    log = open_log(logs, ReadOptions(column, "drop", max_ads, format))
    with progress_bar(f"Checking {log.name}", log.num_rows):
        for _ in log.batches():
            pass
    typer.echo(str(log.summary))
    report_no_clicks(log)
    if log.summary.dropped:
        raise typer.Exit(1)


def convert(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The Parquet file of sessions to write.")],
    format: FormatName = None,
    click: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION",
            help="With ubi: an action that is a click, in place of click and click_through. "
            "Repeat for more.",
        ),
    ] = None,
    pages: Annotated[
        str | None,
        typer.Option(
            metavar="hits|impressions",
            help="With ubi: what a page shows, the hits of its query or its impressions.",
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
        int | None, typer.Option(help="Leave out sessions with more clicks.")
    ] = None,
    max_pages_per_hour: Annotated[
        int | None, typer.Option(help="Leave out users who saw more pages in an hour: bots.")
    ] = None,
    max_clicks_per_hour: Annotated[
        int | None, typer.Option(help="Leave out users who clicked more often in an hour: bots.")
    ] = None,
    reload_seconds: Annotated[
        float | None,
        typer.Option(help="Merge a page shown to a user again within this time with the first."),
    ] = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Convert a log of any format to a Parquet file of sessions, and report what was left out.

    Example:  reclick convert queries.ndjson events.ndjson --format ubi --to sessions.parquet
    """
    from reclick.logs import convert
    from reclick.logs.cleaning import Cleaning
    from reclick.logs.read import ads_path

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
            logs,
            to,
            format=format,
            columns=parse_assignments("--column", column),
            on_error=on_error_choice(on_error),
            max_ads=max_ads,
            click=click,
            pages=cast(Literal["hits", "impressions"] | None, pages),
            cleaning=None if cleaning == Cleaning() else cleaning,
            progress=progress,
        )
    report_format(log, format)
    report_no_clicks(log)
    typer.echo(f"{log.summary}\n{to}")
    if log.ads is not None:
        typer.echo(str(ads_path(to)))


def describe(
    logs: Logs,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    quick_return_seconds: QuickReturn = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a profile of a log: clicks by query volume, first clicks, distances between clicks.

    Example:  reclick describe logs/week2.parquet
    """
    from reclick.profile import describe

    profile = describe(
        count_logs(logs, ReadOptions(column, on_error, max_ads, format, quick_return_seconds)).data
    )
    typer.echo(json.dumps(profile.to_dict(), indent=2) if as_json else str(profile))


def count(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder to write the counts to.")],
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    quick_return_seconds: QuickReturn = 10.0,
) -> None:
    """Count a log once and save the counts.

    `describe`, `fit` and its --history and --forget take the folder in place of the log. Counts
    are enough to fit multiclick and models that are click rates; luceclick needs the log itself.

    Example:  reclick count logs/2026-11-14.parquet --to counts/2026-11-14
    """
    from reclick.engines import as_counts
    from reclick.runtime import artifact

    artifact.check_target(to, "counts")
    counts = as_counts(
        count_logs(logs, ReadOptions(column, on_error, max_ads, format, quick_return_seconds)).data
    )
    counts.save(to)
    typer.echo(f"{counts!r}\n{to}")


def split(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder to write to.")],
    by: Annotated[
        str,
        typer.Option(help="A column of times or numbers, or of the words history, train and test."),
    ] = "timestamp",
    cut: Annotated[
        list[str] | None,
        typer.Option(help="Where train starts; give it again for where test starts."),
    ] = None,
    ads: Ads = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Split a log into history.parquet, train.parquet and test.parquet, by time or by a column.

    Example:  reclick split logs/ --to parts --cut 2026-03-08 --cut 2026-03-15
    """
    from reclick.evaluation import split

    log = open_log(logs, ReadOptions(column, on_error, max_ads, format), ads)
    with progress_bars() as progress:
        cuts = None if cut is None else [parse_value(text) for text in cut]
        parts = split(log, to, by=by, cuts=cuts, progress=progress)
    for name, part in zip(parts._fields, parts, strict=True):
        rows = 0 if part is None else part.num_rows or 0
        path = "" if part is None else f"  {to}/{name}.parquet"
        typer.echo(f"{name:<8} {rows:>12,} sessions{path}")


def formats(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A format, to see what is read of it.")
    ] = None,
) -> None:
    """List the log formats. With a name: what is read of that format, and what is lost.

    Example:  reclick formats ubi
    """
    from reclick.logs.formats import get_format, list_formats

    if name is None:
        titles = {each.name: each.title for each in list_formats()}
        lines = _format_list({OWN_FORMAT[0]: OWN_FORMAT[1], **titles})
    elif name == OWN_FORMAT[0]:
        lines = _format_page(*OWN_FORMAT)
    else:
        known = get_format(name)
        lines = _format_page(known.name, known.title, known.about)
    typer.echo("\n".join(lines))


def _format_list(titles: dict[str, str]) -> list[str]:
    """One line per format, and what to do next."""
    width = max(map(len, titles)) + 2
    return [
        *(f"{name:<{width}}{title}" for name, title in titles.items()),
        "",
        "What is read of one:  reclick formats ubi",
        "To read a log of it:  reclick convert LOG --format ubi --to sessions.parquet",
    ]


def _format_page(name: str, title: str, about: str) -> list[str]:
    """A format on a few lines."""
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
