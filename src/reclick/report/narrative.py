"""The headline in sentences computed from the scores: who is best at what, by how much, and where nobody can be told from anybody."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from typing import NamedTuple

from reclick.report.data import Material
from reclick.report.formatting import (
    in_words,
    interval,
    listing,
    margin,
    ordinal,
    with_unit,
    written,
)
from reclick.report.results import At, Ranking, Results


class Question(NamedTuple):
    """Something a model can be best at."""

    name: str
    brief: str  # in a list of questions
    at: At


QUESTIONS = (
    Question("The first click", "the first click", At("first_click_accuracy")),
    Question("Two clicks in order", "two clicks in order", At("sequence_accuracy@2")),
    Question("Three clicks in order", "three clicks in order", At("sequence_accuracy@3")),
    Question("Four clicks in order", "four clicks in order", At("sequence_accuracy@4")),
    Question("Which two ads", "which two ads", At("top_accuracy@2")),
    Question("Which three ads", "which three ads", At("top_accuracy@3")),
    Question(
        "Reverse: two clicks in order",
        "reverse sessions in order",
        At("sequence_accuracy@2", "reverse"),
    ),
    Question(
        "Reverse: which two ads", "the ads of reverse sessions", At("top_accuracy@2", "reverse")
    ),
    Question("Click probabilities", "click probabilities (perplexity)", At("perplexity")),
    Question("Calibration", "calibration", At("calibration_error")),
    Question("All clicks, in order", "the likelihood of ordered clicks", At("log_likelihood")),
    Question(
        "All clicks, in any order",
        "the likelihood of clicks in any order",
        At("log_set_likelihood"),
    ),
    Question("Relevance against labels", "relevance against labels", At("pr_auc")),
)


def asked(results: Results) -> list[Question]:
    """The questions that any model answers."""
    return [question for question in QUESTIONS if results.values(question.at)]


def answer(material: Material, question: Question) -> str:
    """Who is best, who cannot be told from it, who follows, and where the paper's model stands if that is further down."""
    return _answer(material.results, question.at, material.subject)


def verdict(material: Material) -> str:
    """One paragraph: who is best at how many questions, the paper's model first, whatever it did."""
    results = material.results
    rankings = {
        question: results.ranking(question.at)
        for question in QUESTIONS
        if len(results.values(question.at)) > 1
    }
    decided = {question: ranking for question, ranking in rankings.items() if ranking.best}
    if not decided:
        return "There is nothing to compare: fewer than two models answer any question."
    subject = material.subject
    told = [_subject_verdict(subject, decided)] if subject else []
    others = [model for model in results.models if model != subject]
    alone = {
        model: sum(ranking.leaders == (model,) for ranking in decided.values()) for model in others
    }
    winners = sorted((model for model in others if alone[model]), key=lambda model: -alone[model])
    if winners:
        lead = "Also best alone" if subject else f"{_of(decided)}, best alone"
        told.append(
            f"{lead}: {listing([f'{model} in {in_words(alone[model])}' for model in winners])}."
        )
    elif not subject:
        told.append(f"{_of(decided)}, no model is best alone in any: the first places are shared.")
    return " ".join(told)


def _subject_verdict(subject: str, decided: dict[Question, Ranking]) -> str:
    """How the paper's model fares: wins, shared first places, and to whom it loses."""
    alone = sum(ranking.leaders == (subject,) for ranking in decided.values())
    shared = sum(subject in ranking.leaders for ranking in decided.values()) - alone
    mute = sum(subject not in ranking.order for ranking in decided.values())
    lost = {question: ranking for question, ranking in decided.items() if subject in ranking.behind}
    parts = [f"is best alone in {in_words(alone)}"]
    parts += [f"shares the first place in {in_words(shared)}"] if shared else []
    parts += [f"is beaten in {in_words(len(lost))}"] if lost else []
    parts += [f"does not answer {in_words(mute)}"] if mute else []
    sentence = f"{_of(decided)}, {subject} {listing(parts)}."
    return sentence + (f" It loses to {_lost(lost)}." if lost else "")


def _of(decided: Sized) -> str:
    return f"Of {in_words(len(decided))} question{'' if len(decided) == 1 else 's'}"


