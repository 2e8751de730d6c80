"""Commands that make, look at and count logs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from reclick.cli.console import progress_bar, progress_bars
from reclick.cli.inputs import How, add_up, open_log, tell_no_clicks
from reclick.cli.options import Ads, Columns, FormatName, Logs, MaxAds, OnError


def simulate(
    to: Annotated[str, typer.Option(help="The folder to write to.")],
    sessions: Annotated[int, typer.Option(help="Sessions a week.")] = 100_000,
    weeks: Annotated[int, typer.Option(help="How many weeks.")] = 3,
    queries: Annotated[
        int | None,
        typer.Option(help="Distinct queries; unless given, one for every three sessions."),
    ] = None,
    ads_per_query: Annotated[int, typer.Option(help="Ads competing for a query.")] = 12,
    bots: Annotated[float, typer.Option(help="The share of sessions that are of bots.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.")] = 0,
) -> None:
    """Draw weeks of clicks in a made-up market: ads of real words, an auction, users of several kinds. The truth is saved beside them.

    Example:  reclick simulate --to logs --sessions 50000 --bots 0.02
    """
    from reclick.simulation import simulate

    with progress_bar("Simulating"):
        written = simulate(
            sessions,
            weeks=weeks,
            queries=queries,
            ads_per_query=ads_per_query,
            bots=bots,
            seed=seed,
        ).save(to)
    for path in written:
        typer.echo(path)


def check(
    logs: Logs, format: FormatName = None, column: Columns = None, max_ads: MaxAds = 100
) -> None:
    """Read a log to the end and say what is in it: rows kept, rows dropped by reason with examples. Exit code 1 when any row is bad.

    Example:  reclick check 'logs/week2/*.parquet' --column query=search_term
    """
    log = open_log(logs, How(column, "drop", max_ads, format))
    with progress_bar(f"Checking {log.name}", log.num_rows):
        for _ in log.batches():
            pass
    typer.echo(str(log.summary))
    tell_no_clicks(log)
    if log.summary.dropped:
        raise typer.Exit(1)


def describe(
    logs: Logs,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Draw a log's portrait: clicks by query volume, first clicks by position, distances between clicks.

    Example:  reclick describe logs/week2.parquet
    """
    from reclick.profile import describe

    profile = describe(add_up(logs, How(column, on_error, max_ads, format)).data)
    typer.echo(json.dumps(profile.to_dict(), indent=2) if as_json else str(profile))


def count(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder to write the counts to.")],
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Count a log once and keep the counts: `fit`, `describe` and `--forget` take the folder in place of the log.

    Example:  reclick count logs/2026-11-14.parquet --to counts/2026-11-14
    """
    from reclick.runtime import artifact

    artifact.check_target(to, "counts")
    counts = add_up(logs, How(column, on_error, max_ads, format)).data
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
    from reclick.cli.inputs import value
    from reclick.evaluation import split

    log = open_log(logs, How(column, on_error, max_ads, format), ads)
    with progress_bars() as progress:
        parts = split(
            log,
            to,
            by=by,
            cuts=None if cut is None else [value(one) for one in cut],
            progress=progress,
        )
    for name, part in zip(parts._fields, parts, strict=True):
        typer.echo(
            f"{name:<8} {0 if part is None else part.num_rows or 0:>12,} sessions"
            + ("" if part is None else f"  {to}/{name}.parquet")
        )
