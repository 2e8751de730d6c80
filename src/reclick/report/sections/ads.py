"""Words with high and low click rates, and ads whose appeal and landing page disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reclick.report.charts.bars import PairedBars, bar_chart, paired_bar_chart
from reclick.report.charts.svg import svg_chart
from reclick.report.data import ReportData
from reclick.report.formatting import format_count, format_share
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

MAX_QUERIES = 12
MAX_WORDS = 8  # of each class, per query
MAX_ADS = 24
ADS_PER_CHART = 6


def word_and_ad_section(data: ReportData) -> Section | None:
    """Charts of words and of ads; each is left out if the evaluation has none."""
    words = data.details.get("words") or []
    ads = data.details.get("disagreements") or []
    return make_section(
        "Words and ads",
        [
            Subsection("Words with the highest and lowest click rates", _word_figures(words)),
            Subsection("Clickbait and hidden gems", _ad_figures(ads)),
        ],
    )


def _word_figures(queries: Sequence[Mapping[str, Any]]) -> Html:
    figures = [_word_figure(n, words) for n, words in enumerate(queries[:MAX_QUERIES], start=1)]
    figures = [each for each in figures if each]
    if not figures:
        return Html("")
    about = (
        "For frequent queries, the click rate of the impressions of ads with a word. Blue: the"
        " words with the highest rates; red: the lowest."
    )
    return join([paragraph(about, class_="about"), element("div", *figures, class_="figs")])


def _word_figure(number: int, words: Mapping[str, Any]) -> Html:
    rows = [
        (class_, *row)
        for class_ in ("attract", "repel")
        for row in words.get(class_, [])[:MAX_WORDS]
    ]
    if not rows:
        return Html("")
    query = str(words["query"])
    bars = [(str(word), float(rate), class_) for class_, word, rate, _ in rows]
    shapes, height = bar_chart(bars, longest=max(rate for _, rate, _ in bars))
    listed = ", ".join(f"{word} {format_share(rate)}" for word, rate, _ in bars)
    title = f"Words of {query}"
    chart = svg_chart(f"words {number}", title, f"Bars: {listed}.", height, shapes)
    labels = {"attract": "highest", "repel": "lowest"}
    numbers = (
        (isolate(str(word)), labels[class_], format_share(rate, 2), format_count(impressions))
        for class_, word, rate, impressions in rows
    )
    headers = ("Word", "Among the", "Click rate", "Impressions")
    return figure(query, chart, data_table(title, headers, numbers))


def _ad_figures(ads: Sequence[Mapping[str, Any]]) -> Html:
    if not ads:
        return Html("")
    about = (
        "The ads whose attractiveness and satisfaction differ most in rank: first those that"
        " attract more than they satisfy, last the opposite. Each side has its own scale, since the"
        " two are probabilities of different events."
    )
    listed = ads[:MAX_ADS]
    starts = range(0, len(listed), ADS_PER_CHART)
    figures = (_ad_figure(start, listed[start : start + ADS_PER_CHART], ads) for start in starts)
    return join([paragraph(about, class_="about"), element("div", *figures, class_="figs")])


def _ad_figure(
    start: int, group: Sequence[Mapping[str, Any]], ads: Sequence[Mapping[str, Any]]
) -> Html:
    title = f"Ads {start + 1} to {start + len(group)}"
    values = ("attractiveness", "satisfaction")
    pairs = [
        PairedBars(
            f"{ad.get('title') or ad['ad']} · {ad['query']}", *(float(ad[v]) for v in values)
        )
        for ad in group
    ]
    largest = [max(float(ad[value]) for ad in ads) or 1.0 for value in values]
    shapes, height = paired_bar_chart(pairs, values, (largest[0], largest[1]))
    about = (
        "Two bars per ad: attractiveness to the left, satisfaction to the right. The numbers"
        " follow."
    )
    headers = ("Ad", "Query", "Title", "Attractiveness", "Satisfaction", "Clicks")
    table = data_table(title, headers, (_ad_row(ad) for ad in group))
    number = start // ADS_PER_CHART + 1
    return figure(title, svg_chart(f"ads {number}", title, about, height, shapes), table)


def _ad_row(ad: Mapping[str, Any]) -> tuple[str, ...]:
    texts = (
        isolate(str(ad[name])) if ad.get(name) else Html("") for name in ("ad", "query", "title")
    )
    values = (f"{ad['attractiveness']:.4f}", f"{ad['satisfaction']:.4f}")
    support = ad.get("support")
    return (*texts, *values, "" if support is None else format_count(support))
