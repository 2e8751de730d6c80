"""Commands that compare models."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.console import progress_bars
from reclick.cli.inputs import How, open_log, value
from reclick.cli.model_commands import new_model
from reclick.cli.options import Columns, FormatName, MaxAds, OnError

if TYPE_CHECKING:
    from reclick.models import ClickModel

USUAL = "luceclick,multiclick,dbn,icm,pm,am,ubm"


def evaluate(
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LOG...]", help="A log to split, in place of --train and --test."),
    ] = None,
    to: Annotated[
        str, typer.Option(help="The folder to write to; a second run takes up what is done there.")
    ] = "evaluation",
    models: Annotated[
        str,
        typer.Option(
            help="Models to compare, with commas between: names of `reclick models`, or folders of models."
        ),
    ] = USUAL,
    train: Annotated[
        list[str] | None, typer.Option(help="The log to fit on. Repeat for more files.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(help="The log to judge by. Repeat for more files.")
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(help="An earlier log, for the priors. Repeat for more files."),
    ] = None,
    ads: Annotated[
        str | None,
        typer.Option(help="A table with the ads' text: ad, title, description, display_url."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Editors' labels: query, ad, relevance.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="With LOG: the column to split by, times or the words history, train and test."
        ),
    ] = "timestamp",
    cut: Annotated[
        list[str] | None,
        typer.Option(help="With LOG: where train starts; give it again for where test starts."),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Compare models by every metric of the paper and more: tables as Parquet, a report as Markdown and HTML.

    Example:  reclick evaluate --history logs/week1.parquet --train logs/week2.parquet --test logs/week3.parquet --ads logs/ads.parquet --to results

    One log of three weeks:  reclick evaluate 'logs/week*.parquet' --ads logs/ads.parquet --to results
    """
    from reclick.evaluation import evaluate

    _refuse_both(
        logs,
        [*(history or ()), *(train or ()), *(test or ())],
        split_told=cut is not None or by != "timestamp",
    )
    how = How(column, on_error, max_ads, format)
    with progress_bars() as progress:
        parts = (
            _split(logs, to, by, cut, how, progress) if logs else _parts(history, train, test, how)
        )
        found = evaluate(
            _chosen(models),
            **parts,
            ads=ads,
            labels=labels,
            folder=to,
            level=level,
            resamples=resamples,
            seed=seed,
            progress=progress,
        )
    found = replace(
        found, details={**found.details, "command": shlex.join(["reclick", *sys.argv[1:]])}
    )
    written = found.save(to)
    typer.echo(f"{found}\n")
    for path in written:
        typer.echo(path)


def demo(to: Annotated[str, typer.Option(help="The folder to write to.")] = "demo") -> None:
    """Simulate three weeks, compare seven models on the third, and write a report about it.

    Example:  reclick demo --to demo
    """
    from reclick.cli.demo import run

    with progress_bars() as progress:
        sections = run(Path(to), progress)
        for section in sections:
            typer.echo(section)


def _chosen(names: str) -> dict[str, ClickModel]:
    """Models by the name to show: new ones by their name, fitted ones by their folder, with its path where two have the same."""
    from reclick.models import MODELS, load
    from reclick.runtime import artifact
    from reclick.runtime.filesystem import as_path

    chosen: dict[str, ClickModel] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        folder = as_path(name)
        fitted = name not in MODELS and artifact.is_artifact(folder)
        shown = folder.name if fitted else MODELS[name].__name__ if name in MODELS else name
        chosen[name if shown in chosen else shown] = (
            load(folder) if fitted else new_model(name, None, option="--models")
        )
    return chosen


def _refuse_both(logs: list[str] | None, parts: list[str], *, split_told: bool) -> None:
    """Refuse options that would be without effect: parts of a log that is to be split, or how to split where nothing is."""
    from reclick.errors import UsageError

    if logs and parts:
        raise UsageError(
            "A LOG is split into its own history, train and test: give it alone, or --history, "
            "--train and --test without it."
        )
    if split_told and not logs:
        raise UsageError("--by and --cut say how a LOG is split: give one, or leave them out.")


def _parts(
    history: list[str] | None, train: list[str] | None, test: list[str] | None, how: How
) -> dict[str, Any]:
    from reclick.errors import UsageError

    if not test:
        raise UsageError("Nothing to score on: give --train and --test, or one LOG to split.")
    given = {"history": history, "train": train, "test": test}
    return {part: open_log(paths, how) if paths else None for part, paths in given.items()}


def _split(
    logs: list[str], to: str, by: str, cut: list[str] | None, how: How, progress: Any
) -> dict[str, Any]:
    from reclick.evaluation import split
    from reclick.runtime.filesystem import as_path

    cuts = None if cut is None else [value(one) for one in cut]
    parts = split(
        open_log(logs, how),
        as_path(to) / "parts",
        by=by,
        cuts=cuts,
        progress=progress,
    )
    return parts._asdict()
