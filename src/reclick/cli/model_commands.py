"""Commands that fit, use and list models."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from reclick.cli.console import console, progress_bars
from reclick.cli.inputs import (
    How,
    add_up,
    group,
    named_values,
    open_log,
    read_text,
    tell_dropped,
    value,
)
from reclick.cli.options import Ads, Columns, FormatName, Logs, MaxAds, OnError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from reclick.models import ClickModel


def fit(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder of the model.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Which model: see `reclick models`. By default multiclick; with --update the one in --to."
        ),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(help="An earlier log, or its counts, for the priors. Repeat for more."),
    ] = None,
    ads: Ads = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the model, e.g. variant=examination."
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Add the logs to the model in --to instead of starting anew."
        ),
    ] = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(help="With --update: a log, or its counts, to take away. Repeat for more."),
    ] = None,
    decay: Annotated[
        float, typer.Option(help="With --update: let what was counted before fade by this factor.")
    ] = 1.0,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Fit a model to logs, or to folders of counts, and save it.

    Example:  reclick fit logs/week2.parquet --history logs/week1.parquet --ads logs/ads.parquet --to model

    Each day after:  reclick fit logs/day8.parquet --update --forget counts/day1 --to model
    """
    from reclick.errors import SettingError, UsageError
    from reclick.runtime import artifact

    if not update and (forget or decay != 1.0):
        raise UsageError("--forget and --decay are for an existing model: give --update with them.")
    if not 0 < decay <= 1:
        raise SettingError("decay", decay, "a factor above 0 and at most 1, such as 0.9")
    artifact.check_target(to, "model")
    how = How(column, on_error, max_ads, format)
    with _held(to) if update else nullcontext():
        chosen = (
            _continued(to, model, history, settings)
            if update
            else new_model(model or "multiclick", settings)
        )
        text = read_text(ads, on_error)
        read = add_up(logs, how) if chosen.fits_from_counts else group(logs, how)
        text = read.ads if text is None else text
        beside = forget if update else history
        other = add_up(beside, how).data if beside else None
        with progress_bars() as progress:
            if update:
                chosen.update(read.data, forget=other, decay=decay, ads=text, progress=progress)
            else:
                chosen.fit(read.data, history=other, ads=text, progress=progress)
        chosen.save(to)
    if chosen.advice:
        typer.echo(f"note: {chosen.advice}", err=True)
    typer.echo(f"{chosen!r}\n{to}")


def predict(
    model: Annotated[str, typer.Argument(help="The folder of a model.")],
    pages: Annotated[
        list[str],
        typer.Argument(metavar="PAGES...", help="Pages to score: a log, with or without clicks."),
    ],
    to: Annotated[str, typer.Option(help="The Parquet file to write.")],
    top: Annotated[
        int, typer.Option(help="How many of the likeliest click sequences to list.")
    ] = 3,
    ads: Annotated[
        str | None, typer.Option(help="Text of ads that the model may not know.")
    ] = None,
    format: FormatName = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Write the pages with click probabilities, expected clicks and the likeliest click sequences.

    Example:  reclick predict model logs/week3.parquet --to predictions.parquet
    """
    from reclick.models import load
    from reclick.predictor import predict

    loaded = load(model)
    log = open_log(pages, How(column, on_error, max_ads, format), ads, clicks_required=False)
    with progress_bars() as progress:
        written = predict(loaded, log, to, top=top, progress=progress)
    tell_dropped(log)
    typer.echo(f"{written:,} pages scored\n{to}")


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A model, to see its settings.")
    ] = None,
) -> None:
    """List the models: name, what each assumes and can answer, and where it comes from. With a name: that model's settings and defaults.

    Example:  reclick models ubm
    """
    from rich.table import Table

    from reclick.models import MODELS

    if name is not None:
        _show_model(name)
        return
    table = Table(show_lines=True)
    for head, width in (("name", None), ("assumes", None), ("estimates", 15), ("reference", None)):
        table.add_column(head, width=width)
    for each, model in MODELS.items():
        table.add_row(each, model.assumes, "\n".join(_list_estimates(model)), model.reference)
    console().print(table)
    typer.echo(
        "reclick models NAME shows the settings of one. docs/models in the repository has a page and a picture of each."
    )


def _list_estimates(model: type[ClickModel]) -> list[str]:
    """What a model estimates besides the probability of clicks, which all do."""
    estimates = {
        "order of clicks": model.ordered,
        "attractiveness": model.attractiveness,
        "satisfaction": model.satisfaction,
    }
    return [what for what, can in estimates.items() if can] or ["clicks only"]


def _show_model(name: str) -> None:
    """Print what a model is, and its settings as they are declared."""
    from rich.table import Table

    from reclick.models import MODELS

    model = MODELS.find(name, argument="NAME")
    facts = {
        "assumes": model.assumes,
        "order of clicks": "yes: a click may go back up the page"
        if model.ordered
        else "no: compare models by log_set_prob",
        "estimates": ", ".join(_list_estimates(model)),
        "reference": model.reference,
        "in Python": f"reclick.{model.__name__}",
        "docs": f"docs/models/{name}.md in the repository",
    }
    typer.echo(f"{name}\n" + "\n".join(f"  {fact:<17}{text}" for fact, text in facts.items()))
    table = Table("setting", "default", "values", "", title="settings: --set NAME=VALUE")
    table.title_justify = "left"
    for setting, declared in model.settings.items():
        table.add_row(setting, repr(declared.default), declared.values, declared.help)
    console().print(table, markup=False)


def new_model(name: str, settings: list[str] | None, *, option: str = "--model") -> ClickModel:
    """A model by its name, with these settings, not fitted."""
    from reclick.errors import SettingError, UsageError
    from reclick.models import MODELS

    also = "" if option == "--model" else ", or the folder of a model"
    model = MODELS.find(name, argument=option, also=also)
    given = {key: value(text) for key, text in named_values("--set", settings).items()}
    try:
        return model(**given)
    except SettingError as error:
        raise UsageError(f"--set {error}") from error


def _held(folder: str) -> AbstractContextManager[None]:
    """Keep other writers away from a model that is to be loaded, changed and saved."""
    from reclick.runtime import artifact

    artifact.get_kind(folder)  # a folder that is no model's is refused before anything is put in it
    return artifact.lock_folder(folder)


def _continued(
    folder: str, name: str | None, history: list[str] | None, settings: list[str] | None
) -> ClickModel:
    from reclick.errors import UsageError
    from reclick.models import ClickModel, load

    if history or settings:
        raise UsageError(
            "--update continues a model with its own history and settings: "
            "leave out --history and --set."
        )
    model = load(folder)
    if name not in (None, model.name):
        raise UsageError(
            f"{folder} holds the model {model.name!r}, not {name!r}: leave out --model, "
            f"or give --model {model.name}."
        )
    if type(model).update is ClickModel.update:
        model.update()  # which says why it cannot be
    return model
