"""The report as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from reclick.profile import Portrait
from reclick.report.data import Evaluated, Material, gather
from reclick.report.formatting import amount, in_words, listing
from reclick.report.markup import Html, element, paragraph
from reclick.report.section import Section
from reclick.report.sections.ads import words_and_ads
from reclick.report.sections.headline import in_short
from reclick.report.sections.log import log_portrait
from reclick.report.sections.other_metrics import beyond_the_paper
from reclick.report.sections.published_tables import paper_tables, reverse_tables
from reclick.report.sections.reproduce import how_it_was_made
from reclick.report.style import style_sheet
from reclick.runtime.atomic_write import write_files

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SECTIONS = (
    in_short,
    log_portrait,
    paper_tables,
    reverse_tables,
    beyond_the_paper,
    words_and_ads,
    how_it_was_made,
)


def render(
    scores: pa.Table,
    differences: pa.Table,
    curves: pa.Table,
    portrait: Portrait | None,
    details: Mapping[str, Any],
) -> str:
    """The whole page, from the parts of an evaluation and nothing else."""
    material = gather(scores, differences, curves, portrait, details)
    found = [one for section in SECTIONS if (one := section(material))]
    main = element("main", *(one.html() for one in found), id="content")
    frame = element(
        "div", _header(material), _contents(found), main, _footer(material), class_="frame"
    )
    body = element(
        "body", element("a", "Skip to the report", class_="skip", href="#content"), frame
    )
    return f"<!doctype html>\n{element('html', _head(material), body, lang='en')}\n"


def write_html(evaluation: Evaluated, path: str | Path) -> Path:
    """Write the report of an evaluation to a file, which appears when it is whole."""
    page = render(
        evaluation.scores,
        evaluation.differences,
        evaluation.curves,
        evaluation.portrait,
        evaluation.details,
    )
    path = Path(path)
    (written,) = write_files(
        path.parent, {path.name: lambda beside: beside.write_text(page, encoding="utf-8")}
    )
    return written


def title_of(material: Material) -> str:
    """What the report is about."""
    models = material.results.models
    name = _test_log(material).get("name")
    on = f" on {name}" if name else ""
    if not models:
        return f"Nothing evaluated{on}"
    return (
        f"{models[0]} evaluated{on}"
        if len(models) == 1
        else f"{_counted(material).capitalize()} compared{on}"
    )


def _counted(material: Material) -> str:
    """How many models there are; one that comes more than once, with other settings say, is one model and two fits."""
    names, known = material.results.models, material.details.get("models") or {}
    kinds = {(known.get(name) or {}).get("model") or name for name in names}
    if len(kinds) == len(names):
        return f"{in_words(len(names))} click models"
    return (
        f"{in_words(len(names))} fits of {in_words(len(kinds))} click model{'s' * (len(kinds) > 1)}"
    )


def subtitle_of(material: Material) -> str:
    """Which models, on how many sessions."""
    sessions = _test_log(material).get("sessions") or (
        material.portrait.sessions if material.portrait else None
    )
    models = listing(list(material.results.models)) if material.results.models else "No model"
    return models + (f", judged on {amount(float(sessions))} test sessions." if sessions else ".")


def _test_log(material: Material) -> Mapping[str, Any]:
    return (material.details.get("logs") or {}).get("test") or {}


def _head(material: Material) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title_of(material)),
        element("style", Html(style_sheet())),
    )


def _header(material: Material) -> Html:
    return element(
        "header",
        paragraph("Reclick report", class_="kicker"),
        element("h1", title_of(material)),
        paragraph(subtitle_of(material), class_="about"),
    )


def _contents(sections: list[Section]) -> Html:
    label = element("p", "Contents", class_="kicker", id="contents")
    return element(
        "nav",
        label,
        element("ol", *(one.contents() for one in sections)),
        aria_labelledby="contents",
    )


def _footer(material: Material) -> Html:
    version = material.details.get("version")
    made = f"Made by Reclick {version}" if version else "Made by Reclick"
    return element(
        "footer",
        f"{made} from aggregates of the log: no session is in this file, and it asks nothing of the net.",
    )
