"""The command that fits and updates models."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_note, print_result, progress_bars
from reclick.cli.inputs import (
    Ads,
    Columns,
    EngineName,
    EngineOptions,
    FormatName,
    LoadedLog,
    Logs,
    Master,
    MaxAds,
    OnError,
    QuickReturn,
    ReadOptions,
    SharedFolder,
    Tasks,
    Workers,
    complete_model,
    count_logs,
    group_logs,
    keep_log,
    new_model,
    open_log,
    read_ads_table,
    report_summary,
)
from reclick.cli.show_command import describe_model

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from reclick.models import ClickModel

DEFAULT_MODEL = "luceclick"


@as_command
def fit(
    logs: Logs,
    to: Annotated[str, typer.Option(metavar="FOLDER", help="The folder of the model.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model, one of `reclick models`. Default: luceclick; with --update, the model "
            "in --to. multiclick is the model of the paper.",
            autocompletion=complete_model,
        ),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG",
            help="An earlier log, or its counts, to estimate prior means from (not for "
            "luceclick). Repeat for more.",
        ),
    ] = None,
    ads: Ads = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the model, e.g. tune=full."),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Update the model in --to with the logs instead of fitting a new one."
        ),
    ] = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG",
            help="With --update: a log, or its counts, to subtract (multiclick). Repeat for more.",
        ),
    ] = None,
    decay: Annotated[
        float,
        typer.Option(help="With --update: multiply the weight of earlier sessions by this factor."),
    ] = 1.0,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="With --update: add a log even if the model has already seen it."
        ),
    ] = False,
    buckets: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Save the model in N parts by a hash of the query, so that only the parts needed "
            "are read: for models larger than memory. With --engine pool or spark, tasks fit and "
            "write the parts. Default with --update: as many as the model has.",
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
    """Fit a model to logs and save it.

    Example:  reclick fit logs/week1.parquet logs/week2.parquet --ads logs/ads.parquet --to model

    Each day after:  reclick fit logs/day8.parquet --update --decay 0.95 --to model

    The paper's model:  reclick fit logs/week2.parquet --model multiclick --history logs/week1.parquet --to paper
    """  # noqa: E501
    from reclick.errors import SettingError, UsageError
    from reclick.runtime import artifact

    if not update and (forget or decay != 1.0 or again):
        raise UsageError(
            "--forget, --decay and --again need --update: they apply to an existing model."
        )
    if not 0 < decay <= 1:
        raise SettingError("decay", decay, "a factor above 0 and at most 1, such as 0.9")
    artifact.check_target(to, "model")
    runner = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds, runner)
    with _lock_model(to) if update else nullcontext():
        if update:
            click_model, n_buckets = _load_for_update(to, model, history, settings, forget)
            buckets = buckets or n_buckets
        else:
            click_model = new_model(model or DEFAULT_MODEL, settings)
            if history:
                click_model.check_uses_history()
        text = read_ads_table(ads, on_error)
        if runner is not None and buckets is not None and not update:
            if click_model.fits_in_buckets:
                _print_fit(
                    _fit_in_buckets(click_model, logs, history, to, buckets, text, options), to
                )
                return
            print_note(
                f"note: {type(click_model).__name__} is fitted in the memory of this process, and "
                "then saved in buckets."
            )
        fit_data = _load_logs(click_model, logs, options)
        text = fit_data.ads if text is None else text
        count_paths = forget if update else history
        counts = count_logs(count_paths, options).data if count_paths else None
        with progress_bars() as progress:
            if update:
                click_model.update(
                    fit_data.data,
                    forget=counts,
                    decay=decay,
                    ads=text,
                    again=again,
                    engine=runner,
                    progress=progress,
                )
            else:
                click_model.fit(
                    fit_data.data, history=counts, ads=text, engine=runner, progress=progress
                )
        click_model.save(to, buckets=buckets)
    if fit_data.log is not None:
        report_summary(fit_data.log)
    _print_fit(click_model, to)


def _fit_in_buckets(
    model: ClickModel,
    logs: list[str],
    history: list[str] | None,
    to: str,
    buckets: int,
    text: pa.Table | None,
    options: ReadOptions,
) -> ClickModel:
    """Let the tasks of an engine fit and write the buckets."""
    from reclick.logs import SessionLog

    log, earlier = (
        _open_log_or_counts(paths, options) if paths else None for paths in (logs, history)
    )
    with progress_bars() as progress:
        fitted_model = model.fit_to(
            to,
            log,
            buckets=buckets,
            history=earlier,
            ads=text,
            engine=options.engine,
            progress=progress,
        )
    for source in (log, earlier):
        if isinstance(source, SessionLog):
            report_summary(source)
    return fitted_model


def _open_log_or_counts(paths: list[str], options: ReadOptions) -> Any:
    """Open a log without reading it; if a path holds counts, count all paths."""
    from reclick.runtime import artifact

    if any(map(artifact.is_artifact, paths)):
        return count_logs(paths, options).data
    return open_log(paths, options)


def _print_fit(model: ClickModel, to: str) -> None:
    """Print a fitted model, and its advice if there is any."""
    if model.advice:
        print_note(f"note: {model.advice}")
    print_result(f"{model!r}\n{to}", {"to": to, **describe_model(model)})


def _lock_model(folder: str) -> AbstractContextManager[None]:
    """Lock the folder of a model while it is loaded, updated and saved."""
    from reclick.errors import UsageError
    from reclick.runtime import artifact
    from reclick.runtime.filesystem import as_path

    if not as_path(folder).exists():
        raise UsageError(
            f"{folder} does not exist: there is no model to update. Fit it first, without --update."
        )
    artifact.get_kind(folder)  # raises before anything is written if Reclick did not write it
    return artifact.lock_folder(folder)


def _load_logs(model: ClickModel, logs: list[str], options: ReadOptions) -> LoadedLog:
    """Load the data that a model is fitted to."""
    if model.learns_from == "log":
        return keep_log(logs, options)
    return (count_logs if model.learns_from == "counts" else group_logs)(logs, options)


def _load_for_update(
    folder: str,
    name: str | None,
    history: list[str] | None,
    settings: list[str] | None,
    forget: list[str] | None,
) -> tuple[ClickModel, int | None]:
    """Load the model to update, and the number of its buckets, if it has any."""
    from reclick.errors import UsageError
    from reclick.models import load
    from reclick.models.bucketed_model import BucketedModel

    if history or settings:
        raise UsageError(
            "--update continues a model with its own history and settings: "
            "leave out --history and --set."
        )
    model, buckets = load(folder), None
    if isinstance(model, BucketedModel):
        buckets, model = model.buckets, model.to_memory()
    if name is not None and name.lower() != model.name:
        raise UsageError(
            f"{folder} holds the model {model.name!r}, not {name!r}: leave out --model, "
            f"or give --model {model.name}."
        )
    if not model.updates:
        model.update()  # which raises an error with the reason
    if forget and not model.fits_from_counts:
        model.update(forget=forget)  # likewise, before any log is read
    return model, buckets
