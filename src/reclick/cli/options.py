"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Files, globs or folders: sessions as Parquet, CSV or JSON lines, or another format.",
    ),
]
Ads = Annotated[
    str | None,
    typer.Option(help="A table with the ads' text: ad, title, description, display_url."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="A column under another name, e.g. query=search_term.",
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        metavar="raise|drop", help="Bad rows: stop with an error, or drop and count them."
    ),
]
MaxAds = Annotated[int, typer.Option(help="Longest page taken as real.")]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="The log's format, one of `reclick formats`; unless given, it is recognised where it can be.",
    ),
]
