"""Commands that use, export and list models."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_result, progress_bars, render
from reclick.cli.fit_command import DEFAULT_MODEL
from reclick.cli.inputs import (
    Columns,
    EngineName,
    EngineOptions,
    Force,
    FormatName,
    Master,
    MaxAds,
    OnError,
    ReadOptions,
    SharedFolder,
    Tasks,
    Workers,
    complete_model,
    on_error_choice,
    open_log,
    parse_value,
    report_dropped,
)

if TYPE_CHECKING:
    from reclick.exports import ExportResult
    from reclick.models import ClickModel


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
    runner = EngineOptions(engine, workers, master, shared_folder, tasks).open()
    log = open_log(pages, options, ads, clicks_required=False)
    with progress_bars() as progress:
        summary = predict(
            fitted_model,
            log,
            to,
            top=top,
            max_noise=max_noise,
            engine=runner,
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


def _parse_cuts(text: str) -> str | tuple[float, ...]:
    """Parse comma-separated numbers as a tuple; any other text is returned unchanged."""
    parts = [parse_value(part) for part in text.split(",")]
    return tuple(parts) if all(isinstance(part, int | float) for part in parts) else text
