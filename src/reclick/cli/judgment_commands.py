"""Commands about judgments: compare two lists of them, and score a run against one."""

from __future__ import annotations

from typing import Annotated

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result


@as_command
def compare_judgments(
    a: Annotated[str, typer.Argument(metavar="A", help="A file of judgments.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    top: Annotated[int, typer.Option(help="Number of largest changes to list.")] = 10,
) -> None:
    """Compare two files of judgments: agreement, Kendall's tau, and the largest changes.

    Files are TREC qrels, CSV or Parquet of query, ad and grade, or OpenSearch JSON.

    Example:  reclick compare-judgments may.qrels june.qrels
    """
    from reclick.exports import compare_judgments

    comparison = compare_judgments(a, b, top=top)
    print_result(str(comparison), comparison.to_dict())


@as_command
def ndcg(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A TREC run file, or CSV or Parquet of query, ad and score or rank."
        ),
    ],
    judgments: Annotated[str, typer.Argument(metavar="JUDGMENTS", help="A file of judgments.")],
    k: Annotated[int, typer.Option("--k", help="Number of positions that count.")] = 10,
    gain: Annotated[
        str, typer.Option(metavar="linear|exponential", help="The grade, or 2^grade - 1.")
    ] = "linear",
    level: Annotated[float, typer.Option(help="Level of the interval.")] = 0.9,
) -> None:
    """Score a ranking against judgments: nDCG with its interval, and what was not judged.

    Example:  reclick ndcg run.txt judgments.qrels --k 10
    """
    from reclick.exports import ndcg

    result = ndcg(run, judgments, k=k, gain=gain, level=level)
    print_result(str(result), result.to_dict())
