"""The demo: three simulated weeks, models compared on the third, predictions and a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reclick.cli.command import as_command
from reclick.cli.console import print_note, print_result, print_text, progress_bars
from reclick.cli.inputs import Force

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.models import ClickModel, LuceClick, MultiClick
    from reclick.runtime.progress import Progress

SESSIONS = 60_000  # per week
OTHER_MODELS = ("ubm", "dbn", "ccm", "pbm", "dctr")
NEW_AD = {
    "ad": ["new-ad"],
    "title": ["Bonded Insured Experts"],
    "description": ["Free quote, same day"],
    "display_url": ["new.example"],
}
OUTPUTS = {  # every file, or its folder, and a description
    "report.html": "the report: open it in a browser",
    "report.md": "its main tables as Markdown",
    "scores.parquet": "every model by every metric, overall and by query volume, with intervals",
    "differences.parquet": "the difference between each two models, with intervals",
    "curves.parquet": "reliability and precision-recall curves",
    "evaluation.json": "the profile of week 3, the models' settings, times and seeds",
    "model": "LuceClick, fitted, for rc.load and reclick predict",
    "predictions.parquet": "week 3 with click probabilities and most likely sequences",
    "relevance.parquet": "every (query, ad) with intervals",
    "logs/week1.parquet": "the sessions of week 1: the history",
    "logs/week2.parquet": "the sessions of week 2: to train on",
    "logs/week3.parquet": "the sessions of week 3: to test on",
    "logs/ads.parquet": "the text of the ads",
    "logs/labels.parquet": "editors' grades of (query, ad) pairs",
    "logs/bids.parquet": "the bids of all candidates, for reclick auction",
    "logs/truth.parquet": "the true attractiveness and satisfaction of each pair",
    "logs/truth_words.parquet": "the true effect of each word",
    "logs/truth_brands.parquet": "how much each brand attracts, and how good its pages are",
    "logs/truth_queries.parquet": "each query's topic, share of sessions and user types",
    "logs/truth_sessions.parquet": "the user type of each session",
    "logs/truth.json": "the settings of the simulation",
    "work": "models and scores of the comparison; may be deleted, a second run makes them again",
}


TABLE_NOTE = """\
This market is simulated, and models rank differently on logs of real users: see
docs/explanation/benchmarks.md. Its auction puts good ads at the top, so a click rate that ignores
positions (DCTR) orders ads well here. MultiClick is the formula of the paper as printed, which
expects far too few clicks: see docs/models/multiclick.md."""


@as_command
def demo(
    to: Annotated[str, typer.Option(metavar="FOLDER", help="The folder to write to.")] = "demo",
    force: Force = False,
) -> None:
    """Simulate three weeks, compare seven models on the third, and write a report.

    Example:  reclick demo --to demo
    """
    print_note("Simulating three weeks of clicks and comparing seven models: about a minute.")
    with progress_bars() as progress:
        for section in run_demo(Path(to), progress, overwrite=force):
            print_text(section)
    report = str(Path(to) / "report.html")
    print_result(f"Report: {report}", {"to": to, "report": report, "files": OUTPUTS})


def run_demo(to: Path, progress: Progress, *, overwrite: bool = False) -> Iterator[str]:
    """Write logs, models, predictions, relevance and the report to a folder.

    Yield parts of the text to print as soon as they are ready.
    """
    import pyarrow.parquet as pq

    from reclick.evaluation import evaluate
    from reclick.logs import read_sessions
    from reclick.models import MODELS, LuceClick, MultiClick, load
    from reclick.predictor import predict
    from reclick.runtime.outputs import check_targets, write_files
    from reclick.simulation import simulate

    check_targets((to / name for name in OUTPUTS if Path(name).suffix), overwrite=overwrite)
    logs = to / "logs"
    progress("Simulating three weeks", 0, 3)
    simulate(SESSIONS, weeks=3, seed=0).save(logs, overwrite=overwrite)
    progress("Simulating three weeks", 3, 3)
    week1, week2, week3 = (
        read_sessions(logs / f"week{week}.parquet", ads=logs / "ads.parquet") for week in (1, 2, 3)
    )
    luce = LuceClick().fit(week2, progress=progress)
    multi = MultiClick().fit(week2, history=week1, progress=progress)
    other_models = {MODELS[name].__name__: MODELS[name]() for name in OTHER_MODELS}
    models: dict[str, ClickModel] = {"LuceClick": luce, **other_models, "MultiClick": multi}
    result = evaluate(
        models,
        week3,
        train=week2,
        history=week1,
        labels=logs / "labels.parquet",
        folder=to / "work",
        progress=progress,
    )
    result.save(to, overwrite=overwrite)
    yield _format_section(
        "Week 3 of three simulated weeks, never seen in training", str(result.profile)
    )
    yield _format_section(
        "The models compared (week 2 to train, week 3 to test, week 1 for priors of all except "
        "LuceClick)",
        f"{result}\n\n{TABLE_NOTE}",
    )
    luce.save(to / "model")
    predict(
        load(to / "model"), week3, to / "predictions.parquet", overwrite=True, progress=progress
    )
    relevance = luce.relevance()
    write_files(
        to,
        {"relevance.parquet": lambda path: pq.write_table(relevance, path, compression="zstd")},
        overwrite=True,
    )
    for title, text in (*_query_sections(luce, multi), ("What was written", _list_files(to))):
        yield _format_section(title, text)


def _format_section(title: str, text: str) -> str:
    return f"{title}\n{'─' * len(title)}\n{text}\n"


def _query_sections(luce: LuceClick, multi: MultiClick) -> Iterator[tuple[str, str]]:
    """Yield sections on the query with most clicks: its ads, likely sequences, and a new ad."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = luce.training_counts
    query = counts.queries[int(np.bincount(counts.pair_query, counts.clicks).argmax())].as_py()
    pairs = luce.relevance().filter(pc.field("query") == query)
    ads = pairs.sort_by([("relevance", "descending")])
    yield f"The ads of {query!r} by LuceClick, with 90 % credible intervals", _format_relevance(ads)
    page = ads["ad"].to_pylist()[:4]
    multi_pairs = multi.relevance({"query": [query] * len(ads), "ad": ads["ad"]})
    yield (
        "The same ads by MultiClick, whose attractiveness is not corrected for position",
        _format_relevance(multi_pairs),
    )
    rows = [
        f"{sequence.probability:>7.2%}  {' → '.join(map(str, sequence.clicks)) or 'no click'}"
        for sequence in luce.rank_sequences(query, page, top=8)
    ]
    yield f"The most likely clicks on a page of its best four ({', '.join(page)})", "\n".join(rows)
    new_pair = luce.relevance({"query": [query], "ad": NEW_AD["ad"]}, text=pa.table(NEW_AD))
    yield (
        f"An ad never shown, by its words: {NEW_AD['title'][0]} · {NEW_AD['description'][0]}",
        _format_relevance(new_pair),
    )


def _format_relevance(table: pa.Table) -> str:
    columns = ("attractiveness", "satisfaction", "relevance")
    head = f"{'ad':<12} {' '.join(f'{name:>22}' for name in columns)} {'shown':>8} {'clicks':>7}"
    return "\n".join([head, *(_format_row(row) for row in table.slice(0, 8).to_pylist())])


def _format_row(row: dict[str, float]) -> str:
    cells = (
        f"{row[name]:.3f} [{row[name + '_low']:.3f}, {row[name + '_high']:.3f}]"
        for name in ("attractiveness", "satisfaction", "relevance")
    )
    estimates = " ".join(f"{cell:>22}" for cell in cells)
    return f"{row['ad']:<12} {estimates} {row['impressions']:>8,.0f} {row['clicks']:>7,.0f}"


def _list_files(to: Path) -> str:
    width = max(len(str(to / name)) for name in OUTPUTS)
    return "\n".join(f"{to / name!s:<{width}}  {what}" for name, what in OUTPUTS.items())
