"""The profile of a log: the paper's Tables 1 and 2 and Figure 1, from counts only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from reclick.data.counts import Counts
from reclick.data.outcomes import CONVERSION, NO_CONVERSION, UNKNOWN_OUTCOME
from reclick.data.ragged import Bool, Float64, Int32, Int64, run_of_elements
from reclick.engines import Engine, as_counts
from reclick.runtime.arguments import check_arguments
from reclick.runtime.notebook import render_text
from reclick.runtime.plots import plot_bars
from reclick.runtime.progress import ProgressOption

VOLUME_LIMITS = (0, 10, 50, 100, 500, 1000)  # lower limits of the paper's buckets of query volume
VOLUME_NAMES = (
    *(f"{low}-{high}" for low, high in pairwise(VOLUME_LIMITS)),
    f">{VOLUME_LIMITS[-1]}",
)
BAR_WIDTH = 32  # characters of the longest bar


@dataclass(frozen=True, slots=True)
class VolumeProfile:
    """A row of Table 1: clicked sessions of the queries in a range of volume, by clicks."""

    volume: str
    queries: int
    sessions: float  # clicked sessions
    relative: float  # to the first bucket that has any
    shares: tuple[float, ...]  # of 1, 2, 3, and 4 or more clicks


@dataclass(frozen=True, slots=True)
class LogProfile:
    """A summary of a log. Shares of clicks are among clicked sessions, as in the paper."""

    sessions: float
    queries: int
    ads: int
    pairs: int
    impressions: float
    clicks: float
    clicked_share: float  # of all sessions
    multi_click_share: float  # of clicked sessions, with 2 or more clicks
    reverse_share: float  # of multi-click sessions, with a click above the one before it
    by_volume: tuple[VolumeProfile, ...]  # Table 1
    first_clicks: tuple[float, ...]  # Table 2: share of first clicks at each position
    # Figure 1: share of consecutive clicks by distance; negative = back up the page
    distances: dict[int, float]
    page_lengths: dict[int, float]  # share of sessions with pages of this many ads
    outcome_share: float = 0.0  # of clicks, with a known dwell time or number of conversions
    conversion_share: float = 0.0  # of clicks whose conversions are known, with one

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)

    def plot(self) -> Any:
        """Draw a matplotlib figure: first clicks by position, and distances between clicks."""
        first = {str(n): share for n, share in enumerate(self.first_clicks, 1)}
        distances = {f"{move:+d}": share for move, share in sorted(self.distances.items())}
        return plot_bars(
            {"First clicks by position": first, "Distance between consecutive clicks": distances}
        )

    def _repr_html_(self) -> str:
        return render_text(self)

    def __str__(self) -> str:
        return "\n\n".join(
            [
                _totals_text(self),
                _volumes_text(self),
                _first_clicks_text(self),
                _distances_text(self),
                _lengths_text(self),
            ]
        )


@check_arguments
def describe(
    sessions: object, *, engine: Engine | None = None, progress: ProgressOption = None
) -> LogProfile:
    """Return the profile of a log, or of its `Counts`; `engine` counts the log."""
    counts = as_counts(sessions, engine=engine, progress=progress)
    sizes = np.diff(counts.sequence_starts)  # [sequence] number of clicks
    per_sequence = counts.per_sequence()
    total, clicked = counts.total, float(per_sequence[sizes > 0].sum())
    multi = float(per_sequence[sizes > 1].sum())
    reverse = float(per_sequence[_goes_back(counts)].sum())
    return LogProfile(
        sessions=total,
        queries=len(counts.queries),
        ads=len(counts.ads),
        pairs=len(counts.impressions),
        impressions=float(counts.impressions.sum()),
        clicks=float(counts.clicks.sum()),
        clicked_share=_ratio(clicked, total),
        multi_click_share=_ratio(multi, clicked),
        reverse_share=_ratio(reverse, multi),
        by_volume=_by_volume(counts),
        first_clicks=_first_clicks(counts),
        distances=_distances(counts),
        page_lengths=_page_lengths(counts),
        **_outcome_shares(counts),
    )


def volume_bucket(volumes: Float64) -> Int64:
    """Return the index into VOLUME_NAMES of each volume.

    A volume of exactly 10 is in 0-10, as in the paper.

    >>> volume_bucket(np.array([0.0, 10.0, 10.5, 1001.0]))
    array([0, 0, 1, 5])
    """
    return np.maximum(np.searchsorted(VOLUME_LIMITS, volumes, side="left") - 1, 0)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _consecutive_clicks(counts: Counts) -> tuple[Int64, Int32, Int32]:
    """Return the consecutive clicks of all sequences: sequence, earlier and later position."""
    sequence = run_of_elements(counts.sequence_starts)
    is_same = sequence[1:] == sequence[:-1]
    return (
        sequence[1:][is_same],
        counts.sequence_clicks[:-1][is_same],
        counts.sequence_clicks[1:][is_same],
    )


def _goes_back(counts: Counts) -> Bool:
    """Return for each click sequence whether it goes back up the page anywhere."""
    sequence, before, after = _consecutive_clicks(counts)
    reverse = np.zeros(len(counts.sequence_starts) - 1, bool)
    reverse[sequence[after < before]] = True
    return reverse


def _outcome_shares(counts: Counts) -> dict[str, float]:
    """Return the shares of clicks with a known outcome, and with a conversion."""
    if counts.outcomes is None:
        return {}
    totals = counts.outcomes.totals
    n_known = totals.sum() - totals[UNKNOWN_OUTCOME]
    n_tracked = totals[NO_CONVERSION:].sum()
    return {
        "outcome_share": _ratio(float(n_known), float(totals.sum())),
        "conversion_share": _ratio(float(totals[CONVERSION]), float(n_tracked)),
    }


def _first_clicks(counts: Counts) -> tuple[float, ...]:
    has_click = np.diff(counts.sequence_starts) > 0
    first = counts.sequence_clicks[counts.sequence_starts[:-1][has_click]]
    weight = counts.per_sequence()[has_click]
    sessions = np.bincount(first, weight, minlength=counts.max_ads + 1)[1:]
    return tuple((sessions / max(sessions.sum(), 1e-300)).tolist())


def _distances(counts: Counts) -> dict[int, float]:
    sequence, before, after = _consecutive_clicks(counts)
    moves, where = np.unique(after - before, return_inverse=True)
    sessions = np.bincount(where, counts.per_sequence()[sequence], minlength=len(moves))
    return {
        int(move): float(share)
        for move, share in zip(moves, sessions / max(sessions.sum(), 1e-300), strict=True)
    }


def _page_lengths(counts: Counts) -> dict[int, float]:
    shares = counts.lengths.sum(axis=1) / max(counts.total, 1e-300)
    return {n: float(share) for n, share in enumerate(shares) if share > 0}


def _by_volume(counts: Counts) -> tuple[VolumeProfile, ...]:
    """Make Table 1. The volume counts all sessions of a query, the shares its clicked sessions."""
    bucket = volume_bucket(counts.volumes)
    number = np.minimum(np.diff(counts.sequence_starts)[counts.visit_sequence], 4)
    table = np.zeros((len(VOLUME_LIMITS), 5))
    np.add.at(table, (bucket[counts.visit_query], number), counts.sessions)
    click_table = table[:, 1:]
    sums = click_table.sum(axis=1)
    reference = next((value for value in sums if value > 0), 1.0)
    return tuple(
        VolumeProfile(
            volume=VOLUME_NAMES[b],
            queries=int((bucket == b).sum()),
            sessions=float(sums[b]),
            relative=float(sums[b] / reference),
            shares=tuple((click_table[b] / max(sums[b], 1e-300)).tolist()),
        )
        for b in range(len(VOLUME_LIMITS))
    )


def _totals_text(profile: LogProfile) -> str:
    rows = [
        ("sessions", f"{profile.sessions:,.0f}", f"{profile.clicked_share:.1%} with a click"),
        ("queries", f"{profile.queries:,}", ""),
        ("ads", f"{profile.ads:,}", f"{profile.pairs:,} (query, ad) pairs"),
        ("impressions", f"{profile.impressions:,.0f}", ""),
        (
            "clicks",
            f"{profile.clicks:,.0f}",
            f"{_ratio(profile.clicks, profile.impressions):.1%} of impressions",
        ),
        (
            "multi-click",
            f"{profile.multi_click_share:.1%}",
            "of clicked sessions have 2 or more clicks",
        ),
        ("reverse", f"{profile.reverse_share:.1%}", "of those go back up the page"),
    ]
    if profile.outcome_share:
        conversions = (
            f"{profile.conversion_share:.1%} of those whose conversions are known have one"
        )
        remark = f"of clicks have a known outcome; {conversions}"
        rows.append(("outcomes", f"{profile.outcome_share:.1%}", remark))
    return "\n".join(f"{name:<12} {value:>14}  {remark}".rstrip() for name, value, remark in rows)


def _volumes_text(profile: LogProfile) -> str:
    head = (
        f"{'volume':>9} {'queries':>9} {'clicked':>11} {'relative':>8} "
        f"{'1 click':>8} {'2':>7} {'3':>7} {'4+':>7}"
    )
    rows = [
        f"{row.volume:>9} {row.queries:>9,} {row.sessions:>11,.0f} {row.relative:>8.2f} "
        f"{row.shares[0]:>8.2%} {row.shares[1]:>7.2%} {row.shares[2]:>7.2%} {row.shares[3]:>7.2%}"
        for row in profile.by_volume
        if row.queries
    ]
    return "\n".join(
        ["Clicked sessions by query volume and number of clicks (Table 1)", head, *rows]
    )


def _first_clicks_text(profile: LogProfile) -> str:
    return _bars(
        "First clicks by position (Table 2)",
        {str(n): share for n, share in enumerate(profile.first_clicks, 1)},
    )


def _distances_text(profile: LogProfile) -> str:
    if not profile.distances:
        return "Distance between consecutive clicks (Figure 1)\n  no session has two clicks"
    return _bars(
        "Distance between consecutive clicks (Figure 1), negative = back up the page",
        {f"{move:+d}": share for move, share in sorted(profile.distances.items())},
    )


def _lengths_text(profile: LogProfile) -> str:
    return _bars("Ads on a page", {str(n): share for n, share in profile.page_lengths.items()})


def _bars(title: str, shares: dict[str, float]) -> str:
    """Draw a plot as text: one bar per share, of which the longest fills the width."""
    top = max([*shares.values(), 1e-300])
    lines = (
        f"{label:>5} {share:>7.2%} {'█' * round(BAR_WIDTH * share / top)}".rstrip()
        for label, share in shares.items()
    )
    return "\n".join([title, *lines])
