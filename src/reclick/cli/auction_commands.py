"""Commands that rank ads and run auctions with a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result, progress_bars
from reclick.cli.inputs import Force

if TYPE_CHECKING:
    import pyarrow as pa

ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")]
Slots = Annotated[int, typer.Option(help="Maximum number of ads on a page.")]
NewText = Annotated[
    str | None, typer.Option(metavar="FILE", help="Text of ads that the model may not know.")
]


@as_command
def rank(
    model: ModelFolder,
    candidates: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATES",
            help="The ads that may be shown: a table of query and ad, or of query and ads (lists).",
        ),
    ],
    to: Annotated[str, typer.Option(metavar="FILE", help="The Parquet file to write.")],
    slots: Slots = 4,
    objective: Annotated[
        str,
        typer.Option(
            metavar="clicks|satisfaction|value",
            help="What to maximise. For value, the candidates need a column `value`: the value of "
            "a click.",
        ),
    ] = "clicks",
    ads: NewText = None,
    force: Force = False,
) -> None:
    """Write the best page of each query: which ads, in which order.

    Example:  reclick rank model candidates.parquet --slots 4 --objective satisfaction --to pages.parquet
    """  # noqa: E501
    from reclick.auction import rank_pages
    from reclick.models import load
    from reclick.runtime.wording import count_noun

    check_parquet(to, candidates, ads, overwrite=force)
    with progress_bars() as progress:
        pages = rank_pages(
            load(model), candidates, slots=slots, objective=objective, text=ads, progress=progress
        )
    write_parquet(pages, to, overwrite=force)
    data = {"to": to, "pages": len(pages), "objective": objective}
    num_pages = count_noun(len(pages), "page")
    print_result(f"{num_pages}, each the exact maximum of {objective}\n{to}", data)


@as_command
def auction(
    model: ModelFolder,
    to: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="The Parquet file to write; with --compare, the HTML file."
        ),
    ],
    bids: Annotated[
        str | None,
        typer.Argument(
            metavar="BIDS",
            help="A table of query, ad and bid (or satisfaction_bid, per click that satisfies); "
            "optional weight, advertiser, budget, auction. With --compare it may be left out: "
            "bids are sampled.",
        ),
    ] = None,
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="vcg|gsp_model|gsp|first_price",
            help="vcg: ads pay for the clicks they displace. gsp_model: the smallest bid that "
            "keeps the clicks. gsp: ranked by bid × quality. first_price: the bid.",
        ),
    ] = "vcg",
    slots: Slots = 4,
    reserve: Annotated[float, typer.Option(help="The lowest price per click.")] = 0.0,
    satisfaction_weight: Annotated[
        float, typer.Option(help="The value of a satisfied session to you.")
    ] = 0.0,
    squashing: Annotated[
        float, typer.Option(help="With gsp: the exponent of quality. Below 1, bids count more.")
    ] = 1.0,
    draws: Annotated[
        int,
        typer.Option(
            help="Repeat each auction with this many models drawn from the posterior, and add "
            "intervals to the prices."
        ),
    ] = 0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Compare all mechanisms on these bids, and write an HTML report."
        ),
    ] = False,
    auctions: Annotated[
        int, typer.Option(help="With --compare: number of auctions, chosen at random.")
    ] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the draws and samples.")] = 0,
    ads: NewText = None,
    force: Force = False,
) -> None:
    """Run an auction for each query, and write the ads shown, their prices and the reasons.

    Example:  reclick auction model bids.parquet --mechanism vcg --reserve 0.05 --to prices.parquet

    All mechanisms side by side:  reclick auction model bids.parquet --compare --to auctions.html
    """
    from reclick.auction import compare_mechanisms, run_auctions
    from reclick.errors import UsageError
    from reclick.models import load

    rules: dict[str, Any] = {
        "slots": slots,
        "reserve": reserve,
        "satisfaction_weight": satisfaction_weight,
        "squashing": squashing,
        "seed": seed,
        "text": ads,
    }
    if compare:
        what = "the report is written as HTML"
        _check_file(to, (".html", ".htm"), what, bids, ads, overwrite=force)
        with progress_bars() as progress:
            comparison = compare_mechanisms(
                load(model), bids, auctions=auctions, progress=progress, **rules
            )
        report_path = str(comparison.to_html(to, overwrite=force))
        tables = {"scores": comparison.scores, "incentives": comparison.incentives}
        data = {name: table.to_pylist() for name, table in tables.items()}
        print_result(f"{comparison}\n{report_path}", {"to": report_path, **data})
        return
    if bids is None:
        raise UsageError("Give a table of bids; only --compare samples them.")
    check_parquet(to, bids, ads, overwrite=force)
    with progress_bars() as progress:
        prices = run_auctions(
            load(model), bids, mechanism=mechanism, draws=draws, progress=progress, **rules
        )
    write_parquet(prices, to, overwrite=force)
    totals = _add_up(prices)
    lines = (
        f"{name.replace('_', ' '):<20}{value:>14,.{digits}f}"
        for (name, value), digits in zip(totals.items(), (0, 2, 4, 4, 2), strict=True)
    )
    print_result("\n".join([*lines, to]), {"to": to, "mechanism": mechanism, **totals})


def check_parquet(to: str, *inputs: str | None, overwrite: bool) -> None:
    """Raise, before computing, if the target is not Parquet, an input or another program's file."""
    what = "the table is written as Parquet"
    _check_file(to, (".parquet", ".pq"), what, *inputs, overwrite=overwrite)


def _check_file(
    to: str, suffixes: tuple[str, ...], what: str, *inputs: str | None, overwrite: bool
) -> None:
    from reclick.errors import UsageError
    from reclick.runtime.filesystem import as_path
    from reclick.runtime.outputs import check_targets, refuse_source_files

    if as_path(to).suffix.lower() not in suffixes:
        raise UsageError(f"{to}: {what}. Give a name that ends in {suffixes[0]}.")
    refuse_source_files(to, filter(None, inputs), "one of the inputs")
    check_targets([to], overwrite=overwrite)


def write_parquet(table: pa.Table, to: str, *, overwrite: bool) -> None:
    """Write a table to a Parquet file, which appears when it is complete."""
    import pyarrow.parquet as pq

    from reclick.runtime.outputs import atomic_file

    with atomic_file(to, overwrite=overwrite) as path:
        pq.write_table(table, path, compression="zstd")


def _add_up(prices: pa.Table) -> dict[str, float]:
    import numpy as np

    price, bid, clicks = (
        prices[name].to_numpy() for name in ("price_per_click", "bid", "expected_clicks")
    )
    first = prices["position"].to_numpy() == 1
    satisfied = prices["page_satisfaction"].to_numpy()[first]
    return {
        "pages_with_ads": int(np.count_nonzero(first)),
        "expected_clicks": float(clicks.sum()),
        "revenue": float(np.sum(price * clicks)),
        "welfare": float(np.sum(bid * clicks)),
        "satisfied_sessions": float(satisfied.sum()),
    }
