"""Sentences of the summary."""

from __future__ import annotations

from reclick.report.data import ReportData, build_report_data
from reclick.report.sections.headline import HEADLINES, describe, explain_intervals, summarise
from tests.support.report_data import (
    InventedEvaluation,
    invented_evaluation,
    with_differences,
    with_scores,
)

FIRST = HEADLINES[0]
METRIC = "first_click_accuracy"


def report_data(evaluation: InventedEvaluation) -> ReportData:
    return build_report_data(evaluation)


def three(first: float, second: float, third: float) -> InventedEvaluation:
    """MultiClick, DBN and ICM with these first-click accuracies, without intervals."""
    none = {"low": None, "high": None}
    values = {
        ("MultiClick", METRIC): {"value": first, **none},
        ("DBN", METRIC): {"value": second, **none},
        ("ICM", METRIC): {"value": third, **none},
    }
    return with_scores(
        invented_evaluation(("MultiClick", "DBN", "ICM")).select(metric=METRIC), values
    )


def test_the_best_is_named_with_the_next() -> None:
    evaluation = with_differences(
        three(0.8, 0.75, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.05, 0.04, 0.06),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    text = describe(report_data(evaluation), FIRST)
    assert (
        text == "MultiClick is best, 80.00\u00a0%. Next is DBN, 5.00\u00a0points behind MultiClick"
        " [4.00,\u00a06.00]."
    )
    assert (
        summarise(report_data(evaluation))
        == "Of one metric, MultiClick is significantly best on one."
    )


def test_a_difference_whose_interval_includes_0_is_a_tie() -> None:
    evaluation = with_differences(
        three(0.8, 0.79, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.01, -0.01, 0.03),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    text = describe(report_data(evaluation), FIRST)
    assert text.startswith(
        "A tie: MultiClick has 80.00\u00a0%, and DBN (79.00\u00a0%) is not significantly different."
        " Next is ICM, 10.00\u00a0points"
    )
    assert "is tied for best on one" in summarise(report_data(evaluation))


def test_when_the_papers_model_is_behind_the_better_models_are_named() -> None:
    differences = [
        ("DBN", "MultiClick", METRIC, 0.1, 0.08, 0.12),
        ("ICM", "DBN", METRIC, -0.05, -0.06, -0.04),
    ]
    evaluation = with_differences(three(0.7, 0.8, 0.75), differences)
    text = describe(report_data(evaluation), FIRST)
    assert text.startswith(
        "DBN is best, 80.00\u00a0%. Next is ICM, 5.00\u00a0points behind DBN [4.00,\u00a06.00]."
    )
    assert text.endswith(
        "MultiClick is third of three, 10.00\u00a0points behind DBN [8.00,\u00a012.00]."
    )
    assert summarise(report_data(evaluation)) == (
        "Of one metric, MultiClick is significantly best on none and is worse than the best on one."
        " It is behind DBN on the first click. Others that are significantly best: DBN on one."
    )


def test_equal_values_are_equal_whatever_the_order_of_the_models() -> None:
    evaluation = with_differences(
        three(0.8, 0.8, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.0, 0.0, 0.0),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    assert describe(report_data(evaluation), FIRST).startswith(
        "MultiClick and DBN are equal and best, 80.00\u00a0%."
    )
    assert "is tied for best on one" in summarise(report_data(evaluation))


def test_a_lower_value_wins_where_lower_is_better_and_the_margin_is_positive() -> None:
    text = describe(
        report_data(invented_evaluation()),
        next(headline for headline in HEADLINES if headline.key.metric == "perplexity"),
    )
    assert text.startswith("UBM is best, 1.1871 [")
    assert "Next is MultiClick, 0.0061 behind UBM [0.00" in text


def test_models_that_assign_zero_probability_are_named() -> None:
    text = describe(
        report_data(invented_evaluation()),
        next(headline for headline in HEADLINES if headline.key.metric == "log_likelihood"),
    )
    assert text.endswith(
        "DBN, ICM, PM, AM and UBM assign zero probability to observed sessions (−∞)."
    )
    everyone = {
        (model, "log_likelihood"): {"value": float("-inf"), "low": None, "high": None}
        for model in ("MultiClick",)
    }
    text = describe(
        report_data(with_scores(invented_evaluation(), everyone)),
        next(headline for headline in HEADLINES if headline.key.metric == "log_likelihood"),
    )
    assert text == "Every model assigns zero probability to some observed session: −∞."


def test_models_whose_order_of_clicks_is_learnt_are_named() -> None:
    evaluation = invented_evaluation()
    for model, about in evaluation.details["models"].items():
        about["ordered"] = model not in ("DBN", "UBM")
    headline = next(each for each in HEADLINES if each.key.metric == "log_likelihood")
    text = describe(report_data(evaluation), headline)
    assert text.endswith("DBN and UBM have the order of clicks from a table learnt in training.")


def test_the_recommended_model_comes_first() -> None:
    evaluation = invented_evaluation(("Alpha", "Beta", "Gamma"))
    text = summarise(report_data(evaluation))
    assert text.startswith("Of 13 metrics, Alpha is significantly best on ")
    evaluation.details["recommended"] = "Beta"
    assert summarise(report_data(evaluation)).startswith("Of 13 metrics, Beta is ")


def test_the_explanation_has_level_and_resamples() -> None:
    text = explain_intervals(report_data(invented_evaluation()))
    assert "95% intervals of 1,000 bootstrap resamples" in text
    assert "of 20 comparisons" in text
    assert explain_intervals(report_data(invented_evaluation(("PM",)))) == ""
