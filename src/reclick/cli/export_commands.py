"""The command that writes judgments and propensities for other tools."""

from __future__ import annotations

from typing import Annotated

import typer

from reclick.cli.console import progress_bars
from reclick.cli.inputs import (
    Columns,
    MaxAds,
    OnError,
    ReadOptions,
    on_error_choice,
    open_log,
    parse_value,
    report_dropped,
)


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    to: Annotated[str, typer.Option(help="The file to write.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="qrels, quepid, opensearch, letor, parquet or propensities. By default inferred "
            "from the ending of the file name.",
        ),
    ] = None,
    cuts: Annotated[
        str,
        typer.Option(
            help="Cut points between grades: numbers with commas between, or quantiles of the "
            "pairs."
        ),
    ] = "quartiles",
    by: Annotated[
        str, typer.Option(help="What is graded: relevance, attractiveness or satisfaction.")
    ] = "relevance",
    bound: Annotated[
        str,
        typer.Option(help="Grade the lower end of its interval (low) or the value itself (value)."),
    ] = "low",
    min_support: Annotated[
        float, typer.Option(help="Impressions that a pair must have to be graded.")
    ] = 10.0,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.9,
    pairs: Annotated[
        str | None,
        typer.Option(help="A table of query and ad: only these. By default all pairs."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="With letor: a table of query, ad and numbers.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            help="With propensities: the pages they are means over. Repeat for more files."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="With opensearch: the name of the judgment list.")
    ] = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Write graded judgments of a model's (query, ad) pairs for another tool, or propensities.

    Example:  reclick export model --to judgments.qrels --cuts 0.05,0.2,0.5 --min-support 20

    For unbiased learning to rank:  reclick export model --to propensities.csv --format propensities --log logs/week2.parquet
    """  # noqa: E501
    from reclick.exports import export
    from reclick.models import load

    pages = None
    if log:
        pages = open_log(log, ReadOptions(column, on_error, max_ads), clicks_required=False)
    with progress_bars() as progress:
        result = export(
            load(model),
            to,
            format=format_,
            pairs=pairs,
            cuts=_parse_cuts(cuts),
            by=by,
            bound=bound,
            min_support=min_support,
            level=level,
            features=features,
            log=pages,
            name=name,
            on_error=on_error_choice(on_error),
            progress=progress,
        )
    if pages is not None:
        report_dropped(pages)
    typer.echo(str(result))


def _parse_cuts(text: str) -> str | tuple[float, ...]:
    """Numbers with commas between as a tuple; any other text as it is."""
    parts = [parse_value(part) for part in text.split(",")]
    return tuple(parts) if all(isinstance(part, int | float) for part in parts) else text
