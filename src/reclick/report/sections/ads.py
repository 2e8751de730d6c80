"""What attracts: the words of frequent queries, and the ads that look other than they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reclick.report.charts.bars import Pair, back_to_back, rows
from reclick.report.charts.svg import drawing
from reclick.report.data import Material
from reclick.report.formatting import amount, share
from reclick.report.markup import Html, data_table, element, figure, foreign, join, paragraph
from reclick.report.section import Part, Section, section

MOST_QUERIES = 12
MOST_WORDS = 8  # of each kind, a query
MOST_ADS = 24
ADS_A_DRAWING = 6


def words_and_ads(material: Material) -> Section | None:
    """Drawings of words and of ads; each is left out when the evaluation has none."""
    words = Part("Words that attract, and that do not", _words(material.details.get("words") or []))
    return section(
        "Words and ads",
        [
            words,
            Part(
                "Ads that look other than they are",
                _disagree(material.details.get("disagree") or []),
            ),
        ],
    )


def _words(queries: Sequence[Mapping[str, Any]]) -> Html:
    drawn = [_query(number, found) for number, found in enumerate(queries[:MOST_QUERIES], start=1)]
    kept = [one for one in drawn if one]
    if not kept:
        return Html("")
    about = "The share of the impressions of ads with a word that were clicked, for frequent queries. Blue: the words that attract most; red: least."
    return join([paragraph(about, class_="about"), element("div", *kept, class_="figs")])


def _query(number: int, found: Mapping[str, Any]) -> Html:
    kinds = [
        (kind, word) for kind in ("attract", "repel") for word in found.get(kind, [])[:MOST_WORDS]
    ]
    if not kinds:
        return Html("")
    query = str(found["query"])
    entries = [(str(word), float(rate), kind) for kind, (word, rate, _) in kinds]
    shapes, height = rows(entries, top=max(rate for _, rate, _ in entries))
    about = "Bars: " + ", ".join(f"{word} {share(rate)}" for word, rate, _ in entries) + "."
    named = {"attract": "most", "repel": "least"}
    numbers = (
        (foreign(str(word)), named[kind], share(rate, 2), amount(impressions))
        for kind, (word, rate, impressions) in kinds
    )
    table = data_table(
        f"Words of {query}", ("Word", "Attracts", "Click rate", "Impressions"), numbers
    )
    return figure(
        query, drawing(f"words {number}", f"Words of {query}", about, height, shapes), table
    )


def _disagree(ads: Sequence[Mapping[str, Any]]) -> Html:
    if not ads:
        return Html("")
    kept = ads[:MOST_ADS]
    about = (
        "The ads whose look and landing page differ most: first those that attract more than they satisfy, last the opposite. "
        "Each side has its own scale, since the two are probabilities of different things."
    )
    groups = [kept[start : start + ADS_A_DRAWING] for start in range(0, len(kept), ADS_A_DRAWING)]
    return join(
        [
            paragraph(about, class_="about"),
            element(
                "div",
                *(_ads(number, group, ads) for number, group in enumerate(groups, start=1)),
                class_="figs",
            ),
        ]
    )


def _ads(number: int, group: Sequence[Mapping[str, Any]], ads: Sequence[Mapping[str, Any]]) -> Html:
    title = f"Ads {1 + (number - 1) * ADS_A_DRAWING} to {(number - 1) * ADS_A_DRAWING + len(group)}"
    pairs = [
        Pair(
            f"{ad.get('title') or ad['ad']} · {ad['query']}",
            float(ad["attractiveness"]),
            float(ad["satisfaction"]),
        )
        for ad in group
    ]
    most = tuple(max(float(ad[name]) for ad in ads) for name in ("attractiveness", "satisfaction"))
    shapes, height = back_to_back(
        pairs, ("attractiveness", "satisfaction"), (most[0] or 1.0, most[1] or 1.0)
    )
    about = "Two bars an ad, back to back: attractiveness to the left, satisfaction to the right. The numbers follow."
    heads = ("Ad", "Query", "Title", "Attractiveness", "Satisfaction", "Clicks behind it")
    table = data_table(title, heads, (_ad_row(ad) for ad in group))
    return figure(title, drawing(f"ads {number}", title, about, height, shapes), table)


def _ad_row(ad: Mapping[str, Any]) -> tuple[str, ...]:
    texts = (
        foreign(str(ad[name])) if ad.get(name) else Html("") for name in ("ad", "query", "title")
    )
    support = ad.get("support")
    return (
        *texts,
        f"{ad['attractiveness']:.4f}",
        f"{ad['satisfaction']:.4f}",
        "" if support is None else amount(support),
    )
