"""The options that several commands share, and what becomes of them: logs, counts, models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer

from reclick.cli.console import console, progress_bars

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.data.counts import Counts
    from reclick.data.grouped_sessions import GroupedSessions
    from reclick.logs import SessionLog
    from reclick.models import ClickModel

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG",
        help="Files, globs or folders: sessions as Parquet, CSV or JSON lines, or another format.",
    ),
]
Ads = Annotated[
    str | None,
    typer.Option(help="A table with the text of the ads: ad, title, description, display_url."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="A column that has another name, e.g. query=search_term.",
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        metavar="raise|drop", help="Bad rows: stop with an error, or drop and count them."
    ),
]
MaxAds = Annotated[int, typer.Option(help="Pages with more ads are bad rows.")]
QuickReturn = Annotated[
    float,
    typer.Option(
        "--quick-return-seconds",
        help="A click with fewer dwell_seconds is a quick return: evidence against satisfaction.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the log, one of `reclick formats`. By default it is recognised.",
    ),
]


class ReadOptions(NamedTuple):
    """How the options ask for a log to be read."""

    columns: list[str] | None = None
    on_error: str = "raise"
    max_ads: int = 100
    format: str | None = None
    quick_return_seconds: float = 10.0


class LoadedLog(NamedTuple):
    """What a model learns from, and the text of ads that came with it."""

    data: Counts | GroupedSessions
    ads: pa.Table | None = None


def open_log(
    paths: list[str],
    options: ReadOptions,
    ads: str | None = None,
    *,
    clicks_required: bool = True,
) -> SessionLog:
    """Open a log; print which format it was recognised as."""
    from reclick.logs import read_sessions

    with progress_bars() as progress:
        log = read_sessions(
            paths,
            ads=ads,
            format=options.format,
            columns=parse_assignments("--column", options.columns),
            on_error=on_error_choice(options.on_error),
            max_ads=options.max_ads,
            quick_return_seconds=options.quick_return_seconds,
            clicks_required=clicks_required,
            progress=progress,
        )
    report_format(log, options.format)
    return log


def count_logs(paths: list[str], options: ReadOptions) -> LoadedLog:
    """The sum of the counts of logs and of folders of counts."""
    from reclick.engines import as_counts
    from reclick.runtime import artifact

    folders = [path for path in paths if artifact.is_artifact(path)]
    logs = [path for path in paths if path not in folders]
    counts, ads = [as_counts(folder) for folder in folders], None
    if logs:
        log = open_log(logs, options)
        with progress_bars() as progress:
            counts.append(as_counts(log, progress=progress))
        report_summary(log)
        ads = log.ads
    return LoadedLog(sum(counts[1:], start=counts[0]), ads)


def group_logs(paths: list[str], options: ReadOptions) -> LoadedLog:
    """The distinct sessions of logs."""
    from reclick.engines import as_grouped
    from reclick.runtime import artifact

    for path in filter(artifact.is_artifact, paths):
        return LoadedLog(as_grouped(path))  # which raises an error with the reason
    log = open_log(paths, options)
    with progress_bars() as progress:
        sessions = as_grouped(log, progress=progress)
    report_summary(log)
    return LoadedLog(sessions, log.ads)


def read_ads_table(ads: str | None, on_error: str) -> pa.Table | None:
    """The text of the ads, read before a log is counted, so that a bad row is reported at once."""
    from reclick.logs import read_ads

    return None if ads is None else read_ads(ads, on_error=on_error_choice(on_error))


def on_error_choice(text: str) -> Literal["raise", "drop"]:
    """The text of --on-error as the library's type; the library refuses any other word."""
    return cast(Literal["raise", "drop"], text)


def parse_assignments(option: str, texts: list[str] | None) -> dict[str, str]:
    """The NAME=VALUE texts of an option as a dict."""
    from reclick.errors import SettingError

    for text in texts or []:
        if "=" not in text:
            raise SettingError(option, text, "NAME=VALUE")
    return dict(text.split("=", 1) for text in texts or [])


def parse_value(text: str) -> Any:
    """A number, true, false or null if it reads as one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def new_model(name: str, settings: list[str] | None, *, option: str = "--model") -> ClickModel:
    """A model by its name, with these settings, not fitted."""
    from reclick.errors import SettingError, UsageError
    from reclick.models import MODELS

    also = "" if option == "--model" else ", or the folder of a model"
    model = MODELS.find(name, argument=option, also=also)
    assignments = parse_assignments("--set", settings)
    try:
        return model(**{key: parse_value(text) for key, text in assignments.items()})
    except SettingError as error:
        raise UsageError(f"--set {error}") from error


def report_format(log: SessionLog, requested: str | None) -> None:
    """Print which format a log was recognised as, unless it was requested."""
    if requested is not None or log.provenance is None:
        return
    if log.provenance.format not in {None, "sessions"}:
        console(stderr=True).print(
            f"{log.name}: read as {log.provenance.format}. If it is something else, "
            "give its format with --format.",
            markup=False,
            highlight=False,
        )


def report_summary(log: SessionLog) -> None:
    """Print a warning if a log has no click, and what was dropped or is worth knowing."""
    report_no_clicks(log)
    report_dropped(log)


def report_dropped(log: SessionLog) -> None:
    """Print which rows of a log were dropped, and notes."""
    if log.summary.dropped or log.summary.notes:
        console(stderr=True).print(str(log.summary), markup=False, highlight=False)


def report_no_clicks(log: SessionLog) -> None:
    """Print a warning if there is nothing to learn from, and what may be the reason."""
    error = log.explain_no_clicks()
    if error is not None:
        message = error.render(lambda argument: f"--{argument.name} {' '.join(argument.value)}")
        console(stderr=True).print(f"warning: {message}", markup=False, highlight=False)
