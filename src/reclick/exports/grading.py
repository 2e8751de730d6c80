"""How pairs are graded: a value of the posterior, the cut points on it, and the support that a pair must have."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from reclick.data.batch import Float64, Int32
from reclick.errors import SettingError
from reclick.models.settings import check_choice, check_range

VALUES = ("relevance", "attractiveness", "satisfaction")
BOUNDS = {"low": "_low", "value": ""}  # which figure is graded, and what its column's name ends in
QUANTILES = {
    "halves": 2,
    "terciles": 3,
    "quartiles": 4,
    "quintiles": 5,
    "deciles": 10,
}  # cut points that the log itself gives: equal shares

Function = TypeVar("Function", bound=Callable[..., Any])


class Grading(TypedDict, total=False):
    """How to grade, as the options of `judgments` and `export`: the fields of a rule, whose defaults hold for what is left out."""

    cuts: object
    by: str
    bound: str
    min_support: float
    level: float


@dataclass(frozen=True, slots=True)
class Rule:
    """A pair is graded when it was shown `min_support` times or more, by how many cut points its figure reaches.

    The figure is the lower end of the interval: 1 click of 1 has a high rate and a low lower end. Of a model whose prior makes it sure of what it
    hardly saw, that would not be enough: the support has the last word.

    >>> Rule(cuts=(0.1, 0.5)).grades(np.array([0.05, 0.1, 0.7]), (0.1, 0.5))
    array([0, 1, 2], dtype=int32)
    """

    cuts: str | tuple[float, ...] = "quartiles"
    by: str = "relevance"
    bound: str = "low"
    min_support: float = 10.0
    level: float = 0.9

    @classmethod
    def of(cls, **grading: Unpack[Grading]) -> Rule:
        """The rule that these options make.

        >>> Rule.of(cuts=[0.1, 0.5]).cuts, Rule.of().min_support
        ((0.1, 0.5), 10.0)
        """
        given: dict[str, Any] = {**grading}
        return cls(**given | {"cuts": as_cuts(given["cuts"])} if "cuts" in given else given)

    def __post_init__(self) -> None:
        check_choice("by", self.by, VALUES)
        check_choice("bound", self.bound, tuple(BOUNDS))
        check_range("min_support", self.min_support, 0, math.inf)
        check_range("level", self.level, 1e-6, 1 - 1e-6)
        if not (isinstance(self.cuts, str) and self.cuts in QUANTILES):
            _check_cuts(self.cuts)

    @property
    def figure(self) -> str:
        """The column that is graded."""
        return f"{self.by}{BOUNDS[self.bound]}"

    def cut_points(self, figures: Float64) -> tuple[float, ...]:
        """The cut points as numbers: those given, or the quantiles of the figures of the pairs that were clicked."""
        if not isinstance(self.cuts, str):
            return self.cuts
        parts = QUANTILES[self.cuts]
        return tuple(np.unique(np.quantile(figures, np.arange(1, parts) / parts)).tolist())

    def grades(self, figures: Float64, cut_points: Sequence[float]) -> Int32:
        """How many cut points each figure reaches, from 0 [pair]; quantiles it must pass, so that pairs that are all alike are all at the bottom."""
        cuts = np.asarray(cut_points, np.float64)
        reached = (
            np.searchsorted(cuts, figures, side="left")
            if isinstance(self.cuts, str)
            else np.searchsorted(cuts, figures, side="right")
        )
        return reached.astype(np.int32)

    def supported(self, impressions: Float64) -> npt.NDArray[np.bool_]:
        """Which pairs were shown often enough [pair]."""
        return np.asarray(impressions >= self.min_support)

    @property
    def unsupported(self) -> str:
        """Why a pair is left out."""
        return f"shown less than {self.min_support:g} time{'s' * (self.min_support != 1)}"


def takes_grading(function: Function) -> Function:
    """Show the options of a rule and their defaults in the signature of a function that takes them, as help() and notebooks read it."""
    own = inspect.signature(function)
    named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
        )
        for each in fields(Rule)
    ]
    function.__signature__ = own.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]  # inspect looks for it
    return function


def as_cuts(given: object) -> str | tuple[float, ...]:
    """Cut points as a rule keeps them: the name of quantiles, or a tuple of numbers.

    >>> as_cuts([0.1, 0.5]), as_cuts("quartiles")
    ((0.1, 0.5), 'quartiles')
    """
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        return given  # type: ignore[return-value]  # a rule refuses what makes no sense
    return tuple(
        float(cut)
        if isinstance(cut, int | float | np.number) and not isinstance(cut, bool)
        else cut
        for cut in given
    )


def _check_cuts(cuts: object) -> None:
    numbers = (
        isinstance(cuts, tuple)
        and bool(cuts)
        and all(isinstance(cut, float) and math.isfinite(cut) for cut in cuts)
    )
    if not (isinstance(cuts, tuple) and numbers and list(cuts) == sorted(set(cuts))):
        example = "cuts=(0.05, 0.2, 0.5) (on the command line 0.05,0.2,0.5)"
        raise SettingError(
            f"cuts: got {cuts!r}, expected numbers that grow, such as {example}, or one of {', '.join(map(repr, QUANTILES))}."
        )
