"""The headline and the main tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from reclick.profile import Portrait
from reclick.report.data import Material, gather
from reclick.report.formatting import interval, shown
from reclick.report.html_page import subtitle_of, title_of
from reclick.report.narrative import answer, asked, caveat, verdict
from reclick.report.published import ABOUT, HEAD
from reclick.report.results import At, Results
from reclick.report.sections.other_metrics import LIKELIHOODS
from reclick.report.sections.published_tables import ACCURACY, RANKS
from reclick.report.tables import KEY, MARK, has_theirs, printed, theirs_text, value_text

NO_CURVES = pa.table(
    {
        name: pa.array([], pa.string())
        for name in ("model", "curve", "x", "y", "low", "high", "support")
    }
)
TABLES = (
    ("First click", ("first_click_accuracy",), "all"),
    ("Sequences", ACCURACY[1:5], "all"),
    ("Rank of the sequence, mean ± standard deviation", RANKS, "all"),
    ("Whatever the order", ACCURACY[5:], "all"),
    ("Reverse sessions: sequences", ACCURACY[2:5], "reverse"),
    ("Reverse sessions: rank of the sequence", RANKS[1:], "reverse"),
    ("Reverse sessions: whatever the order", ACCURACY[5:], "reverse"),
    ("Click probabilities", ("perplexity", "calibration_error"), "all"),
    ("Likelihood", LIKELIHOODS, "all"),
    ("Relevance against labels", ("pr_auc", "roc_auc", "ndcg@5", "ndcg@10"), "all"),
)


def markdown(
    scores: pa.Table, differences: pa.Table, portrait: Portrait | None, details: Mapping[str, Any]
) -> str:
    """The headline and the main tables of an evaluation as Markdown."""
    material = gather(scores, differences, NO_CURVES, portrait, details)
    parts = [
        f"# {plain(title_of(material))}",
        plain(subtitle_of(material)),
        plain(verdict(material)),
        plain(caveat(material)),
        _answers(material),
    ]
    tables = [
        text
        for title, metrics, sessions in TABLES
        if (text := _table(material.results, title, metrics, sessions))
    ]
    return "\n\n".join(part for part in (*parts, plain(f"{KEY} {ABOUT}"), *tables) if part) + "\n"


def plain(text: str) -> str:
    r"""A text that Markdown does not take for anything else.

    >>> plain("a|b *c*")
    'a\\|b \\*c\\*'
    """
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _answers(material: Material) -> str:
    return "\n".join(
        f"- **{question.name}.** {plain(answer(material, question))}"
        for question in asked(material.results)
    )


def _table(results: Results, title: str, metrics: Sequence[str], sessions: str) -> str:
    places = [At(metric, sessions) for metric in metrics if results.values(At(metric, sessions))]
    if not places:
        return ""
    heads = ["Model", *(head for at in places for head in _heads(results, at))]
    rows = [
        [plain(model), *(cell for at in places for cell in _cells(results, model, at))]
        for model in results.models
    ]
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(
        [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))]
    )


def _heads(results: Results, at: At) -> Iterator[str]:
    known = shown(at.metric)
    yield plain(known.head + (" (%)" if known.percent else ""))
    if has_theirs(results, at):
        yield f"*{HEAD}*"


def _cells(results: Results, model: str, at: At) -> Iterator[str]:
    score, ranking = results.score(model, at), results.ranking(at)
    value = value_text(score, at.metric)
    value = (
        f"**{value}**"
        if model in ranking.best
        else f"{value} {MARK}"
        if model in ranking.tied
        else value
    )
    yield f"{value} {plain(interval(score.low, score.high, at.metric))}".strip()
    if has_theirs(results, at):
        figure = theirs_text(printed(model, at), at.metric)
        yield f"*{figure}*" if figure else ""
