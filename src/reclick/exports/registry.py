"""Export the estimates of a model for other tools; every format has an entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, cast

from reclick.errors import Argument, UsageError, check_choice
from reclick.exports.letor import write_letor
from reclick.exports.line_formats import query_list_path, write_qrels, write_quepid
from reclick.exports.opensearch import write_opensearch
from reclick.exports.parquet import write_parquet
from reclick.exports.propensity_table import write_propensities
from reclick.exports.request import Cuts, ExportRequest, ExportResult, GradingRule
from reclick.logs import SessionLog
from reclick.logs.files.source import OnError, check_on_error
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path, is_location
from reclick.runtime.outputs import check_targets, refuse_source_files
from reclick.runtime.progress import ProgressOption, track_progress


class ExportFormat(NamedTuple):
    """A format: its title, the function that writes it, and the suffixes it is inferred from."""

    title: str
    write: Callable[[ExportRequest], ExportResult]
    suffixes: tuple[str, ...] = ()


EXPORT_FORMATS: dict[str, ExportFormat] = {
    "qrels": ExportFormat("TREC qrels", write_qrels, (".qrels",)),
    "quepid": ExportFormat("Quepid CSV", write_quepid, (".csv",)),
    "opensearch": ExportFormat("OpenSearch judgments", write_opensearch, (".json",)),
    "letor": ExportFormat("LETOR text", write_letor, (".letor", ".svmlight", ".libsvm")),
    "parquet": ExportFormat("Parquet of relevance", write_parquet, (".parquet", ".pq")),
    "propensities": ExportFormat("click propensities", write_propensities),
}
QUERY_LIST_FORMATS = frozenset({"qrels", "letor"})  # have a second file, *.queries.tsv


@check_arguments
def export(
    model: ClickModel,
    to: Location,
    *,
    format: str | None = None,
    pairs: object = None,
    cuts: Cuts = "quartiles",
    quantity: str = "relevance",
    bound: str = "low",
    min_support: float = 10.0,
    level: float = 0.9,
    features: object = None,
    log: object = None,
    name: str | None = None,
    details: bool = False,
    on_error: OnError = "raise",
    overwrite: bool = False,
    progress: ProgressOption = None,
) -> ExportResult:
    """Write judgments or propensities in the format of another tool; returns what was written.

    The files appear together when complete; one that Reclick did not write is replaced only with
    `overwrite`. `format` is one of qrels, quepid, opensearch, letor, parquet and propensities;
    without it, the format is inferred from the suffix of the file. `pairs`, `cuts`, `quantity`,
    `bound`, `min_support` and `level` are as in `judgments`. `features` is a table of query, ad and
    numbers, for letor; `log` has the pages that propensities are means over; `name` is that of the
    judgment list in OpenSearch; `details` adds the graded value, its interval, impressions and
    clicks to the CSV of quepid, for a spreadsheet. With `on_error="drop"`, pairs that the format
    cannot hold are left out and counted.
    """
    target = as_path(to)
    format_name = format_from_suffix(target) if format is None else format
    check_choice("format", format_name, tuple(EXPORT_FORMATS))
    check_on_error(on_error)
    _refuse_unused(format_name, features=features, log=log, name=name, details=details or None)
    if target.is_dir():
        raise UsageError(f"{to} is a folder. Give the path of a file.")
    inputs = [cast(Location, path) for path in (pairs, features, log) if is_location(path)]
    targets = [target, query_list_path(target)] if format_name in QUERY_LIST_FORMATS else [target]
    for path in targets:
        refuse_source_files(path, inputs, "one of the inputs")
        if isinstance(log, SessionLog):
            log.refuse_target(path)
    check_targets(targets, overwrite=overwrite)
    rule = GradingRule(cuts, quantity, bound, min_support, level)
    request = ExportRequest(
        model, target, rule, pairs, features, log, name, details, on_error, overwrite
    )
    title, write, _ = EXPORT_FORMATS[format_name]
    with track_progress(progress, "Exporting"):
        result = write(request)
    return replace(result, format=title if format else f"{title}, inferred from {target.suffix}")


def format_from_suffix(to: AnyPath) -> str:
    """Infer the format from the suffix of a file."""
    names = {
        suffix: name for name, format_ in EXPORT_FORMATS.items() for suffix in format_.suffixes
    }
    if to.suffix.lower() not in names:
        suffix_list = ", ".join(f"{suffix} ({name})" for suffix, name in names.items())
        raise UsageError(
            f"{to}: the format cannot be inferred from the suffix. Known suffixes are "
            f"{suffix_list}; or give one of {', '.join(EXPORT_FORMATS)} with ",
            Argument("format", ..., option="output_format"),
            ".",
        )
    return names[to.suffix.lower()]


def _refuse_unused(format_name: str, **options: object) -> None:
    """Raise for options that have no effect in this format."""
    owners = {
        "features": "letor",
        "log": "propensities",
        "name": "opensearch",
        "details": "quepid",
    }
    for option, value in options.items():
        if value is not None and owners[option] != format_name:
            raise UsageError(
                Argument(option),
                f" is for the format {owners[option]!r} and has no effect on {format_name!r}:"
                " leave it out.",
            )
