"""Commands that compare models."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result, progress_bars
from reclick.cli.inputs import (
    Ads,
    Columns,
    EngineName,
    EngineOptions,
    Force,
    FormatName,
    Master,
    MaxAds,
    OnError,
    QuickReturn,
    ReadOptions,
    SharedFolder,
    Tasks,
    Workers,
    complete_model,
    new_model,
    open_log,
    parse_value,
    report_single_ads,
)

if TYPE_CHECKING:
    from reclick.models import ClickModel

DEFAULT_MODELS = "luceclick,ubm,dbn,ccm,pbm,dctr,multiclick"


@as_command
def evaluate(
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG", help="A log to split, instead of --train and --test."),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="The folder to write to; a second run continues from it."
        ),
    ] = "evaluation",
    models: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Models to compare, comma-separated: names of `reclick models`, with settings as "
            "in multiclick:variant=paper, or folders of models.",
            autocompletion=complete_model,
        ),
    ] = DEFAULT_MODELS,
    train: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG", help="The log to fit to. Repeat for more files."),
    ] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG", help="The log to score on. Repeat for more files."),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(metavar="LOG", help="An earlier log, for the priors. Repeat for more files."),
    ] = None,
    ads: Ads = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Human relevance judgments: query, ad, relevance."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="With LOG: the column to split by, with times or the words history, train and "
            "test.",
        ),
    ] = "timestamp",
    cut: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VALUE",
            help="With LOG: start of the training split. Repeat for that of the test split.",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
    in_sample: Annotated[
        bool,
        typer.Option("--in-sample", help="Allow a test log that is the training log."),
    ] = False,
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
    force: Force = False,
) -> None:
    """Compare models by all metrics: tables as Parquet, a report as Markdown and HTML.

    Example:  reclick evaluate --history logs/week1.parquet --train logs/week2.parquet --test logs/week3.parquet --ads logs/ads.parquet --to results

    One log of three weeks:  reclick evaluate 'logs/week*.parquet' --ads logs/ads.parquet --to results
    """  # noqa: E501
    from reclick.evaluation import evaluate
    from reclick.evaluation.result import EVALUATION_FILES
    from reclick.runtime.filesystem import as_path
    from reclick.runtime.outputs import check_targets, refuse_source_files

    parts = {"history": history, "train": train, "test": test}
    _check_inputs(logs, parts, has_cuts=cut is not None or by != "timestamp")
    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds)
    runner = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    targets = [as_path(to) / name for name in EVALUATION_FILES]
    inputs = [*(logs or ()), *(path for part in parts.values() for path in part or ()), ads, labels]
    for target in targets:
        refuse_source_files(target, filter(None, inputs), "one of the inputs")
    check_targets(targets, overwrite=force)
    with progress_bars() as progress:
        if logs:
            logs_by_part = _split_log(logs, to, by, cut, options, progress, overwrite=force)
        else:
            logs_by_part = {
                name: open_log(paths, options) if paths else None for name, paths in parts.items()
            }
        result = evaluate(
            _select_models(models),
            **logs_by_part,
            ads=ads,
            labels=labels,
            folder=to,
            level=level,
            resamples=resamples,
            seed=seed,
            in_sample=in_sample,
            engine=runner,
            progress=progress,
        )
    for log in filter(None, logs_by_part.values()):
        report_single_ads(log)
    command = shlex.join(["reclick", *sys.argv[1:]])
    result = replace(result, details={**result.details, "command": command})
    paths = result.save(to, overwrite=force)
    files = [str(path) for path in paths]
    overall = [
        {name: value for name, value in row.items() if name not in {"sessions", "volume"}}
        for row in result.scores.to_pylist()
        if row["sessions"] == row["volume"] == "all"
    ]
    data = {
        "to": to,
        "logs": result.details["logs"],
        "models": result.details["models"],
        "warnings": result.warnings,
        "scores": overall,
        "files": files,
    }
    print_result("\n".join([f"{result}\n", *files]), data)


@as_command
def report(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    logs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOG", help="A log to score the model on. Default: none."),
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="FILE", help="The HTML file to write.")
    ] = "report.html",
    ads: Ads = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Human relevance judgments: query, ad, relevance."),
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    quick_return_seconds: QuickReturn = 10.0,
    force: Force = False,
) -> None:
    """Write a report on one model: how well it predicts a log, and which ads to act on.

    Example:  reclick report model logs/week3.parquet --ads logs/ads.parquet --to report.html

    Without a log, only what the model has learnt:  reclick report model --to report.html
    """
    from reclick.models import load
    from reclick.report.markup import check_html_name
    from reclick.runtime.outputs import check_targets, refuse_source_files

    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds)
    check_html_name(to)
    refuse_source_files(to, filter(None, [*(logs or ()), ads, labels]), "one of the inputs")
    check_targets([to], overwrite=force)
    with progress_bars() as progress:
        result = load(model).report(
            open_log(logs, options) if logs else None,
            ads=ads,
            labels=labels,
            level=level,
            resamples=resamples,
            seed=seed,
            progress=progress,
        )
    command = shlex.join(["reclick", *sys.argv[1:]])
    result = replace(result, details={**result.details, "command": command})
    report_path = str(result.to_html(to, overwrite=force))
    names = ("recommended", "misleading", "gems", "words")
    data = {"to": report_path, **{name: result.details.get(name) for name in names}}
    print_result(f"{result}\n\n{report_path}" if logs else report_path, data)


def _select_models(names: str) -> dict[str, ClickModel]:
    """Return models by their names in the report: class names, or folder names of fitted models.

    If two models have the same name, the second is called by its whole text or path. Settings
    follow a name, each after a colon, and are part of its name: MultiClick (variant=paper).
    """
    from reclick.models import MODELS, load
    from reclick.runtime import artifact
    from reclick.runtime.filesystem import as_path

    models: dict[str, ClickModel] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        folder = as_path(name)
        if name not in MODELS and artifact.is_artifact(folder):
            label = folder.name.encode(errors="backslashreplace").decode()
            model = load(folder)
        else:
            model_name, *settings = name.split(":")
            model = new_model(model_name, settings, option="--models")
            suffix = f" ({', '.join(settings)})" if settings else ""
            label = f"{type(model).__name__}{suffix}"
        models[name if label in models else label] = model
    return models


def _check_inputs(
    logs: list[str] | None, parts: dict[str, list[str] | None], *, has_cuts: bool
) -> None:
    """Raise if an option would have no effect, or if there is no test log."""
    from reclick.errors import UsageError

    if logs and any(parts.values()):
        raise UsageError(
            "A LOG is split into its own history, train and test: give it alone, or --history, "
            "--train and --test without it."
        )
    if has_cuts and not logs:
        raise UsageError("--by and --cut define how a LOG is split: give a LOG, or leave them out.")
    if not logs and not parts["test"]:
        raise UsageError("Nothing to score on: give --train and --test, or one LOG to split.")


def _split_log(
    logs: list[str],
    to: str,
    by: str,
    cut: list[str] | None,
    options: ReadOptions,
    progress: Any,
    *,
    overwrite: bool,
) -> dict[str, Any]:
    from reclick.evaluation import split
    from reclick.runtime.filesystem import as_path

    cuts = None if cut is None else [parse_value(text) for text in cut]
    log, folder = open_log(logs, options), as_path(to) / "parts"
    parts = split(log, folder, by=by, cuts=cuts, overwrite=overwrite, progress=progress)
    report_single_ads(log)
    return parts._asdict()
