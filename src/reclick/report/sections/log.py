"""The portrait of the log: its totals, Tables 1 and 2 and Figure 1 of the paper, and how users move over a page."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.profile import Portrait
from reclick.report import published
from reclick.report.charts.bars import columns, heat
from reclick.report.charts.lines import Point, Series, categories, numbers, plot
from reclick.report.charts.svg import drawing
from reclick.report.data import Material
from reclick.report.formatting import amount, share
from reclick.report.markup import Html, data_table, element, figure, join, paragraph, scrolling
from reclick.report.results import number
from reclick.report.section import Part, Section, section

DIAMOND = "a diamond is the paper's figure, of Bing's log"


def log_portrait(material: Material) -> Section | None:
    """Everything that is known of the test log itself."""
    portrait = material.portrait
    moves = [
        _transitions(material.details.get("transitions")),
        _fatigue(material.details.get("fatigue")),
    ]
    parts = [
        Part(
            "How users move over the page",
            _grid([*(_portrait_figures(portrait) if portrait else []), *moves]),
        )
    ]
    if portrait:
        parts = [
            Part("", _tiles(portrait)),
            Part("Clicked sessions by query volume", _by_volume(portrait)),
            *parts,
        ]
    return section("The log", parts)


def _grid(figures: Sequence[Html]) -> Html:
    kept = [one for one in figures if one]
    return element("div", *kept, class_="figs") if kept else Html("")


def _tiles(portrait: Portrait) -> Html:
    rate = portrait.clicks / portrait.impressions if portrait.impressions else 0.0
    tiles = [
        ("Sessions", amount(portrait.sessions), f"{share(portrait.clicked_share)} with a click"),
        ("Queries", amount(portrait.queries), f"{amount(portrait.pairs)} (query, ad) pairs"),
        ("Ads", amount(portrait.ads), f"{amount(portrait.impressions)} impressions"),
        ("Clicks", amount(portrait.clicks), f"{share(rate)} of impressions"),
        (
            "Two or more clicks",
            share(portrait.multi_click_share),
            f"of clicked sessions; {published.NAME} about {published.MULTI_CLICK_SHARE:.0%}",
        ),
        (
            "Back up the page",
            share(portrait.reverse_share),
            f"of those; {published.NAME} about {published.REVERSE_SHARE:.0%}",
        ),
    ]
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value, element("small", note)))
            for name, value, note in tiles
        ),
        class_="tiles",
    )


def _by_volume(portrait: Portrait) -> Html:
    """Table 1, each share with the paper's beside it."""
    rows = [row for row in portrait.by_volume if row.queries]
    if not rows:
        return Html("")
    caption = "Clicked sessions by volume of the query and number of clicks (the paper's Table 1)"
    groups = ("relative", "1 click (%)", "2 clicks (%)", "3 clicks (%)", "4 or more (%)")
    single = (
        element("th", name, scope="col", rowspan="2")
        for name in ("Volume", "queries", "clicked sessions")
    )
    head = element(
        "tr", *single, *(element("th", name, scope="colgroup", colspan="2") for name in groups)
    )
    pairs = join(
        [
            element("th", "here", scope="col"),
            element("th", published.HEAD, scope="col", class_="theirs"),
        ]
        * len(groups)
    )
    body = []
    for row in rows:
        relative, shares = published.BY_VOLUME.get(row.volume, (None, (None,) * 4))
        ours = [f"{row.relative:.2f}", *(f"{100 * value:.2f}" for value in row.shares)]
        theirs = [
            "" if relative is None else f"{relative:.2f}",
            *("" if value is None else f"{100 * value:.2f}" for value in shares),
        ]
        cells = [
            cell
            for pair in zip(ours, theirs, strict=True)
            for cell in (element("td", pair[0]), element("td", pair[1], class_="theirs"))
        ]
        counts = (element("td", amount(row.queries)), element("td", amount(row.sessions)))
        body.append(element("tr", element("th", row.volume, scope="row"), *counts, *cells))
    table = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head, element("tr", pairs)),
        element("tbody", *body),
    )
    about = "The paper's Table 1. The volume of a query is its sessions in this log; “relative” is to the first row. "
    return join([scrolling(table, caption), paragraph(about + published.ABOUT, class_="note")])


