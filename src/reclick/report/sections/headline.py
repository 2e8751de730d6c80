"""The comparison: which model is best by which metric and by how much, in text and charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from typing import NamedTuple

from reclick.report.charts.bars import DotRow, dot_plot
from reclick.report.charts.svg import svg_chart
from reclick.report.data import (
    MIN_SUPPORT,
    Ranking,
    ReportData,
    ScoreKey,
    ScoreTable,
    is_enough,
)
from reclick.report.formatting import (
    display,
    format_count,
    format_interval,
    format_margin,
    format_value,
    format_with_unit,
    join_names,
    spell_number,
    spell_ordinal,
)
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    data_table,
    element,
    figure,
    isolate,
    join,
    make_section,
    paragraph,
)
from reclick.report.tables import TIE_MARK, value_text


class Headline(NamedTuple):
    """A metric of the summary."""

    name: str
    brief: str  # name in a list of metrics
    key: ScoreKey


HEADLINES = (
    Headline("The first click", "the first click", ScoreKey("first_click_accuracy")),
    Headline("Two clicks in order", "two clicks in order", ScoreKey("sequence_accuracy@2")),
    Headline("Three clicks in order", "three clicks in order", ScoreKey("sequence_accuracy@3")),
    Headline("Four clicks in order", "four clicks in order", ScoreKey("sequence_accuracy@4")),
    Headline("Which two ads", "which two ads", ScoreKey("top_accuracy@2")),
    Headline("Which three ads", "which three ads", ScoreKey("top_accuracy@3")),
    Headline(
        "Backward clicks: two in order",
        "backward clicks in order",
        ScoreKey("sequence_accuracy@2", "reverse"),
    ),
    Headline(
        "Backward clicks: which two ads",
        "the ads of backward clicks",
        ScoreKey("top_accuracy@2", "reverse"),
    ),
    Headline("Number of clicks", "the number of clicks", ScoreKey("click_ratio")),
    Headline("Click probabilities", "click probabilities (perplexity)", ScoreKey("perplexity")),
    Headline("Calibration", "calibration", ScoreKey("calibration_error")),
    Headline(
        "All clicks, in order", "the likelihood of ordered clicks", ScoreKey("log_likelihood")
    ),
    Headline(
        "All clicks, in any order",
        "the likelihood of clicks in any order",
        ScoreKey("log_set_likelihood"),
    ),
    Headline("Relevance against labels", "relevance against labels", ScoreKey("pr_auc")),
)


def comparison_section(data: ReportData) -> Section | None:
    """All models compared, each headline metric as a sentence and a chart."""
    if len(data.table.models) < 2:
        return None
    about = (
        "Best first. A full dot is the best, a ring is not significantly different from it, grey is"
        " behind; lines are intervals."
    )
    cards = (_headline_figure(data, headline) for headline in compared_headlines(data))
    body = (
        paragraph(summarise(data), class_="lede"),
        paragraph(explain_intervals(data), class_="note"),
        paragraph(f"{about} {_list_omitted(data.table)}", class_="note"),
        element("div", *cards, class_="figs cards"),
    )
    return make_section("Comparison", [Subsection("", join(body))])


def compared_headlines(data: ReportData) -> list[Headline]:
    """The headlines for which any model has a value, of enough sessions, positions or pairs."""
    return [
        headline
        for headline in HEADLINES
        if data.table.values(headline.key) and is_enough(data.table.support(headline.key))
    ]


def _list_omitted(table: ScoreTable) -> str:
    """List the metrics that are not drawn because their support is too small."""
    names = [
        f"{headline.brief} (n\u00a0=\u00a0{format_count(support)})"
        for headline in HEADLINES
        if table.values(headline.key)
        and (support := table.support(headline.key)) is not None
        and not is_enough(support)
    ]
    return f"Not drawn, with n < {MIN_SUPPORT}: {join_names(names)}." if names else ""


# ---- charts


def _headline_figure(data: ReportData, headline: Headline) -> Html:
    table, key, info = data.table, headline.key, display(headline.key.metric)
    rows = [_dot_row(table, model, key) for model in _best_first(table, key)]
    shapes, height = dot_plot(rows, percent=info.percent)
    title = f"{headline.name}: {info.title}"
    about = (
        "A row per model, best first, with its value and interval."
        f" {info.better.capitalize()} is better. The numbers follow."
    )
    chart = svg_chart(f"glance {headline.name}", title, about, height, shapes)
    support = table.support(key)
    n = "" if support is None else f"; n\u00a0=\u00a0{format_count(support)}"
    unit = f"{info.title}{', %' if info.percent else ''}; {info.better} is better{n}."
    numbers = _headline_table(table, key, title)
    return figure(headline.name, chart, numbers, finding=describe(data, headline), unit=unit)


def _best_first(table: ScoreTable, key: ScoreKey) -> list[str]:
    order = table.ranking(key).order
    return [*order, *(model for model in table.models if model not in order)]


def _dot_row(table: ScoreTable, model: str, key: ScoreKey) -> DotRow:
    score, ranking = table.score(model, key), table.ranking(key)
    rank = "best" if model in ranking.best else "tied" if model in ranking.tied else "other"
    text = format_value(score.value, key.metric)
    return DotRow(model, score.value, score.low, score.high, text, rank)


def _headline_table(table: ScoreTable, key: ScoreKey, title: str) -> Html:
    ranking = table.ranking(key)
    rows = []
    for model in _best_first(table, key):
        score = table.score(model, key)
        mark = "best" if model in ranking.best else TIE_MARK if model in ranking.tied else ""
        interval = format_interval(score.low, score.high, key.metric)
        rows.append((isolate(model), value_text(score, key.metric), interval, mark))
    return data_table(title, ("Model", "Value", "Interval", ""), rows)


# ---- sentences about all headlines


def summarise(data: ReportData) -> str:
    """A paragraph on how many metrics each model is best on, the recommended model first."""
    if len(data.table.models) < 2:
        return ""
    table, subject = data.table, data.recommended
    rankings = {
        headline: table.ranking(headline.key)
        for headline in compared_headlines(data)
        if len(table.values(headline.key)) > 1
    }
    rankings = {headline: ranking for headline, ranking in rankings.items() if ranking.best}
    if not rankings:
        return "There is nothing to compare: no metric has values of two models."
    sentences = [_summarise_subject(subject, rankings)] if subject else []
    other_models = [model for model in table.models if model != subject]
    wins = {
        model: sum(ranking.leaders == (model,) for ranking in rankings.values())
        for model in other_models
    }
    winners = sorted(
        (model for model in other_models if wins[model]), key=lambda model: -wins[model]
    )
    if winners:
        counts_of_wins = join_names(
            [f"{model} on {spell_number(wins[model])}" for model in winners]
        )
        start = "Others that are" if subject else f"{_count_metrics(rankings)},"
        sentences.append(f"{start} significantly best: {counts_of_wins}.")
    elif not subject:
        sentences.append(
            f"{_count_metrics(rankings)}, no model is significantly best on any: all are ties."
        )
    return " ".join(sentences)


def _summarise_subject(subject: str, rankings: dict[Headline, Ranking]) -> str:
    """Wins and ties of the recommended model, and which models are better."""
    wins = sum(ranking.leaders == (subject,) for ranking in rankings.values())
    ties = sum(subject in ranking.leaders for ranking in rankings.values()) - wins
    missing = sum(subject not in ranking.order for ranking in rankings.values())
    losses = {
        headline: ranking for headline, ranking in rankings.items() if subject in ranking.behind
    }
    parts = [f"is significantly best on {spell_number(wins)}"]
    parts += [f"is tied for best on {spell_number(ties)}"] if ties else []
    parts += [f"is worse than the best on {spell_number(len(losses))}"] if losses else []
    parts += [f"has no value on {spell_number(missing)}"] if missing else []
    sentence = f"{_count_metrics(rankings)}, {subject} {join_names(parts)}."
    return sentence + (f" It is behind {_list_losses(losses)}." if losses else "")


def _count_metrics(rankings: Sized) -> str:
    return f"Of {spell_number(len(rankings))} metric{'' if len(rankings) == 1 else 's'}"


def _list_losses(losses: dict[Headline, Ranking]) -> str:
    """List the models that are better, and the metrics."""
    by_winner: dict[str, list[str]] = {}
    for headline, ranking in losses.items():
        by_winner.setdefault(join_names(list(ranking.leaders)), []).append(headline.brief)
    phrases = (f"{winner} on {join_names(names)}" for winner, names in by_winner.items())
    return "; behind ".join(phrases)


def explain_intervals(data: ReportData) -> str:
    """Explain the intervals and their limits."""
    details, table = data.details, data.table
    if len(table.models) < 2:
        return ""
    differences = (
        difference for by_pair in table.differences.values() for difference in by_pair.values()
    )
    if all(difference.low is None for difference in differences):
        return "No paired intervals were computed, so no lead can be called significant."
    level = float(details.get("level", 0.95))
    resamples = (
        f" of {details['resamples']:,} bootstrap resamples" if "resamples" in details else ""
    )
    n = round(1 / (1 - level)) if level < 1 else 20
    return (
        f"Differences are paired (the same sessions for both models), with {level:.0%} intervals"
        f"{resamples}. A difference whose interval includes 0 is a tie. The intervals are not"
        f" corrected for multiple comparisons: of {n} comparisons without a true difference, about"
        " one excludes 0."
    )


# ---- sentences about one headline


def describe(data: ReportData, headline: Headline) -> str:
    """Sentences on the best model, its ties, the next model, and the recommended model."""
    table, key = data.table, headline.key
    ranking, values = table.ranking(key), table.values(key)
    if not ranking.best:
        value = format_value(next(iter(values.values())), key.metric)
        return f"Every model assigns zero probability to some observed session: {value}."
    first = ranking.best[0]
    if len(table.models) == 1:
        return f"{_value_and_interval(table, first, key)}."
    if len(values) == 1:
        return f"Only {first} has a value: {_value_and_interval(table, first, key)}."
    sentences = [_describe_leaders(table, key, ranking)]
    if ranking.behind:
        sentences.append(_describe_next(table, key, ranking))
    if data.recommended in ranking.behind[1:]:
        sentences.append(_describe_subject(table, key, ranking, str(data.recommended)))
    if key.metric == "pr_auc":
        sentences.append(_describe_chance(table))
    if key.metric == "log_likelihood":
        sentences.append(_describe_learnt_orders(data))
    return " ".join(filter(None, sentences))


def _describe_chance(table: ScoreTable) -> str:
    """List the models that order relevant and irrelevant pairs no better than chance."""
    key = ScoreKey("roc_auc")
    scores = {model: table.score(model, key) for model in table.values(key)}
    chance = [
        f"{model} ({format_value(score.value, key.metric)})"
        for model, score in scores.items()
        if score.low is not None and score.high is not None and score.low <= 0.5 <= score.high
    ]
    if not chance:
        return ""
    verb = "is" if len(chance) == 1 else "are"
    return f"By the ROC area, {join_names(chance)} {verb} no better than chance."


def _describe_learnt_orders(data: ReportData) -> str:
    """List the models whose order of clicks comes from a table."""
    about = data.details.get("models") or {}
    models = [model for model in data.table.models if about.get(model, {}).get("ordered") is False]
    if not models:
        return ""
    verb = "has" if len(models) == 1 else "have"
    return f"{join_names(models)} {verb} the order of clicks from a table learnt in training."


def _describe_leaders(table: ScoreTable, key: ScoreKey, ranking: Ranking) -> str:
    value = _value_and_interval(table, ranking.best[0], key)
    names, one = join_names(list(ranking.best)), len(ranking.best) == 1
    if not ranking.tied:
        return f"{names} {'is best' if one else 'are equal and best'}, {value}."
    ties = [
        f"{model} ({format_with_unit(table.score(model, key).value, key.metric)})"
        for model in ranking.tied
    ]
    verb = "is" if len(ties) == 1 else "are"
    return (
        f"A tie: {names} {'has' if one else 'have'} {value}, and {join_names(ties)} {verb} not"
        " significantly different."
    )


def _describe_next(table: ScoreTable, key: ScoreKey, ranking: Ranking) -> str:
    next_model = ranking.behind[0]
    value = table.values(key)[next_model]
    if math.isinf(value):
        return _describe_infinite(list(ranking.behind), value, key)
    return f"Next is {next_model}, {_distance(table, key, ranking.order[0], next_model)}."


def _describe_subject(table: ScoreTable, key: ScoreKey, ranking: Ranking, subject: str) -> str:
    values = table.values(key)
    if math.isinf(values[subject]):
        is_described = math.isinf(values[ranking.behind[0]])
        return "" if is_described else _describe_infinite([subject], values[subject], key)
    rank = (
        f"{spell_ordinal(ranking.order.index(subject) + 1)} of {spell_number(len(ranking.order))}"
    )
    return f"{subject} is {rank}, {_distance(table, key, ranking.order[0], subject)}."


def _describe_infinite(models: list[str], value: float, key: ScoreKey) -> str:
    verb = "assigns" if len(models) == 1 else "assign"
    text = format_value(value, key.metric)
    return f"{join_names(models)} {verb} zero probability to observed sessions ({text})."


def _distance(table: ScoreTable, key: ScoreKey, first: str, model: str) -> str:
    """How far a model is behind the best, with the interval of the difference."""
    difference = table.difference(first, model, key)
    if difference is None:
        values = table.values(key)
        return f"{format_margin(values[first] - values[model], key.metric)} behind {first}"
    ends = (difference.low, difference.high)
    if difference.difference < 0:
        ends = (
            None if difference.high is None else -difference.high,
            None if difference.low is None else -difference.low,
        )
    margin = f"{format_margin(difference.difference, key.metric)} behind {first}"
    return _join_filled([margin, format_interval(*ends, key.metric)])


def _value_and_interval(table: ScoreTable, model: str, key: ScoreKey) -> str:
    score = table.score(model, key)
    interval = format_interval(score.low, score.high, key.metric)
    return _join_filled([format_with_unit(score.value, key.metric), interval])


def _join_filled(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)
