"""A market that is made up: queries, ads of real words, an auction, and users of several kinds whose clicks no model of Reclick describes.

What is true of it is known, and saved beside the log. docs/simulation.md tells how it works and how it compares with the paper's figures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reclick.runtime.filesystem import AnyPath, Location, as_path, write_files
from reclick.simulation import labels as editors
from reclick.simulation.files import refuse_other_weeks
from reclick.simulation.market import make_market
from reclick.simulation.settings import Settings
from reclick.simulation.truth import Truth, make_truth, name_pairs
from reclick.simulation.weeks import draw_week

__all__ = ["Simulation", "Truth", "simulate"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """Weeks of sessions, the ads shown in them, what editors say, and the truth behind all."""

    weeks: list[pa.Table]  # session_id, timestamp, query, ads, clicks
    ads: pa.Table  # ad, title, description, display_url
    labels: pa.Table  # query, ad, relevance 0 … 4
    truth: Truth

    def save(self, folder: Location) -> list[AnyPath]:
        """Write week1.parquet …, ads.parquet, labels.parquet, truth*.parquet and truth.json, each whole or not at all, and return their paths.

        >>> simulate(100, queries=5).save("market")  # doctest: +SKIP
        """
        refuse_other_weeks(as_path(folder), len(self.weeks))
        writers = {
            name: partial(pq.write_table, table, compression="zstd")
            for name, table in self._tables().items()
        }
        text = (
            json.dumps({**self.truth.settings, "users": self.truth.users}, indent=2, default=int)
            + "\n"
        )
        return write_files(
            folder, {**writers, "truth.json": lambda path: path.write_text(text, encoding="utf-8")}
        )

    def _tables(self) -> dict[str, pa.Table]:
        weeks = {f"week{number}.parquet": week for number, week in enumerate(self.weeks, start=1)}
        truth = {
            f"truth_{name}.parquet": getattr(self.truth, name)
            for name in ("words", "brands", "queries", "sessions")
        }
        return {
            **weeks,
            "ads.parquet": self.ads,
            "labels.parquet": self.labels,
            "truth.parquet": self.truth.pairs,
            **truth,
        }


def simulate(
    sessions: int = 100_000,
    *,
    weeks: int = 3,
    queries: int | None = None,
    ads_per_query: int = 12,
    page: tuple[int, int] = (1, 4),
    bots: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """Draw `sessions` sessions for each of `weeks` weeks, on pages of page[0] to page[1] ads; the same seed gives the same bytes.

    >>> market = simulate(1_000, weeks=2, queries=20, seed=7)
    >>> [len(week) for week in market.weeks]
    [1000, 1000]
    """
    settings = Settings(sessions, weeks, queries, ads_per_query, page, bots, seed)
    rng = np.random.default_rng([seed, 0])
    market = make_market(settings, rng)
    impressions = np.zeros(market.pool.shape, np.int64)  # [query, place]
    drawn = [draw_week(market, settings, week, impressions) for week in range(weeks)]
    tables, kinds = [table for table, _ in drawn], [kind for _, kind in drawn]
    shown, judged = np.flatnonzero(impressions), editors.choose(impressions.reshape(-1), rng)
    graded = editors.label(name_pairs(market, judged), market.worth.reshape(-1)[judged], rng)
    return Simulation(
        tables, market.ads, graded, make_truth(market, settings, shown, tables, kinds)
    )
