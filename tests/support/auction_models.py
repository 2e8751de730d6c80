"""Fitted models and a log for tests of pages and auctions."""

from __future__ import annotations

from functools import cache

import numpy as np

from reclick.models import DBN, UBM, LuceClick, MultiClick
from reclick.models.base import ClickModel
from tests.support.enumeration import as_table, random_sessions

QUERY = "q"
ADS = ["a", "b", "c", "d", "e", "new"]  # the last is in no log
MODELS: dict[str, ClickModel] = {
    "paper": MultiClick(),
    "examination": MultiClick(variant="examination"),
    "luce": LuceClick(tune="off"),
    "luce_components": LuceClick(tune="off", components=2, position_effect_strength=5.0),
    "dbn": DBN(),
    "ubm": UBM(),
}


@cache
def fit_model(name: str) -> ClickModel:
    """A model of MODELS, fitted once to a small random log."""
    log = as_table(random_sessions(np.random.default_rng(3), 400))
    return MODELS[name].fit(log)
