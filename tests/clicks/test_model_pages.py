"""`model.pages`: every model's pages as a distribution, with the answers of the model's methods."""

from __future__ import annotations

import numpy as np
import pytest

from reclick.clicks.choice import ChoicePages
from reclick.clicks.distribution import Clicks
from reclick.errors import CannotAnswerError, LogError, NotFittedError
from reclick.models import MODELS, ClickModel, MultiClick
from reclick.models.batching import pad_pages
from tests.support.click_families import to_clicks
from tests.support.conformance_kit import CASE_SETTINGS, LONG_PAGE_MODELS
from tests.support.enumeration import as_table, random_sessions


def fitted(name: str) -> ClickModel:
    log = as_table(random_sessions(np.random.default_rng(3), 60))
    return MODELS[name](**CASE_SETTINGS.get(name, {})).fit(log)


@pytest.mark.parametrize("name", LONG_PAGE_MODELS)
def test_the_pages_give_the_answers_of_the_model(name: str) -> None:
    model, sessions = fitted(name), random_sessions(np.random.default_rng(4), 20)
    table, clicks = as_table(sessions), to_clicks([session.path for session in sessions])
    pages = model.pages(table)
    assert len(pages) == 20
    np.testing.assert_array_equal(pages.log_prob(clicks), model.log_prob(table))
    np.testing.assert_array_equal(pages.log_set_prob(clicks), model.log_set_prob(table))
    marginals = pad_pages(pages.starts, pages.click_prob())
    np.testing.assert_array_equal(marginals, model.click_prob(table))
    following = pad_pages(pages.starts, pages.next_click_prob(clicks)[0])
    np.testing.assert_array_equal(following, model.next_click_prob(table))


@pytest.mark.parametrize("name", LONG_PAGE_MODELS)
def test_models_with_satisfaction_have_the_probability_of_a_satisfied_session(name: str) -> None:
    model, table = fitted(name), as_table(random_sessions(np.random.default_rng(4), 20))
    pages = model.pages(table)
    if not model.satisfaction:
        with pytest.raises(CannotAnswerError, match="no satisfaction"):
            pages.satisfaction_prob()
        return
    satisfied = pages.satisfaction_prob()
    none = Clicks(np.zeros(0, np.int32), np.zeros(21, np.int64))
    assert (satisfied > 0).all()
    assert (satisfied < 1 - np.exp(pages.log_prob(none))).all()  # only who clicks is satisfied


def test_the_parameters_of_a_choice_are_named_fields_and_ads_can_be_exchanged() -> None:
    """What an auction needs: of all candidates of a query, the pages it may show."""
    model = MultiClick().fit(as_table(random_sessions(np.random.default_rng(3), 60)))
    candidates = model.pages({"query": ["q"], "ads": [list("abcde")]})
    assert isinstance(candidates, ChoicePages)
    assert candidates.variant == model.variant
    slate = candidates.arrange(np.array([0]), np.array([[4, 2]]))
    page = {"query": ["q"], "ads": [["d", "b"]]}
    np.testing.assert_allclose(slate.click_prob(), model.click_prob(page)[0], rtol=1e-12)


def test_a_model_without_a_fit_and_a_log_without_pages_are_refused() -> None:
    with pytest.raises(NotFittedError):
        MultiClick().pages({"query": ["q"], "ads": [["a"]]})
    model = fitted("ubm")
    with pytest.raises(LogError, match="no rows"):
        model.pages({"query": [], "ads": []})
