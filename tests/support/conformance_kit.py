"""The cases that conformance is tested on: every model of MODELS, fitted once per process."""

from __future__ import annotations

from functools import cache
from typing import Any

from reclick.models import MODELS
from reclick.testing import ModelCase
from reclick.testing.cases import ADS, LOG, as_table
from tests.support.oracles import ORACLES

# Searching for LuceClick's hyperparameters is tested in tests/models; here they are fixed.
STRENGTHS = (
    "attractiveness_strength",
    "satisfaction_strength",
    "query_strength",
    "transition_strength",
    "component_strength",
    "mixing_strength",
)
LUCE = {**dict.fromkeys(STRENGTHS, 3.0), "components": 2, "satisfaction_prior": 0.4}
CASE_SETTINGS: dict[str, dict[str, Any]] = {"luceclick": {**LUCE, "position_effect_strength": None}}
ROUNDING = {"luceclick": 1e-6}  # its many iterations add to what sums in another order differ by
# TCM is a model of pages of one or two ads; the logs of most tests have longer ones.
LONG_PAGE_MODELS = [name for name in MODELS if MODELS[name].max_page_ads != 2]


@cache
def model_case(name: str) -> ModelCase:
    """A model with the settings of its case; the tests must not change its fit."""
    settings = CASE_SETTINGS.get(name, {})
    return ModelCase(MODELS[name], ORACLES[name], settings, ROUNDING.get(name, 1e-9))


def new_model(name: str, **settings: Any) -> Any:
    """The model of a case, not fitted."""
    return model_case(name).new(**settings)


def fitted(name: str) -> Any:
    """The model of a case, fitted to the common log."""
    return model_case(name).fitted


def fitted_with(name: str, **settings: Any) -> Any:
    """A model with other settings, fitted to the common log."""
    return MODELS[name](**settings).fit(as_table(LOG), ads=ADS)
