"""The main job end to end on simulated logs: three weeks of clicks, a model of two, predictions for the third, and a page about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reclick.counts import Progress, count
from reclick.logs import SessionLog, read_sessions
from reclick.models import MultiClick
from reclick.portrait import describe
from reclick.scoring import predict
from reclick.simulation import simulate, write_files

Working = Callable[[str], AbstractContextManager[Progress]]
SESSIONS = 100_000  # a week
READINGS = ("leftover", "examination", "normalised")
READING = "normalised"  # the one whose click probabilities are near the observed rates: see the comparison the demo prints
COLD_AD = {"ad": ["new-ad"], "title": ["Bonded Insured Experts"], "description": ["Free quote, same day"], "display_url": ["new.example"]}


def run(to: Path, *, working: Working) -> Iterator[str]:
    """Write the logs, the model, the predictions, the relevance table and a report to a folder; yields the report's sections as they are ready."""
    logs = to / "logs"
    with working(f"Simulating three weeks of {SESSIONS:,} sessions"):
        simulate(SESSIONS, weeks=3, seed=0).save(logs)
    week1, week2, week3 = (read_sessions(logs / f"week{week}.parquet", ads=logs / "ads.parquet") for week in (1, 2, 3))
    sections = [_section("The log: week 2 of three simulated weeks", str(describe(week2)))]
    yield sections[-1]
    with working("Fitting MultiClick: week 1 as history, week 2 as training"):
        counts, history = count(week2), count(week1)
        readings = {reading: MultiClick(reading=reading).fit(counts, history=history, ads=week2.ads) for reading in READINGS}
        model = readings[READING]
        model.save(to / "model")
    with working("Predicting week 3"):
        predict(model, week3, to / "predictions.parquet")
        write_files(to, {"relevance.parquet": lambda path: pq.write_table(model.relevance(), path, compression="zstd")})
    for title, text in (
        ("The model", repr(model)),
        ("Week 3, never seen in training: the readings compared (a reading says what the paper's products mean)", _compare(readings, week3)),
        ("Week 3: clicks expected by the model and observed", _calibration(to / "predictions.parquet")),
        ("First click of week 3: how often the likeliest position was clicked", _first_clicks(model, week3)),
        *_query_sections(model),
        ("What was written", _listing(to)),
    ):
        sections.append(_section(title, text))
        yield sections[-1]
    text = "# Reclick on three simulated weeks\n\n" + "\n".join(sections)
    (report,) = write_files(to, {"report.md": lambda path: path.write_text(text, encoding="utf-8")})
    yield f"Report: {report}"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{text}\n```\n"


def _compare(readings: dict[str, MultiClick], log: SessionLog) -> str:
    """The mean log-likelihood of a session, with its standard error, and the clicks expected in all."""
    rows = []
    for reading, model in readings.items():
        log_prob = model.log_prob(log)
        error = log_prob.std() / np.sqrt(len(log_prob))
        rows.append(f"{reading:<12} {log_prob.mean():>14.4f} ± {error:.4f} {model.expected_clicks(log).sum():>16,.0f}")
    observed = log.summary.clicks
    return "\n".join(
        [f"{'reading':<12} {'log-likelihood':>14} {'':>8} {'expected clicks':>16}", *rows, f"{'observed':<12} {'':>14} {'':>8} {observed:>16,}"]
    )


def _calibration(predictions: Path) -> str:
    """Expected clicks at each position beside the observed ones."""
    table = pq.read_table(predictions, columns=["ads", "clicks", "click_prob"])
    position = np.concatenate([np.arange(1, size + 1) for size in pc.list_value_length(table["ads"]).to_pylist()])
    expected = np.bincount(position, pc.list_flatten(table["click_prob"]).to_numpy())
    observed = np.bincount(pc.list_flatten(table["clicks"]).to_numpy(), minlength=len(expected))
    shown = np.bincount(position)
    rows = [
        f"{n:>8} {shown[n]:>10,} {expected[n]:>10,.0f} {observed[n]:>10,} {expected[n] / shown[n]:>9.2%} {observed[n] / shown[n]:>9.2%}"
        for n in range(1, len(shown))
    ]
    return "\n".join([f"{'position':>8} {'shown':>10} {'expected':>10} {'observed':>10} {'exp. rate':>9} {'obs. rate':>9}", *rows])


def _first_clicks(model: MultiClick, log: SessionLog) -> str:
    """Accuracy of the likeliest first click among clicked sessions, with the standard error, beside always guessing the top."""
    clicks = pa.concat_arrays(list(_clicks(log)))
    clicked = pc.list_value_length(clicks).to_numpy() > 0
    first = pc.list_element(clicks.filter(pa.array(clicked)), 0).to_numpy()
    nothing: list[list[int]] = [[]] * len(clicks)
    guess = np.nanargmax(model.next_click_prob(log, nothing)[clicked], axis=1) + 1
    rows = [("MultiClick", guess == first), ("always position 1", first == 1)]
    return "\n".join(f"{name:<18} {hit.mean():>7.2%} ± {hit.std() / np.sqrt(len(hit)):.2%}" for name, hit in rows)


def _clicks(log: SessionLog) -> Iterator[pa.Array]:
    for batch in log.batches():
        yield pa.ListArray.from_arrays(batch.clicks.astype(np.int32), batch.click)


def _query_sections(model: MultiClick) -> Iterator[tuple[str, str]]:
    """The most frequent query: its ads with intervals, the likeliest sequences of its best four, and an ad nobody has seen."""
    query = model.counts_.queries[int(model.counts_.volumes.argmax())].as_py()
    ads = model.relevance().filter(pc.field("query") == query).sort_by([("relevance", "descending")])
    yield f"The ads of {query!r}, with 90 % credible intervals", _relevance_text(ads)
    page = ads["ad"].to_pylist()[:4]
    ranked = model.rank_sequences(query, page, top=8)
    rows = [f"{sequence.probability:>7.2%}  {' → '.join(map(str, sequence.clicks)) or 'no click'}" for sequence in ranked]
    yield f"The likeliest clicks on a page of its best four ({', '.join(page)})", "\n".join(rows)
    cold = model.relevance({"query": [query], "ad": COLD_AD["ad"]}, text=pa.table(COLD_AD))
    yield f"An ad never shown, known by its words: {COLD_AD['title'][0]} · {COLD_AD['description'][0]}", _relevance_text(cold)


def _relevance_text(table: pa.Table) -> str:
    head = f"{'ad':<12} {'attractiveness':>22} {'satisfaction':>22} {'relevance':>22} {'shown':>8} {'clicks':>7}"
    return "\n".join([head, *(_relevance_row(row) for row in table.slice(0, 8).to_pylist())])


def _relevance_row(row: dict[str, float]) -> str:
    cells = (f"{row[name]:.3f} [{row[name + '_low']:.3f}, {row[name + '_high']:.3f}]" for name in ("attractiveness", "satisfaction", "relevance"))
    return f"{row['ad']:<12} " + " ".join(f"{cell:>22}" for cell in cells) + f" {row['impressions']:>8,.0f} {row['clicks']:>7,.0f}"


def _listing(to: Path) -> str:
    named = {"logs": "three weeks of sessions, the ads, and the truth behind them", "model": "the fitted model, for rc.load and reclick predict"}
    named |= {
        "predictions.parquet": "week 3 with click probabilities and likeliest sequences",
        "relevance.parquet": "every (query, ad) with intervals",
    }
    return "\n".join(f"{to / name!s:<28} {what}" for name, what in named.items())
