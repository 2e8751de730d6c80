"""What an evaluation found: tables of scores, differences and curves, and all that is needed to read and to repeat them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.profile import Portrait
from reclick.report import markdown, render, text, write_html
from reclick.runtime.atomic_write import write_files


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of every model, how far they differ, and what they were measured on. The report is made from nothing else."""

    scores: pa.Table  # model, metric, sessions, volume, value, deviation, low, high, support
    differences: pa.Table  # model, against, metric, sessions, volume, difference, low, high
    curves: pa.Table  # model, curve, x, y, low, high, support
    portrait: Portrait  # of the test log
    details: Mapping[str, Any]  # logs, models, settings: plain values

    def value(
        self, model: str, metric: str, *, sessions: str = "all", volume: str = "all"
    ) -> float | None:
        """One score; None where the model cannot answer."""
        asked = {"model": model, "metric": metric, "sessions": sessions, "volume": volume}
        rows = [
            row["value"]
            for row in self.scores.to_pylist()
            if all(row[name] == value for name, value in asked.items())
        ]
        if not rows:
            known = ", ".join(
                f"{name}: {', '.join(self.scores[name].unique().to_pylist())}" for name in asked
            )
            raise KeyError(f"no score of {asked}. There are {known}.")
        return rows[0] if rows[0] is None else float(rows[0])

    def to_html(self, path: str | Path) -> Path:
        """Write the report: one HTML file that needs nothing else."""
        return write_html(self, path)

    def to_markdown(self) -> str:
        """The main tables as Markdown."""
        return markdown(self.scores, self.differences, self.portrait, self.details)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the tables as Parquet, the rest as JSON, and the report as Markdown and HTML; each file appears when it is whole."""
        tables = {
            "scores.parquet": self.scores,
            "differences.parquet": self.differences,
            "curves.parquet": self.curves,
        }
        known = (
            json.dumps(
                {"portrait": self.portrait.to_dict(), "details": self.details},
                indent=2,
                ensure_ascii=False,
            )
            + "\n"
        )
        html = render(self.scores, self.differences, self.curves, self.portrait, self.details)
        pages = {"evaluation.json": known, "report.md": self.to_markdown(), "report.html": html}
        writers = {
            name: partial(pq.write_table, table, compression="zstd")
            for name, table in tables.items()
        }
        return write_files(
            Path(folder),
            {
                **writers,
                **{
                    name: partial(Path.write_text, data=page, encoding="utf-8")
                    for name, page in pages.items()
                },
            },
        )

    def __str__(self) -> str:
        """The main metrics, a row a model, and who is best at what."""
        return text(self.scores, self.differences, self.portrait, self.details)

    def __repr__(self) -> str:
        models = ", ".join(self.scores["model"].unique().to_pylist())
        return f"Evaluation({models} on {self.portrait.sessions:,.0f} sessions, {len(self.scores):,} scores)"
