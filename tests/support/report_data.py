"""An evaluation with invented numbers of a realistic size, for tests of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from reclick.metrics import CURVE_SCHEMA, DIFFERENCE_SCHEMA, SCORE_SCHEMA
from reclick.profile import VOLUME_NAMES, LogProfile, VolumeProfile

MODELS = ("MultiClick", "DBN", "ICM", "PM", "AM", "UBM")
SESSIONS = 98_304.0
INF = float("inf")
# The values of each model on all sessions; None is no value. Other models have random values.
TYPICAL: dict[str, tuple[float | None, ...]] = {
    "first_click_accuracy": (0.7712, 0.7267, 0.7170, 0.7084, 0.7351, 0.7701),
    "sequence_accuracy@1": (0.7834, 0.7402, 0.7298, 0.7216, 0.7433, 0.7820),
    "sequence_accuracy@2": (0.3671, 0.3379, 0.1094, 0.2935, 0.2544, 0.3402),
    "sequence_accuracy@3": (0.3226, 0.3127, 0.2355, 0.2354, 0.1280, 0.3180),
    "sequence_accuracy@4": (0.4794, 0.4858, 0.4858, 0.4858, 0.0686, 0.4858),
    "rank@1": (1.25, 1.34, 1.41, 1.43, 1.38, 1.26),
    "rank@2": (2.25, 2.61, 3.80, 6.50, 6.50, 2.58),
    "rank@3": (2.67, 3.02, 4.05, 12.5, 12.5, 2.98),
    "rank@4": (1.87, 1.95, 2.10, 12.5, 12.5, 1.92),
    "top_accuracy@2": (0.5493, 0.5111, 0.1607, 0.4389, 0.4850, 0.5520),
    "top_accuracy@3": (0.6246, 0.5914, 0.4501, 0.4498, 0.5970, 0.6190),
    "click_ratio": (0.9871, 1.0312, 1.0522, 0.9514, 0.8771, 1.0184),
    "perplexity": (1.1932, 1.1984, 1.2103, 1.4212, 1.4467, 1.1871),
    "perplexity@1": (1.4123, 1.4301, 1.4422, 2.1034, 2.2041, 1.4011),
    "perplexity@2": (1.1834, 1.1901, 1.2012, 1.4120, 1.4871, 1.1799),
    "perplexity@3": (1.1041, 1.1099, 1.1203, 1.2230, 1.2566, 1.1012),
    "perplexity@4": (1.0722, 1.0791, 1.0842, 1.1120, 1.1301, 1.0701),
    "conditional_perplexity": (1.1820, 1.1862, 1.1987, INF, INF, 1.1779),
    "log_likelihood": (-0.7421, -INF, -INF, -INF, -INF, -INF),
    "log_set_likelihood": (-0.6623, -0.6771, -0.7203, -INF, -INF, -0.6598),
    "impossible": (0.0, 0.0274, 0.0274, 0.3120, 0.2633, 0.0274),
    "calibration_error": (0.0142, 0.0088, 0.0171, 0.0544, 0.0612, 0.0061),
    "click_number_error": (0.5121, 0.5133, 0.5217, 0.5402, 0.5416, 0.5108),
    "order_log_likelihood": (-0.4012, -0.4415, -0.4415, -0.4415, -0.5120, -0.4415),
    "backward_ratio": (0.4721, 0.0, 0.0, 0.0, 1.9120, 0.0),
    "pr_auc": (0.8653, 0.7843, None, None, None, 0.8012),
    "roc_auc": (0.8312, 0.7520, None, None, None, 0.8295),
    "ndcg@5": (0.8811, 0.8402, None, None, None, 0.8699),
    "ndcg@10": (0.9012, 0.8688, None, None, None, 0.8917),
}
REVERSE: dict[str, tuple[float | None, ...]] = {
    "sequence_accuracy@2": (0.081, 0.0, 0.0, 0.0, 0.177, 0.0),
    "sequence_accuracy@3": (0.006, 0.0, 0.0, 0.0, 0.094, 0.0),
    "sequence_accuracy@4": (0.001, 0.0, 0.0, 0.0, 0.039, 0.0),
    "rank@2": (3.15, 8.5, 8.5, 6.5, 6.5, 8.5),
    "rank@3": (3.89, 14.5, 14.5, 12.5, 12.5, 14.5),
    "rank@4": (2.67, 12.9, 12.9, 12.5, 12.5, 12.9),
    "top_accuracy@2": (0.5574, 0.5112, 0.1609, 0.4566, 0.4950, 0.5569),
    "top_accuracy@3": (0.6151, 0.5820, 0.4475, 0.4474, 0.5914, 0.6102),
    "perplexity": (1.6620, 1.6712, 1.7203, 1.9412, 1.9130, 1.6540),
}
PERCENT = ("accuracy", "impossible", "auc", "ndcg")
SHARE_OF = {"@1": 0.34, "@2": 0.034, "@3": 0.006, "@4": 0.001}


@dataclass(frozen=True)
class InventedEvaluation:
    """Shaped like an evaluation."""

    scores: pa.Table
    differences: pa.Table
    curves: pa.Table
    profile: LogProfile | None
    details: dict[str, Any]

    def drop_details(self, *names: str) -> InventedEvaluation:
        """The same without some of its details."""
        return replace(
            self, details={name: value for name, value in self.details.items() if name not in names}
        )

    def select(self, **values: str) -> InventedEvaluation:
        """The same with only the scores that have these values."""
        rows = [
            row
            for row in self.scores.to_pylist()
            if all(row[name] == value for name, value in values.items())
        ]
        return replace(self, scores=pa.Table.from_pylist(rows, SCORE_SCHEMA))


def invented_evaluation(
    models: Sequence[str] = MODELS, *, seed: int = 7, labels: bool = True, reverse: bool = True
) -> InventedEvaluation:
    """An evaluation of these models, every metric in every bucket."""
    rng = np.random.default_rng(seed)
    scores = [
        row
        for sessions, typical in _groups(reverse)
        for row in _scores(models, sessions, typical, labels, rng)
    ]
    return InventedEvaluation(
        pa.Table.from_pylist(scores, SCORE_SCHEMA),
        pa.Table.from_pylist(list(_differences(scores, models)), DIFFERENCE_SCHEMA),
        pa.Table.from_pylist(list(_curves(models, labels, rng)), CURVE_SCHEMA),
        invented_profile(),
        invented_details(models, labels),
    )


HOSTILE = (
    '<script>alert("x")</script>',
    '"><img src=x onerror=alert(1)>',
    "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
    "東京から大阪までの格安航空券を比較する",
    "طيران رخيص إلى القاهرة",
    "http://evil.example/?a=1&b=2",
    "a_b*c|d`e [f](g)",
    "\x00\x1b[31mred",
)


def with_hostile_texts(evaluation: InventedEvaluation) -> InventedEvaluation:
    """The same where every text that comes from outside is hostile, long or of another script."""
    hostile = [HOSTILE[place % len(HOSTILE)] for place in range(40)]
    details = dict(evaluation.details)
    details["words"] = [
        {**word, "word": "".join(hostile[n].split())}  # a word has no space
        for n, word in enumerate(details["words"])
    ]
    for name in ("misleading", "gems"):
        details[name] = [
            {**ad, "query": hostile[n], "ad": hostile[n + 1], "title": hostile[n + 2]}
            for n, ad in enumerate(details[name])
        ]
    details["logs"] = {
        "test": {
            "name": "/data/" + HOSTILE[2] * 3 + HOSTILE[0],
            "sessions": 12.5,
            "dropped": {HOSTILE[1]: 3},
        }
    }
    details["models"] = {
        model: {**known, "settings": {"x": HOSTILE[0]}, "fit": HOSTILE[1]}
        for model, known in details["models"].items()
    }
    return replace(
        evaluation,
        details={**details, "command": HOSTILE[0] + HOSTILE[2] * 4, "version": HOSTILE[1]},
    )


def with_long_pages(evaluation: InventedEvaluation, ads: int = 10) -> InventedEvaluation:
    """The same on pages of search results: more positions, longer moves."""
    rows = evaluation.scores.to_pylist()
    first = [row for row in rows if row["metric"] == "perplexity@1"]
    rows += [{**row, "metric": f"perplexity@{n}"} for n in range(5, ads + 1) for row in first]
    assert evaluation.profile
    moves = {move: 1 / (2 * ads - 2) for move in range(1 - ads, ads) if move}
    long = replace(
        evaluation.profile,
        first_clicks=tuple(2.0**-n for n in range(1, ads + 1)),
        distances=moves,
        page_lengths={ads: 1.0},
    )
    table = [
        [0.0 if to == last else 1 / ads for to in range(1, ads + 1)] for last in range(ads + 1)
    ]
    details = {
        **evaluation.details,
        "transitions": table,
        "transition_support": [1_000.0] * (ads + 1),
        "fatigue": [0.5] * ads + [1.0],
        "fatigue_support": [1_000.0] * (ads + 1),
    }
    return replace(
        evaluation, scores=pa.Table.from_pylist(rows, SCORE_SCHEMA), profile=long, details=details
    )


def with_scores(
    evaluation: InventedEvaluation,
    changes: dict[tuple[str, str], dict[str, float | None]],
    sessions: str = "all",
    volume: str = "all",
) -> InventedEvaluation:
    """The same with other values for some (model, metric)."""
    rows = evaluation.scores.to_pylist()
    for row in rows:
        if (row["sessions"], row["volume"]) == (sessions, volume):
            row.update(changes.get((row["model"], row["metric"]), {}))
    return replace(evaluation, scores=pa.Table.from_pylist(rows, SCORE_SCHEMA))


def with_differences(
    evaluation: InventedEvaluation,
    rows: Sequence[tuple[str, str, str, float | None, float | None, float | None]],
) -> InventedEvaluation:
    """The same with these differences alone: model, against, metric, difference, low, high."""
    names = ("model", "against", "metric", "difference", "low", "high")
    table = [
        {**dict(zip(names, row, strict=True)), "sessions": "all", "volume": "all"} for row in rows
    ]
    return replace(evaluation, differences=pa.Table.from_pylist(table, DIFFERENCE_SCHEMA))


def _groups(reverse: bool) -> list[tuple[str, dict[str, tuple[float | None, ...]]]]:
    return [("all", TYPICAL), *([("reverse", REVERSE)] if reverse else [])]


def _scores(
    models: Sequence[str],
    sessions: str,
    typical: dict[str, tuple[float | None, ...]],
    labels: bool,
    rng: np.random.Generator,
) -> Iterator[dict[str, Any]]:
    for metric, values in typical.items():
        of_labels = metric.startswith(("pr_", "roc_", "ndcg"))
        if of_labels and not labels:
            continue
        for place, volume in enumerate(("all", *(() if of_labels else VOLUME_NAMES))):
            support = 10_000.0 if of_labels else _support(metric, sessions, place)
            for number, model in enumerate(models):
                value = values[number] if number < len(values) else _random_value(values, rng)
                yield _score(
                    model, metric, sessions, volume, _by_volume(value, metric, place, rng), support
                )


def _support(metric: str, sessions: str, place: int) -> float:
    share = SHARE_OF.get(metric[-2:], 0.38) if "perplexity" not in metric else 1.0
    return float(
        round(
            SESSIONS
            * share
            * (0.3 if sessions == "reverse" else 1)
            * (1, 0.33, 0.13, 0.05, 0.12, 0.05, 0.32)[place]
        )
    )


def _random_value(values: tuple[float | None, ...], rng: np.random.Generator) -> float | None:
    finite = [value for value in values if value is not None and np.isfinite(value)]
    return float(rng.uniform(min(finite), max(finite))) if finite else None


def _by_volume(
    value: float | None, metric: str, place: int, rng: np.random.Generator
) -> float | None:
    """A little better in frequent queries."""
    if value is None or not np.isfinite(value) or place == 0 or value == 0:
        return value
    lean = (place - 3.5) * (0.012 if any(name in metric for name in PERCENT) else -0.012)
    shifted = value * (1 + (lean if value > 0 else -lean) + rng.normal(0, 0.004))
    return float(min(shifted, 0.99)) if any(name in metric for name in PERCENT) else float(shifted)


def _score(
    model: str, metric: str, sessions: str, volume: str, value: float | None, support: float
) -> dict[str, Any]:
    row = {
        "model": model,
        "metric": metric,
        "sessions": sessions,
        "volume": volume,
        "value": value,
        "support": support,
    }
    if value is None or not np.isfinite(value):
        return {**row, "deviation": None, "low": None, "high": None}
    deviation = _deviation(value, metric)
    half = 1.96 * deviation / np.sqrt(max(support, 1))
    low, high = (
        (max(value - half, 0.0), min(value + half, 1.0))
        if any(name in metric for name in PERCENT)
        else (value - half, value + half)
    )
    printed = (
        None
        if metric in ("calibration_error", "conditional_perplexity")
        or "auc" in metric
        or "perplexity@" in metric
        else deviation
    )
    return {**row, "deviation": printed, "low": low, "high": high}


def _deviation(value: float, metric: str) -> float:
    if any(name in metric for name in PERCENT):
        return float(np.sqrt(value * (1 - value)))
    return (
        0.2
        if metric == "calibration_error"
        else abs(value) * 0.9
        if metric.startswith("rank")
        else 0.31
    )


def _differences(scores: list[dict[str, Any]], models: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each pair once; paired intervals are narrower than those of the values."""
    found = {(row["model"], row["metric"], row["sessions"], row["volume"]): row for row in scores}
    places = dict.fromkeys((row["metric"], row["sessions"], row["volume"]) for row in scores)
    for metric, sessions, volume in places:
        for model, against in combinations(models, 2):
            one, other = (
                found[model, metric, sessions, volume],
                found[against, metric, sessions, volume],
            )
            row = {
                "model": model,
                "against": against,
                "metric": metric,
                "sessions": sessions,
                "volume": volume,
            }
            if one["low"] is None or other["low"] is None:
                yield {**row, "difference": None, "low": None, "high": None}
                continue
            difference = one["value"] - other["value"]
            half = 0.7 * (one["high"] - one["low"]) if difference else 0.0
            yield {
                **row,
                "difference": difference,
                "low": difference - half,
                "high": difference + half,
            }


