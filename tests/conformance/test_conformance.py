"""Every model of MODELS passes every check of reclick.testing: a new model is tested by being
registered. Its own formula is tested in tests/models."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reclick.errors import CannotAnswerError
from reclick.models import MODELS
from reclick.testing import CHECKS, CheckSkipped, ModelCase
from reclick.testing.answer_checks import check_oracle, check_sum
from reclick.testing.cases import ADS, PAGES, all_sequences, every_sequence
from tests.support.conformance_kit import fitted, model_case, new_model
from tests.support.oracles import ORACLES

OTHER_SETTINGS: list[tuple[str, dict[str, Any]]] = [  # where latent variables matter that may not
    ("multiclick", {"variant": "examination", "pooling": "global"}),  # matter with the defaults
    ("multiclick", {"variant": "normalised", "pooling": "global"}),
    ("multiclick", {"strength": "auto"}),
    ("am", {"number_strength": 0.0, "min_query_sessions": 15}),
    ("icm", {"min_query_sessions": 15, "word_strength": 3.0}),
    ("dbn", {"continuation": 0.7}),
    ("dbn", {"continuation": "query", "initiation": "query"}),
    ("dbn", {"continuation": 0.8, "initiation": "one", "satisfaction_prior": "auto"}),
    ("sdbn", {"satisfaction_prior": 0.2}),
    ("multiclick", {"variant": "normalised", "redundancy": 2.5}),
    ("luceclick", {"tune": "off", "redundancy": 1.5}),
    ("pbm", {"components": 2}),
    ("ubm", {"components": 3}),
    *((name, {"initiation": "query"}) for name in ("cm", "dcm", "sdbn", "ccm")),
    ("luceclick", {}),  # hyperparameters chosen by the log
]
every_model = pytest.mark.parametrize("name", MODELS)


def run_check(check: Any, case: ModelCase) -> None:
    try:
        check(case)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("check", CHECKS)
@every_model
def test_the_model_conforms(name: str, check: str) -> None:
    run_check(CHECKS[check], model_case(name))


@pytest.mark.parametrize(("name", "settings"), OTHER_SETTINGS)
def test_other_settings_agree_with_the_oracle(name: str, settings: dict[str, Any]) -> None:
    case = ModelCase(MODELS[name], ORACLES[name], settings)
    check_oracle(case)
    check_sum(case)


def test_every_model_has_an_oracle() -> None:
    assert set(ORACLES) == set(MODELS)


def test_skips_are_those_that_are_known() -> None:
    """A model that stops answering is seen here, as its check is then skipped."""
    skipped: dict[str, set[str]] = {}
    for name in MODELS:
        model = MODELS[name]
        settings = model.settings
        skipped[name] = {
            *({"objective", "convergence"} if "max_iterations" not in settings else ()),
            *({"words", "saving_words"} if "attractiveness_prior" not in settings else ()),
            *({"relevance", "relevance_of_pairs"} if not model.attractiveness else ()),
            *({"next_click_without_order"} if model.ordered or not model.all_sets_possible else ()),
        }
        if name in {"multiclick", "luceclick", "scan", "crf", "tcm"}:
            skipped[name].add("long_pages")
        for check in sorted(skipped[name]):
            with pytest.raises(CheckSkipped):
                CHECKS[check](model_case(name))
    assert {name for name in MODELS if not MODELS[name].attractiveness} == {"gctr", "rctr", "pm"}
    assert {name for name in MODELS if not MODELS[name].all_sets_possible} == {"cm", "pm", "am"}
    ordered = {name for name in MODELS if MODELS[name].ordered}
    assert ordered == {"multiclick", "luceclick", "am", "thcm", "scan", "pom", "tcm"}
    assert "max_iterations" not in skipped["ubm"]


@every_model
def test_a_docstring_has_an_example(name: str) -> None:
    assert ">>>" in (MODELS[name].__doc__ or "")


@every_model
def test_a_data_frame_is_a_log_and_is_not_changed(name: str) -> None:
    log = model_case(name).log
    frame = pd.DataFrame(log)
    before = frame.copy(deep=True)
    np.testing.assert_array_equal(fitted(name).log_set_prob(frame), fitted(name).log_set_prob(log))
    history = frame if MODELS[name].uses_history else None
    model = new_model(name).fit(copy.deepcopy(log), history=history, ads=ADS)
    model.click_prob(frame)
    model.next_click_prob(frame, [[] for _ in log["query"]])
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("name", ["gctr", "rctr", "pm"])
def test_the_reason_without_relevance_names_a_model_that_has_it(name: str) -> None:
    with pytest.raises(CannotAnswerError, match=r"DCTR|UBM"):
        fitted(name).relevance()


def test_the_enumeration_is_complete() -> None:
    assert [len(all_sequences(n)) for n in range(1, 5)] == [2, 5, 16, 65]
    assert every_sequence(PAGES[0]).num_rows == 65
