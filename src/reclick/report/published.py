"""The figures that the paper prints, of Bing's log: another log than any reader's, so they stand beside ours and are never compared with them.

Govindaraj, Wang, Vishwanathan: Modeling Attractiveness and Multiple Clicks in Sponsored Search Results (2014).
"""

from __future__ import annotations

from typing import NamedTuple

NAME = "Bing"
HEAD = "Bing, theirs"  # of a column
ABOUT = f"The columns headed “{HEAD}” are the figures that the paper printed in 2014, of Bing's log: other data, so no yardstick for this log."


class Theirs(NamedTuple):
    """A printed figure, with the standard deviation where one is printed."""

    value: float
    deviation: float | None = None


def _shares(**percents: float) -> dict[str, Theirs]:
    return {model: Theirs(percent / 100) for model, percent in percents.items()}


# metric, sessions → model → figure
FIGURES: dict[tuple[str, str], dict[str, Theirs]] = {
    ("first_click_accuracy", "all"): _shares(
        MultiClick=79.59, DBN=72.7, ICM=71.7, PM=72.27, AM=73.5
    ),
    ("sequence_accuracy@2", "all"): _shares(
        MultiClick=36.71, DBN=33.79, PM=29.35, AM=25.44, ICM=10.94
    ),
    ("sequence_accuracy@3", "all"): _shares(
        MultiClick=32.26, DBN=31.27, PM=23.54, AM=12.80, ICM=23.55
    ),
    ("sequence_accuracy@4", "all"): _shares(
        MultiClick=47.94, DBN=48.58, PM=48.58, AM=6.86, ICM=48.58
    ),
    ("rank@1", "all"): {"MultiClick": Theirs(1.25, 0.62)},
    ("rank@2", "all"): {"MultiClick": Theirs(2.25, 2.27)},
    ("rank@3", "all"): {"MultiClick": Theirs(2.67, 4.17)},
    ("rank@4", "all"): {"MultiClick": Theirs(1.87, 3.36)},
    ("top_accuracy@2", "all"): _shares(MultiClick=54.93, DBN=51.11, PM=43.89, AM=48.5, ICM=16.07),
    ("top_accuracy@3", "all"): _shares(MultiClick=62.46, DBN=59.14, PM=44.98, AM=59.7, ICM=45.01),
    ("sequence_accuracy@2", "reverse"): _shares(MultiClick=8.1, DBN=0, PM=0, AM=17.7),
    ("sequence_accuracy@3", "reverse"): _shares(MultiClick=0.6, DBN=0, PM=0, AM=9.4),
    ("sequence_accuracy@4", "reverse"): _shares(MultiClick=0.1, DBN=0, PM=0, AM=3.9),
    ("rank@2", "reverse"): {"MultiClick": Theirs(3.15, 3.01)},
    ("rank@3", "reverse"): {"MultiClick": Theirs(3.89, 5.46)},
    ("rank@4", "reverse"): {"MultiClick": Theirs(2.67, 4.56)},
    ("top_accuracy@2", "reverse"): _shares(
        MultiClick=55.74, DBN=51.12, PM=45.66, AM=49.5, ICM=16.09
    ),
    ("top_accuracy@3", "reverse"): _shares(
        MultiClick=61.51, DBN=58.20, PM=44.74, AM=59.14, ICM=44.75
    ),
    ("perplexity", "all"): {"MultiClick": Theirs(1.1932), "DBN": Theirs(1.1984)},
    ("pr_auc", "all"): {"MultiClick": Theirs(0.8653), "DBN": Theirs(0.7843)},
}

# Table 1: clicked sessions by volume of the query: relative to the first bucket, and the shares of 1, 2, 3 and 4 clicks
BY_VOLUME: dict[str, tuple[float, tuple[float, float, float, float]]] = {
    "0-10": (1.0, (0.916, 0.073, 0.01, 0.001)),
    "10-50": (0.39, (0.915, 0.073, 0.011, 0.001)),
    "50-100": (0.16, (0.923, 0.066, 0.01, 0.001)),
    "100-500": (0.37, (0.935, 0.057, 0.007, 0.001)),
    "500-1000": (0.15, (0.954, 0.041, 0.0042, 0.0008)),
    ">1000": (1.0, (0.9794, 0.019, 0.0015, 0.0001)),
}

FIRST_CLICKS = (0.708, 0.163, 0.0787, 0.0503)  # Table 2, by position
MULTI_CLICK_SHARE = 0.10  # of clicked sessions, "about"
REVERSE_SHARE = 0.30  # of multi-click sessions, "about"


def theirs(model: str, metric: str, sessions: str) -> Theirs | None:
    """The paper's figure for a model, whatever the case of its name.

    >>> theirs("dbn", "perplexity", "all")
    Theirs(value=1.1984, deviation=None)
    """
    printed = {
        name.casefold(): figure for name, figure in FIGURES.get((metric, sessions), {}).items()
    }
    return printed.get(model.casefold())
