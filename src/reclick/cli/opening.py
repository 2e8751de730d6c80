"""What the options say becomes logs, counts, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, cast

from reclick.cli.terminal import console, working

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.counts import Counts
    from reclick.logs import SessionLog
    from reclick.sessions import Sessions


def open_log(
    paths: list[str], column: list[str] | None, on_error: str, max_ads: int, ads: str | None = None, *, clicks_required: bool = True
) -> SessionLog:
    """Open a log as the options say."""
    from reclick.logs import read_sessions

    choice = cast(Literal["raise", "drop"], on_error)  # read_sessions refuses any other word
    return read_sessions(paths, ads=ads, columns=named_values("--column", column), on_error=choice, max_ads=max_ads, clicks_required=clicks_required)


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
        tell_dropped(log)
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
    tell_dropped(log)
    return sessions


def read_text(ads: str | None, on_error: str) -> pa.Table | None:
    """The ads' text, read before a log is counted, so that a bad row is told at once."""
    from reclick.logs import read_ads

    return None if ads is None else read_ads(ads, on_error=cast(Literal["raise", "drop"], on_error))


def named_values(option: str, texts: list[str] | None) -> dict[str, str]:
    """NAME=VALUE texts of an option as a dict."""
    from reclick.errors import SettingError

    for text in texts or []:
        if "=" not in text:
            raise SettingError(f"{option}: got {text!r}, expected NAME=VALUE.")
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
