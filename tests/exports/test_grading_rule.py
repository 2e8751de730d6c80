"""Cut points and grades."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from reclick.cli.model_commands import export as export_command
from reclick.errors import SettingError
from reclick.exports import export, judgments
from reclick.exports.request import GradingRule


def test_a_value_that_reaches_a_cut_point_is_above_it() -> None:
    values = np.array([0.0, 0.0999, 0.1, 0.2, 0.5, 1.0])
    assert GradingRule(cuts=(0.1, 0.5)).grade(values, (0.1, 0.5)).tolist() == [0, 0, 1, 1, 2, 2]


def test_quartiles_are_the_quartiles_of_the_values() -> None:
    assert GradingRule().cut_points(np.arange(101) / 100) == pytest.approx((0.25, 0.5, 0.75))
    assert GradingRule(cuts="halves").cut_points(np.array([0.1, 0.3])) == pytest.approx((0.2,))


def test_quantiles_share_the_pairs_evenly_whatever_the_values() -> None:
    values = np.random.default_rng(0).beta(0.3, 5, 10_000)
    for cuts, n in {
        "halves": 2,
        "terciles": 3,
        "quartiles": 4,
        "quintiles": 5,
        "deciles": 10,
    }.items():
        rule = GradingRule(cuts=cuts)
        shares = np.bincount(rule.grade(values, rule.cut_points(values))) / len(values)
        assert shares == pytest.approx(np.full(n, 1 / n), abs=0.001)


def test_equal_values_get_equal_grades_even_at_a_quantile() -> None:
    values = np.array([0.0] * 90 + [0.5] * 10)
    rule = GradingRule()
    assert rule.cut_points(values) == (0.0,)
    assert rule.grade(values, rule.cut_points(values)).tolist() == [0] * 90 + [1] * 10


def test_the_graded_value_is_a_column_of_relevance() -> None:
    assert (
        GradingRule().column,
        GradingRule(bound="value").column,
        GradingRule(quantity="attractiveness").column,
    ) == (
        "relevance_low",
        "relevance",
        "attractiveness_low",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cuts": (0.5, 0.1)}, r"cuts: got \(0\.5, 0\.1\), expected increasing numbers"),
        ({"cuts": (0.1, 0.1)}, "increasing numbers"),
        ({"cuts": ()}, "increasing numbers"),
        ({"cuts": (0.1, float("nan"))}, "increasing numbers"),
        ({"cuts": "percentiles"}, "'halves', 'terciles', 'quartiles'"),
        (
            {"quantity": "clicks"},
            "quantity: got 'clicks', expected one of 'relevance', 'attractiveness', 'satisfaction'",
        ),
        ({"bound": "high"}, "bound: got 'high', expected one of 'low', 'value'"),
        ({"min_support": -1}, "min_support: got -1"),
        ({"level": 90}, "level: got 90"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        GradingRule(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ([0.1, 0.5], (0.1, 0.5)),
        ((0, 1), (0.0, 1.0)),
        (np.array([0.25]), (0.25,)),
        ("deciles", "deciles"),
    ],
)
def test_cut_points_may_be_any_sequence_of_numbers(cuts: Any, expected: object) -> None:
    assert GradingRule(cuts=cuts).cuts == expected


@pytest.mark.parametrize("cuts", [0.5, {"a": 1}, ["x"], [True], None])
def test_cut_points_that_are_no_numbers_are_refused(cuts: Any) -> None:
    with pytest.raises(SettingError, match="cuts: got"):
        GradingRule(cuts=cuts)


@pytest.mark.parametrize("function", [judgments, export, export_command])
def test_the_options_of_a_rule_are_those_of_every_function_and_of_the_command(
    function: Callable[..., object],
) -> None:
    rule = {each.name: each.default for each in fields(GradingRule)}
    options = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    assert options.items() >= rule.items()
