"""Write what a model learnt for other tools: one line here a format, one file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Unpack

from reclick.errors import SettingError
from reclick.exports.grading import Grading, Rule, takes_grading
from reclick.exports.letor import write_letor
from reclick.exports.opensearch import write_opensearch
from reclick.exports.parquet import write_parquet
from reclick.exports.propensity_table import write_propensities
from reclick.exports.qrels import write_qrels
from reclick.exports.quepid import write_quepid
from reclick.exports.request import Exported, Job
from reclick.logs.files.source import OnError, check_on_error
from reclick.models.base import ClickModel
from reclick.models.settings import check_choice
from reclick.runtime.progress import Progress


class Format(NamedTuple):
    """A format: its name in words, what writes it, and the endings of files that tell it."""

    title: str
    write: Callable[[Job], Exported]
    endings: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "qrels": Format("TREC qrels", write_qrels, (".qrels",)),
    "quepid": Format("Quepid CSV", write_quepid, (".csv",)),
    "opensearch": Format("OpenSearch judgments", write_opensearch, (".json",)),
    "letor": Format("LETOR text", write_letor, (".letor", ".svmlight", ".libsvm")),
    "parquet": Format("Parquet of relevance", write_parquet, (".parquet", ".pq")),
    "propensities": Format("click propensities", write_propensities),
}


@takes_grading
def export(
    model: ClickModel,
    to: str | Path,
    *,
    format: str | None = None,
    pairs: object = None,
    features: object = None,
    log: object = None,
    name: str | None = None,
    on_error: OnError = "raise",
    progress: Progress | None = None,
    **grading: Unpack[Grading],
) -> Exported:
    """Write judgments, or propensities, in the format of another tool; the file appears when it is whole. Returns what was written and left out.

    `format` is one of qrels, quepid, opensearch, letor, parquet and propensities; without it, the file's ending tells. The grades and `pairs` are as
    in `judgments`. `features` is a table of query, ad and numbers, for letor; `log` the pages that propensities are means over; `name` that of the
    judgment list in OpenSearch. With `on_error="drop"`, pairs that the format cannot hold are left out and counted.
    """
    to = Path(to)
    chosen = told_by(to) if format is None else format
    check_choice("format", chosen, tuple(FORMATS))
    check_on_error(on_error)
    _refuse_unused(chosen, features=features, log=log, name=name)
    if to.is_dir():
        raise SettingError(f"{to} is a folder. Give the path of a file.")
    found = FORMATS[chosen].write(
        Job(model, to, Rule.of(**grading), pairs, features, log, name, on_error, progress)
    )
    return replace(
        found, format=FORMATS[chosen].title + (f", told by {to.suffix}" if format is None else "")
    )


def told_by(to: Path) -> str:
    """The format that a file's ending tells."""
    endings = {ending: name for name, format_ in FORMATS.items() for ending in format_.endings}
    if to.suffix.lower() not in endings:
        known = ", ".join(f"{ending} ({name})" for ending, name in endings.items())
        raise SettingError(
            f"{to}: the ending does not tell the format. It is told by {known}; or give one of {', '.join(FORMATS)} with format=."
        )
    return endings[to.suffix.lower()]


def _refuse_unused(chosen: str, **given: object) -> None:
    """Refuse an option of another format: it would be without effect."""
    owners = {"features": "letor", "log": "propensities", "name": "opensearch"}
    for option, value in given.items():
        if value is not None and owners[option] != chosen:
            raise SettingError(
                f"{option} is for the format {owners[option]!r} and has no effect on {chosen!r}: leave it out."
            )
