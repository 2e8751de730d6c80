"""Commands that bring other people's logs in."""

from __future__ import annotations

from textwrap import wrap
from typing import Annotated, Literal, cast

import typer

from reclick.cli.console import progress_bars
from reclick.cli.inputs import How, named_values, tell_format, tell_no_clicks
from reclick.cli.options import Columns, FormatName, Logs, MaxAds, OnError

OWN = (
    "sessions",
    "Reclick's own columns",
    "Parquet, CSV or JSON lines, a page a row, with the columns query, ads and clicks.",
)
WIDE = 79  # columns of a small terminal


def convert(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The Parquet file of sessions to write.")],
    format: FormatName = None,
    first: Annotated[int | None, typer.Option(help="Cut pages to their first ads.")] = None,
    normalise: Annotated[
        bool,
        typer.Option(
            "--normalise",
            help="Make one query of spellings that differ in case, spaces or Unicode form.",
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
        typer.Option(help="The same page shown to a user again within this time is one page."),
    ] = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Turn a log of any format into a Parquet file of sessions, cleaned as asked, and say what was kept, left out and why.

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
    how = How(column, on_error, max_ads, format)
    with progress_bars() as progress:
        log = convert(
            logs,
            to,
            format=how.format,
            columns=named_values("--column", how.column),
            on_error=cast(Literal["raise", "drop"], how.on_error),
            max_ads=how.max_ads,
            cleaning=None if cleaning == Cleaning() else cleaning,
            progress=progress,
        )
    tell_format(log, format)
    tell_no_clicks(log)
    typer.echo(f"{log.summary}\n{to}")
    if log.ads is not None:
        typer.echo(str(ads_path(to)))


def formats(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A format, to see what is read of it.")
    ] = None,
) -> None:
    """List the formats that are read. With a name: what is kept of that format, and what is lost.

    Example:  reclick formats ubi
    """
    from reclick.logs.formats import get_format, list_formats

    if name is None:
        typer.echo(
            "\n".join(
                _listed({OWN[0]: OWN[1], **{each.name: each.title for each in list_formats()}})
            )
        )
        return
    if name == OWN[0]:
        typer.echo("\n".join(_about(*OWN)))
        return
    known = get_format(name)
    typer.echo("\n".join(_about(known.name, known.title, known.about)))


def _listed(titles: dict[str, str]) -> list[str]:
    """A line a format, and what to do next."""
    wide = max(map(len, titles)) + 2
    return [
        *(f"{name:<{wide}}{title}" for name, title in titles.items()),
        "",
        "What is read of one:  reclick formats ubi",
        "To read a log of it:  reclick convert LOG --format ubi --to sessions.parquet",
    ]


def _about(name: str, title: str, about: str) -> list[str]:
    """A format on a few lines."""
    page = "docs/logs.md" if name == OWN[0] else f"docs/formats/{name}.md"
    return [
        f"{name}: {title}",
        "",
        *wrap(about, WIDE),
        "",
        f"More: {page} in the repository",
        f"Read one:  reclick check LOG --format {name}",
    ]
