"""Checks of settings, fitting, saving, errors and side effects."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reclick.errors import NotFittedError, SettingError, UsageError
from reclick.logs import read_sessions
from reclick.models.base import FIT_REPORT, ClickModel
from reclick.models.loading import load
from reclick.models.registry import MODELS
from reclick.testing.cases import (
    ADS,
    LETTERS,
    SMALL_LOGS,
    CheckSkipped,
    Columns,
    ModelCase,
    as_table,
    assert_same,
    assert_valid,
    make_log,
    pages_table,
    relevance_or_reason,
    sequence_probabilities,
)


def check_objective(case: ModelCase) -> None:
    """The objective never decreases."""
    _require_iterations(case)
    objective = np.asarray(case.fitted.objective_)
    assert len(objective) == case.fitted.iterations_ > 1, "iterations_ is not that of objective_"
    falls = np.flatnonzero(np.diff(objective) < -1e-9 * np.abs(objective[1:]))
    assert not len(falls), f"it falls at iteration {falls[0] + 2}: {objective[falls[0] :][:2]}"


def check_convergence(case: ModelCase) -> None:
    """converged_ and message_ are correct, whether the fit converged or stopped early."""
    _require_iterations(case)
    short = case.new(max_iterations=1).fit(case.log)
    assert short.converged_ is False, "converged_ is not False after one iteration"
    assert "not converged" in short.message_, f"message_: {short.message_!r}"
    assert "1 iteration" in short.message_, f"message_: {short.message_!r}"
    long = case.new(max_iterations=10_000).fit(case.log)
    assert long.converged_ is True, f"not converged after {long.iterations_} iterations"
    assert "not" not in long.message_, f"message_: {long.message_!r}"
    gain = (long.objective_[-1] - long.objective_[-2]) / len(case.log["query"])
    assert gain < long.tolerance, f"the last gain is {gain}, the tolerance {long.tolerance}"


def check_fit_report(case: ModelCase) -> None:
    """Iterative models, and only they, have the attributes that report on the fit."""
    attributes = sorted(set(FIT_REPORT) & set(vars(case.fitted)))
    expected = sorted(FIT_REPORT) if case.iterative else []
    assert attributes == expected, f"fitted attributes {attributes}, expected {expected}"


def check_weights(case: ModelCase) -> None:
    """A session of weight 2 has the same effect as two equal sessions."""
    small = case.cut(make_log(1, 120, longest=6))
    twice = {
        column: [value for i, value in enumerate(values) for _ in range(1 + i % 2)]
        for column, values in small.items()
    }
    weights = [1.0 + i % 2 for i in range(120)]
    weighted_fit = case.new().fit(as_table({**small, "weight": weights}), ads=ADS)
    repeated_fit = case.new().fit(as_table(twice), ads=ADS)
    _compare(case, weighted_fit, repeated_fit, small)


def check_row_order(case: ModelCase) -> None:
    """The order of the rows of the log has no effect."""
    order = np.random.default_rng(4).permutation(len(case.log["query"]))
    shuffled_log = {column: [values[i] for i in order] for column, values in case.log.items()}
    _compare(case, case.new().fit(as_table(shuffled_log), ads=ADS), case.fitted, case.log)


def check_repeatable(case: ModelCase) -> None:
    """A second fit gives exactly the same answers."""
    again = case.new().fit(as_table(case.log), ads=ADS)
    assert_same(case.answer(again), case.answer(case.fitted), 0)


def check_small_logs(case: ModelCase) -> None:
    """Models can be fitted to small logs, also without any click or with a click everywhere."""
    for name, log in SMALL_LOGS.items():
        model = case.new().fit(as_table(case.cut(log)))
        for page in case.pages:
            total = sum(sequence_probabilities(model, page).values())
            assert abs(total - 1) < 1e-9, f"{name}: probabilities add to {total} on {page}"
        assert_valid(model, case.cut(make_log(2, 24)))
        relevance_or_reason(model)


def check_history(case: ModelCase) -> None:
    """A model can be fitted with a history, or raises because it uses none."""
    log = as_table(case.cut(make_log(5, 60, longest=4)))
    if not case.model.uses_history:
        try:
            case.new().fit(log, history=as_table(case.log))
        except UsageError:
            return
        raise AssertionError("uses_history is False, but a history is accepted")
    assert_valid(case.new().fit(log, history=as_table(case.log), ads=ADS), case.log)


def check_strengths(case: ModelCase) -> None:
    """Every prior strength can be 0."""
    zero = {name: 0 for name in case.model.settings if name.endswith("strength")}
    if not zero:
        raise CheckSkipped("it has no strength of a prior")
    model = case.new(**zero).fit(as_table(case.log))
    for page in case.pages:
        total = sum(sequence_probabilities(model, page).values())
        assert abs(total - 1) < 1e-9, f"probabilities add to {total} on {page}"


def check_longer_pages(case: ModelCase) -> None:
    """Pages longer than all pages of the log get an answer."""
    most = case.model.max_page_ads or 12
    model = case.new().fit(as_table(make_log(6, 60, longest=min(3, most - 1))))
    assert_valid(model, {"query": ["q"], "ads": [list(LETTERS[:most])], "clicks": [[1, 2]]})


def check_words(case: ModelCase) -> None:
    """With the prior "words", ads that are not in the log differ by their words."""
    _require_words(case)
    good, bad = [f"g{i}" for i in range(12)], [f"b{i}" for i in range(12)]
    pairs = list(zip(good, bad, strict=True)) * 10
    rows = [
        ([g, b], [1]) if i % 2 else ([b, g], [2] if i % 4 else []) for i, (g, b) in enumerate(pairs)
    ]
    log = {"query": ["q"] * 120, "ads": [ads for ads, _ in rows], "clicks": [c for _, c in rows]}
    titles = [f"{word} {i}" for word in ("splendid", "dull") for i in range(12)]
    text = _ads_table(good + bad, titles)
    new = _ads_table(["x1", "x2"], ["splendid thing", "dull thing"])
    model = case.new(attractiveness_prior="words").fit(log, ads=text)
    pages = {"query": ["q"] * 2, "ads": [["x1"], ["x2"]]}
    splendid, dull = model.click_prob(read_sessions(pages, ads=new, clicks_required=False))[:, 0]
    odds = splendid / (1 - splendid), dull / (1 - dull)
    assert odds[0] > 1.2 * odds[1], f"odds of a click: {odds[0]} with good words, {odds[1]} without"
    relevance = relevance_or_reason(model, {"query": ["q", "q"], "ad": ["x1", "x2"]}, new)
    assert not isinstance(relevance, str), f"no relevance: {relevance}"
    first, second = relevance["attractiveness"].to_pylist()
    assert first > 1.2 * second, f"attractiveness: {first} with good words, {second} without"


def check_saving(case: ModelCase) -> None:
    """A saved and loaded model gives exactly the same answers."""
    again = _save_and_load(case, case.fitted)
    assert type(again) is case.model, f"loaded a {type(again).__name__}"
    assert again.get_params() == case.fitted.get_params(), "the settings changed"
    assert_same(case.answer(again), case.answer(case.fitted), 0)
    for page in case.pages:
        ranking = again.rank_sequences(*page)
        assert ranking == case.fitted.rank_sequences(*page), f"another ranking on {page}"


def check_saving_words(case: ModelCase) -> None:
    """A saved and loaded model with the prior "words" gives exactly the same answers."""
    _require_words(case)
    log = as_table(case.cut(make_log(7, 80, longest=4)))
    model = case.new(attractiveness_prior="words").fit(log, ads=ADS)
    assert_same(case.answer(_save_and_load(case, model)), case.answer(model), 0)


def check_interruption(case: ModelCase) -> None:
    """An interrupted fit does not change the model."""
    page = {"query": ["q"], "ads": [["a", "b"]]}
    model = case.new().fit(as_table(case.cut(make_log(9, 20, longest=3))))
    before = model.click_prob(page)
    own_fit_method = vars(case.model).get("_fit")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    model_class: Any = case.model
    model_class._fit = stop
    try:
        for any_model in (model, fresh := case.new()):
            try:
                any_model.fit({"query": ["q"] * 2, "ads": [["c", "d"]] * 2, "clicks": [[2], [2]]})
            except KeyboardInterrupt:
                continue
            raise AssertionError("fit() does not call _fit()")
    finally:
        if own_fit_method is None:
            del model_class._fit
        else:
            model_class._fit = own_fit_method
    assert (model.click_prob(page) == before).all(), "the earlier fit was changed"
    assert not fresh.fitted, "a new model is half fitted"


def _require_iterations(case: ModelCase) -> None:
    if not case.iterative:
        raise CheckSkipped("it is not fitted by iterations: it has no setting max_iterations")


def _require_words(case: ModelCase) -> None:
    prior = case.model.settings.get("attractiveness_prior")
    if prior is None or "words" not in prior.choices:
        raise CheckSkipped('it has no attractiveness_prior="words"')


def _ads_table(ads: list[str], titles: list[str]) -> Columns:
    urls = [f"{ad}.example" for ad in ads]
    return {"ad": ads, "title": titles, "description": [""] * len(ads), "display_url": urls}


def _compare(case: ModelCase, one: ClickModel, another: ClickModel, log: Columns) -> None:
    """Raise if answers differ by more than rounding; samples may differ at the edge of a draw."""
    first, second = ({**case.answer(model, log), "sample": ""} for model in (one, another))
    assert_same(first, second, case.rounding)


def _save_and_load(case: ModelCase, model: ClickModel) -> ClickModel:
    if case.model.name not in MODELS:
        raise CheckSkipped(
            f"rc.load does not know it: call rc.register({case.model.__name__}) before."
        )
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return load(Path(folder) / "model")


def check_constructor(case: ModelCase) -> None:
    """Settings are keyword-only, with immutable defaults."""
    parameters = list(inspect.signature(case.model).parameters.values())
    for parameter in parameters:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, (
            f"{parameter.name} is not keyword-only"
        )
        immutable = isinstance(parameter.default, str | int | float | bool | tuple | None)
        assert immutable, f"{parameter.name}: the default {parameter.default!r} can be changed"
    defaults = {parameter.name: parameter.default for parameter in parameters}
    assert case.model().get_params() == defaults, "get_params() is not the constructor's defaults"


def check_settings(case: ModelCase) -> None:
    """Settings can be read, changed and cloned, and are validated."""
    before, clone = case.fitted.get_params(), case.fitted.clone()
    number, other_value = case.number
    assert type(clone) is case.model
    assert clone.get_params() == before, "clone() has other settings"
    assert not clone.fitted, "clone() is fitted"
    assert case.fitted.fitted, "clone() made the model forget"
    assert clone.set_params(**{number: other_value}) is clone, "set_params() returns another"
    assert clone.get_params() == {**before, number: other_value}, "set_params() did not set"
    assert case.fitted.get_params() == before, "set_params() of a clone changed the model"
    for wrong, hint in (({"strenth": 1}, next(iter(before))), ({number: "much"}, number)):
        try:
            case.new(**wrong)
        except SettingError as error:
            assert hint in str(error), f"the error for {wrong} does not name {hint}: {error}"
        else:
            raise AssertionError(f"{wrong} is accepted")


def check_changed_settings(case: ModelCase) -> None:
    """A fitted model drops its fit when a setting changes, and only then."""
    model = case.new().fit(SMALL_LOGS["one session with a click"])
    number, other_value = case.number
    value = model.get_params()[number]
    assert model.set_params(**{number: value}).fitted, "forgot its fit, though nothing changed"
    assert not model.set_params(**{number: other_value}).fitted, (
        f"still fitted with another {number}"
    )


def check_repr(case: ModelCase) -> None:
    """The repr starts with the settings that differ from their defaults."""
    for model in (case.new(), case.fitted):
        settings = model.get_params().items()
        non_defaults = [item for item in settings if item[1] != model.settings[item[0]].default]
        arguments = ", ".join(f"{name}={value!r}" for name, value in non_defaults)
        expected = f"{type(model).__name__}({arguments})"
        assert repr(model).startswith(expected), f"repr: {model!r}, expected {expected}"


def check_not_fitted(case: ModelCase) -> None:
    """All methods of a model that is not fitted raise NotFittedError."""
    calls: dict[str, Callable[[Any], object]] = {
        "log_prob": lambda model: model.log_prob(case.log),
        "log_set_prob": lambda model: model.log_set_prob(case.log),
        "click_prob": lambda model: model.click_prob(case.log),
        "expected_clicks": lambda model: model.expected_clicks(case.log),
        "next_click_prob": lambda model: model.next_click_prob(case.log),
        "rank_sequences": lambda model: model.rank_sequences("q", ["a"]),
        "sample": lambda model: model.sample(case.log, 0),
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
    """The class has a name, its assumption, a reference and a docstring."""
    model = case.model
    assert issubclass(model, ClickModel), "it is not a subclass of reclick.ClickModel"
    assert model.name == model.name.lower(), f"name {model.name!r} is not lowercase"
    for attribute in ("assumes", "reference", "__doc__"):
        text = getattr(model, attribute, None) or ""
        assert len(text) > 10, f"{attribute} is {text!r}: say it in a sentence"
    for name, setting in model.settings.items():
        assert setting.help, f"the setting {name} has no help: setting(…, help=…)"


def check_inputs(case: ModelCase) -> None:
    """A log can be a dict, a table, a batch or the result of `read_sessions`."""
    table = as_table(case.log)
    expected = case.fitted.log_set_prob(table)
    for log in (case.log, read_sessions(table), table.to_batches()[0]):
        what = f"log_set_prob of a {type(log).__name__}"
        assert_same(case.fitted.log_set_prob(log), expected, 0, what)


def check_inputs_unchanged(case: ModelCase) -> None:
    """Fitting and answering do not change their arguments."""
    log, ads = copy.deepcopy(case.log), copy.deepcopy(ADS)
    model = case.new().fit(log, history=log if case.model.uses_history else None, ads=ads)
    case.answer(model, log)
    model.next_click_prob(log, [[] for _ in log["query"]])
    assert log == case.log, "the log was changed"
    assert ads == ADS, "the ads table was changed"


def check_model_unchanged(case: ModelCase) -> None:
    """Answering does not change the model."""
    model = case.new().fit(as_table(case.cut(make_log(8, 40, longest=4))))
    before = {key: copy.deepcopy(value) for key, value in vars(model).items() if key.endswith("_")}
    first = case.answer(model)
    assert_same(case.answer(model), first, 0)
    for key, value in before.items():
        now = getattr(model, key)
        same = np.array_equal(np.asarray(now, object), np.asarray(value, object)) or now == value
        assert same, f"{key} changed"


def check_independence(case: ModelCase) -> None:
    """Two models share no state."""
    first = case.new().fit(case.cut(SMALL_LOGS["every position clicked"]))
    before = first.click_prob(pages_table(case.pages))
    case.new().fit(case.cut(SMALL_LOGS["no click at all"]))
    assert_same(
        first.click_prob(pages_table(case.pages)), before, 0, "click_prob after another model's fit"
    )
