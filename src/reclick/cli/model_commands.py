"""Commands that fit, use, export and list models."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_note, print_result, progress_bars, render
from reclick.cli.inputs import (
    Ads,
    Columns,
    EngineName,
    EngineOptions,
    Force,
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
    on_error_choice,
    open_log,
    parse_value,
    read_ads_table,
    report_dropped,
    report_summary,
)
from reclick.cli.show_command import describe_model

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from reclick.exports import ExportResult
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
    where = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    options = ReadOptions(column, on_error, max_ads, format, quick_return_seconds, where)
    with _lock_model(to) if update else nullcontext():
        if update:
            click_model, n_buckets = _load_for_update(to, model, history, settings, forget)
            buckets = buckets or n_buckets
        else:
            click_model = new_model(model or DEFAULT_MODEL, settings)
            if history:
                click_model.check_uses_history()
        text = read_ads_table(ads, on_error)
        if where is not None and buckets is not None and not update:
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
                    engine=where,
                    progress=progress,
                )
            else:
                click_model.fit(
                    fit_data.data, history=counts, ads=text, engine=where, progress=progress
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


@as_command
def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    pages: Annotated[
        list[str],
        typer.Argument(metavar="PAGES", help="Pages to score: a log, with or without clicks."),
    ],
    to: Annotated[
        str, typer.Option(metavar="FILE", help="The file to write: .parquet, .csv or .csv.gz.")
    ],
    top: Annotated[int, typer.Option(help="Number of most likely sequences to list.")] = 3,
    max_noise: Annotated[
        float | None,
        typer.Option(
            metavar="PROBABILITY",
            help="With a model with noise: drop sessions with a higher probability of noise.",
        ),
    ] = None,
    ads: Annotated[
        str | None, typer.Option(metavar="FILE", help="Text of ads that the model may not know.")
    ] = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    force: Force = False,
    engine: EngineName = "local",
    workers: Workers = None,
    master: Master = None,
    shared_folder: SharedFolder = None,
    tasks: Tasks = None,
) -> None:
    """Write pages with click probabilities, expected clicks and the most likely click sequences.

    Example:  reclick predict model logs/week3.parquet --to predictions.parquet
    """
    from reclick.models import load
    from reclick.predictor import predict

    fitted_model = load(model)
    options = ReadOptions(column, on_error, max_ads, format)
    where = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    log = open_log(pages, options, ads, clicks_required=False)
    with progress_bars() as progress:
        summary = predict(
            fitted_model,
            log,
            to,
            top=top,
            max_noise=max_noise,
            engine=where,
            overwrite=force,
            progress=progress,
        )
    report_dropped(log)
    print_result(f"{summary}\n{to}", {"to": to, **summary._asdict()})


@as_command
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a model.")],
    to: Annotated[str, typer.Option(metavar="FILE", help="The file to write.")],
    output_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="qrels, quepid, opensearch, letor, parquet or propensities. Default: inferred "
            "from the file name.",
        ),
    ] = None,
    cuts: Annotated[
        str,
        typer.Option(
            metavar="CUTS",
            help="Cut points between grades: comma-separated numbers; halves, terciles, "
            "quartiles, quintiles or deciles of the clicked pairs; or per-query, quarters of the "
            "best value of each query.",
        ),
    ] = "quartiles",
    quantity: Annotated[
        str,
        typer.Option(
            metavar="relevance|attractiveness|satisfaction", help="The quantity to grade."
        ),
    ] = "relevance",
    bound: Annotated[
        str,
        typer.Option(
            metavar="low|value",
            help="Grade the lower bound of its interval (low) or the value itself (value).",
        ),
    ] = "low",
    min_support: Annotated[
        float, typer.Option(help="Minimum number of impressions of a graded pair.")
    ] = 10.0,
    level: Annotated[float, typer.Option(help="Level of the credible intervals.")] = 0.9,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A table of query and ad: the pairs to export. Default: all."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With letor: a table of query, ad and numbers."),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LOG",
            help="With propensities: the pages to average over. Repeat for more files.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With opensearch: the name of the judgment list."),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="With quepid: add the value, its interval, impressions and clicks, for a "
            "spreadsheet.",
        ),
    ] = False,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    force: Force = False,
) -> None:
    """Write graded judgments of a model's (query, ad) pairs for another tool, or propensities.

    Example:  reclick export model --to judgments.qrels --cuts 0.05,0.2,0.5 --min-support 20

    For unbiased learning to rank:  reclick export model --to propensities.csv --output-format propensities --log logs/week2.parquet
    """  # noqa: E501
    from reclick.errors import UsageError
    from reclick.exports import export
    from reclick.models import load

    if format and not log:
        raise UsageError(
            "--format is the format of --log. For the file to write, give "
            f"--output-format {format}."
        )
    pages = None
    if log:
        options = ReadOptions(column, on_error, max_ads, format)
        pages = open_log(log, options, clicks_required=False)
    with progress_bars() as progress:
        result = export(
            load(model),
            to,
            format=output_format,
            pairs=pairs,
            cuts=_parse_cuts(cuts),
            quantity=quantity,
            bound=bound,
            min_support=min_support,
            level=level,
            features=features,
            log=pages,
            name=name,
            details=details,
            on_error=on_error_choice(on_error),
            overwrite=force,
            progress=progress,
        )
    if pages is not None:
        report_dropped(pages)
    print_result(str(result), _describe_export(result))


@as_command
def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A model, to see its settings.", autocompletion=complete_model
        ),
    ] = None,
) -> None:
    """List the models: what each assumes and estimates. With a name: its settings and defaults.

    Example:  reclick models ubm
    """
    from rich.table import Column, Table

    from reclick.errors import ReclickError
    from reclick.models import MODELS

    if name is not None:
        _print_model(name)
        return
    names = Column("name", no_wrap=True)  # other columns are narrowed in its place
    table = Table(names, "assumes", "estimates", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    descriptions: list[dict[str, Any]] = []
    for model_name in MODELS:
        label = f"{model_name} *" if model_name == DEFAULT_MODEL else model_name
        try:
            model = MODELS[model_name]
        except ReclickError as error:  # of another package
            table.add_row(label, f"broken: {error}", "")
            descriptions.append({"name": model_name, "default": False, "error": str(error)})
            continue
        table.add_row(label, model.assumes, ", ".join(_list_estimates(model)))
        descriptions.append(_describe_class(model_name, model))
    text = (
        f"{render(table)}\n\n* the default. Settings of a model:  reclick models ubm\n"
        "docs/models in the repository has a page and a picture of each."
    )
    print_result(text, descriptions)


def _describe_class(name: str, model: type[ClickModel]) -> dict[str, Any]:
    """Describe a class of models, for --json."""
    return {
        "name": name,
        "default": name == DEFAULT_MODEL,
        "assumes": model.assumes,
        "estimates": _list_estimates(model),
        "order_of_clicks": model.ordered,
        "counts_are_enough": model.fits_from_counts,
        "max_page_ads": model.max_page_ads,
        "reference": model.reference,
    }


def _describe_export(result: ExportResult) -> dict[str, Any]:
    """Describe an export, for --json."""
    return {**asdict(result), "files": [str(path) for path in result.files]}


def _list_estimates(model: type[ClickModel]) -> list[str]:
    """Return what a model estimates besides the probability of clicks, which all estimate."""
    estimates = {
        "order of clicks": model.ordered,
        "attractiveness": model.attractiveness,
        "satisfaction": model.satisfaction,
    }
    return [name for name, is_estimated in estimates.items() if is_estimated] or ["clicks only"]


def _print_model(name: str) -> None:
    """Print a description of a model and its settings."""
    from rich.table import Column, Table

    from reclick.models import MODELS
    from reclick.models.registry import BUILT_IN

    model = MODELS.find(name, argument="NAME")
    name = model.name
    order = "no: compare models by log_set_prob"
    if model.ordered:
        order = "yes: a click may go back up the page"
    facts = {
        "assumes": model.assumes,
        "order of clicks": order,
        "estimates": ", ".join(_list_estimates(model)),
        "reference": model.reference,
        "in Python": f"{model.__module__}.{model.__qualname__}",
    }
    if model.max_page_ads is not None:
        facts["pages"] = f"of up to {model.max_page_ads} ads"
    if name in BUILT_IN:
        facts["in Python"] = f"reclick.{model.__name__}"
        facts["docs"] = f"docs/models/{name}.md in the repository"
    names = Column("setting", no_wrap=True)  # other columns are narrowed in its place
    table = Table(names, "default", "values", "", title="settings: --set NAME=VALUE")
    table.title_justify = "left"
    settings = []
    for setting, spec in model.settings.items():
        table.add_row(setting, repr(spec.default), spec.values, spec.help)
        settings.append(
            {
                "name": setting,
                "default": spec.default,
                "values": spec.values,
                "help": spec.help,
            }
        )
    title = f"{name} (the default)" if name == DEFAULT_MODEL else name
    lines = [title, *(f"  {fact:<17}{text}" for fact, text in facts.items()), render(table)]
    print_result("\n".join(lines), {**_describe_class(name, model), "settings": settings})


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


def _parse_cuts(text: str) -> str | tuple[float, ...]:
    """Parse comma-separated numbers as a tuple; any other text is returned unchanged."""
    parts = [parse_value(part) for part in text.split(",")]
    return tuple(parts) if all(isinstance(part, int | float) for part in parts) else text
