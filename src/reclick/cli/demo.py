"""The main job end to end on simulated logs: three weeks of clicks, models compared on the third, predictions, and a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.evaluation import evaluate
from reclick.logs import read_sessions
from reclick.models import MODELS, ClickModel, LuceClick, MultiClick, load
from reclick.predictor import predict
from reclick.runtime.filesystem import write_files
from reclick.runtime.progress import Progress
from reclick.simulation import simulate

SESSIONS = 60_000  # a week
OTHERS = ("dbn", "icm", "pm", "am", "ubm")
CALIBRATED = (
    "MultiClick, normalised"  # the reading whose click probabilities are near the observed rates
)
COLD_AD = {
    "ad": ["new-ad"],
    "title": ["Bonded Insured Experts"],
    "description": ["Free quote, same day"],
    "display_url": ["new.example"],
}
WRITTEN = {  # every file, or the folder that it is in, and what it is
    "report.html": "the report: open it in a browser",
    "report.md": "its main tables as Markdown",
    "scores.parquet": "every model by every metric, overall and by query volume, with intervals",
    "differences.parquet": "how far each two models are apart, with intervals",
    "curves.parquet": "reliability and precision-recall curves",
    "evaluation.json": "the portrait of week 3, the models' settings, times and seeds",
    "model": "MultiClick, fitted, for rc.load and reclick predict",
    "predictions.parquet": "week 3 with click probabilities and likeliest sequences",
    "relevance.parquet": "every (query, ad) with intervals",
    "logs/week1.parquet": "the sessions of week 1: the history",
    "logs/week2.parquet": "the sessions of week 2: to train on",
    "logs/week3.parquet": "the sessions of week 3: to test on",
    "logs/ads.parquet": "the text of the ads",
    "logs/labels.parquet": "editors' grades of (query, ad) pairs",
    "logs/truth.parquet": "the true attractiveness and satisfaction of each pair",
    "logs/truth_words.parquet": "the true effect of each word",
    "logs/truth_brands.parquet": "how much each brand draws, and how good its pages are",
    "logs/truth_queries.parquet": "each query's topic, share of sessions and kinds of users",
    "logs/truth_sessions.parquet": "the kind of user of each session",
    "logs/truth.json": "the settings of the simulation",
    "work": "the models and scores of the comparison; may be deleted, a second run makes them again",
}


def run(to: Path, progress: Progress) -> Iterator[str]:
    """Write logs, models, predictions, relevance and the report to a folder; yields what to show as it is ready."""
    logs = to / "logs"
    progress("Simulating three weeks", 0, 3)
    simulate(SESSIONS, weeks=3, seed=0).save(logs)
    progress("Simulating three weeks", 3, 3)
    weeks = [
        read_sessions(logs / f"week{week}.parquet", ads=logs / "ads.parquet") for week in (1, 2, 3)
    ]
    model = MultiClick(variant="normalised").fit(weeks[1], history=weeks[0], progress=progress)
    luce = LuceClick().fit(weeks[1], history=weeks[0], progress=progress)
    models: dict[str, ClickModel] = {
        "MultiClick": MultiClick(),
        CALIBRATED: model,
        "LuceClick": luce,
    }
    models |= {MODELS[name].__name__: MODELS[name]() for name in OTHERS}
    found = evaluate(
        models,
        weeks[2],
        train=weeks[1],
        history=weeks[0],
        labels=logs / "labels.parquet",
        folder=to / "work",
        progress=progress,
    )
    found.save(to)
    yield _section("Week 3 of three simulated weeks, never seen in training", str(found.profile))
    yield _section(
        "The models compared (week 1 as history, week 2 to train, week 3 to test)", str(found)
    )
    model.save(to / "model")
    predict(
        load(to / "model"),
        weeks[2],
        to / "predictions.parquet",
        progress=progress,
    )
    write_files(
        to,
        {
            "relevance.parquet": lambda path: pq.write_table(
                model.relevance(), path, compression="zstd"
            )
        },
    )
    for title, text in (*_query_sections(model, luce), ("What was written", _listing(to))):
        yield _section(title, text)
    yield f"Report: {to / 'report.html'}"


def _section(title: str, text: str) -> str:
    return f"{title}\n{'─' * len(title)}\n{text}\n"


def _query_sections(model: MultiClick, luce: LuceClick) -> Iterator[tuple[str, str]]:
    """The most clicked query: its ads with intervals by both models, the likeliest sequences of its best four, and an ad nobody has seen."""
    counts = model.counts_
    query = counts.queries[int(np.bincount(counts.pair_query, counts.clicks).argmax())].as_py()
    ads = (
        model.relevance().filter(pc.field("query") == query).sort_by([("relevance", "descending")])
    )
    yield f"The ads of {query!r}, with 90 % credible intervals", _relevance_text(ads)
    page = ads["ad"].to_pylist()[:4]
    same = luce.relevance({"query": [query] * len(ads), "ad": ads["ad"]})
    yield (
        "The same ads by LuceClick, which takes where they stood out of their attractiveness",
        _relevance_text(same),
    )
    ranked = model.rank_sequences(query, page, top=8)
    rows = [
        f"{sequence.probability:>7.2%}  {' → '.join(map(str, sequence.clicks)) or 'no click'}"
        for sequence in ranked
    ]
    yield f"The likeliest clicks on a page of its best four ({', '.join(page)})", "\n".join(rows)
    cold = model.relevance({"query": [query], "ad": COLD_AD["ad"]}, text=pa.table(COLD_AD))
    yield (
        f"An ad never shown, known by its words: {COLD_AD['title'][0]} · {COLD_AD['description'][0]}",
        _relevance_text(cold),
    )


def _relevance_text(table: pa.Table) -> str:
    head = f"{'ad':<12} {'attractiveness':>22} {'satisfaction':>22} {'relevance':>22} {'shown':>8} {'clicks':>7}"
    return "\n".join([head, *(_relevance_row(row) for row in table.slice(0, 8).to_pylist())])


def _relevance_row(row: dict[str, float]) -> str:
    cells = (
        f"{row[name]:.3f} [{row[name + '_low']:.3f}, {row[name + '_high']:.3f}]"
        for name in ("attractiveness", "satisfaction", "relevance")
    )
    return (
        f"{row['ad']:<12} "
        + " ".join(f"{cell:>22}" for cell in cells)
        + f" {row['impressions']:>8,.0f} {row['clicks']:>7,.0f}"
    )


def _listing(to: Path) -> str:
    wide = max(len(str(to / name)) for name in WRITTEN)
    return "\n".join(f"{to / name!s:<{wide}}  {what}" for name, what in WRITTEN.items())
