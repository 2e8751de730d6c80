"""How to reproduce the report: the logs and dropped rows, all settings, and the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reclick.report.data import ReportData
from reclick.report.formatting import format_count
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    data_table,
    element,
    isolate,
    join,
    make_section,
    paragraph,
)

RUN_SETTINGS = {
    "version": "Reclick",
    "level": "level of intervals",
    "resamples": "bootstrap resamples",
    "seed": "seed",
}
TABLE_CLASS = "plain words"


def reproduce_section(data: ReportData) -> Section | None:
    """Everything that is needed to reproduce the report."""
    details = data.details
    return make_section(
        "How to reproduce this",
        [
            Subsection("Logs, and what was dropped", _log_table(details.get("logs") or {})),
            Subsection("Models and their settings", _model_table(details.get("models") or {})),
            Subsection("The run", _run_table(details)),
        ],
    )


def _log_table(logs: Mapping[str, Mapping[str, Any]]) -> Html:
    if not logs:
        return Html("")
    rows = [
        (
            part,
            isolate(str(log.get("name", ""))),
            _format_setting(log.get("sessions")),
            _format_dropped(log.get("dropped")),
        )
        for part, log in logs.items()
        if log
    ]
    return data_table("Logs", ("Part", "Name", "Sessions", "Dropped"), rows, class_=TABLE_CLASS)


def _format_dropped(counts: Mapping[str, float] | None) -> str:
    if counts is None:
        return ""
    reasons = [f"{reason}: {format_count(rows)}" for reason, rows in counts.items() if rows]
    return "; ".join(reasons) or "nothing"


def _model_table(models: Mapping[str, Mapping[str, Any]]) -> Html:
    if not models:
        return Html("")
    rows = ((isolate(name), *_model_cells(about)) for name, about in models.items())
    headers = ("Model", "Assumes", "Settings", "Fit", "Seconds")
    return data_table("Models and their settings", headers, rows, class_=TABLE_CLASS)


def _model_cells(about: Mapping[str, Any]) -> list[str]:
    settings = [
        element("code", f"{name}={_format_setting(value)}")
        for name, value in (about.get("settings") or {}).items()
    ]
    seconds = [
        f"{name} {value:.1f}"
        for name, value in (about.get("seconds") or {}).items()
        if value is not None
    ]
    assumes, fit = (str(about.get(name) or "") for name in ("assumes", "fit"))
    return [assumes, join(settings, " "), fit, ", ".join(seconds)]


def _run_table(details: Mapping[str, Any]) -> Html:
    rows = [
        (name, _format_setting(details[key]))
        for key, name in RUN_SETTINGS.items()
        if key in details
    ]
    parts = []
    if rows:
        headers = ("Setting", "Value")
        parts.append(data_table("Settings of the run", headers, rows, class_=TABLE_CLASS))
    if command := details.get("command"):
        code = element("pre", element("code", str(command)), tabindex="0")
        parts += [paragraph("The command:"), code]
    return join(parts)


def _format_setting(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value)
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return format_count(float(value)) if is_whole else str(value)  # type: ignore[arg-type]
