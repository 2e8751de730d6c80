"""The headline says what the numbers say."""

from __future__ import annotations

from reclick.report.data import Material, gather
from reclick.report.narrative import QUESTIONS, answer, caveat, verdict
from tests.support.report_data import MadeUp, changed, compared, made_up

FIRST = QUESTIONS[0]
METRIC = "first_click_accuracy"


def material(evaluation: MadeUp) -> Material:
    return gather(*evaluation.parts())


def three(first: float, second: float, third: float) -> MadeUp:
    """MultiClick, DBN and ICM with these first-click accuracies and no interval of their own, and nothing else."""
    none = {"low": None, "high": None}
    values = {
        ("MultiClick", METRIC): {"value": first, **none},
        ("DBN", METRIC): {"value": second, **none},
        ("ICM", METRIC): {"value": third, **none},
    }
    return changed(made_up(("MultiClick", "DBN", "ICM")).keeping(metric=METRIC), values)


def test_a_winner_is_named_with_the_one_that_follows() -> None:
    evaluation = compared(
        three(0.8, 0.75, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.05, 0.04, 0.06),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    told = answer(material(evaluation), FIRST)
    assert (
        told
        == "MultiClick is best, 80.00\u00a0%. Next is DBN, 5.00\u00a0points behind MultiClick [4.00,\u00a06.00]."
    )
    assert verdict(material(evaluation)) == "Of one question, MultiClick is best alone in one."


def test_a_difference_whose_interval_includes_0_is_a_tie() -> None:
    evaluation = compared(
        three(0.8, 0.79, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.01, -0.01, 0.03),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    told = answer(material(evaluation), FIRST)
    assert told.startswith(
        "A tie: MultiClick has 80.00\u00a0%, and DBN (79.00\u00a0%) cannot be told from it. Next is ICM, 10.00\u00a0points"
    )
    assert "shares the first place in one" in verdict(material(evaluation))


def test_when_the_papers_model_loses_the_report_says_so_and_to_whom() -> None:
    differences = [
        ("DBN", "MultiClick", METRIC, 0.1, 0.08, 0.12),
        ("ICM", "DBN", METRIC, -0.05, -0.06, -0.04),
    ]
    evaluation = compared(three(0.7, 0.8, 0.75), differences)
    told = answer(material(evaluation), FIRST)
    assert told.startswith(
        "DBN is best, 80.00\u00a0%. Next is ICM, 5.00\u00a0points behind DBN [4.00,\u00a06.00]."
    )
    assert told.endswith(
        "MultiClick is third of three, 10.00\u00a0points behind DBN [8.00,\u00a012.00]."
    )
    assert verdict(material(evaluation)) == (
        "Of one question, MultiClick is best alone in none and is beaten in one. It loses to DBN in the first click. Also best alone: DBN in one."
    )


def test_equal_values_are_equal_whatever_the_order_of_the_models() -> None:
    evaluation = compared(
        three(0.8, 0.8, 0.7),
        [
            ("MultiClick", "DBN", METRIC, 0.0, 0.0, 0.0),
            ("MultiClick", "ICM", METRIC, 0.1, 0.09, 0.11),
        ],
    )
    assert answer(material(evaluation), FIRST).startswith(
        "MultiClick and DBN are equal and best, 80.00\u00a0%."
    )
    assert "shares the first place in one" in verdict(material(evaluation))


def test_a_lower_value_wins_where_lower_is_better_and_the_margin_is_positive() -> None:
    told = answer(
        material(made_up()),
        next(question for question in QUESTIONS if question.at.metric == "perplexity"),
    )
    assert told.startswith("UBM is best, 1.1871 [")
    assert "Next is MultiClick, 0.0061 behind UBM [0.00" in told


def test_models_that_hold_the_possible_for_impossible_are_said_to() -> None:
    told = answer(
        material(made_up()),
        next(question for question in QUESTIONS if question.at.metric == "log_likelihood"),
    )
    assert told.endswith(
        "DBN, ICM, PM, AM and UBM hold sessions that happened for impossible (−∞)."
    )
    everyone = {
        (model, "log_likelihood"): {"value": float("-inf"), "low": None, "high": None}
        for model in ("MultiClick",)
    }
    told = answer(
        material(changed(made_up(), everyone)),
        next(question for question in QUESTIONS if question.at.metric == "log_likelihood"),
    )
    assert told == "Every model that answers holds some session that happened for impossible: −∞."


def test_without_the_papers_model_the_winners_are_still_named() -> None:
    told = verdict(material(made_up(("Alpha", "Beta", "Gamma"))))
    assert told.startswith("Of 13 questions, best alone: Alpha in ")


def test_the_caveat_says_level_and_resamples() -> None:
    told = caveat(material(made_up()))
    assert "95% intervals of 1,000 bootstrap resamples" in told
    assert "of 20 comparisons" in told
    assert caveat(material(made_up(("PM",)))) == ""
