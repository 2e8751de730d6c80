"""The click rate models: of all impressions, of ranks, of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.engines import as_grouped, count
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import DCTR, GCTR, RCTR, ClickModel, load
from tests.support.enumeration import Session, as_table, random_sessions

LOG = [
    Session("pizza", ("a", "b", "c"), (1,)),
    Session("pizza", ("a", "b"), (2, 1)),
    Session("pizza", ("b", "a", "c"), ()),
    Session("sushi", ("d",), (1,)),
]
# 9 impressions, 4 clicks; of rank 1 4 and 3, of rank 2 3 and 1, of rank 3 2 and 0;
# of (pizza, a) 3 and 2, (pizza, b) 3 and 1, (pizza, c) 2 and 0.
MODELS: list[type[ClickModel]] = [GCTR, RCTR, DCTR]
PAGE = {"query": ["pizza"], "ads": [["c", "a", "b", "unseen"]]}


def strengthless(model: type[ClickModel], **settings: Any) -> ClickModel:
    name = "attractiveness_strength" if model is DCTR else "rate_strength"
    return model(**{name: 0, **settings})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GCTR, [4 / 9, 4 / 9, 4 / 9, 4 / 9]),
        (RCTR, [3 / 4, 1 / 3, 0, 0]),
        (DCTR, [0, 2 / 3, 1 / 3, 4 / 9]),
    ],
)
def test_rates_without_a_prior_are_clicks_over_impressions(
    model: type[ClickModel], expected: list[float]
) -> None:
    np.testing.assert_allclose(
        strengthless(model).fit(as_table(LOG)).click_prob(PAGE), [expected], atol=2e-9
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (GCTR, [5 / 11] * 4),
        (RCTR, [4 / 6, 2 / 5, 1 / 4, 1 / 4]),
        (DCTR, [1 / 4, 3 / 5, 2 / 5, 1 / 2]),
    ],
)
def test_a_prior_of_a_half_with_strength_two_adds_one_click_to_two_impressions(
    model: type[ClickModel], expected: list[float]
) -> None:
    name = "attractiveness" if model is DCTR else "rate"
    fitted = model(**{f"{name}_prior": 0.5, f"{name}_strength": 2}).fit(as_table(LOG))
    np.testing.assert_allclose(fitted.click_prob(PAGE), [expected], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "expected"), [(GCTR, [(4 + 0.2) / 10] * 2), (RCTR, [(3 + 0.2) / 5, (1 + 0.2) / 4])]
)
def test_the_overall_prior_comes_from_the_history(
    model: type[ClickModel], expected: list[float]
) -> None:
    before = as_table([Session("old", ("x",) * 5, (3,))])
    fitted = model().fit(as_table(LOG), history=before)
    np.testing.assert_allclose(
        fitted.click_prob({"query": ["pizza"], "ads": [["c", "a"]]}), [expected], rtol=1e-12
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_weight_of_two_equals_the_row_twice(model: type[ClickModel]) -> None:
    sessions = random_sessions(np.random.default_rng(1), 40, weights=True)
    repeated = [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
    weighted, plain = model().fit(as_table(sessions, weights=True)), model().fit(as_table(repeated))
    pages = as_table(sessions)
    np.testing.assert_array_equal(weighted.click_prob(pages), plain.click_prob(pages))


@pytest.mark.parametrize("model", MODELS)
def test_counts_are_all_that_is_needed(model: type[ClickModel], tmp_path: Path) -> None:
    sessions = random_sessions(np.random.default_rng(3), 40)
    whole, one, other = (
        as_table(sessions),
        count(as_table(sessions[:15])),
        count(as_table(sessions[15:])),
    )
    one.save(tmp_path / "day1")
    expected = model().fit(whole, history=as_table(sessions[:15])).click_prob(PAGE)
    np.testing.assert_array_equal(
        model().fit(one + other, history=tmp_path / "day1").click_prob(PAGE), expected
    )
    np.testing.assert_array_equal(
        model().fit(as_grouped(whole), history=one).click_prob(PAGE), expected
    )
    np.testing.assert_array_equal(
        model().fit(tmp_path / "day1").click_prob(PAGE),
        model().fit(as_table(sessions[:15])).click_prob(PAGE),
    )


def test_words_are_the_prior_of_counts_too() -> None:
    texts = {
        "ad": ["a", "b", "c", "d", "x"],
        "title": ["red shoes", "blue shoes", "red hats", "hats", "red hats"],
    }
    expected = DCTR(attractiveness_prior="words").fit(as_table(LOG), ads=texts).click_prob(PAGE)
    np.testing.assert_array_equal(
        DCTR(attractiveness_prior="words").fit(count(as_table(LOG)), ads=texts).click_prob(PAGE),
        expected,
    )


@pytest.mark.parametrize("model", MODELS)
def test_rates_are_recovered_from_own_samples(model: type[ClickModel]) -> None:
    """20,000 pages: within 0.02, five standard deviations of the rarest rate."""
    fitted = model().fit(as_table(LOG))
    pages: dict[str, Any] = {"query": ["pizza"] * 20_000, "ads": [["a", "b", "c"]] * 20_000}
    again = model().fit({**pages, "clicks": fitted.sample(pages, 5)})
    page = {"query": ["pizza"], "ads": [["a", "b", "c"]]}
    np.testing.assert_allclose(again.click_prob(page), fitted.click_prob(page), atol=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_answers_the_same_to_the_last_bit(
    model: type[ClickModel], tmp_path: Path
) -> None:
    sessions = random_sessions(np.random.default_rng(2), 60, longest=6)
    fitted = model().fit(as_table(sessions[:40]), history=as_table(sessions[40:]))
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is model
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(
        loaded.log_set_prob(as_table(sessions)), fitted.log_set_prob(as_table(sessions))
    )
    np.testing.assert_array_equal(loaded.click_prob(PAGE), fitted.click_prob(PAGE))


@pytest.mark.parametrize("model", MODELS)
def test_no_prior_and_no_clicks_still_give_finite_answers(model: type[ClickModel]) -> None:
    fitted = strengthless(model).fit(as_table([Session("q", ("a", "b"), ())]))
    asked = as_table([Session("q", ("a", "b"), (2,)), Session("unseen", ("x", "y", "z"), (1, 3))])
    assert np.isfinite(fitted.log_prob(asked)).all()


@pytest.mark.parametrize("model", [GCTR, RCTR])
def test_rates_of_no_pair_say_so_when_asked_for_relevance(model: type[ClickModel]) -> None:
    with pytest.raises(CannotAnswerError, match=r"no attractiveness of a \(query, ad\)"):
        model().fit(as_table(LOG)).relevance()


def test_relevance_of_dctr_is_its_rate_with_an_interval_around_it() -> None:
    table = (
        DCTR()
        .fit(as_table(LOG))
        .relevance(pa.table({"query": ["pizza", "pizza"], "ad": ["a", "unseen"]}))
    )
    np.testing.assert_allclose(table["attractiveness"], [(2 + 4 / 9) / 4, 4 / 9])
    assert table["satisfaction"].null_count == 2
    assert (table["attractiveness_low"].to_numpy() < table["attractiveness"].to_numpy()).all()


@pytest.mark.parametrize(
    "settings", [{"rate_prior": "words"}, {"rate_prior": 1.0}, {"rate_strength": -1}]
)
@pytest.mark.parametrize("model", [GCTR, RCTR])
def test_settings_that_make_no_sense_are_refused(
    model: type[ClickModel], settings: dict[str, Any]
) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        model(**settings)
