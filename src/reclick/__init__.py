"""Reclick learns from click logs what users found attractive, what satisfied them, and what they click next, in whatever order they click."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from reclick.data.counts import Counts, count
    from reclick.errors import (
        BadRowsError,
        CannotAnswerError,
        LogError,
        NotFittedError,
        ReclickError,
        SettingError,
        StoreError,
    )
    from reclick.evaluation import Evaluation, evaluate, split
    from reclick.exports import export, judgments, propensities, to_ir_measures, to_ranx
    from reclick.logs import (
        Cleaning,
        ReadSummary,
        SessionLog,
        convert,
        read_ads,
        read_labels,
        read_sessions,
        sessions_from_events,
    )
    from reclick.models import MODELS, ClickModel, LuceClick, MultiClick, load
    from reclick.predictor import predict
    from reclick.profile import describe
    from reclick.simulation import simulate
    from reclick.text.tokens import tokens

# Where each public name lives. Modules are imported when a name is first used, so that `import reclick` and `reclick --help` are quick.
_HOMES = {
    "reclick.data.counts": ("Counts", "count"),
    "reclick.profile": ("describe",),
    "reclick.errors": (
        "BadRowsError",
        "CannotAnswerError",
        "LogError",
        "NotFittedError",
        "ReclickError",
        "SettingError",
        "StoreError",
    ),
    "reclick.evaluation": ("Evaluation", "evaluate", "split"),
    "reclick.exports": ("export", "judgments", "propensities", "to_ir_measures", "to_ranx"),
    "reclick.logs": (
        "Cleaning",
        "ReadSummary",
        "SessionLog",
        "convert",
        "read_ads",
        "read_labels",
        "read_sessions",
        "sessions_from_events",
    ),
    "reclick.models": ("MODELS", "ClickModel", "LuceClick", "MultiClick", "load"),
    "reclick.predictor": ("predict",),
    "reclick.simulation": ("simulate",),
    "reclick.text.tokens": ("tokens",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "MODELS",
    "BadRowsError",
    "CannotAnswerError",
    "Cleaning",
    "ClickModel",
    "Counts",
    "Evaluation",
    "LogError",
    "LuceClick",
    "MultiClick",
    "NotFittedError",
    "ReadSummary",
    "ReclickError",
    "SessionLog",
    "SettingError",
    "StoreError",
    "convert",
    "count",
    "describe",
    "evaluate",
    "export",
    "judgments",
    "load",
    "predict",
    "propensities",
    "read_ads",
    "read_labels",
    "read_sessions",
    "sessions_from_events",
    "simulate",
    "split",
    "to_ir_measures",
    "to_ranx",
    "tokens",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'reclick' has no attribute {name!r}. It has: {', '.join(__all__)}."
        )
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
