"""Draw what fitting recovers and counting does not.

`python docs/explanation/counting_or_fitting.py` writes counting-or-fitting.svg in this folder.

Sessions are simulated from known parameters: forty ads of one query, good ones mostly at the top.
LuceClick and MultiClick are fitted, and their attractiveness and satisfaction are plotted against
the truth, to counting-or-fitting.svg in this folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from reclick.clicks.choice import ChoicePages
from reclick.data.batch import Float64
from reclick.models import LuceClick, MultiClick

ADS, PAGE, COUNT = 40, 5, 60_000
SIZE, LEFT, TOP, GAP = 250, 50, 40, 70
COLOURS = {"LuceClick": "#1d4ed8", "counting (MultiClick)": "#d97706"}
FONT = "font-family='Helvetica, Arial, sans-serif' fill='#374151'"


def simulate_log(theta: Float64, rho: Float64, rng: np.random.Generator) -> pa.Table:
    """Sessions with pages of five ads, ranked by a noisy estimate of their attractiveness."""
    selected = np.argsort(rng.random((COUNT, ADS)), axis=1)[:, :PAGE]
    estimate = np.log(theta)[selected] + rng.normal(0, 0.7, selected.shape)
    shown = np.take_along_axis(selected, np.argsort(-estimate, axis=1), axis=1)
    gamma = np.full((1, PAGE + 1, PAGE), 0.5) * 0.7 ** np.abs(
        np.arange(PAGE) - np.arange(PAGE + 1)[:, None]
    )
    omega = np.array([[1.0, 0.8, 1.0, 1.2, 1.4, 1.6]])
    pages = ChoicePages(
        "luce",
        theta[shown].ravel(),
        rho[shown].ravel(),
        omega,
        gamma,
        np.arange(COUNT + 1) * PAGE,
        np.zeros(COUNT, np.int64),
    )
    click, clicks = pages.sample(rng)
    ads = pa.ListArray.from_arrays(
        pa.array(np.arange(COUNT + 1, dtype=np.int32) * PAGE),
        pa.array([f"{i:02}" for i in shown.ravel()]),
    )
    return pa.table(
        {
            "query": ["q"] * COUNT,
            "ads": ads,
            "clicks": pa.ListArray.from_arrays(pa.array(clicks.astype(np.int32)), pa.array(click)),
        }
    )


def draw_text(x: float, y: float, text: str, size: int, anchor: str) -> str:
    """One line of text."""
    place = f"x='{x}' y='{y}' text-anchor='{anchor}'"
    return f"<text {place} font-size='{size}' {FONT}>{text}</text>"


def draw_panel(
    number: int, title: str, truth: Float64, estimates: dict[str, Float64], top: float
) -> str:
    """Points of the estimates against the truth, and the diagonal."""
    x0, y0 = LEFT + number * (SIZE + GAP), TOP + SIZE
    middle, right, grey = x0 + SIZE / 2, x0 + SIZE, "stroke='#9ca3af'"
    ends = f"x1='{x0}' y1='{y0}' x2='{right}' y2='{TOP}'"
    parts = [
        f"<rect x='{x0}' y='{TOP}' width='{SIZE}' height='{SIZE}' fill='none' {grey}/>",
        f"<line {ends} {grey} stroke-dasharray='4 3'/>",
        draw_text(middle, TOP - 12, title, 13, "middle"),
        draw_text(middle, y0 + 30, "truth", 12, "middle"),
        draw_text(x0, y0 + 15, "0", 11, "start"),
        draw_text(right, y0 + 15, f"{top:g}", 11, "end"),
        draw_text(x0 - 6, TOP + 10, f"{top:g}", 11, "end"),
    ]
    for name, values in estimates.items():
        for true, value in zip(truth, values, strict=True):
            x, y = x0 + SIZE * min(true / top, 1.0), y0 - SIZE * min(value / top, 1.0)
            style = f"fill='{COLOURS[name]}' fill-opacity='0.75'"
            parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' {style}/>")
    return "\n".join(parts)


def main() -> None:
    """Simulate, fit, draw."""
    rng = np.random.default_rng(7)
    theta, rho = rng.gamma(1.5, 0.6, ADS) + 0.05, rng.beta(3, 4, ADS)
    log, pairs = (
        simulate_log(theta, rho, rng),
        {"query": ["q"] * ADS, "ad": [f"{i:02}" for i in range(ADS)]},
    )
    fitted, counted = (
        LuceClick(query_strength=None, components=1).fit(log).relevance(pairs),
        MultiClick().fit(log).relevance(pairs),
    )
    tables = dict(zip(COLOURS, (fitted, counted), strict=True))
    weights = {
        name: (table["attractiveness"].to_numpy() / (1 - table["attractiveness"].to_numpy()))
        for name, table in tables.items()
    }
    scaled = {
        name: odds * theta.mean() / odds.mean() for name, odds in weights.items()
    }  # only ratios of attractiveness are comparable
    panels = [
        draw_panel(0, "attractiveness, relative", theta, scaled, 3.5),
        draw_panel(
            1,
            "satisfaction",
            rho,
            {name: table["satisfaction"].to_numpy() for name, table in tables.items()},
            1.0,
        ),
    ]
    legend = [
        f"<circle cx='{LEFT + 6 + 130 * i}' cy='{TOP + SIZE + 52}' r='4' fill='{colour}'/>"
        + draw_text(LEFT + 16 + 130 * i, TOP + SIZE + 56, name, 12, "start")
        for i, (name, colour) in enumerate(COLOURS.items())
    ]
    width, height = LEFT + 2 * SIZE + GAP + 30, TOP + SIZE + 70
    box = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {box}>"
    drawing = "\n".join(
        [
            head,
            "<title>What fitting recovers and counting does not</title>",
            *panels,
            *legend,
            "</svg>\n",
        ]
    )
    (Path(__file__).parent / "counting-or-fitting.svg").write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
