"""Draw what fitting recovers and counting does not: `python docs/luceclick_figure.py` writes luceclick.svg beside this file.

Sessions are drawn from known parameters: forty ads of one query, good ones mostly on top, as rankers place them. LuceClick and MultiClick are
fitted; what they find of attractiveness and satisfaction is drawn against the truth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from reclick.clicks import distribution as pg
from reclick.clicks.choice import LUCE
from reclick.clicks.distribution import Pages
from reclick.data.batch import Float64
from reclick.models import LuceClick, MultiClick

ADS, PAGE, COUNT = 40, 5, 60_000
SIZE, LEFT, TOP, GAP = 250, 50, 40, 70
COLOURS = {"LuceClick": "#1d4ed8", "counting (MultiClick)": "#d97706"}
FONT = "font-family='Helvetica, Arial, sans-serif' fill='#374151'"


def drawn(theta: Float64, rho: Float64, rng: np.random.Generator) -> pa.Table:
    """Sessions whose pages show five ads in the order of a noisy guess of how attractive they are."""
    chosen = np.argsort(rng.random((COUNT, ADS)), axis=1)[:, :PAGE]
    guess = np.log(theta)[chosen] + rng.normal(0, 0.7, chosen.shape)
    shown = np.take_along_axis(chosen, np.argsort(-guess, axis=1), axis=1)
    gamma = np.full((1, PAGE + 1, PAGE), 0.5) * 0.7 ** np.abs(
        np.arange(PAGE) - np.arange(PAGE + 1)[:, None]
    )
    omega = np.array([[1.0, 0.8, 1.0, 1.2, 1.4, 1.6]])
    pages = Pages(
        LUCE,
        theta[shown].ravel(),
        rho[shown].ravel(),
        omega,
        gamma,
        np.arange(COUNT + 1) * PAGE,
        np.zeros(COUNT, np.int64),
    )
    click, clicks = pg.samples(pages, rng)
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


def panel(number: int, title: str, truth: Float64, found: dict[str, Float64], top: float) -> str:
    """Points of what was found against the truth, and the line where both are the same."""
    x0, y0 = LEFT + number * (SIZE + GAP), TOP + SIZE
    parts = [
        f"<rect x='{x0}' y='{TOP}' width='{SIZE}' height='{SIZE}' fill='none' stroke='#9ca3af'/>",
        f"<line x1='{x0}' y1='{y0}' x2='{x0 + SIZE}' y2='{TOP}' stroke='#9ca3af' stroke-dasharray='4 3'/>",
        f"<text x='{x0 + SIZE / 2}' y='{TOP - 12}' text-anchor='middle' font-size='13' {FONT}>{title}</text>",
        f"<text x='{x0 + SIZE / 2}' y='{y0 + 30}' text-anchor='middle' font-size='12' {FONT}>truth</text>",
        f"<text x='{x0}' y='{y0 + 15}' font-size='11' {FONT}>0</text>",
        f"<text x='{x0 + SIZE}' y='{y0 + 15}' text-anchor='end' font-size='11' {FONT}>{top:g}</text>",
        f"<text x='{x0 - 6}' y='{TOP + 10}' text-anchor='end' font-size='11' {FONT}>{top:g}</text>",
    ]
    for name, values in found.items():
        for true, value in zip(truth, values, strict=True):
            x, y = x0 + SIZE * min(true / top, 1.0), y0 - SIZE * min(value / top, 1.0)
            parts.append(
                f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{COLOURS[name]}' fill-opacity='0.75'/>"
            )
    return "\n".join(parts)


def main() -> None:
    """Simulate, fit, draw."""
    rng = np.random.default_rng(7)
    theta, rho = rng.gamma(1.5, 0.6, ADS) + 0.05, rng.beta(3, 4, ADS)
    log, asked = (
        drawn(theta, rho, rng),
        {"query": ["q"] * ADS, "ad": [f"{i:02}" for i in range(ADS)]},
    )
    ours, counted = (
        LuceClick(query_strength=None, components=1).fit(log).relevance(asked),
        MultiClick().fit(log).relevance(asked),
    )
    found = dict(zip(COLOURS, (ours, counted), strict=True))
    weights = {
        name: (table["attractiveness"].to_numpy() / (1 - table["attractiveness"].to_numpy()))
        for name, table in found.items()
    }
    scaled = {
        name: odds * theta.mean() / odds.mean() for name, odds in weights.items()
    }  # only ratios of attractiveness are meant
    panels = [
        panel(0, "attractiveness, relative", theta, scaled, 3.5),
        panel(
            1,
            "satisfaction",
            rho,
            {name: table["satisfaction"].to_numpy() for name, table in found.items()},
            1.0,
        ),
    ]
    legend = [
        f"<circle cx='{LEFT + 6 + 130 * i}' cy='{TOP + SIZE + 52}' r='4' fill='{colour}'/>"
        f"<text x='{LEFT + 16 + 130 * i}' y='{TOP + SIZE + 56}' font-size='12' {FONT}>{name}</text>"
        for i, (name, colour) in enumerate(COLOURS.items())
    ]
    width, height = LEFT + 2 * SIZE + GAP + 30, TOP + SIZE + 70
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
    drawing = "\n".join(
        [
            head,
            "<title>What fitting recovers and counting does not</title>",
            *panels,
            *legend,
            "</svg>\n",
        ]
    )
    (Path(__file__).parent / "luceclick.svg").write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
