"""What the options say becomes logs, counts, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from reclick.cli.console import console, progress_bars

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.logs import SessionLog


class How(NamedTuple):
    """How the options say that a log is to be read."""

    column: list[str] | None = None
    on_error: str = "raise"
    max_ads: int = 100
    format: str | None = None


class Read(NamedTuple):
    """What was read of logs, and the text of ads that came with them."""

    data: Any  # Counts or Sessions
    ads: pa.Table | None = None


def open_log(
    paths: list[str], how: How, ads: str | None = None, *, clicks_required: bool = True
) -> SessionLog:
    """Open a log as the options say; one of another format is turned into sessions first, and it is said which it was taken for."""
    from reclick.logs import read_sessions

    choice = cast(Literal["raise", "drop"], how.on_error)  # read_sessions refuses any other word
    columns = named_values("--column", how.column)
    with progress_bars() as progress:
        log = read_sessions(
            paths,
            ads=ads,
            format=how.format,
            columns=columns,
            on_error=choice,
            max_ads=how.max_ads,
            clicks_required=clicks_required,
            progress=progress,
        )
    tell_format(log, how.format)
    return log


def tell_format(log: SessionLog, asked: str | None) -> None:
    """Say what a log was taken for, when nobody said what it is."""
    if asked is None and log.provenance is not None and log.provenance.format not in {None, "sessions"}:
        console(stderr=True).print(
            f"{log.name}: read as {log.provenance.format}. If it is something else, say so with --format.",
            markup=False,
            highlight=False,
        )


def add_up(paths: list[str], how: How) -> Read:
    """The counts of logs and of folders of counts together."""
    from reclick.data.counts import Counts
    from reclick.engines import count
    from reclick.runtime import artifact

    saved = [Counts.load(path) for path in paths if artifact.is_artifact(path)]
    logs = [path for path in paths if not artifact.is_artifact(path)]
    ads = None
    if logs:
        log = open_log(logs, how)
        with progress_bars() as progress:
            saved.append(count(log, progress=progress))
        tell_no_clicks(log)
        tell_dropped(log)
        ads = log.ads
    total = saved[0]
    for counts in saved[1:]:
        total = total + counts
    return Read(total, ads)


def group(paths: list[str], how: How) -> Read:
    """The sessions of logs, equal ones grouped."""
    from reclick.engines import as_grouped
    from reclick.runtime import artifact

    for path in paths:
        if artifact.is_artifact(path):
            return Read(as_grouped(path))  # which says why it cannot be
    log = open_log(paths, how)
    with progress_bars() as progress:
        sessions = as_grouped(log, progress=progress)
    tell_no_clicks(log)
    tell_dropped(log)
    return Read(sessions, log.ads)


def read_text(ads: str | None, on_error: str) -> pa.Table | None:
    """The ads' text, read before a log is counted, so that a bad row is told at once."""
    from reclick.logs import read_ads

    return None if ads is None else read_ads(ads, on_error=cast(Literal["raise", "drop"], on_error))


def named_values(option: str, texts: list[str] | None) -> dict[str, str]:
    """NAME=VALUE texts of an option as a dict."""
    from reclick.errors import SettingError

    for text in texts or []:
        if "=" not in text:
            raise SettingError(option, text, "NAME=VALUE")
    return dict(text.split("=", 1) for text in texts or [])


def value(text: str) -> Any:
    """A number where it reads as one, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def tell_dropped(log: SessionLog) -> None:
    """Say what was dropped or is worth knowing of a log that was read."""
    if log.summary.dropped or log.summary.notes:
        console(stderr=True).print(str(log.summary), markup=False, highlight=False)


def tell_no_clicks(log: SessionLog) -> None:
    """Say that there is nothing to learn from: most often a file of clicks was left out."""
    if log.has_clicks and not log.summary.clicks:
        console(stderr=True).print(
            f"warning: {log.name} has no click. Were all its files given, and are clicks called clicks there?",
            markup=False,
        )
