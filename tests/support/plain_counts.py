"""Counts as plain dicts: of `Counts`, and counted again from raw sessions in plain Python."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reclick.data.counts import Counts
from tests.support.enumeration import Session


@dataclass
class Plain:
    impressions: Counter[Any] = field(default_factory=Counter)  # (query, ad)
    clicks: Counter[Any] = field(default_factory=Counter)
    last_clicks: Counter[Any] = field(default_factory=Counter)
    visits: Counter[Any] = field(default_factory=Counter)  # (query, click list)
    lengths: Counter[Any] = field(default_factory=Counter)  # (page length, number of clicks)


def by_hand(sessions: Sequence[Session]) -> Plain:
    plain = Plain()
    for s in sessions:
        for ad in s.ads:
            plain.impressions[s.query, ad] += s.weight  # type: ignore[assignment]
        for click in s.path:
            plain.clicks[s.query, s.ads[click - 1]] += s.weight  # type: ignore[assignment]
        if s.path:
            plain.last_clicks[s.query, s.ads[s.path[-1] - 1]] += s.weight  # type: ignore[assignment]
        plain.visits[s.query, s.path] += s.weight  # type: ignore[assignment]
        plain.lengths[len(s.ads), len(s.path)] += s.weight  # type: ignore[assignment]
    return plain


def in_plain(counts: Counts) -> Plain:
    queries, ads = counts.queries.to_pylist(), counts.ads.to_pylist()
    starts = counts.sequence_starts.tolist()
    lists = [tuple(counts.sequence_clicks[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    pairs = [(queries[q], ads[a]) for q, a in zip(counts.pair_query, counts.pair_ad, strict=True)]
    visits = [
        (queries[q], lists[s])
        for q, s in zip(counts.visit_query, counts.visit_sequence, strict=True)
    ]
    assert len(set(pairs)) == len(pairs)
    assert len(set(visits)) == len(visits)
    assert len(set(lists)) == len(lists)
    return Plain(
        +Counter(dict(zip(pairs, counts.impressions.tolist(), strict=True))),
        +Counter(dict(zip(pairs, counts.clicks.tolist(), strict=True))),
        +Counter(dict(zip(pairs, counts.last_clicks.tolist(), strict=True))),
        Counter(dict(zip(visits, counts.sessions.tolist(), strict=True))),
        +Counter(
            {
                (n, m): value
                for n, row in enumerate(counts.lengths.tolist())
                for m, value in enumerate(row)
            }
        ),
    )


def check_canonical(counts: Counts) -> None:
    """Strings, pairs, click lists and visits are sorted, and nothing is unused or empty."""
    queries, ads = counts.queries.to_pylist(), counts.ads.to_pylist()
    assert queries == sorted(set(queries), key=lambda text: text.encode())
    assert ads == sorted(set(ads), key=lambda text: text.encode())
    pairs = list(zip(counts.pair_query.tolist(), counts.pair_ad.tolist(), strict=True))
    visits = list(zip(counts.visit_query.tolist(), counts.visit_sequence.tolist(), strict=True))
    assert pairs == sorted(pairs)
    assert visits == sorted(visits)
    assert {q for q, _ in pairs} == {q for q, _ in visits} == set(range(len(queries)))
    assert {a for _, a in pairs} == set(range(len(ads)))
    assert {s for _, s in visits} == set(range(len(counts.sequence_starts) - 1))
    starts = counts.sequence_starts.tolist()
    lists = [tuple(counts.sequence_clicks[a:b].tolist()) for a, b in itertools.pairwise(starts)]
    assert lists == sorted(lists)
    assert (counts.impressions > 0).all()
    assert (counts.sessions > 0).all()
    assert counts.lengths[-1].any() or len(queries) == 0
    assert counts.lengths[:, -1].any() or len(queries) == 0