def _portrait_figures(portrait: Portrait) -> list[Html]:
    first = {str(position): value for position, value in enumerate(portrait.first_clicks, start=1)}
    printed = [*published.FIRST_CLICKS, *[None] * len(first)][: len(first)]
    distances = {
        f"{move:+d}".replace("-", "−"): value for move, value in sorted(portrait.distances.items())
    }
    lengths = {str(length): value for length, value in portrait.page_lengths.items()}
    return [
        _bars(
            "First clicks by position",
            f"% of clicked sessions (the paper's Table 2); {DIAMOND}",
            first,
            printed,
        ),
        _bars(
            "Distance between consecutive clicks",
            "% of moves (the paper's Figure 1); negative is back up the page",
            distances,
        ),
        _bars("Ads on a page", "% of sessions", lengths),
    ]


def _bars(
    title: str, note: str, shares: dict[str, float], theirs: Sequence[float | None] = ()
) -> Html:
    if not shares:
        return Html("")
    beside = theirs or [None] * len(shares)
    shapes = columns(list(shares), list(shares.values()), beside)
    about = "Bars: " + ", ".join(f"{name} {share(value)}" for name, value in shares.items()) + "."
    rows = [
        (name, share(value, 2), "" if printed is None else share(printed, 2))
        for (name, value), printed in zip(shares.items(), beside, strict=True)
    ]
    heads = ("", "Share", published.HEAD) if theirs else ("", "Share")
    table = data_table(title, heads, (row[: len(heads)] for row in rows))
    return figure(title, drawing(f"log {title}", title, about, 196, shapes), table, unit=note)


def _transitions(table: list[list[float | None]] | None) -> Html:
    """The heat map of moves: row 0 is the start of a session."""
    if not table or len(table) < 2:
        return Html("")
    positions = len(table) - 1
    rows = [
        [
            None if place == last else number(value)
            for place, value in enumerate(row[-positions:], start=1)
        ]
        for last, row in enumerate(table)
    ]
    side, head = (
        ["start", *map(str, range(1, positions + 1))],
        [str(n) for n in range(1, positions + 1)],
    )
    shapes, height = heat(rows, side, head)
    title = "Where the next click goes"
    about = "A table: from the start or the last click, down, to the position of the next click, across; the stronger the colour, the larger the share."
    numbers_ = data_table(
        title,
        ("From", *head),
        (
            (name, *("" if v is None else share(v, 2) for v in row))
            for name, row in zip(side, rows, strict=True)
        ),
    )
    return figure(
        title,
        drawing("log transitions", title, about, height, shapes),
        numbers_,
        unit="% of next clicks, by the click before",
    )


def _fatigue(found: list[float | None] | None) -> Html:
    shares = [
        value for value in map(number, found or []) if value is not None
    ]  # beyond the last click ever made nothing is known
    if not shares:
        return Html("")
    names = [str(k) for k in range(len(shares))]
    points = tuple(Point(k, value) for k, value in enumerate(shares))
    title = "Fatigue"
    shapes = plot(
        [Series(title, 0, points)],
        categories("clicks so far", names),
        numbers("% that end there", (), percent=True, ends=(0, 1)),
    )
    about = (
        "A line: "
        + ", ".join(f"after {k} clicks {share(value)}" for k, value in enumerate(shares))
        + "."
    )
    table = data_table(
        title,
        ("Clicks so far", "End there"),
        ((name, share(value, 2)) for name, value in zip(names, shares, strict=True)),
    )
    note = "Of the sessions that come so far, the share that ends there"
    return figure(title, drawing("log fatigue", title, about, 224, shapes), table, unit=note)
