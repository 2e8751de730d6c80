"""Plots with matplotlib, which is imported when a plot is drawn: `pip install 'reclick[plot]'`.

Every function returns a new figure, which a notebook shows by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reclick.runtime.extras import import_extra

Float64 = npt.NDArray[np.float64]
PANEL_WIDTH, ROW_HEIGHT, TITLE_HEIGHT = 4.0, 0.35, 1.1  # inches


class IntervalPanel(NamedTuple):
    """A panel of values with intervals, one per label; a value may be nan or infinite."""

    title: str
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class IntervalCurve(NamedTuple):
    """Points of a curve, with intervals of y."""

    x: Float64
    y: Float64
    low: Float64
    high: Float64


def plot_intervals(labels: Sequence[str], panels: Sequence[IntervalPanel]) -> Any:
    """Draw a panel per quantity: a dot and an interval per label, the first label on top."""
    height = TITLE_HEIGHT + ROW_HEIGHT * len(labels)
    figure, axes = _new_figure(len(panels), PANEL_WIDTH, height, share_y=True)
    position = np.arange(len(labels))
    for axis, panel in zip(axes, panels, strict=True):
        is_known = np.isfinite(np.array(panel.values, np.float64))
        values, low, high = (np.array(column, np.float64)[is_known] for column in panel[1:])
        low, high = (np.where(np.isfinite(end), end, values) for end in (low, high))
        axis.errorbar(
            values,
            position[is_known],
            xerr=[values - low, high - values],
            fmt="o",
            capsize=3,
        )
        axis.set_title(panel.title)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(position, labels)
    axes[0].set_ylim(len(labels) - 0.5, -0.5)
    return figure


def plot_curves(
    curves: Mapping[str, IntervalCurve], *, title: str, x: str, y: str, diagonal: bool = False
) -> Any:
    """Draw curves with their intervals in one panel, and the diagonal for comparison."""
    figure, (axis,) = _new_figure(1, 6.0, 5.0)
    for name, curve in curves.items():
        (line,) = axis.plot(curve.x, curve.y, marker="o", markersize=3, label=name)
        low, high = (np.where(np.isfinite(end), end, curve.y) for end in (curve.low, curve.high))
        axis.fill_between(curve.x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    if diagonal:
        top = max(float(np.max([curve.x.max(), curve.y.max()])) for curve in curves.values())
        axis.plot([0, top], [0, top], color="gray", linestyle=":", linewidth=1)
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(alpha=0.3)
    if curves:
        axis.legend(frameon=False)
    return figure


def plot_transitions(shares: Float64) -> Any:
    """Draw shares of next clicks [last click, position] as a matrix; row 0 is the start."""
    n_rows, n_columns = shares.shape
    positions = [str(position) for position in range(1, n_columns + 1)]
    figure, (axis,) = _new_figure(1, 1.5 + 0.6 * n_columns, 1.2 + 0.45 * n_rows)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=max(float(shares.max(initial=0.0)), 1e-9))
    for row in range(n_rows):
        for column in range(n_columns):
            is_dark = shares[row, column] > 0.6 * shares.max()
            axis.text(
                column,
                row,
                f"{shares[row, column]:.0%}",
                ha="center",
                va="center",
                color="white" if is_dark else "black",
                fontsize=8,
            )
    axis.set_xticks(range(n_columns), positions)
    axis.set_yticks(range(n_rows), ["start", *positions])
    axis.set(
        title="Next click by last click", xlabel="position of the next click", ylabel="last click"
    )
    return figure


def plot_bars(panels: Mapping[str, Mapping[str, float]]) -> Any:
    """Draw a panel of bars per mapping of labels to shares."""
    figure, axes = _new_figure(len(panels), PANEL_WIDTH, 3.0)
    for axis, (title, shares) in zip(axes, panels.items(), strict=True):
        axis.bar(list(shares), [100 * share for share in shares.values()])
        axis.set(title=title, ylabel="%")
        axis.grid(axis="y", alpha=0.3)
    return figure


def _new_figure(
    panels: int, width: float, height: float, *, share_y: bool = False
) -> tuple[Any, list[Any]]:
    """Make a figure that pyplot does not keep in its list of open figures: it needs no closing."""
    figure_type = import_extra("matplotlib.figure", "reclick[plot]").Figure
    figure = figure_type(figsize=(width * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False, sharey=share_y)
    return figure, list(axes[0])
