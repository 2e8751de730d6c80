"""What each metric is called, which way is better, and how its values are written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from reclick.metrics import LABEL_METRICS, SESSION_METRICS, About

DASH = "–"  # the model cannot answer
MINUS_INFINITY = "−∞"
SEQUENCES = "it gives no probabilities of click sequences"
PROBABILITIES = "it gives no click probabilities"
RELEVANCE = "it gives no relevance of an ad"


class Form(NamedTuple):
    """How a family of metrics is written; {k} is what stands after the @ of a name."""

    head: str  # of a column
    why: str  # a model may have no answer
    digits: int = 4
    percent: bool = False


FORMS = {
    "first_click_accuracy": Form("first click", SEQUENCES, 2, True),
    "sequence_accuracy": Form("{k} clicks", SEQUENCES, 2, True),
    "rank": Form("{k} clicks", SEQUENCES, 2),
    "top_accuracy": Form("top {k}", SEQUENCES, 2, True),
    "perplexity": Form("perplexity", PROBABILITIES),
    "conditional_perplexity": Form("conditional perplexity", SEQUENCES),
    "log_likelihood": Form("in order", SEQUENCES),
    "log_set_likelihood": Form("in any order", SEQUENCES),
    "impossible": Form("impossible", SEQUENCES, 2, True),
    "calibration_error": Form("calibration error", PROBABILITIES),
    "pr_auc": Form("PR-AUC", RELEVANCE),
    "roc_auc": Form("ROC-AUC", RELEVANCE),
    "ndcg": Form("NDCG@{k}", RELEVANCE),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """How a metric is shown."""

    title: str
    better: str
    about: str
    head: str  # of a column
    why: str  # a model may have no answer
    digits: int
    percent: bool


@cache
def shown(metric: str) -> Shown:
    """How a metric is shown; one nobody told us of under its own name.

    >>> shown("rank@3").title, shown("rank@1").head
    ('Rank, 3 clicks', '1 click')
    """
    known: About = {**SESSION_METRICS, **LABEL_METRICS}.get(metric) or About(
        metric, metric, "higher", ""
    )
    family, _, k = metric.partition("@")
    form = FORMS.get(family, Form(metric, "it gives no answer"))
    head = (
        f"position {k}"
        if family == "perplexity" and k
        else form.head.replace("{k}", k).replace("1 clicks", "1 click")
    )
    return Shown(known.title, known.better, known.about, head, form.why, form.digits, form.percent)


def written(value: float | None, metric: str) -> str:
    """A value as text: percent without the sign, a true minus, a dash for no answer.

    >>> written(0.36714, "sequence_accuracy@2"), written(None, "perplexity"), written(float("-inf"), "log_likelihood")
    ('36.71', '–', '−∞')
    """
    if value is None:
        return DASH
    known = shown(metric)
    return signed(value * (100 if known.percent else 1), known.digits)


def signed(value: float, digits: int) -> str:
    """A number with a true minus sign, and no minus zero."""
    if math.isinf(value):
        return "∞" if value > 0 else MINUS_INFINITY
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def with_unit(value: float | None, metric: str) -> str:
    """A value as it stands in a sentence."""
    return written(value, metric) + (
        "\u00a0%" if shown(metric).percent and value is not None else ""
    )


def interval(low: float | None, high: float | None, metric: str) -> str:
    """An interval, or nothing where there is none.

    >>> interval(0.00003, 0.0024, "calibration_error").split()
    ['[0.00003,', '0.0024]']
    """
    return (
        "" if low is None or high is None else f"[{_end(low, metric)},\u00a0{_end(high, metric)}]"
    )


def _end(value: float, metric: str) -> str:
    """An end of an interval: with another digit where it would be written as 0 and is not, for 0 would be a tie."""
    text, known = written(value, metric), shown(metric)
    if value == 0 or any(digit in text for digit in "123456789∞"):
        return text
    return signed(value * (100 if known.percent else 1), known.digits + 1)


def margin(difference: float, metric: str) -> str:
    """How far two values are apart, without saying which way."""
    text = written(abs(difference), metric)
    if not shown(metric).percent:
        return text
    return f"{text}\u00a0point" + ("" if text == "1.00" else "s")


def amount(value: float) -> str:
    """A count, whole where it is whole.

    >>> amount(98304.0), amount(2.5)
    ('98,304', '2.5')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def share(value: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * value:.{digits}f}\u00a0%"


def listing(names: list[str], last: str = "and") -> str:
    """Names in a sentence.

    >>> listing(["UBM", "DBN", "PM"])
    'UBM, DBN and PM'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


NUMBERS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
ORDINALS = (
    "",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
)


def in_words(number: int) -> str:
    """A small number as a word."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def ordinal(number: int) -> str:
    """A small ordinal as a word."""
    return ORDINALS[number] if number < len(ORDINALS) else f"number {number}"
