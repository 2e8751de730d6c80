"""The colours of the report, light and dark. Text keeps a contrast of 4.5 to what is behind it, marks keep 3."""

from __future__ import annotations

LIGHT = {
    "paper": "#fbfaf7",
    "panel": "#ffffff",
    "ink": "#1d1c1a",
    "muted": "#5b5851",
    "rule": "#e2ddd3",
    "axis": "#8b867c",
    "accent": "#0b5fa5",
    "warm": "#c4410b",
    "green": "#00795c",
    "best": "#e4eef8",
    "theirs": "#f5f0e3",
}
DARK = {
    "paper": "#14161a",
    "panel": "#1b1e23",
    "ink": "#eceae5",
    "muted": "#aeaaa2",
    "rule": "#343941",
    "axis": "#7d828b",
    "accent": "#7cbcff",
    "warm": "#ff8e57",
    "green": "#3fcf9c",
    "best": "#1d3349",
    "theirs": "#2b281f",
}
# One a model, at most eight in a drawing, chosen to stay apart (20 or more in CIELAB) for eyes that lack red, green or blue, too.
SERIES_LIGHT = (
    "#1159bc",
    "#7e0701",
    "#3d3a3b",
    "#6a0e6a",
    "#b27607",
    "#7c8853",
    "#269aa3",
    "#b73470",
)
SERIES_DARK = (
    "#6892ff",
    "#ab8e81",
    "#34f3d9",
    "#bf5ca3",
    "#d05739",
    "#d3e194",
    "#a3b4e4",
    "#f2bb5a",
)
HEAT_LIGHT = ("#f4f6f8", "#0a4f8c")  # of 0 and of the largest share
HEAT_DARK = ("#22262c", "#a6d3ff")
LEVELS = 10  # steps of the heat map


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as the web's accessibility rules define it: (lighter + 0.05) / (darker + 0.05).

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return round((high + 0.05) / (low + 0.05), 2)


def heat(ends: tuple[str, str], inks: tuple[str, str]) -> list[tuple[str, str]]:
    """The colour of each level of a heat map, and the ink that is easier to read on it."""
    low, high = (_channels(end) for end in ends)
    steps = (step / (LEVELS - 1) for step in range(LEVELS))
    fills = [
        "#" + "".join(f"{round(a + step * (b - a)):02x}" for a, b in zip(low, high, strict=True))
        for step in steps
    ]
    return [(fill, max(inks, key=lambda ink: contrast(ink, fill))) for fill in fills]


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[place : place + 2], 16) for place in (1, 3, 5))


def _luminance(colour: str) -> float:
    linear = (
        c / 12.92 if (c := channel / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for channel in _channels(colour)
    )
    return sum(
        weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
