"""How it was made: the logs and what was dropped, every setting, and the command, so that it can be done again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reclick.report.data import Material
from reclick.report.formatting import amount
from reclick.report.markup import Html, data_table, element, foreign, join, paragraph
from reclick.report.section import Part, Section, section

RUN = {
    "version": "Reclick",
    "level": "level of intervals",
    "resamples": "bootstrap resamples",
    "seed": "seed",
}


def how_it_was_made(material: Material) -> Section | None:
    """Everything that is needed to do it again."""
    details = material.details
    parts = [
        Part("Logs, and what was dropped", _logs(details.get("logs") or {})),
        Part("Models and their settings", _models(details.get("models") or {})),
        Part("The run", _run(details)),
    ]
    return section("How it was made", parts)


def _logs(logs: Mapping[str, Mapping[str, Any]]) -> Html:
    if not logs:
        return Html("")
    rows = [
        (
            part,
            foreign(str(log.get("name", ""))),
            _plain(log.get("sessions")),
            _dropped(log.get("dropped")),
        )
        for part, log in logs.items()
        if log
    ]
    return data_table("Logs", ("Part", "Name", "Sessions", "Dropped"), rows, class_="plain words")


def _dropped(dropped: Mapping[str, float] | None) -> str:
    if dropped is None:
        return ""
    reasons = [f"{reason}: {amount(rows)}" for reason, rows in dropped.items() if rows]
    return "; ".join(reasons) or "nothing"


def _models(models: Mapping[str, Mapping[str, Any]]) -> Html:
    if not models:
        return Html("")
    heads = ("Model", "Assumes", "Settings", "Fit", "Seconds")
    return data_table(
        "Models and their settings",
        heads,
        ((foreign(name), *_model(known)) for name, known in models.items()),
        class_="plain words",
    )


def _model(known: Mapping[str, Any]) -> list[str]:
    settings = [
        element("code", f"{name}={_plain(value)}")
        for name, value in (known.get("settings") or {}).items()
    ]
    seconds = [
        f"{name} {value:.1f}"
        for name, value in (known.get("seconds") or {}).items()
        if value is not None
    ]
    return [
        str(known.get("assumes") or ""),
        join(settings, " "),
        str(known.get("fit") or ""),
        ", ".join(seconds),
    ]


def _run(details: Mapping[str, Any]) -> Html:
    rows = [(name, _plain(details[key])) for key, name in RUN.items() if key in details]
    told = (
        data_table("Settings of the run", ("Setting", "Value"), rows, class_="plain words")
        if rows
        else Html("")
    )
    command = (
        element("pre", element("code", str(details["command"])), tabindex="0")
        if details.get("command")
        else Html("")
    )
    return join([told, paragraph("The command:"), command]) if command else told


def _plain(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | str):
        return str(value)
    return (
        amount(value)
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        else str(value)
    )
