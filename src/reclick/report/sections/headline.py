"""In short: who is best at what, in sentences and at a glance."""

from __future__ import annotations

from reclick.report.charts.bars import Entry, dots
from reclick.report.charts.svg import drawing
from reclick.report.data import Material
from reclick.report.formatting import amount, interval, shown, written
from reclick.report.markup import Html, data_table, element, figure, foreign, join, paragraph
from reclick.report.narrative import Question, answer, asked, caveat, verdict
from reclick.report.results import At, Results
from reclick.report.section import Part, Section, section
from reclick.report.tables import MARK, value_text


def in_short(material: Material) -> Section | None:
    """The verdict, and each question answered in a sentence and a drawing."""
    about = "Best first. A full dot is the best, a ring cannot be told from it, grey is behind; lines are intervals."
    cards = element(
        "div",
        *(_card(material, question) for question in asked(material.results)),
        class_="figs cards",
    )
    told = (
        paragraph(verdict(material), class_="lede"),
        paragraph(caveat(material), class_="note"),
        paragraph(about, class_="note"),
        cards,
    )
    return section("In short", [Part("", join(told))])


def _card(material: Material, question: Question) -> Html:
    results, at, known = material.results, question.at, shown(question.at.metric)
    shapes, height = dots(
        [_entry(results, model, at) for model in _order(results, at)], percent=known.percent
    )
    about = f"A row a model, best first, with its value and interval. {known.better.capitalize()} is better. The numbers follow."
    picture = drawing(
        f"glance {question.name}", f"{question.name}: {known.title}", about, height, shapes
    )
    support = results.support(at)
    behind = "" if support is None else f"; n\u00a0=\u00a0{amount(support)}"
    unit = f"{known.title}{', %' if known.percent else ''}; {known.better} is better{behind}."
    return figure(
        question.name,
        picture,
        _numbers(results, at, f"{question.name}: {known.title}"),
        note=answer(material, question),
        unit=unit,
    )


def _order(results: Results, at: At) -> list[str]:
    order = results.ranking(at).order
    return [*order, *(model for model in results.models if model not in order)]


def _entry(results: Results, model: str, at: At) -> Entry:
    score, ranking = results.score(model, at), results.ranking(at)
    rank = "best" if model in ranking.best else "tied" if model in ranking.tied else "other"
    return Entry(model, score.value, score.low, score.high, written(score.value, at.metric), rank)


def _numbers(results: Results, at: At, title: str) -> Html:
    ranking = results.ranking(at)
    rows = []
    for model in _order(results, at):
        score = results.score(model, at)
        mark = "best" if model in ranking.best else MARK if model in ranking.tied else ""
        rows.append(
            (
                foreign(model),
                value_text(score, at.metric),
                interval(score.low, score.high, at.metric),
                mark,
            )
        )
    return data_table(title, ("Model", "Value", "Interval", ""), rows)
