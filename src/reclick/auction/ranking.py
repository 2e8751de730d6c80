"""The best page: which ads, in which order, maximise clicks, satisfaction or value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reclick.auction.candidates import Candidates, check_candidates, look_up_candidates
from reclick.auction.slates import open_search
from reclick.data.batch import Float64
from reclick.errors import CannotAnswerError, SettingError
from reclick.models.base import ClickModel
from reclick.runtime.arguments import check_arguments

Objective = str | Mapping[str, Any]
OBJECTIVES = ("clicks", "satisfaction")


@dataclass(frozen=True, slots=True, eq=False)
class BestPage:
    """The best page for a query."""

    query: str
    ads: tuple[str, ...]  # top first
    expected_clicks: Float64  # [position]
    satisfaction: float  # P(the session ends satisfied), nan if the model has none
    value: float  # of the objective
    objective: str  # "clicks", "satisfaction" or "value"
    exact: bool = True  # no other page of these ads has a higher value

    def __str__(self) -> str:
        rows = [
            f"{position:>4}  {clicks:.4f}  {ad}"
            for position, (ad, clicks) in enumerate(
                zip(self.ads, self.expected_clicks, strict=True), start=1
            )
        ]
        head = f"{self.query}: expected {self.objective} {self.value:.4f}"
        return "\n".join([head, " pos  clicks  ad", *rows])


@check_arguments
def best_page(
    model: ClickModel,
    query: str,
    ads: Sequence[str],
    *,
    slots: int = 4,
    objective: Objective = "clicks",
    text: object = None,
) -> BestPage:
    """Find the ads, in order, that maximise expected clicks, satisfaction or value of a page.

    The page has `slots` ads, or all ads if there are fewer. The objective is "clicks",
    "satisfaction" (the probability that the session ends satisfied) or {"value": values}, with the
    value of a click on each ad: {ad: value}, or a list in the order of the ads. The result is the
    exact maximum; if that would take too long, the function raises an error that reports how many
    ads it can take. Among equally good pages, the choice is always the same. `text` is an ads table
    with the text of ads that are new to the model.

    >>> from reclick.models import MultiClick
    >>> log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[2], [2], [2, 3], []]}
    >>> best_page(MultiClick().fit(log), "q", ["a", "b", "c"], slots=2).ads
    ('c', 'b')
    """
    candidate_set = check_candidates(query, ads)
    name, value, weight = check_objective(model, objective, candidate_set.ads)
    (candidates,) = look_up_candidates(model, [candidate_set], slots=slots, text=text)
    return find_best_page(candidates, name, value, weight)


def find_best_page(
    candidates: Candidates, objective: str, value: Float64, satisfaction_weight: float
) -> BestPage:
    """Find the best page of the candidates, by value [ad] per click and λ P(satisfied)."""
    best = open_search(candidates).find_best(value, satisfaction_weight)
    return BestPage(
        candidates.query,
        tuple(candidates.ads[ad] for ad in best.ads),
        best.clicks,
        best.satisfaction,
        best.objective,
        objective,
    )


def check_objective(
    model: ClickModel, objective: Objective, ads: Sequence[str]
) -> tuple[str, Float64, float]:
    """Check an objective: its name, the value per click of each ad, and of a satisfied session."""
    if objective == "clicks":
        return "clicks", np.ones(len(ads)), 0.0
    if objective == "satisfaction":
        if not model.satisfaction:
            raise CannotAnswerError(
                f"{type(model).__name__} does not estimate satisfaction. Use "
                "LuceClick, MultiClick, DBN or SDBN, or the objective 'clicks'."
            )
        return "satisfaction", np.zeros(len(ads)), 1.0
    if not isinstance(objective, Mapping) or set(objective) != {"value"}:
        expected = "'clicks', 'satisfaction' or {'value': {ad: value of a click}}"
        raise SettingError("objective", objective, expected)
    return "value", _check_values(objective["value"], ads), 0.0


def _check_values(values: object, ads: Sequence[str]) -> Float64:
    """Check the value of a click on each ad."""
    if isinstance(values, Mapping):
        missing = [ad for ad in ads if ad not in values]
        if missing:
            raise SettingError(
                "objective", values, f"a value for every ad; {missing[0]!r} has none"
            )
        values = [values[ad] for ad in ads]
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(0, np.nan)
    if numbers.shape != (len(ads),) or not np.all(np.isfinite(numbers) & (numbers >= 0)):
        expected = "one value per ad, each a number of 0 or more"
        raise SettingError("objective", values, expected)
    return numbers
