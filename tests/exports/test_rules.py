"""Cut points and grades."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

from reclick.cli.export_commands import export as export_command
from reclick.errors import SettingError
from reclick.exports import export, judgments
from reclick.exports.grading import Grading, Rule, as_cuts


def test_a_figure_that_reaches_a_cut_point_is_above_it() -> None:
    figures = np.array([0.0, 0.0999, 0.1, 0.2, 0.5, 1.0])
    assert Rule(cuts=(0.1, 0.5)).grades(figures, (0.1, 0.5)).tolist() == [0, 0, 1, 1, 2, 2]


def test_quartiles_are_the_quartiles_of_the_figures() -> None:
    assert Rule().cut_points(np.arange(101) / 100) == pytest.approx((0.25, 0.5, 0.75))
    assert Rule(cuts="halves").cut_points(np.array([0.1, 0.3])) == pytest.approx((0.2,))


def test_quantiles_share_the_pairs_evenly_whatever_the_figures() -> None:
    figures = np.random.default_rng(0).beta(0.3, 5, 10_000)
    for cuts, many in {
        "halves": 2,
        "terciles": 3,
        "quartiles": 4,
        "quintiles": 5,
        "deciles": 10,
    }.items():
        rule = Rule(cuts=cuts)
        shares = np.bincount(rule.grades(figures, rule.cut_points(figures))) / len(figures)
        assert shares == pytest.approx(np.full(many, 1 / many), abs=0.001)


def test_equal_figures_get_equal_grades_even_at_a_quantile() -> None:
    figures = np.array([0.0] * 90 + [0.5] * 10)
    rule = Rule()
    assert rule.cut_points(figures) == (0.0,)
    assert rule.grades(figures, rule.cut_points(figures)).tolist() == [0] * 90 + [1] * 10


def test_the_figure_is_a_column_of_relevance() -> None:
    assert (Rule().figure, Rule(bound="value").figure, Rule(by="attractiveness").figure) == (
        "relevance_low",
        "relevance",
        "attractiveness_low",
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cuts": (0.5, 0.1)}, r"cuts: got \(0\.5, 0\.1\), expected numbers that grow"),
        ({"cuts": (0.1, 0.1)}, "numbers that grow"),
        ({"cuts": ()}, "numbers that grow"),
        ({"cuts": (0.1, float("nan"))}, "numbers that grow"),
        ({"cuts": "percentiles"}, "'halves', 'terciles', 'quartiles'"),
        (
            {"by": "clicks"},
            "by: got 'clicks', expected one of 'relevance', 'attractiveness', 'satisfaction'",
        ),
        ({"bound": "high"}, "bound: got 'high', expected one of 'low', 'value'"),
        ({"min_support": -1}, "min_support: got -1"),
        ({"level": 90}, "level: got 90"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        Rule(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([0.1, 0.5], (0.1, 0.5)),
        ((0, 1), (0.0, 1.0)),
        (np.array([0.25]), (0.25,)),
        ("deciles", "deciles"),
    ],
)
def test_cut_points_may_be_given_as_any_sequence_of_numbers(given: object, kept: object) -> None:
    assert as_cuts(given) == kept


@pytest.mark.parametrize("given", [0.5, {"a": 1}, ["x"], [True], None])
def test_cut_points_that_are_no_numbers_are_refused(given: object) -> None:
    with pytest.raises(SettingError, match="cuts: got"):
        Rule(cuts=as_cuts(given))


@pytest.mark.parametrize("function", [judgments, export, export_command])
def test_the_options_of_a_rule_are_those_of_every_function_and_of_the_command(
    function: Callable[..., object],
) -> None:
    rule = {each.name: each.default for each in fields(Rule)}
    shown = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    assert shown.items() >= rule.items()
    assert "grading" not in shown
    assert list(Grading.__annotations__) == list(rule)


def test_an_unknown_option_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="min_suport"):
        Rule.of(min_suport=3)  # type: ignore[call-arg]