def _curves(
    models: Sequence[str], labels: bool, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    for number, model in enumerate(models):
        for place in range(20 if number % 3 else 14):
            x, support = 0.05 * place + 0.025, float(round(300_000 * np.exp(-0.55 * place)) + 5)
            y = float(np.clip(x + 0.16 * np.sin(3 * x + number) * x + rng.normal(0, 0.004), 0, 1))
            half = float(1.96 * np.sqrt(y * (1 - y) / support))
            yield {
                "model": model,
                "curve": "reliability",
                "x": x,
                "y": y,
                "low": max(y - half, 0),
                "high": min(y + half, 1),
                "support": support,
            }
        if labels and TYPICAL["pr_auc"][number % 6] is not None:
            for x in np.linspace(0.005, 1, 400):
                y = float(
                    np.clip(0.99 - (0.45 + 0.05 * (number % 4)) * x**2 + rng.normal(0, 0.004), 0, 1)
                )
                yield {
                    "model": model,
                    "curve": "precision_recall",
                    "x": float(x),
                    "y": y,
                    "low": None,
                    "high": None,
                    "support": 10_000.0,
                }


def invented_profile() -> LogProfile:
    """A log like the paper's."""
    shares = [
        (0.921, 0.068, 0.009, 0.002),
        (0.917, 0.071, 0.010, 0.002),
        (0.925, 0.064, 0.009, 0.002),
    ]
    shares += [
        (0.936, 0.055, 0.007, 0.002),
        (0.951, 0.043, 0.005, 0.001),
        (0.978, 0.02, 0.0015, 0.0005),
    ]
    sizes = (
        (9_412, 12_211.0),
        (1_322, 5_102.0),
        (301, 2_010.0),
        (188, 4_790.0),
        (21, 1_866.0),
        (9, 11_900.0),
    )
    return LogProfile(
        sessions=SESSIONS,
        queries=11_253,
        ads=4_210,
        pairs=48_733,
        impressions=352_918.0,
        clicks=41_207.0,
        clicked_share=0.3853,
        multi_click_share=0.0741,
        reverse_share=0.2963,
        by_volume=tuple(
            VolumeProfile(name, queries, sessions, sessions / 12_211, row)
            for name, (queries, sessions), row in zip(VOLUME_NAMES, sizes, shares, strict=True)
        ),
        first_clicks=(0.7014, 0.1689, 0.0803, 0.0494),
        distances={-3: 0.031, -2: 0.071, -1: 0.196, 1: 0.472, 2: 0.163, 3: 0.067},
        page_lengths={2: 0.08, 3: 0.252, 4: 0.668},
    )


def invented_details(models: Sequence[str], labels: bool = True) -> dict[str, Any]:
    """Everything else."""
    return {
        "logs": {
            "test": {
                "name": "week3.parquet",
                "sessions": SESSIONS,
                "dropped": {"click outside the page": 12, "empty page": 3},
            },
            "train": {"name": "week2.parquet", "sessions": 100_000.0, "dropped": {}},
            "history": {"name": "week1.parquet", "sessions": 100_000.0, "dropped": {"null ad": 1}},
        },
        "models": {model: _model(model, number) for number, model in enumerate(models)},
        "transitions": [
            [0.701, 0.169, 0.080, 0.050],
            [0.0, 0.62, 0.25, 0.13],
            [0.41, 0.0, 0.42, 0.17],
            [0.31, 0.33, 0.0, 0.36],
            [0.29, 0.31, 0.40, 0.0],
        ],
        "fatigue": [0.6147, 0.9259, 0.862, 0.81, 1.0],
        "transition_support": [38_000.0, 2_900.0, 700.0, 310.0, 120.0],
        "fatigue_support": [98_304.0, 37_900.0, 2_800.0, 390.0, 74.0],
        "recommended": models[0],
        "findings_from": models[0],
        "misleading": [_ad(number, misleading=True) for number in range(20)],
        "gems": [_ad(number, misleading=False) for number in range(20)],
        "words": [_word(number) for number in range(16)],
        **({"labels": {"pairs": 10_000, "queries": 1_204, "relevant_from": 2}} if labels else {}),
        "level": 0.95,
        "resamples": 1000,
        "seed": 0,
        "version": "0.2.0",
        "command": "reclick evaluate logs/week3.parquet --train logs/week2.parquet"
        " --history logs/week1.parquet --ads logs/ads.parquet --to report",
    }


def _model(model: str, number: int) -> dict[str, Any]:
    return {
        "settings": {"variant": "normalised", "pooling": "query", "strength": 10.0, "threshold": 50}
        if number == 0
        else {"iterations": 50, "tolerance": 1e-5},
        "assumes": "clicks in any order; words attract; a click may satisfy; users tire"
        if number == 0
        else "the user scans down the page",
        "fit": "one pass" if number == 0 else "converged after 23 iterations, change 8e-6 ≤ 1e-5",
        "seconds": {"fit": 1.21 + number, "score": 2.3},
    }


def _word(number: int) -> dict[str, Any]:
    """A word; the effect falls with its number."""
    words = ("free", "official", "today", "guaranteed", "compare", "premium", "newsletter", "terms")
    effect = 1.4 - 0.08 * number
    support = {"impressions": 4_000.0 - 300 * number, "ads": 40 - number}
    word = words[number % 8] + ("" if number < 8 else str(number))
    return {"word": word, "effect": effect, "low": effect / 1.1, "high": effect * 1.1, **support}


def _ad(number: int, *, misleading: bool) -> dict[str, Any]:
    """An ad with its estimates and their intervals."""
    attractiveness = 0.34 - 0.009 * number if misleading else 0.05 + 0.003 * number
    satisfaction = 0.11 + 0.012 * number if misleading else 0.84 - 0.012 * number
    return {
        "query": ("cheap flights", "plumber near me", "running shoes", "laptop")[number % 4],
        "ad": f"ad{number:05}",
        "title": (
            "Flights From 9 Euro Today",
            "Bonded Insured Plumbers",
            "Official Outlet Up To 70 Off",
            "Refurbished Laptops With Warranty",
        )[number % 4],
        "attractiveness": attractiveness,
        "attractiveness_low": 0.8 * attractiveness,
        "attractiveness_high": 1.2 * attractiveness,
        "satisfaction": satisfaction,
        "satisfaction_low": 0.8 * satisfaction,
        "satisfaction_high": 1.1 * satisfaction,
        "impressions": 1_200.0 + 9 * number,
        "clicks": 120.0 + 9 * number,
    }
