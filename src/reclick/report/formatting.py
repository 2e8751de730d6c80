"""Titles of metrics, and the formats of values, intervals, counts and names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from reclick.metrics import LABEL_METRICS, SESSION_METRICS, MetricInfo

DASH = "–"  # the model has no value
MINUS_INFINITY = "−∞"
NO_SEQUENCES = "it has no probabilities of click sequences"
NO_PROBABILITIES = "it has no click probabilities"
NO_RELEVANCE = "it has no relevance of ads"


class MetricFormat(NamedTuple):
    """The format of a family of metrics; {k} stands for the text after the @ of a name."""

    header: str  # of a column
    missing: str  # why a model may have no value
    digits: int = 4
    percent: bool = False


METRIC_FORMATS = {
    "first_click_accuracy": MetricFormat("first click", NO_SEQUENCES, 2, True),
    "sequence_accuracy": MetricFormat("{k} clicks", NO_SEQUENCES, 2, True),
    "rank": MetricFormat("{k} clicks", NO_SEQUENCES, 2),
    "top_accuracy": MetricFormat("top {k}", NO_SEQUENCES, 2, True),
    "perplexity": MetricFormat("perplexity", NO_PROBABILITIES),
    "conditional_perplexity": MetricFormat("conditional perplexity", NO_SEQUENCES),
    "log_likelihood": MetricFormat("in order", NO_SEQUENCES),
    "log_set_likelihood": MetricFormat("in any order", NO_SEQUENCES),
    "impossible": MetricFormat("zero probability", NO_SEQUENCES, 2, True),
    "calibration_error": MetricFormat("calibration error", NO_PROBABILITIES),
    "click_ratio": MetricFormat("expected / observed clicks", NO_PROBABILITIES, 3),
    "click_number_error": MetricFormat("number of clicks", NO_PROBABILITIES),
    "order_log_likelihood": MetricFormat("in order or not", NO_SEQUENCES),
    "backward_ratio": MetricFormat("expected / observed backward", NO_SEQUENCES, 3),
    "pr_auc": MetricFormat("PR-AUC", NO_RELEVANCE),
    "roc_auc": MetricFormat("ROC-AUC", NO_RELEVANCE),
    "ndcg": MetricFormat("NDCG@{k}", NO_RELEVANCE),
}


@dataclass(frozen=True, slots=True)
class MetricDisplay:
    """How a metric is displayed."""

    title: str
    better: str
    about: str
    header: str  # of a column
    missing: str  # why a model may have no value
    digits: int
    percent: bool


@cache
def display(metric: str) -> MetricDisplay:
    """How a metric is displayed; an unknown one under its own name.

    >>> display("rank@3").title, display("rank@1").header
    ('Rank, 3 clicks', '1 click')
    """
    metric_info = {**SESSION_METRICS, **LABEL_METRICS}.get(metric)
    info: MetricInfo = metric_info or MetricInfo(metric, metric, "higher", "")
    family, _, k = metric.partition("@")
    form = METRIC_FORMATS.get(family, MetricFormat(metric, "it has none"))
    header = form.header.replace("{k}", k).replace("1 clicks", "1 click")
    if family == "perplexity" and k:
        header = f"position {k}"
    return MetricDisplay(
        info.title, info.better, info.about, header, form.missing, form.digits, form.percent
    )


def format_value(value: float | None, metric: str) -> str:
    """A value as text: percent without %, a typographic minus, a dash for a missing value.

    >>> format_value(0.36714, "sequence_accuracy@2"), format_value(None, "perplexity")
    ('36.71', '–')
    >>> format_value(float("-inf"), "log_likelihood")
    '−∞'
    """
    if value is None:
        return DASH
    metric_display = display(metric)
    return format_number(value * (100 if metric_display.percent else 1), metric_display.digits)


def format_number(value: float, digits: int) -> str:
    """A number with a typographic minus; zero never has a minus."""
    if math.isinf(value):
        return "∞" if value > 0 else MINUS_INFINITY
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def format_with_unit(value: float | None, metric: str) -> str:
    """A value with its unit, for a sentence."""
    unit = "\u00a0%" if display(metric).percent and value is not None else ""
    return format_value(value, metric) + unit


def format_interval(low: float | None, high: float | None, metric: str) -> str:
    """An interval, or an empty text if there is none.

    >>> format_interval(0.00003, 0.0024, "calibration_error").split()
    ['[0.00003,', '0.0024]']
    """
    if low is None or high is None:
        return ""
    return f"[{_format_end(low, metric)},\u00a0{_format_end(high, metric)}]"


def _format_end(value: float, metric: str) -> str:
    """An end of an interval, with one more digit if it would be rounded to 0.

    An end that reads 0 would look like a tie.
    """
    text, metric_display = format_value(value, metric), display(metric)
    if value == 0 or any(digit in text for digit in "123456789∞"):
        return text
    return format_number(value * (100 if metric_display.percent else 1), metric_display.digits + 1)


def format_margin(difference: float, metric: str) -> str:
    """The absolute difference of two values."""
    text = format_value(abs(difference), metric)
    if not display(metric).percent:
        return text
    return f"{text}\u00a0point" + ("" if text == "1.00" else "s")


def format_count(value: float) -> str:
    """A count, with a decimal only if it is not a whole number.

    >>> format_count(98304.0), format_count(2.5)
    ('98,304', '2.5')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def format_share(value: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * value:.{digits}f}\u00a0%"


def join_names(names: list[str], last: str = "and") -> str:
    """Names in a sentence.

    >>> join_names(["UBM", "DBN", "PM"])
    'UBM, DBN and PM'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


SMALL_NUMBERS = (
    *("none", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
SMALL_ORDINALS = (
    *("zeroth", "first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)


def spell_number(number: int) -> str:
    """A small number as a word."""
    return SMALL_NUMBERS[number] if number < len(SMALL_NUMBERS) else f"{number:,}"


def spell_ordinal(number: int) -> str:
    """A small ordinal as a word."""
    return SMALL_ORDINALS[number] if number < len(SMALL_ORDINALS) else f"number {number}"
