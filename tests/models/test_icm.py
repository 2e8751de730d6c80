"""ICM: every ad on its own, attractive by its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from reclick.engines import as_grouped
from reclick.errors import SettingError
from reclick.logs import read_sessions
from reclick.models import DCTR, ICM, load
from tests.support.enumeration import Session, ads_table, as_table, random_sessions

TEXTS = {"a": "red shoes", "b": "red boots", "c": "blue"}
LOG = [
    Session("shoes", ("a", "b"), (1,)),
    Session("shoes", ("b", "a"), (2, 1)),
    Session("hats", ("c", "a"), ()),
]
# red 5 impressions 3 clicks, shoes 3 and 2, boots 2 and 1, blue 1 and 0;
# of the query shoes alone: red 4 and 3, shoes 2 and 2, boots 2 and 1.


def fitted(**settings: Any) -> ICM:
    return ICM(**settings).fit(read_sessions(as_table(LOG), ads=ads_table(TEXTS)))


def test_attractiveness_is_the_mean_rate_of_the_words_over_all_queries() -> None:
    page = {"query": ["shoes"], "ads": [["a", "b"]]}
    np.testing.assert_allclose(
        fitted().click_prob(page), [[(3 / 5 + 2 / 3) / 2, (3 / 5 + 1 / 2) / 2]], rtol=1e-12
    )


def test_a_frequent_query_has_word_rates_of_its_own() -> None:
    pages = {"query": ["shoes", "hats"], "ads": [["a", "b"]] * 2}
    expected = [
        [(3 / 4 + 2 / 2) / 2, (3 / 4 + 1 / 2) / 2],
        [(3 / 5 + 2 / 3) / 2, (3 / 5 + 1 / 2) / 2],
    ]
    np.testing.assert_allclose(fitted(min_query_sessions=2).click_prob(pages), expected, rtol=1e-12)


def test_an_ad_and_a_query_never_seen_are_answered_from_the_words() -> None:
    page = read_sessions(
        {"query": ["unseen"], "ads": [["new", "x"]], "clicks": [[]]},
        ads=ads_table({"new": "red unheard"}),
    )
    np.testing.assert_allclose(
        fitted().click_prob(page), [[(3 / 5 + 3 / 6) / 2, 3 / 6]], rtol=1e-12
    )


REPEATED = {"a": "red red", "b": "blue", "e": ""}
SELDOM = [
    Session("q", ("a", "b"), (1,)),
    Session("q", ("a", "b"), ()),
    Session("q", ("a",), ()),
]  # red 1 of 3, blue 0 of 2, in all 1 of 5


def seldom(word_strength: float) -> ICM:
    return ICM(word_strength=word_strength).fit(as_table(SELDOM), ads=ads_table(REPEATED))


def test_the_prior_adds_impressions_at_the_overall_rate_to_every_word() -> None:
    pages = {"query": ["q"], "ads": [["a", "b", "e", "unseen"]]}
    np.testing.assert_allclose(
        seldom(2).click_prob(pages),
        [[(1 + 2 / 5) / (3 + 2), (0 + 2 / 5) / (2 + 2), 1 / 5, 1 / 5]],
        rtol=1e-12,
    )
    own = fitted(min_query_sessions=2, word_strength=2).click_prob(
        {"query": ["shoes", "hats"], "ads": [["a"], ["c"]]}
    )  # the overall rate is 1 / 2
    np.testing.assert_allclose(
        own, [[((3 + 1) / (4 + 2) + (2 + 1) / (2 + 2)) / 2], [(0 + 1) / (1 + 2)]], rtol=1e-12
    )


def test_with_growing_strength_rates_go_from_the_papers_to_the_overall_one() -> None:
    pages = {"query": ["q"], "ads": [["a", "b", "e", "unseen"]]}
    thetas = np.array([seldom(strength).click_prob(pages)[0] for strength in (0, 1, 2, 50, 1e300)])
    np.testing.assert_allclose(thetas[0], [1 / 3, 1 / 5 / 3, 1 / 5, 1 / 5], rtol=1e-12)
    assert (np.abs(np.diff(np.abs(thetas - 1 / 5), axis=0)[1:, :2]) > 0).all()
    assert (np.diff(np.abs(thetas - 1 / 5), axis=0) <= 1e-15).all()
    np.testing.assert_allclose(thetas[-1], 1 / 5, rtol=1e-12)


def test_an_ad_none_of_whose_words_was_clicked_has_the_prior_of_one_impression_at_least() -> None:
    rates = [
        seldom(strength).click_prob({"query": ["q"], "ads": [["b"]]})[0, 0]
        for strength in (0, 1e-9, 0.5, 1)
    ]
    np.testing.assert_allclose(rates, 1 / 5 / 3, rtol=1e-12)


def test_the_interval_of_a_word_is_that_of_its_impressions_and_those_of_the_prior() -> None:
    for strength in (0, 2, 40):
        table = seldom(strength).relevance({"query": ["q", "q"], "ad": ["a", "e"]}, level=0.8)
        for row, (clicks, trials) in zip(table.to_pylist(), ((1, 3), (0, 0)), strict=True):
            beta = stats.beta(clicks + strength / 5 + 0.5, trials - clicks + strength * 4 / 5 + 0.5)
            assert [row["attractiveness_low"], row["attractiveness_high"]] == pytest.approx(
                beta.ppf([0.1, 0.9]).tolist(), rel=1e-7
            )
    table = seldom(1e300).relevance()
    assert [
        *table["attractiveness_low"].to_pylist(),
        *table["attractiveness_high"].to_pylist(),
    ] == pytest.approx([1 / 5] * 4, rel=1e-6)


def test_it_differs_from_dctr_in_that_a_pair_has_no_counts_of_its_own() -> None:
    log = as_table([Session("q", ("a",), (1,)), Session("r", ("a",), ())])
    page = {"query": ["q", "r"], "ads": [["a"]] * 2}
    np.testing.assert_allclose(ICM().fit(log).click_prob(page), [[0.5], [0.5]])
    np.testing.assert_allclose(
        DCTR(attractiveness_strength=0).fit(log).click_prob(page), [[1], [0]], atol=2e-9
    )


def test_a_weight_of_two_equals_the_row_twice_and_grouped_sessions_will_do() -> None:
    sessions = random_sessions(np.random.default_rng(1), 40, weights=True)
    repeated = as_table(
        [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
    )
    models = [
        ICM().fit(log) for log in (as_table(sessions, weights=True), repeated, as_grouped(repeated))
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.theta_, models[0].theta_)


def test_attractiveness_is_recovered_from_own_samples() -> None:
    """20,000 pages of three ads with a word each: within 0.02, over five standard deviations."""
    model = ICM().fit(
        as_table([Session("q", ("a", "b", "c"), clicks) for clicks in ((1,), (1, 2), (), (1, 3))])
    )
    pages = {"query": ["q"] * 20_000, "ads": [["a", "b", "c"]] * 20_000}
    again = ICM().fit({**pages, "clicks": model.sample(pages, 3)})
    np.testing.assert_allclose(again.theta_, [0.75, 0.25, 0.25], atol=0.02)


def test_a_saved_model_answers_the_same_to_the_last_bit(tmp_path: Path) -> None:
    model = fitted(min_query_sessions=2, word_strength=1.5)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    asked = read_sessions(
        as_table(random_sessions(np.random.default_rng(3), 30, queries="qs")),
        ads=ads_table({"d": "red hats"}),
    )
    np.testing.assert_array_equal(loaded.log_set_prob(asked), model.log_set_prob(asked))
    assert loaded.relevance().equals(model.relevance())


def test_fitting_again_forgets_the_first_log() -> None:
    model = fitted().fit(as_table([Session("q", ("x", "y", "z"), (2,))]))
    np.testing.assert_array_equal(
        model.theta_, ICM().fit(as_table([Session("q", ("x", "y", "z"), (2,))])).theta_
    )


def test_relevance_is_the_attractiveness_with_an_interval() -> None:
    table = fitted().relevance(pa.table({"query": ["shoes"], "ad": ["a"]}))
    theta = table["attractiveness"].to_numpy()
    np.testing.assert_allclose(theta, [(3 / 5 + 2 / 3) / 2])
    assert table["attractiveness_low"].to_numpy() < theta < table["attractiveness_high"].to_numpy()
    assert table["satisfaction"].null_count == 1


def test_what_was_always_or_never_clicked_stays_possible() -> None:
    model = ICM(floor=0.01).fit(as_table([Session("q", ("a",), (1,))] * 3))
    np.testing.assert_allclose(model.click_prob({"query": ["q"], "ads": [["a"]]}), [[0.99]])
    none = ICM().fit(as_table([Session("q", ("a",), ())]))
    assert np.isfinite(none.log_prob(as_table([Session("q", ("a",), (1,))]))).all()


@pytest.mark.parametrize(
    "settings", [{"floor": 0}, {"min_query_sessions": -1}, {"word_strength": -1}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        ICM(**settings)
