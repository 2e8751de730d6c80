"""The command line: thin, and the only place that prints. Heavy imports wait until a command runs, so that --help is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from reclick.counts import Counts
    from reclick.logs import SessionLog
    from reclick.models import ClickModel
    from reclick.sessions import Sessions


class Commands(TyperGroup):
    """Errors become one clear line, Ctrl-C a quiet end, and a reader that went away (`| head`) no error at all."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        from reclick.errors import ReclickError

        try:
            return super().invoke(ctx)
        except ReclickError as error:
            show_error(str(error))
            sys.exit(2)
        except KeyboardInterrupt:
            show_error("stopped. Every file is whole: a new one, or the one that was there before.")
            sys.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


app = typer.Typer(
    cls=Commands,
    help="Learn from click logs what attracts, what satisfies, and what is clicked next, in whatever order.\n\n"
    "Start with:  reclick simulate --to logs   then   reclick fit logs/week2.parquet --ads logs/ads.parquet --to model",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Logs = Annotated[list[str], typer.Argument(metavar="LOG...", help="Files, globs or folders of sessions: Parquet, CSV or JSON lines.")]
Ads = Annotated[str | None, typer.Option(help="A table with the ads' text: ad, title, description, display_url.")]
Columns = Annotated[list[str] | None, typer.Option("--column", metavar="OURS=THEIRS", help="A column under another name, e.g. query=search_term.")]
OnError = Annotated[str, typer.Option(metavar="raise|drop", help="Bad rows: stop with an error, or drop and count them.")]
MaxAds = Annotated[int, typer.Option(help="Longest page taken as real.")]


def version(show: bool) -> None:
    """Print the version and leave."""
    if show:
        from reclick import __version__

        typer.echo(f"reclick {__version__}")
        raise typer.Exit


@app.callback()
def _options(_: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False) -> None:
    pass


@app.command()
def simulate(
    to: Annotated[str, typer.Option(help="The folder to write to.")],
    sessions: Annotated[int, typer.Option(help="Sessions a week.")] = 100_000,
    weeks: Annotated[int, typer.Option(help="How many weeks.")] = 3,
    queries: Annotated[int, typer.Option(help="Distinct queries.")] = 1_000,
    ads_per_query: Annotated[int, typer.Option(help="Ads competing for a query.")] = 12,
    reading: Annotated[str, typer.Option(help="How the model's propensities are read: leftover, examination or normalised.")] = "leftover",
    seed: Annotated[int, typer.Option(help="The same seed gives the same log.")] = 0,
) -> None:
    """Draw weeks of clicks from a MultiClick model, with made-up ads of real words, and save the truth beside them.

    Example:  reclick simulate --to logs --sessions 50000
    """
    from reclick.simulation import simulate

    with working("Simulating"):
        written = simulate(sessions, weeks=weeks, queries=queries, ads_per_query=ads_per_query, reading=reading, seed=seed).save(to)
    for path in written:
        typer.echo(path)


@app.command()
def check(logs: Logs, column: Columns = None, max_ads: MaxAds = 100) -> None:
    """Read a log to the end and say what is in it: rows kept, rows dropped by reason with examples. Exit code 1 when any row is bad.

    Example:  reclick check 'logs/week2/*.parquet' --column query=search_term
    """
    log = open_log(logs, column, "drop", max_ads)
    with working(f"Checking {log.name}", log.num_rows) as progress:
        for _ in log.batches(progress=progress):
            pass
    typer.echo(str(log.summary))
    if log.summary.dropped:
        raise typer.Exit(1)


@app.command()
def describe(
    logs: Logs,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Draw a log's portrait: clicks by query volume, first clicks by position, distances between clicks.

    Example:  reclick describe logs/week2.parquet
    """
    from reclick.portrait import describe

    portrait = describe(add_up(logs, column, on_error, max_ads))
    typer.echo(json.dumps(portrait.to_dict(), indent=2) if as_json else str(portrait))


@app.command()
def count(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder to write the counts to.")],
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Count a log once and keep the counts: `fit`, `describe` and `--forget` take the folder in place of the log.

    Example:  reclick count logs/2026-11-14.parquet --to counts/2026-11-14
    """
    from reclick import store

    store.check_target(to, "counts")
    counts = add_up(logs, column, on_error, max_ads)
    counts.save(to)
    typer.echo(f"{counts!r}\n{to}")


@app.command()
def fit(
    logs: Logs,
    to: Annotated[str, typer.Option(help="The folder of the model.")],
    model: Annotated[str, typer.Option(help="Which model: see `reclick models`.")] = "multiclick",
    history: Annotated[list[str] | None, typer.Option(help="An earlier log, or its counts, for the priors. Repeat for more.")] = None,
    ads: Ads = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the model, e.g. reading=examination.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Add the logs to the model in --to instead of starting anew.")] = False,
    forget: Annotated[list[str] | None, typer.Option(help="With --update: a log, or its counts, to take away. Repeat for more.")] = None,
    decay: Annotated[float, typer.Option(help="With --update: let what was counted before fade by this factor.")] = 1.0,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Fit a model to logs, or to folders of counts, and save it.

    Example:  reclick fit logs/week2.parquet --history logs/week1.parquet --ads logs/ads.parquet --to model

    Each day after:  reclick fit logs/day8.parquet --update --forget counts/day1 --to model
    """
    from reclick import store
    from reclick.errors import SettingError

    if not update and (forget or decay != 1.0):
        raise SettingError("--forget and --decay change a model that is there: give --update with them.")
    if not 0 < decay <= 1:
        raise SettingError(f"--decay: got {decay:g}, expected a factor above 0 and at most 1, such as 0.9.")
    store.check_target(to, "model")
    reader = (column, on_error, max_ads)
    with _held(to) if update else nullcontext():
        chosen = _continued(to, model, history, settings) if update else _new_model(model, settings)
        text = _read_ads(ads, on_error)
        data = add_up(logs, *reader) if update or chosen.counts_suffice else group(logs, *reader)
        if update:
            chosen.update(data, forget=add_up(forget, *reader) if forget else None, decay=decay, ads=text)
        else:
            chosen.fit(data, history=add_up(history, *reader) if history else None, ads=text)
        chosen.save(to)
    if chosen.advice:
        typer.echo(f"note: {chosen.advice}", err=True)
    typer.echo(f"{chosen!r}\n{to}")


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="The folder of a model.")],
    pages: Annotated[list[str], typer.Argument(metavar="PAGES...", help="Pages to score: a log, with or without clicks.")],
    to: Annotated[str, typer.Option(help="The Parquet file to write.")],
    top: Annotated[int, typer.Option(help="How many of the likeliest click sequences to list.")] = 3,
    ads: Annotated[str | None, typer.Option(help="Text of ads that the model may not know.")] = None,
    column: Columns = None,
    on_error: OnError = "raise",
    max_ads: MaxAds = 100,
) -> None:
    """Write the pages with click probabilities, expected clicks and the likeliest click sequences.

    Example:  reclick predict model logs/week3.parquet --to predictions.parquet
    """
    from reclick.models import load
    from reclick.scoring import predict

    loaded = load(model)
    log = open_log(pages, column, on_error, max_ads, ads, clicks_required=False)
    with working(f"Scoring {log.name}", log.num_rows) as progress:
        written = predict(loaded, log, to, top=top, progress=progress)
    _tell_dropped(log)
    typer.echo(f"{written:,} pages scored\n{to}")


@app.command()
def models(name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A model, to see its settings.")] = None) -> None:
    """List the models: name, what each assumes and can answer, and where it comes from. With a name: that model's settings and defaults.

    Example:  reclick models ubm
    """
    from rich.table import Table

    from reclick.models import MODELS

    if name is not None:
        typer.echo(_about(name))
        return
    table = Table(show_lines=True)
    for head, width in (("name", None), ("assumes", None), ("order of clicks", 8), ("satisfaction", 12), ("reference", None)):
        table.add_column(head, width=width)
    for each, model in MODELS.items():
        table.add_row(each, model.assumes, "yes" if model.ordered else "no", "yes" if model.satisfaction else "no", model.reference)
    console().print(table)
    typer.echo("reclick models NAME shows the settings of one. docs/models in the repository has a page and a picture of each.")


@app.command()
def demo(to: Annotated[str, typer.Option(help="The folder to write to.")] = "demo") -> None:
    """Simulate three weeks, fit on two, predict the third, and show what came out.

    Example:  reclick demo --to demo
    """
    from reclick.demo import run

    for section in run(Path(to), working=working):
        typer.echo(section)


def open_log(
    paths: list[str], column: list[str] | None, on_error: str, max_ads: int, ads: str | None = None, *, clicks_required: bool = True
) -> SessionLog:
    """Open a log as the options say."""
    from reclick.logs import read_sessions

    choice = cast(Literal["raise", "drop"], on_error)  # read_sessions refuses any other word
    return read_sessions(paths, ads=ads, columns=_pairs("--column", column), on_error=choice, max_ads=max_ads, clicks_required=clicks_required)


def add_up(paths: list[str], column: list[str] | None, on_error: str, max_ads: int) -> Counts:
    """The counts of logs and of folders of counts together."""
    from reclick import store
    from reclick.counts import Counts, count

    saved = [Counts.load(path) for path in paths if store.is_stored(path)]
    logs = [path for path in paths if not store.is_stored(path)]
    if logs:
        log = open_log(logs, column, on_error, max_ads)
        with working(f"Counting {log.name}", log.num_rows) as progress:
            saved.append(count(log, progress=progress))
        _tell_dropped(log)
    total = saved[0]
    for counts in saved[1:]:
        total = total + counts
    return total


def group(paths: list[str], column: list[str] | None, on_error: str, max_ads: int) -> Sessions:
    """The sessions of logs, equal ones grouped."""
    from reclick import store
    from reclick.sessions import as_sessions

    for path in paths:
        if store.is_stored(path):
            return as_sessions(path)  # which says why it cannot be
    log = open_log(paths, column, on_error, max_ads)
    with working(f"Grouping {log.name}", log.num_rows) as progress:
        sessions = as_sessions(log, progress=progress)
    _tell_dropped(log)
    return sessions


def _about(name: str) -> str:
    """A model on one screen."""
    from reclick.errors import SettingError
    from reclick.models import MODELS

    if name not in MODELS:
        raise SettingError(f"models: got {name!r}, expected one of {', '.join(MODELS)}.")
    model = MODELS[name]
    facts = {
        "assumes": model.assumes,
        "order of clicks": "yes: a click may go back up the page" if model.ordered else "no: log_set_prob is the figure to compare",
        "satisfaction": "yes" if model.satisfaction else "no",
        "reference": model.reference,
        "docs": f"docs/models/{name}.md in the repository",
    }
    settings = model().get_params()
    wide = max(map(len, (*facts, *settings))) + 2
    lines = [f'{name}: reclick.MODELS["{name}"]', *(f"  {fact:<{wide}}{text}" for fact, text in facts.items())]
    return "\n".join([*lines, "", "settings, with --set NAME=VALUE", *(f"  {setting:<{wide}}{value!r}" for setting, value in settings.items())])


def _new_model(name: str, settings: list[str] | None) -> ClickModel:
    from reclick.errors import SettingError
    from reclick.models import MODELS

    if name not in MODELS:
        raise SettingError(f"--model: got {name!r}, expected one of {', '.join(MODELS)}.")
    given = {key: _value(text) for key, text in _pairs("--set", settings).items()}
    return MODELS[name]().set_params(**given)


def _held(folder: str) -> AbstractContextManager[None]:
    """Keep other writers away from a model that is to be loaded, changed and saved."""
    from reclick import store

    store.kind_of(folder)  # a folder that is no model's is refused before anything is put in it
    return store.writing(folder)


def _read_ads(ads: str | None, on_error: str) -> pa.Table | None:
    """The ads' text, read before a log is counted, so that a bad row is told at once."""
    from reclick.logs import read_ads

    return None if ads is None else read_ads(ads, on_error=cast(Literal["raise", "drop"], on_error))


def _continued(folder: str, name: str, history: list[str] | None, settings: list[str] | None) -> ClickModel:
    from reclick.errors import SettingError
    from reclick.models import ClickModel, load

    if history or settings:
        raise SettingError("--update continues a model with the history and settings it has: leave out --history and --set.")
    model = load(folder)
    if model.name != name:
        raise SettingError(f"{folder} holds the model {model.name!r}, not {name!r}: give --model {model.name}.")
    if type(model).update is ClickModel.update:
        model.update()  # which says why it cannot be
    return model


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    from reclick.errors import SettingError

    for text in texts or []:
        if "=" not in text:
            raise SettingError(f"{option}: got {text!r}, expected NAME=VALUE.")
    return dict(text.split("=", 1) for text in texts or [])


def _value(text: str) -> Any:
    """A number where it reads as one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tell_dropped(log: SessionLog) -> None:
    if log.summary.dropped or log.summary.notes:
        console(stderr=True).print(str(log.summary), markup=False, highlight=False)


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on the terminal while something runs; silent when the output is not one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from reclick.compiled import FIRST_RUN

    if FIRST_RUN:
        console(stderr=True).print("First run: compiling, which takes up to a minute once.", style="dim")
    if not sys.stderr.isatty():
        yield lambda done, known: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, known: bar.update(task, completed=done, total=known)


def console(*, stderr: bool = False) -> Any:
    """Where rich writes."""
    from rich.console import Console

    return Console(stderr=stderr)


def show_error(message: str) -> None:
    """One clear message on standard error."""
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
