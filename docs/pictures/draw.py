"""Draw the pictures of the README: `python docs/pictures/draw.py` writes the SVG files here.

two-orders.svg shows the same ads in two orders, with the click probabilities of a LuceClick that
is fitted to a simulated log. The others are badges, drawn here so that a reader loads nothing.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import reclick as rc

QUERY, SEED = "cat food", 1
WIDTH, HEIGHT, MARGIN, COLUMN, ROW, BAR = 860, 320, 30, 400, 58, 150
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, GREY, BLUE, GREEN = "#111827", "#4b5563", "#1d4ed8", "#15803d"
BADGES = {
    "python": ("python", "3.11 or newer", BLUE),
    "licence": ("licence", "Apache 2.0", BLUE),
    "models": ("click models", str(len(rc.MODELS)), GREEN),
    "typed": ("typed", "mypy strict", GREEN),
}


def open_svg(width: int, height: int, name: str) -> str:
    """The start of a drawing, with its name for those who cannot see it."""
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{escape(name)}'>"
    return f"{head}\n<title>{escape(name)}</title>"


def draw_text(x: float, y: float, text: str, size: int, colour: str, extra: str = "") -> str:
    """One line of text."""
    place = f"x='{x:g}' y='{y:g}' font-size='{size}' fill='{colour}' {FONT}"
    return f"<text {place} {extra}>{escape(text)}</text>"


def draw_page(x: float, titles: list[str], chances: list[float]) -> list[str]:
    """One order of the ads: a box per ad, with a bar as long as its click probability."""
    total = f"{sum(chances):.2f} clicks expected"
    parts = [draw_text(x, 92, total, 20, INK, "font-weight='bold'")]
    for number, (title, chance) in enumerate(zip(titles, chances, strict=True), start=1):
        y = 50 + ROW * number
        box = f"x='{x}' y='{y}' width='{COLUMN - 20}' height='{ROW - 10}' rx='6'"
        bar = f"x='{x + 14}' y='{y + 28}' width='{max(chance * BAR / 0.4, 1):.0f}' height='10'"
        parts += [
            f"<rect {box} fill='#f3f4f6'/>",
            draw_text(x + 14, y + 20, f"{number}. {title}", 14, INK),
            f"<rect {bar} rx='2' fill='{BLUE}'/>",
            draw_text(x + COLUMN - 34, y + 30, f"{chance:.2f}", 18, BLUE, "text-anchor='end'"),
        ]
    return parts


def draw_two_orders() -> str:
    """The picture of the same three ads, best first and best last."""
    market = rc.simulate(20_000, weeks=2, queries=300, seed=SEED)
    model = rc.LuceClick().fit(market.weeks[0], ads=market.ads)
    known = model.relevance(query=QUERY).to_pylist()
    shown = sorted(known, key=lambda row: -row["impressions"])[:3]
    ads = [row["ad"] for row in sorted(shown, key=lambda row: -row["attractiveness"])]
    titles = {row["ad"]: row["title"] for row in market.ads.to_pylist()}
    heading = f"The same three ads for “{QUERY}”, in two orders"
    parts = [
        open_svg(WIDTH, HEIGHT, heading),
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='10' fill='#ffffff'/>",
        draw_text(MARGIN, 46, heading, 22, INK, "font-weight='bold'"),
    ]
    for x, order in ((MARGIN, ads), (MARGIN + COLUMN + 10, ads[::-1])):
        chances = model.click_prob((QUERY, order))[0].tolist()
        parts += draw_page(x, [titles[ad] for ad in order], chances)
    note = "Probability of a click at each position, by a LuceClick fitted to 20,000 sessions"
    parts.append(draw_text(MARGIN, HEIGHT - 18, note, 13, GREY))
    return "\n".join([*parts, "</svg>\n"])


def draw_badge(label: str, value: str, colour: str) -> str:
    """A label and a value side by side."""
    left, right = 12 + 6.6 * len(label), 12 + 6.6 * len(value)
    middle = "text-anchor='middle'"
    return "\n".join(
        [
            open_svg(round(left + right), 20, f"{label}: {value}"),
            f"<rect width='{left + right:.0f}' height='20' rx='3' fill='#374151'/>",
            f"<rect x='{left:.0f}' width='{right:.0f}' height='20' rx='3' fill='{colour}'/>",
            draw_text(round(left / 2), 14, label, 11, "#ffffff", middle),
            draw_text(round(left + right / 2), 14, value, 11, "#ffffff", middle),
            "</svg>\n",
        ]
    )


def draw_all() -> dict[str, str]:
    """All pictures by the name of their file."""
    badges = {f"badge-{name}.svg": draw_badge(*parts) for name, parts in BADGES.items()}
    return {"two-orders.svg": draw_two_orders(), **badges}


if __name__ == "__main__":
    for name, picture in draw_all().items():
        (Path(__file__).parent / name).write_text(picture, encoding="utf-8")
