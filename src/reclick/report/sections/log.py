"""The profile of the test log: totals, Tables 1 and 2 and Figure 1 of the paper, transitions."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.profile import LogProfile
from reclick.report.charts.bars import column_chart, heat_map
from reclick.report.charts.lines import (
    CHART_HEIGHT,
    Series,
    category_axis,
    line_chart,
    number_axis,
)
from reclick.report.charts.svg import svg_chart
from reclick.report.data import Point, ReportData, not_nan
from reclick.report.formatting import format_count, format_share
from reclick.report.markup import (
    Html,
    Section,
    Subsection,
    data_table,
    element,
    figure,
    join,
    make_section,
    paragraph,
    scroll_box,
)
from reclick.report.tables import (
    PUBLISHED_BY_VOLUME,
    PUBLISHED_FIRST_CLICKS,
    PUBLISHED_HEADER,
    PUBLISHED_LOG,
    PUBLISHED_MULTI_CLICK_SHARE,
    PUBLISHED_NOTE,
    PUBLISHED_REVERSE_SHARE,
)

COLUMN_HEIGHT = 196


def log_section(data: ReportData) -> Section | None:
    """Everything that is known about the test log itself."""
    profile = data.profile
    figures = [
        *(_profile_figures(profile) if profile else []),
        _transition_figure(data.details.get("transitions")),
        _fatigue_figure(data.details.get("fatigue")),
    ]
    subsections = [Subsection("How users move over the page", _figure_grid(figures))]
    if profile:
        subsections = [
            Subsection("", _tiles(profile)),
            Subsection("Clicked sessions by query volume", _volume_table(profile)),
            *subsections,
        ]
    return make_section("The log", subsections)


def _figure_grid(figures: Sequence[Html]) -> Html:
    filled = [each for each in figures if each]
    return element("div", *filled, class_="figs") if filled else Html("")


def _tiles(profile: LogProfile) -> Html:
    rate = profile.clicks / profile.impressions if profile.impressions else 0.0
    multi_click = f"{PUBLISHED_LOG} about {PUBLISHED_MULTI_CLICK_SHARE:.0%}"
    reverse = f"{PUBLISHED_LOG} about {PUBLISHED_REVERSE_SHARE:.0%}"
    tiles = [
        (
            "Sessions",
            format_count(profile.sessions),
            f"{format_share(profile.clicked_share)} with a click",
        ),
        (
            "Queries",
            format_count(profile.queries),
            f"{format_count(profile.pairs)} (query, ad) pairs",
        ),
        ("Ads", format_count(profile.ads), f"{format_count(profile.impressions)} impressions"),
        ("Clicks", format_count(profile.clicks), f"{format_share(rate)} of impressions"),
        (
            "Two or more clicks",
            format_share(profile.multi_click_share),
            f"of clicked sessions; {multi_click}",
        ),
        ("Reverse sessions", format_share(profile.reverse_share), f"of those; {reverse}"),
    ]
    return element("dl", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(name: str, value: str, note: str) -> Html:
    return element("div", element("dt", name), element("dd", value, element("small", note)))


# ---- Table 1


def _volume_table(profile: LogProfile) -> Html:
    """Table 1, each share with the published one next to it."""
    rows = [row for row in profile.by_volume if row.queries]
    if not rows:
        return Html("")
    caption = "Clicked sessions by query volume and number of clicks (Table 1 of the paper)"
    body = (
        _volume_row(row.volume, (row.queries, row.sessions), (row.relative, *row.shares))
        for row in rows
    )
    parts = (
        element("caption", caption, class_="hidden"),
        element("thead", *_volume_headers()),
        element("tbody", *body),
    )
    about = (
        "Table 1 of the paper. The volume of a query is its number of sessions in this log;"
        f" “relative” is to the first row. {PUBLISHED_NOTE}"
    )
    return join([scroll_box(element("table", *parts), caption), paragraph(about, class_="note")])


def _volume_headers() -> tuple[Html, Html]:
    groups = ("relative", "1 click (%)", "2 clicks (%)", "3 clicks (%)", "4 or more (%)")
    singles = ("Volume", "queries", "clicked sessions")
    first = element(
        "tr",
        *(element("th", name, scope="col", rowspan="2") for name in singles),
        *(element("th", name, scope="colgroup", colspan="2") for name in groups),
    )
    pair = [
        element("th", "here", scope="col"),
        element("th", PUBLISHED_HEADER, scope="col", class_="published"),
    ]
    return first, element("tr", *(pair * len(groups)))


def _volume_row(volume: str, counts: tuple[float, ...], values: tuple[float, ...]) -> Html:
    relative, shares = PUBLISHED_BY_VOLUME.get(volume, (None, (None,) * 4))
    cells = [element("td", format_count(count)) for count in counts]
    for index, (here, published) in enumerate(zip(values, (relative, *shares), strict=True)):
        scale = 100 if index else 1
        cells += [
            element("td", f"{scale * here:.2f}"),
            element(
                "td", "" if published is None else f"{scale * published:.2f}", class_="published"
            ),
        ]
    return element("tr", element("th", volume, scope="row"), *cells)


# ---- figures


def _profile_figures(profile: LogProfile) -> list[Html]:
    first = {str(position): value for position, value in enumerate(profile.first_clicks, start=1)}
    published = [*PUBLISHED_FIRST_CLICKS, *[None] * len(first)][: len(first)]
    distances = {
        f"{distance:+d}".replace("-", "−"): value
        for distance, value in sorted(profile.distances.items())
    }
    lengths = {str(length): value for length, value in profile.page_lengths.items()}
    diamond = f"a diamond is the published figure, of {PUBLISHED_LOG}'s log"
    return [
        _column_figure(
            "First clicks by position",
            f"% of clicked sessions (Table 2 of the paper); {diamond}",
            first,
            published,
        ),
        _column_figure(
            "Distance between consecutive clicks",
            "% of transitions (Figure 1 of the paper); negative is up the page",
            distances,
        ),
        _column_figure("Ads on a page", "% of sessions", lengths),
    ]


def _column_figure(
    title: str, unit: str, shares: dict[str, float], published: Sequence[float | None] = ()
) -> Html:
    if not shares:
        return Html("")
    marks = published or [None] * len(shares)
    shapes = column_chart(list(shares), list(shares.values()), marks, height=COLUMN_HEIGHT)
    bars = ", ".join(f"{name} {format_share(value)}" for name, value in shares.items())
    chart = svg_chart(f"log {title}", title, f"Bars: {bars}.", COLUMN_HEIGHT, shapes)
    rows = [
        (name, format_share(value, 2), "" if mark is None else format_share(mark, 2))
        for (name, value), mark in zip(shares.items(), marks, strict=True)
    ]
    headers = ("", "Share", PUBLISHED_HEADER) if published else ("", "Share")
    table = data_table(title, headers, (row[: len(headers)] for row in rows))
    return figure(title, chart, table, unit=unit)


def _transition_figure(transitions: list[list[float | None]] | None) -> Html:
    """The heat map of transitions between clicks; row 0 is the start of a session."""
    if not transitions or len(transitions) < 2:
        return Html("")
    n = len(transitions) - 1
    rows = [
        [
            None if position == last else not_nan(value)
            for position, value in enumerate(row[-n:], start=1)
        ]
        for last, row in enumerate(transitions)
    ]
    positions = [str(position) for position in range(1, n + 1)]
    row_names = ["start", *positions]
    shapes, height = heat_map(rows, row_names, positions)
    title = "Where the next click goes"
    about = (
        "A table: from the start or the last click, down, to the position of the next click,"
        " across; the stronger the colour, the larger the share."
    )
    table = data_table(
        title,
        ("From", *positions),
        (
            (name, *("" if value is None else format_share(value, 2) for value in row))
            for name, row in zip(row_names, rows, strict=True)
        ),
    )
    chart = svg_chart("log transitions", title, about, height, shapes)
    return figure(title, chart, table, unit="% of next clicks, by the click before")


def _fatigue_figure(fatigue: list[float | None] | None) -> Html:
    # after more clicks than any session has, the share is unknown
    shares = [value for value in map(not_nan, fatigue or []) if value is not None]
    if not shares:
        return Html("")
    names = [str(k) for k in range(len(shares))]
    points = tuple(Point(k, value) for k, value in enumerate(shares))
    title = "Fatigue"
    shapes = line_chart(
        [Series(title, 0, points)],
        category_axis("clicks so far", names),
        number_axis("% that end", (), percent=True, ends=(0, 1)),
    )
    line = ", ".join(f"after {k} clicks {format_share(value)}" for k, value in enumerate(shares))
    chart = svg_chart("log fatigue", title, f"A line: {line}.", CHART_HEIGHT, shapes)
    rows = ((name, format_share(value, 2)) for name, value in zip(names, shares, strict=True))
    table = data_table(title, ("Clicks so far", "End"), rows)
    unit = "Share of the sessions with at least this many clicks that end after exactly this many"
    return figure(title, chart, table, unit=unit)
