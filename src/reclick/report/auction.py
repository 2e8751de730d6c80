"""The report of a comparison of auction mechanisms, as one HTML file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from reclick.report.charts.bars import DotRow, dot_plot
from reclick.report.charts.lines import Series, legend, line_chart, number_axis
from reclick.report.charts.svg import svg_chart
from reclick.report.data import Point
from reclick.report.formatting import format_count, format_number, format_share
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    check_html_name,
    data_table,
    element,
    figure,
    html_page,
    isolate,
    join,
    make_section,
    paragraph,
)
from reclick.runtime.filesystem import AnyPath, Location
from reclick.runtime.outputs import write_files, write_text

FRONTIER_HEIGHT = 260
SCORE_METRICS = {
    "welfare": ("Welfare", "value of the expected clicks to the advertisers, per page"),
    "revenue": ("Revenue", "expected payments per page"),
    "clicks": ("Clicks", "expected clicks per page"),
    "satisfaction": ("Satisfied sessions", "share of sessions that end satisfied"),
}
TITLES = {
    "vcg": "VCG",
    "gsp_model": "GSP, model",
    "gsp": "GSP",
    "first_price": "first price",
}
BIDS = {"values": "at the current bids", "best responses": "after best responses"}
MOST_ADVERTISERS = 12  # rows of each table of gains and losses


class ComparisonLike(Protocol):
    """The attributes of a comparison that the report needs."""

    @property
    def scores(self) -> pa.Table:
        """Rows of mechanism, bids and metric."""
        ...

    @property
    def incentives(self) -> pa.Table:
        """A row per mechanism."""
        ...

    @property
    def frontier(self) -> pa.Table:
        """Rows of mechanism and satisfaction weight."""
        ...

    @property
    def advertisers(self) -> pa.Table:
        """A row per advertiser."""
        ...

    @property
    def details(self) -> dict[str, Any]:
        """The settings of the comparison."""
        ...


def write_comparison(
    comparison: ComparisonLike, path: Location, *, overwrite: bool = False
) -> AnyPath:
    """Write the report of a comparison to a file, atomically."""
    target = check_html_name(path)
    page = render_comparison(comparison)
    writers = {target.name: partial(write_text, text=page)}
    (report_path,) = write_files(target.parent, writers, overwrite=overwrite)
    return report_path


def render_comparison(comparison: ComparisonLike) -> str:
    """The whole HTML page."""
    details = comparison.details
    auctions = f"{format_count(details['auctions'])} auctions"
    if details["listed"] > details["auctions"]:
        auctions += f", drawn from {format_count(details['listed'])},"
    source = "with sampled bids" if details["sampled"] else "with your bids"
    about = (
        f"{auctions} {source}, {details['slots']} slots, reserve {details['reserve']:g}, clicks as"
        f" {details['model']} predicts them. Every figure is an expectation under that model."
    )
    sections = (
        _summary_section(comparison),
        _score_section(comparison),
        _incentive_section(comparison),
        _frontier_section(comparison),
        _advertiser_section(comparison),
        _method_section(comparison),
    )
    return html_page(
        "Auction mechanisms compared",
        about,
        [section for section in sections if section],
        "Made by Reclick: this file loads nothing from the network.",
    )


def _summary_section(comparison: ComparisonLike) -> Section | None:
    """The effect of VCG, in a few sentences."""
    changes = {
        (row["mechanism"], row["bids"], row["metric"]): row["change"]
        for row in comparison.scores.to_pylist()
    }
    if ("vcg", "values", "welfare") not in changes:
        return None
    misreporters = {
        row["mechanism"]: row["gain_by_misreporting"] for row in comparison.incentives.to_pylist()
    }
    before, after = (
        {metric: changes["vcg", bids, metric] for metric in SCORE_METRICS} for bids in BIDS
    )
    same_bids = (
        f"Against GSP at the same bids, VCG changes welfare by"
        f" {_percent_change(before['welfare'])} and revenue by"
        f" {_percent_change(before['revenue'])}."
    )
    responses = (
        f"After best responses, by {_percent_change(after['welfare'])} and"
        f" {_percent_change(after['revenue'])}."
    )
    incentives = (
        f"{format_share(misreporters['gsp'])} of the bidders gain by misreporting their value under"
        f" GSP, {format_share(misreporters['vcg'])} under VCG."
    )
    satisfied = (
        f"Satisfied sessions change by {_percent_change(before['satisfaction'])} at the same"
        " bids; a satisfaction weight moves that."
    )
    has_satisfaction = not math.isnan(before["satisfaction"])
    sentences = [same_bids, responses, *([satisfied] if has_satisfaction else []), incentives]
    return make_section("Summary", [Subsection("", paragraph(" ".join(sentences)))])


def _score_section(comparison: ComparisonLike) -> Section | None:
    rows = comparison.scores.to_pylist()
    level = comparison.details["level"]
    about = (
        "The change from GSP, in percent, with bootstrap intervals of"
        f" {100 * level:g}\u00a0% over auctions. Bids to GSP are not stable: bidders gain by"
        " changing them. So each mechanism is also shown after best responses, when nobody gains"
        " by changing its bid alone."
    )
    subsections = [Subsection("", paragraph(about, class_="about"))]
    for bids, title in BIDS.items():
        rows_of_bids = [row for row in rows if row["bids"] == bids]
        figures = [_change_figure(rows_of_bids, metric, title) for metric in SCORE_METRICS]
        body = element("div", *(chart for chart in figures if chart), class_="figs")
        subsections.append(Subsection(title[0].upper() + title[1:], body))
    return make_section("Welfare, revenue and satisfaction", subsections)


def _change_figure(rows: Sequence[Mapping[str, Any]], metric: str, bids: str) -> Html:
    """A dot per mechanism: the change from GSP."""
    rows_of_metric = [
        row for row in rows if row["metric"] == metric and not math.isnan(row["value"])
    ]
    if not rows_of_metric:
        return Html("")
    best = max(rows_of_metric, key=lambda row: row["value"])["mechanism"]
    dots = [
        DotRow(
            TITLES.get(row["mechanism"], row["mechanism"]),
            row["change"],
            row["change_low"],
            row["change_high"],
            _percent_change(row["change"]),
            "best" if row["mechanism"] == best else "other",
        )
        for row in rows_of_metric
    ]
    shapes, height = dot_plot(dots, percent=True)
    title, unit = SCORE_METRICS[metric]
    heading = f"{title}, change from GSP {bids}"
    chart = svg_chart(f"{metric} {bids}", heading, "A dot per mechanism.", height, shapes)
    table = data_table(
        heading,
        ("Mechanism", "Value", "Interval", "Change", "Interval of the change"),
        (_score_cells(row) for row in rows_of_metric),
    )
    return figure(title, chart, table, unit=f"%, {unit}")


def _score_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        TITLES.get(row["mechanism"], row["mechanism"]),
        format_number(row["value"], 4),
        f"[{format_number(row['low'], 4)}, {format_number(row['high'], 4)}]",
        _percent_change(row["change"]),
        f"[{_percent_change(row['change_low'])}, {_percent_change(row['change_high'])}]",
    )


def _incentive_section(comparison: ComparisonLike) -> Section | None:
    rows = comparison.incentives.to_pylist()
    about = (
        "Each bidder tries other bids, while the others keep theirs. Its regret is what the best of"
        " them would add to its gain, (value − price) × clicks. Bids are taken as values. Only"
        " bids on a grid are tried, so shares above 0 are lower bounds."
    )
    dots = [
        DotRow(
            TITLES.get(row["mechanism"], row["mechanism"]),
            row["gain_by_misreporting"],
            None,
            None,
            format_share(row["gain_by_misreporting"]),
            "best" if row["gain_by_misreporting"] == 0 else "other",
        )
        for row in rows
    ]
    shapes, height = dot_plot(dots, percent=True)
    title = "Bidders who gain by another bid than their value"
    table = data_table(
        "Incentives of each mechanism",
        (
            "Mechanism",
            "Bidders",
            "Gain by misreporting",
            "Mean regret, of winners' value",
            "Largest regret",
            "Lose by taking part",
            "Clicks fall with a higher bid",
            "Best responses settle",
        ),
        (_incentive_cells(row) for row in rows),
    )
    chart = svg_chart("regret", title, "A dot per mechanism.", height, shapes)
    body = element("div", figure(title, chart, table, unit="%"), class_="figs")
    return make_section(
        "Incentives",
        [
            Subsection("", paragraph(about, class_="about")),
            Subsection("Who gains by misreporting", body),
        ],
    )


def _incentive_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        TITLES.get(row["mechanism"], row["mechanism"]),
        format_count(row["bidders"]),
        format_share(row["gain_by_misreporting"]),
        format_share(row["mean_regret"], 2),
        format_number(row["max_regret"], 4),
        format_share(row["lose"]),
        format_share(row["clicks_fall"]),
        format_share(row["converged"], 0),
    )


def _frontier_section(comparison: ComparisonLike) -> Section | None:
    rows = comparison.frontier.to_pylist()
    if not rows:
        return None
    about = (
        "What a satisfied session is worth to you, the satisfaction weight, moves slates towards"
        " ads that satisfy, at a price in welfare. Up and to the right is better. With GSP the"
        " weight is added to the score of each ad."
    )
    names = list(dict.fromkeys(row["mechanism"] for row in rows))
    series = [
        Series(
            TITLES.get(name, name),
            style,
            tuple(
                Point(row["welfare"], row["satisfaction"])
                for row in rows
                if row["mechanism"] == name
            ),
        )
        for style, name in enumerate(names)
    ]
    x = number_axis("welfare, change from GSP, %", [row["welfare"] for row in rows], percent=True)
    y = number_axis("satisfied, %", [row["satisfaction"] for row in rows], percent=True)
    title = "Welfare and satisfaction as the weight grows"
    shapes = line_chart(series, x, y, height=FRONTIER_HEIGHT)
    about_chart = "A line per mechanism, a point per satisfaction weight. The numbers follow."
    chart = svg_chart("frontier", title, about_chart, FRONTIER_HEIGHT, shapes)
    table = data_table(
        title,
        ("Mechanism", "Weight", "Welfare", "Interval", "Satisfied", "Interval"),
        (_frontier_cells(row) for row in rows),
    )
    key = legend({line.name: line.style for line in series})
    body = join([key, element("div", figure(title, chart, table), class_="figs")])
    return make_section(
        "The price of satisfaction",
        [Subsection("", paragraph(about, class_="about")), Subsection("", body)],
    )


def _frontier_cells(row: Mapping[str, Any]) -> Iterator[str]:
    yield TITLES.get(row["mechanism"], row["mechanism"])
    yield f"{row['satisfaction_weight']:g}"
    for metric in ("welfare", "satisfaction"):
        yield _percent_change(row[metric])
        low, high = row[f"{metric}_low"], row[f"{metric}_high"]
        yield f"[{_percent_change(low)}, {_percent_change(high)}]"


def _advertiser_section(comparison: ComparisonLike) -> Section | None:
    rows = comparison.advertisers.to_pylist()
    losers, winners = ([row for row in rows if sign * row["change"] > 0] for sign in (-1, 1))
    about = (
        f"With VCG in place of GSP at the same bids, {len(winners):,} of {len(rows):,} advertisers"
        f" gain and {len(losers):,} lose: (value − price) × clicks, over all auctions. At the same"
        " bids prices of VCG are lower, so this flatters VCG; bids to GSP are lower after best"
        " responses."
    )
    headers = ("Advertiser", "Auctions", "Gain with GSP", "Gain with VCG", "Change")
    tables = [
        Subsection(title, data_table(title, headers, map(_advertiser_cells, advertisers)))
        for title, advertisers in (
            ("Largest losses", losers[:MOST_ADVERTISERS]),
            ("Largest gains", winners[::-1][:MOST_ADVERTISERS]),
        )
        if advertisers
    ]
    return make_section(
        "Who gains and who loses",
        [Subsection("", paragraph(about, class_="about")), *tables],
    )


def _advertiser_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = (format_number(row[name], 4) for name in ("gain_gsp", "gain_vcg", "change"))
    return (isolate(row["advertiser"]), format_count(row["auctions"]), *values)


def _method_section(comparison: ComparisonLike) -> Section | None:
    details = comparison.details
    mechanisms = (
        "VCG: the slate of highest welfare; each ad pays what its bid above the reserve costs the"
        " others. GSP, model: the same slate; the smallest bid that keeps the ad\u2019s clicks."
        " GSP: ads ranked by bid × quality; the smallest bid that keeps the rank. First price: the"
        " slate of highest welfare; the bid."
    )
    responses = (
        "Best responses: bidders change their bids in turn to the bid on a grid that gains most,"
        " never above their value, from their values on. This is one of many possible rules."
    )
    rules = (
        f"Satisfaction weight {details['satisfaction_weight']:g}, squashing"
        f" {details['squashing']:g}, seed {details['seed']}."
    )
    body = join([paragraph(text) for text in (mechanisms, responses, rules)])
    return make_section("How it was done", [Subsection("", body)])


def _percent_change(change: float) -> str:
    if math.isnan(change):
        return "–"
    sign = "+" if change > 0 else ""
    return f"{sign}{format_number(100 * change, 1)}\u00a0%"
