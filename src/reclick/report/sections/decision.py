"""The first screen: which model to use and why, how users click, which ads to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reclick.report.data import LEAKAGE_MARK, ReportData, ScoreKey, not_nan
from reclick.report.formatting import (
    format_count,
    format_interval,
    format_share,
    format_value,
    format_with_unit,
    spell_number,
)
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    element,
    isolate,
    join,
    make_section,
    paragraph,
    slug,
)
from reclick.report.sections.ads import GEMS, MISLEADING
from reclick.report.sections.ads import TITLE as ADS_TITLE
from reclick.report.sections.headline import compared_headlines
from reclick.report.sections.log import fatigue_figure, position_figure, transition_figure

RATIO = ScoreKey("click_ratio")
TITLE = "In short"
N_TEASED = 3  # ads of each list that the first screen shows


def decision_section(data: ReportData) -> Section | None:
    """Two sentences, four figures, three charts, and the first ads of both lists."""
    figures = [
        position_figure(data.profile),
        transition_figure(data),
        fatigue_figure(data),
    ]
    charts = element("div", *figures, class_="figs moves") if any(figures) else Html("")
    body = (
        *(paragraph(text, class_="warning") for text in list_warnings(data)),
        paragraph(recommend(data), class_="lede"),
        _tiles(data),
        charts,
        _teasers(data),
    )
    return make_section(TITLE, [Subsection("", join(body))])


def list_warnings(data: ReportData) -> list[str]:
    """Warnings about scores that are too optimistic: models fitted on sessions of the test log."""
    return [f"{LEAKAGE_MARK} {text}" for text in data.details.get("warnings") or ()]


def recommend(data: ReportData) -> str:
    """Two sentences on which model to use, and why.

    With one model, they report how well it fits; without scores, that nothing was scored.
    """
    model = data.recommended
    if model is None:
        return (
            "No log was given, so nothing is scored: below is what the model has learnt about ads."
        )
    if len(data.table.models) == 1:
        return " ".join(filter(None, [_describe_ratio(data, model), _describe_first(data, model)]))
    return " ".join(filter(None, [_describe_choice(data, model), _describe_ratio(data, model)]))


def _describe_choice(data: ReportData, model: str) -> str:
    """State that the model is recommended, and on how many metrics it is best."""
    rankings = [data.table.ranking(headline.key) for headline in compared_headlines(data)]
    rankings = [ranking for ranking in rankings if ranking.best]
    leads = sum(model in ranking.leaders for ranking in rankings)
    metrics = f"{spell_number(len(rankings))} metric{'s' * (len(rankings) != 1)}"
    models = spell_number(len(data.table.models))
    sentence = f"Use {model}: of {models} models it has the best mean rank"
    return f"{sentence}, and is best or tied for best on {spell_number(leads)} of {metrics}."


def _describe_ratio(data: ReportData, model: str) -> str:
    """Expected / observed clicks of the model, and their range over the other models."""
    values = data.table.values(RATIO)
    if model not in values:
        return ""
    score = data.table.score(model, RATIO)
    interval = format_interval(score.low, score.high, RATIO.metric)
    sentence = f"{model} expects {_ratio_text(score.value)} × the clicks observed {interval}"
    other_ratios = sorted((value, name) for name, value in values.items() if name != model)
    if other_ratios:
        ends = [
            f"{_ratio_text(value)} ({name})" for value, name in (other_ratios[0], other_ratios[-1])
        ]
        sentence += f"; the other{'s' * (len(other_ratios) > 1)} {' to '.join(dict.fromkeys(ends))}"
    return f"{sentence}."


def _ratio_text(value: float | None) -> str:
    return format_value(value, RATIO.metric)


def _describe_first(data: ReportData, model: str) -> str:
    key = ScoreKey("first_click_accuracy")
    value = data.table.score(model, key).value
    if value is None:
        return ""
    return f"It predicts the first click of {format_with_unit(value, key.metric)} of the sessions."


# ---- figures


def _tiles(data: ReportData) -> Html:
    tiles = [*_model_tiles(data), *_log_tiles(data)]
    return element("dl", *tiles, class_="tiles short") if tiles else Html("")


def _model_tiles(data: ReportData) -> list[Html]:
    model = data.recommended
    if model is None:
        return []
    tiles = []
    for key, name in (
        (RATIO, "Expected / observed clicks"),
        (ScoreKey("first_click_accuracy"), "First clicks predicted"),
    ):
        score = data.table.score(model, key)
        if score.value is not None:
            interval = format_interval(score.low, score.high, key.metric)
            note = " ".join(filter(None, [model, interval]))
            tiles.append(_tile(name, format_with_unit(score.value, key.metric), note))
    return tiles


def _log_tiles(data: ReportData) -> list[Html]:
    profile = data.profile
    if profile is None:
        return []
    clicked = f"{format_share(profile.clicked_share)} with a click"
    backward = f"{format_share(profile.reverse_share)} with a backward click"
    return [
        _tile("Sessions tested", format_count(profile.sessions), clicked),
        _tile("Two or more clicks", format_share(profile.multi_click_share), backward),
    ]


def _tile(name: str, value: str, note: str) -> Html:
    return element("div", element("dt", name), element("dd", value, element("small", note)))


# ---- ads


def _teasers(data: ReportData) -> Html:
    """The first ads of both lists, with links to the full tables."""
    lists = (
        (MISLEADING, "clicked more, satisfying less", "misleading"),
        (GEMS, "clicked less, satisfying more", "gems"),
    )
    blocks = [
        _teaser(title, about, data.details.get(name) or [], slug(f"{ADS_TITLE} {title}"))
        for title, about, name in lists
    ]
    return element("div", *blocks, class_="teasers") if any(blocks) else Html("")


def _teaser(title: str, about: str, ads: Sequence[Mapping[str, Any]], anchor: str) -> Html:
    if not ads:
        return Html("")
    items = (
        element(
            "li",
            isolate(str(ad.get("title") or ad["ad"])),
            element("small", " for ", isolate(str(ad["query"])), _estimates(ad)),
        )
        for ad in ads[:N_TEASED]
    )
    link = element("a", f"All {len(ads)}", href=f"#{anchor}")
    head = paragraph(element("strong", title), f": {about}. ", link)
    return element("div", head, element("ol", *items))


def _estimates(ad: Mapping[str, Any]) -> str:
    satisfaction = not_nan(ad["satisfaction"])
    return "" if satisfaction is None else f", satisfies {100 * satisfaction:.0f} %"
