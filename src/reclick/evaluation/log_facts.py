"""What the report tells of a log beside the scores: moves, fatigue, words that attract, and ads that are other than they look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.batch import Float64, Int64
from reclick.data.counts import Counts
from reclick.models.base import ClickModel
from reclick.models.kernels.stops_and_transitions import pooled_events
from reclick.text.tokens import AdTokens, tokenise

QUERIES, WORDS, ADS = 6, 6, 6  # shown of each
SEEN = 30  # impressions a word must have had
CLICKED = 20  # clicks a pair must have had
STRENGTH = 20.0  # pseudo-impressions at the query's rate, so that the rare do not lead the list


def moves(counts: Counts) -> dict[str, Any]:
    """The transitions from each last click (row 0 = start), as shares, and the share of sessions that ends after k clicks."""
    exactly, more, delta = pooled_events(counts)
    rows = delta.sum(axis=1, keepdims=True)
    shares = np.divide(delta, rows, out=np.zeros_like(delta), where=rows > 0)
    reached = exactly + more
    known = reached > 0
    return {"transitions": shares.tolist(), "fatigue": (exactly[known] / reached[known]).tolist()}


def words(counts: Counts, ads: pa.Table | None) -> list[dict[str, Any]]:
    """For the most frequent queries, the words whose ads are clicked most and least often."""
    if ads is None:
        return []
    text = tokenise(ads)
    row = {ad: index for index, ad in enumerate(text.ads.to_pylist())}
    found = (
        _words_of(counts, int(query), text, row)
        for query in np.argsort(-counts.volumes, kind="stable")[:QUERIES]
    )
    return [one for one in found if one["attract"]]


def _words_of(counts: Counts, query: int, text: AdTokens, row: dict[str, int]) -> dict[str, Any]:
    shown: dict[str, float] = {}
    clicked: dict[str, float] = {}
    first, last = np.searchsorted(counts.pair_query, [query, query + 1])
    for pair in range(int(first), int(last)):
        ad = row.get(counts.ads[int(counts.pair_ad[pair])].as_py())
        for word in text.words(ad) if ad is not None else ():
            shown[word] = shown.get(word, 0.0) + float(counts.impressions[pair])
            clicked[word] = clicked.get(word, 0.0) + float(counts.clicks[pair])
    rate = counts.clicks[first:last].sum() / max(counts.impressions[first:last].sum(), 1e-300)
    known = [word for word in shown if shown[word] >= SEEN]
    ranked = sorted(
        known, key=lambda word: -(clicked[word] + STRENGTH * rate) / (shown[word] + STRENGTH)
    )
    listed = [[word, clicked[word] / shown[word], shown[word]] for word in ranked]
    many = min(WORDS, len(listed) // 2)
    return {
        "query": counts.queries[query].as_py(),
        "attract": listed[:many],
        "repel": listed[::-1][:many],
    }


def disagreements(model: ClickModel | None, ads: pa.Table | None) -> list[dict[str, Any]]:
    """The (query, ad) pairs whose looks and landing pages stand furthest apart among all that were clicked often enough."""
    if model is None:
        return []
    table = model.relevance()
    table = table.filter(pa.array(table["clicks"].to_numpy() >= CLICKED))
    if len(table) < 2:
        return []
    gap = _place(table["attractiveness"].to_numpy()) - _place(table["satisfaction"].to_numpy())
    order = np.argsort(gap, kind="stable")
    many = min(ADS, len(order) // 2)
    titles = (
        {}
        if ads is None
        else dict(zip(ads["ad"].to_pylist(), ads["title"].to_pylist(), strict=True))
    )
    return [
        _pair(table, int(index), titles) for index in [*order[::-1][:many], *order[:many][::-1]]
    ]


def _pair(table: pa.Table, index: int, titles: dict[str, str]) -> dict[str, Any]:
    row = table.slice(index, 1).to_pylist()[0]
    known = {name: row[name] for name in ("query", "ad", "attractiveness", "satisfaction")}
    return {**known, "title": titles.get(row["ad"]) or "", "support": row["clicks"]}


def _place(values: Float64) -> Float64:
    """Where each value stands among all, from 0 to 1."""
    places: Int64 = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return places / max(len(values) - 1, 1)