def _lost(lost: dict[Question, Ranking]) -> str:
    """To whom, in what."""
    by_winner: dict[str, list[str]] = {}
    for question, ranking in lost.items():
        by_winner.setdefault(listing(list(ranking.leaders)), []).append(question.brief)
    return "; to ".join(f"{winner} in {listing(names)}" for winner, names in by_winner.items())


def caveat(material: Material) -> str:
    """What the intervals mean, and what they do not."""
    details, results = material.details, material.results
    if len(results.models) < 2:
        return ""
    if not any(
        found.low is not None
        for stored in results.differences.values()
        for found in stored.values()
    ):
        return "No paired intervals were computed, so nothing here says whether a lead is more than chance."
    level = float(details.get("level", 0.95))
    resamples = (
        f" of {details['resamples']:,} bootstrap resamples" if "resamples" in details else ""
    )
    chance = round(1 / (1 - level)) if level < 1 else 20
    return (
        f"Differences are paired (the same sessions for both), {level:.0%} intervals{resamples}. One whose interval includes 0 is a tie. "
        f"Each interval stands alone: of {chance} comparisons where nothing differs, about one leaves 0 out."
    )


def _answer(results: Results, at: At, subject: str | None) -> str:
    ranking = results.ranking(at)
    values = results.values(at)
    if not ranking.best:
        return f"Every model that answers holds some session that happened for impossible: {written(next(iter(values.values())), at.metric)}."
    first = ranking.best[0]
    if len(values) == 1:
        score = results.score(first, at)
        return f"{first} alone answers: {_value(values[first], score.low, score.high, at.metric)}."
    told = [_leaders(results, at, ranking)]
    if ranking.behind:
        told.append(_runner_up(results, at, ranking))
    if subject in ranking.behind[1:]:
        told.append(_subject_place(results, at, ranking, str(subject)))
    return " ".join(told)


def _leaders(results: Results, at: At, ranking: Ranking) -> str:
    score = results.score(ranking.best[0], at)
    value = _value(score.value, score.low, score.high, at.metric)
    names = listing(list(ranking.best))
    if not ranking.tied:
        return f"{names} {'is best' if len(ranking.best) == 1 else 'are equal and best'}, {value}."
    tied = listing(
        [
            f"{model} ({with_unit(results.score(model, at).value, at.metric)})"
            for model in ranking.tied
        ]
    )
    one = len(ranking.best) == 1
    return f"A tie: {names} {'has' if one else 'have'} {value}, and {tied} cannot be told from {'it' if one else 'them'}."


def _runner_up(results: Results, at: At, ranking: Ranking) -> str:
    following = ranking.behind[0]
    value = results.values(at)[following]
    if math.isinf(value):
        verb = "holds" if len(ranking.behind) == 1 else "hold"
        return f"{listing(list(ranking.behind))} {verb} sessions that happened for impossible ({written(value, at.metric)})."
    return f"Next is {following}, {_behind(results, at, ranking.order[0], following)}."


def _subject_place(results: Results, at: At, ranking: Ranking, subject: str) -> str:
    values = results.values(at)
    if math.isinf(values[subject]):
        said = math.isinf(values[ranking.behind[0]])
        return (
            ""
            if said
            else f"{subject} holds sessions that happened for impossible ({written(values[subject], at.metric)})."
        )
    place = f"{subject} is {ordinal(ranking.order.index(subject) + 1)} of {in_words(len(ranking.order))}"
    return f"{place}, {_behind(results, at, ranking.order[0], subject)}."


def _behind(results: Results, at: At, first: str, other: str) -> str:
    """How far a model is behind the best, with the interval of the difference in the same direction."""
    found = results.difference(first, other, at)
    if found is None:
        values = results.values(at)
        return f"{margin(values[first] - values[other], at.metric)} behind {first}"
    ends = (found.low, found.high)
    if found.difference < 0:
        ends = (
            None if found.high is None else -found.high,
            None if found.low is None else -found.low,
        )
    return _join(
        [f"{margin(found.difference, at.metric)} behind {first}", interval(*ends, at.metric)]
    )


def _value(value: float | None, low: float | None, high: float | None, metric: str) -> str:
    return _join([with_unit(value, metric), interval(low, high, metric)])


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)
