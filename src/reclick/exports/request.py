"""What an export is asked for, and what it says when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reclick.exports.grading import Rule
from reclick.exports.judgment_table import Judged
from reclick.logs.files.source import OnError
from reclick.models.base import ClickModel
from reclick.runtime.progress import Progress


@dataclass(frozen=True)
class Job:
    """One export: of which model, to which file, and how."""

    model: ClickModel
    to: Path
    rule: Rule = field(default_factory=Rule)
    pairs: object = None
    features: object = None
    log: object = None
    name: str | None = None
    on_error: OnError = "raise"
    progress: Progress | None = None

    def judged(self) -> Judged:
        """The pairs with their grades."""
        return Judged(self.model, self.pairs, self.rule, progress=self.progress)


@dataclass(frozen=True)
class Exported:
    """What was written: the files, how many rows, which grades by which cut points, and what was left out and why."""

    files: tuple[Path, ...]
    rows: int
    format: str = ""
    queries: int = 0  # with a judged pair
    grades: dict[int, int] = field(default_factory=dict)  # grade → pairs
    cuts: tuple[float, ...] = ()
    figure: str = ""  # the column that the cut points are on
    left_out: dict[str, int] = field(default_factory=dict)  # reason → pairs
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, judged: Judged, files: Iterable[Path], *notes: str) -> Exported:
        """What to say of judgments that were written; empty notes are none."""
        return cls(
            files=tuple(files),
            rows=len(judged),
            queries=judged.queries,
            grades={grade: judged.grades[grade] for grade in range(len(judged.cuts) + 1)},
            cuts=judged.cuts,
            figure=judged.rule.figure,
            left_out=dict(judged.left_out),
            notes=tuple(filter(None, notes)),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.format}: {self.rows:,} "
            + (f"pairs, {self.queries:,} queries" if self.grades else "positions")
        ]
        if self.grades:
            lines.append(
                "grades         "
                + "   ".join(f"{grade}: {many:,}" for grade, many in self.grades.items())
            )
            lines.append(
                "cut points     "
                + ", ".join(f"{cut:.4g}" for cut in self.cuts)
                + f" on {self.figure}"
            )
        lines += [
            f"left out       {many:,} pairs {reason}" for reason, many in self.left_out.items()
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes), *map(str, self.files)])
