"""The profile of the test log: totals, first clicks, transitions, fatigue, query volumes."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.profile import LogProfile
from reclick.report.charts.bars import column_chart, heat_map
from reclick.report.charts.lines import (
    Series,
    category_axis,
    line_chart,
    number_axis,
)
from reclick.report.charts.svg import svg_chart
from reclick.report.data import MIN_SUPPORT, Point, ReportData, is_enough, not_nan
from reclick.report.formatting import format_count, format_share, spell_number
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
    PUBLISHED_NOTE,
)

COLUMN_HEIGHT = 196


def log_section(data: ReportData) -> Section | None:
    """The profile of the test log, except what is on the first screen."""
    profile = data.profile
    if not profile:
        return None
    figures = _figure_grid(_profile_figures(profile))
    return make_section(
        "The log", [Subsection("", _tiles(profile)), Subsection("Clicks and pages", figures)]
    )


def _figure_grid(figures: Sequence[Html]) -> Html:
    non_empty = [chart for chart in figures if chart]
    return element("div", *non_empty, class_="figs") if non_empty else Html("")


def _tiles(profile: LogProfile) -> Html:
    rate = profile.clicks / profile.impressions if profile.impressions else 0.0
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
            "of clicked sessions",
        ),
        ("With a backward click", format_share(profile.reverse_share), "of those"),
    ]
    return element("dl", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(name: str, value: str, note: str) -> Html:
    return element("div", element("dt", name), element("dd", value, element("small", note)))


# ---- Table 1


def volume_table(profile: LogProfile) -> Html:
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
    for index, (value, published_value) in enumerate(zip(values, (relative, *shares), strict=True)):
        scale = 100 if index else 1
        cells += [
            element("td", f"{scale * value:.2f}"),
            element(
                "td",
                "" if published_value is None else f"{scale * published_value:.2f}",
                class_="published",
            ),
        ]
    return element("tr", element("th", volume, scope="row"), *cells)


# ---- figures


def position_figure(profile: LogProfile | None, *, published: bool = False) -> Html:
    """First clicks by position, in the section of the paper with the published figures."""
    if profile is None or not profile.first_clicks:
        return Html("")
    first = {str(position): value for position, value in enumerate(profile.first_clicks, start=1)}
    if not published:
        return _column_figure("Where the first click goes", "% of clicked sessions", first)
    marks = [*PUBLISHED_FIRST_CLICKS, *[None] * len(first)][: len(first)]
    unit = "% of clicked sessions (Table 2 of the paper); a diamond is the published figure"
    return _column_figure("First clicks by position", unit, first, marks)


def _profile_figures(profile: LogProfile) -> list[Html]:
    distances = {
        f"{distance:+d}".replace("-", "−"): value
        for distance, value in sorted(profile.distances.items())
    }
    lengths = {str(length): value for length, value in profile.page_lengths.items()}
    return [
        _column_figure(
            "Distance between consecutive clicks",
            "% of transitions; negative is up the page",
            distances,
        ),
        _column_figure("Ads on a page", "% of sessions", lengths),
    ]


def _column_figure(
    title: str, unit: str, shares: dict[str, float], published_shares: Sequence[float | None] = ()
) -> Html:
    if not shares:
        return Html("")
    marks = published_shares or [None] * len(shares)
    shapes = column_chart(list(shares), list(shares.values()), marks, height=COLUMN_HEIGHT)
    bars = ", ".join(f"{name} {format_share(value)}" for name, value in shares.items())
    chart = svg_chart(f"log {title}", title, f"Bars: {bars}.", COLUMN_HEIGHT, shapes)
    rows = [
        (name, format_share(value, 2), "" if mark is None else format_share(mark, 2))
        for (name, value), mark in zip(shares.items(), marks, strict=True)
    ]
    headers = ("", "Share", PUBLISHED_HEADER) if published_shares else ("", "Share")
    table = data_table(title, headers, (row[: len(headers)] for row in rows))
    return figure(title, chart, table, unit=unit)


def transition_figure(data: ReportData) -> Html:
    """The heat map of transitions between clicks; row 0 is the start of a session."""
    transitions = data.details.get("transitions")
    if not transitions or len(transitions) < 2:
        return Html("")
    n = len(transitions) - 1
    support = data.details.get("transition_support") or [None] * (n + 1)
    all_rows = [
        [
            None if position == last else not_nan(value)
            for position, value in enumerate(row[-n:], start=1)
        ]
        for last, row in enumerate(transitions)
    ]
    positions = [str(position) for position in range(1, n + 1)]
    row_names = ["start", *positions]
    rows_to_draw = [index for index, count in enumerate(support) if is_enough(count)]
    if not rows_to_draw:
        return Html("")
    shapes, height = heat_map(
        [all_rows[index] for index in rows_to_draw],
        [row_names[index] for index in rows_to_draw],
        positions,
    )
    title = "Where the next click goes"
    about = (
        "A table: from the start or the last click, down, to the position of the next click,"
        " across; the stronger the colour, the larger the share."
    )
    table = data_table(
        title,
        ("From", *positions, "n"),
        (
            (
                name,
                *("" if value is None else format_share(value, 2) for value in row),
                "" if count is None else format_count(count),
            )
            for name, row, count in zip(row_names, all_rows, support, strict=True)
        ),
    )
    chart = svg_chart("log transitions", title, about, height, shapes)
    n_small = sum(not is_enough(count) for count in support)
    rows = f"row{'s' * (n_small > 1)}"
    note = f"; {spell_number(n_small)} {rows} with n < {MIN_SUPPORT} left out" if n_small else ""
    return figure(title, chart, table, unit=f"% by the click before{note}")


def fatigue_figure(data: ReportData) -> Html:
    """The share of sessions that end after k clicks, of those with at least k."""
    # the share is unknown for more clicks than any session has
    known_shares = [
        value for value in map(not_nan, data.details.get("fatigue") or []) if value is not None
    ]
    support = (data.details.get("fatigue_support") or [None] * len(known_shares))[
        : len(known_shares)
    ]
    n_drawn = sum(map(is_enough, support))  # support decreases with the number of clicks
    if not n_drawn:
        return Html("")
    shares, names = known_shares[:n_drawn], [str(k) for k in range(len(known_shares))]
    points = tuple(Point(k, value) for k, value in enumerate(shares))
    title = "When users stop"
    shapes = line_chart(
        [Series(title, 0, points)],
        category_axis("clicks so far", names[:n_drawn]),
        number_axis("% that end", (), percent=True, ends=(0, 1)),
        height=COLUMN_HEIGHT,
    )
    line = ", ".join(f"after {k} clicks {format_share(value)}" for k, value in enumerate(shares))
    chart = svg_chart("log fatigue", title, f"A line: {line}.", COLUMN_HEIGHT, shapes)
    rows = (
        (name, format_share(value, 2), "" if count is None else format_count(count))
        for name, value, count in zip(names, known_shares, support, strict=True)
    )
    table = data_table(title, ("Clicks so far", "End", "n"), rows)
    note = f"; where n ≥ {MIN_SUPPORT}" if n_drawn < len(known_shares) else ""
    return figure(title, chart, table, unit=f"% of sessions with so many clicks{note}")
