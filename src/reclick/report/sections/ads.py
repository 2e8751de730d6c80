"""Ads to act on: misleading ads, hidden gems, and the effects of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reclick.report.charts.bars import DotRow, dot_plot
from reclick.report.charts.svg import svg_chart
from reclick.report.data import ReportData, not_nan
from reclick.report.formatting import format_count
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

TITLE, MISLEADING, GEMS = "Ads to act on", "Misleading ads", "Hidden gems"
MAX_ADS = 20
BOTH_INTERVALS = "Both intervals exclude the mean of the ads that are shown often."
WORDS_PER_CHART = 10


def ad_section(data: ReportData) -> Section | None:
    """Two tables of ads, and charts of words; empty parts are left out."""
    details = data.details
    model = details.get("findings_from")
    source = f" Estimates of {model}, with 90 % intervals;" if model else " With 90 % intervals;"
    support = " only ads with at least 100 impressions and 20 clicks."
    misleading = (
        "Users click these ads more than others, and are satisfied less often: the landing page"
        f" does not deliver what the text promises. {BOTH_INTERVALS}{source}{support}"
    )
    gems = (
        "Users click these ads less than others, and are satisfied more often: a better text or a"
        f" higher position would pay off. {BOTH_INTERVALS}{source}{support}"
    )
    contrasts = [
        Subsection(MISLEADING, _ad_table(details.get("misleading") or [], MISLEADING, misleading)),
        Subsection(GEMS, _ad_table(details.get("gems") or [], GEMS, gems)),
    ]
    words = Subsection("Words", _word_figures(details.get("words") or []))
    is_any = details.get("misleading") or details.get("gems")
    return make_section(TITLE, [*contrasts, words] if is_any else [words])


def _ad_table(ads: Sequence[Mapping[str, Any]], caption: str, about: str) -> Html:
    if not ads:
        return paragraph(
            "None yet: no ad with at least 100 impressions and 20 clicks has intervals that show"
            " it. More sessions make them narrower.",
            class_="about",
        )
    headers = ("Ad", "Query", "Attractiveness", "Satisfaction", "Impressions", "Clicks")
    rows = (_ad_row(ad) for ad in ads[:MAX_ADS])
    table = data_table(caption, headers, rows, class_="plain ads")
    return join([paragraph(about, class_="about"), table])


def _ad_row(ad: Mapping[str, Any]) -> tuple[str, ...]:
    name = [isolate(str(ad.get("title") or ad["ad"]))]
    name += [element("small", isolate(str(ad["ad"])))] if ad.get("title") else []
    estimates = (_estimate(ad, value) for value in ("attractiveness", "satisfaction"))
    support = (format_count(float(ad[value])) for value in ("impressions", "clicks"))
    return (join(name), isolate(str(ad["query"])), *estimates, *support)


def _estimate(ad: Mapping[str, Any], name: str) -> Html:
    value, low, high = (not_nan(ad.get(key)) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return Html("")
    interval = "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"
    return join([f"{value:.3f}", element("small", interval)])


def _word_figures(words: Sequence[Mapping[str, Any]]) -> Html:
    """Charts of the words with the largest and with the smallest effects."""
    if not words:
        return Html("")
    about = (
        "How much more or less attractive ads with a word are than the average ad of the same"
        " queries: × 1.2 is 20 % more. Position effects are excluded, all queries are pooled,"
        " and intervals (95 %) treat ads as independent. A word may stand for something else about"
        " its ads, such as their brand."
    )
    half = min(WORDS_PER_CHART, -(-len(words) // 2))
    groups = {"Words that attract": words[:half], "Words that put off": words[half:]}
    figures = (_word_figure(title, group) for title, group in groups.items() if group)
    return join([paragraph(about, class_="about"), element("div", *figures, class_="figs")])


def _word_figure(title: str, words: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        DotRow(
            str(word["word"]),
            float(word["effect"]),
            float(word["low"]),
            float(word["high"]),
            f"× {word['effect']:.2f}",
            "other" if word["low"] <= 1 <= word["high"] else "best",
        )
        for word in words
    ]
    shapes, height = dot_plot(rows, percent=False)
    about = "A row per word with its effect and interval. The numbers follow."
    chart = svg_chart(f"words {title}", title, about, height, shapes)
    numbers = (
        (
            isolate(str(word["word"])),
            f"{word['effect']:.3f}",
            f"[{word['low']:.3f}, {word['high']:.3f}]",
            format_count(float(word["ads"])),
            format_count(float(word["impressions"])),
        )
        for word in words
    )
    headers = ("Word", "Effect", "Interval", "Ads", "Impressions")
    unit = "relative attractiveness; grey: not significantly different from 1"
    return figure(title, chart, data_table(title, headers, numbers), unit=unit)
