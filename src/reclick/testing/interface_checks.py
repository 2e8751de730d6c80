"""Checks of settings, errors and side effects."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from reclick.errors import NotFittedError, SettingError
from reclick.logs import read_sessions
from reclick.models.base import ClickModel
from reclick.testing.cases import (
    ADS,
    LOG,
    SMALL_LOGS,
    ModelCase,
    all_answers,
    as_table,
    assert_same,
    make_log,
    pages_table,
)


def check_constructor(case: ModelCase) -> None:
    """Settings are keyword-only, with immutable defaults."""
    parameters = list(inspect.signature(case.model).parameters.values())
    for each in parameters:
        assert each.kind is inspect.Parameter.KEYWORD_ONLY, f"{each.name} is not keyword-only"
        immutable = isinstance(each.default, str | int | float | bool | tuple | None)
        assert immutable, f"{each.name}: the default {each.default!r} can be changed"
    defaults = {each.name: each.default for each in parameters}
    assert case.model().get_params() == defaults, "get_params() is not the constructor's defaults"


def check_settings(case: ModelCase) -> None:
    """Settings are read, changed, cloned and checked."""
    before, clone, number = case.fitted.get_params(), case.fitted.clone(), case.number
    assert type(clone) is case.model
    assert clone.get_params() == before, "clone() has other settings"
    assert not clone.fitted, "clone() is fitted"
    assert case.fitted.fitted, "clone() made the model forget"
    assert clone.set_params(**{number: before[number] / 2}) is clone, "set_params() returns another"
    assert clone.get_params() == {**before, number: before[number] / 2}, "set_params() did not set"
    assert case.fitted.get_params() == before, "set_params() of a clone changed the model"
    for wrong, hint in (({"strenth": 1}, next(iter(before))), ({number: "much"}, number)):
        try:
            case.new(**wrong)
        except SettingError as error:
            assert hint in str(error), f"the error for {wrong} does not name {hint}: {error}"
        else:
            raise AssertionError(f"{wrong} is accepted")


def check_changed_settings(case: ModelCase) -> None:
    """A fitted model forgets its fit when a setting changes, and only then."""
    model, number = case.new().fit(SMALL_LOGS["one session with a click"]), case.number
    value = model.get_params()[number]
    assert model.set_params(**{number: value}).fitted, "forgot its fit, though nothing changed"
    assert not model.set_params(**{number: value / 2}).fitted, f"still fitted with another {number}"


def check_repr(case: ModelCase) -> None:
    """The repr starts with the settings."""
    for model in (case.new(), case.fitted):
        settings = ", ".join(f"{name}={value!r}" for name, value in model.get_params().items())
        expected = f"{type(model).__name__}({settings})"
        assert repr(model).startswith(expected), f"repr: {model!r}, expected {expected}"


def check_not_fitted(case: ModelCase) -> None:
    """A model that is not fitted says so, whatever it is asked."""
    calls: dict[str, Callable[[Any], object]] = {
        "log_prob": lambda model: model.log_prob(LOG),
        "log_set_prob": lambda model: model.log_set_prob(LOG),
        "click_prob": lambda model: model.click_prob(LOG),
        "expected_clicks": lambda model: model.expected_clicks(LOG),
        "next_click_prob": lambda model: model.next_click_prob(LOG),
        "rank_sequences": lambda model: model.rank_sequences("q", ["a"]),
        "sample": lambda model: model.sample(LOG, 0),
        "relevance": lambda model: model.relevance(),
        "save": lambda model: model.save("nowhere"),
    }
    for name, call in calls.items():
        try:
            call(case.new())
        except NotFittedError as error:
            assert "fit" in str(error), f"{name}: the error does not name fit(): {error}"
        else:
            raise AssertionError(f"{name} of a model that is not fitted answers")


def check_description(case: ModelCase) -> None:
    """The class has a name, what it assumes, a reference and a docstring."""
    model = case.model
    assert issubclass(model, ClickModel), "it is no subclass of reclick.ClickModel"
    assert model.name == model.name.lower(), f"name {model.name!r} is not in small letters"
    for attribute in ("assumes", "reference", "__doc__"):
        text = getattr(model, attribute, None) or ""
        assert len(text) > 10, f"{attribute} is {text!r}: say it in a sentence"
    for name, declared in model.settings.items():
        assert declared.help, f"the setting {name} has no help: setting(…, help=…)"


def check_inputs(case: ModelCase) -> None:
    """A log may be a dict, a table, a batch or what `read_sessions` returns."""
    table = as_table(LOG)
    expected = case.fitted.log_set_prob(table)
    for log in (LOG, read_sessions(table), table.to_batches()[0]):
        what = f"log_set_prob of a {type(log).__name__}"
        assert_same(case.fitted.log_set_prob(log), expected, 0, what)


def check_inputs_unchanged(case: ModelCase) -> None:
    """Fitting and answering do not change what they are given."""
    log, ads = copy.deepcopy(LOG), copy.deepcopy(ADS)
    model = case.new().fit(log, history=log, ads=ads)
    all_answers(model, log)
    model.next_click_prob(log, [[] for _ in log["query"]])
    assert log == LOG, "the log was changed"
    assert ads == ADS, "the ads table was changed"


def check_model_unchanged(case: ModelCase) -> None:
    """Answering does not change the model."""
    model = case.new().fit(as_table(make_log(8, 40, longest=4)))
    before = {key: copy.deepcopy(value) for key, value in vars(model).items() if key.endswith("_")}
    first = all_answers(model)
    assert_same(all_answers(model), first, 0)
    for key, value in before.items():
        now = getattr(model, key)
        same = np.array_equal(np.asarray(now, object), np.asarray(value, object)) or now == value
        assert same, f"{key} changed"


def check_independence(case: ModelCase) -> None:
    """Two models share nothing."""
    first = case.new().fit(SMALL_LOGS["every position clicked"])
    before = first.click_prob(pages_table())
    case.new().fit(SMALL_LOGS["no click at all"])
    assert_same(first.click_prob(pages_table()), before, 0, "click_prob after another model's fit")
