"""AM: clicks from the most attractive ad down, as many as are usual."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.engines import as_grouped
from reclick.errors import SettingError
from reclick.logs import read_sessions
from reclick.models import AM, ICM, ClickModel, load
from tests.support.enumeration import Session, ads_table, all_sequences, as_table, random_sessions

LOG = [
    Session("q", ("a", "b"), ()),
    Session("q", ("a", "b"), (2,)),
    Session("q", ("b", "a"), (1, 2)),
    Session("r", ("c", "b"), (2,)),
]
# a 1 of 3, b 3 of 4, c 0 of 1, and so the overall rate by half: 4 / 8 / 2.
# 1, 2, 1 sessions with 0, 1, 2 clicks.


def own_order(model: AM, query: str, ads: tuple[str, ...]) -> tuple[int, ...]:
    """Positions by the attractiveness that ICM, which has the same, gives their ads."""
    theta = ICM(min_query_sessions=model.min_query_sessions, floor=1e-12)
    theta._pairs, theta.theta_ = model._pairs, model.theta_
    chances = theta.click_prob({"query": [query], "ads": [list(ads)]})[0]
    return tuple(sorted(range(1, len(ads) + 1), key=lambda j: (-chances[j - 1], j)))


def test_a_worked_example() -> None:
    model = AM(number_strength=0).fit(as_table(LOG))
    asked = as_table(
        [Session("q", ("a", "b"), clicks) for clicks in all_sequences(2)]
    )  # (), 1, 2, 1 2, 2 1
    np.testing.assert_allclose(
        np.exp(model.log_prob(asked)), [1 / 4, 0, 1 / 2, 0, 1 / 4], atol=1e-15
    )
    np.testing.assert_allclose(
        np.exp(model.log_set_prob(asked)), [1 / 4, 0, 1 / 2, 1 / 4, 1 / 4], atol=1e-15
    )
    np.testing.assert_allclose(
        model.click_prob({"query": ["q", "q"], "ads": [["a", "b"], ["b", "a"]]}),
        [[1 / 4, 3 / 4], [3 / 4, 1 / 4]],
    )


def test_among_equals_the_higher_position_comes_first() -> None:
    model = AM(number_strength=0).fit(as_table(LOG))
    np.testing.assert_allclose(
        model.click_prob({"query": ["q"], "ads": [["a", "a"]]}), [[3 / 4, 1 / 4]]
    )
    np.testing.assert_allclose(
        model.click_prob({"query": ["new"], "ads": [["x", "y"]]}), [[3 / 4, 1 / 4]]
    )


def test_what_it_answers_by_itself_equals_what_the_kernels_answer() -> None:
    sessions = random_sessions(np.random.default_rng(6), 80, longest=6)
    model, table = AM().fit(as_table(sessions)), as_table(sessions)
    np.testing.assert_allclose(
        model.click_prob(table), ClickModel.click_prob(model, table), rtol=1e-12
    )
    np.testing.assert_allclose(
        model.log_set_prob(table), ClickModel.log_set_prob(model, table), rtol=1e-12
    )


def test_pages_of_any_length_have_click_probabilities_and_sets() -> None:
    model = AM().fit(as_table(LOG))
    ads = tuple("abcdefghijklmnopqrst")
    probabilities = model.click_prob({"query": ["q"], "ads": [list(ads)]})[0]
    order = own_order(model, "q", ads)
    assert all(probabilities[i - 1] > probabilities[j - 1] for i, j in itertools.pairwise(order))
    assert model.expected_clicks({"query": ["q"], "ads": [list(ads)]})[0] == pytest.approx(
        probabilities.sum()
    )
    possible, not_so = model.log_set_prob(
        as_table([Session("q", ads, order[17::-1]), Session("q", ads, order[1:])])
    )
    assert np.isfinite(possible)
    assert not_so == -np.inf


def test_the_next_click_is_the_most_attractive_left_and_after_strange_clicks_there_is_none() -> (
    None
):
    model = AM(number_strength=0).fit(as_table(LOG))
    pages = {"query": ["q"] * 5, "ads": [["a", "b"]] * 5}
    got = model.next_click_prob(pages, [[], [2], [2, 1], [1], [1, 2]])
    np.testing.assert_allclose(
        got, np.array([[0, 3 / 4], [1 / 3, 0], [0, 0], [0, 0], [0, 0]]), atol=1e-15
    )


def test_a_new_ad_is_placed_by_its_words() -> None:
    texts = {"a": "cheap", "b": "good", "c": "fair", "new": "good unheard"}
    model = AM(number_strength=0).fit(read_sessions(as_table(LOG), ads=ads_table(texts)))
    page = read_sessions(
        {"query": ["unseen"], "ads": [["a", "new", "b"]]},
        ads=ads_table({"new": "good unheard"}),
        clicks_required=False,
    )
    marginal = model.click_prob(page)[0]
    assert marginal[2] > marginal[1] > marginal[0]


def test_a_lucky_word_is_first_unless_words_have_a_prior() -> None:
    rows = (
        [Session("q", ("tried", "other"), (1,))] * 8
        + [Session("q", ("tried", "other"), ())] * 2
        + [Session("q", ("lucky",), (1,))]
    )
    page = {"query": ["q"], "ads": [["tried", "lucky"]]}  # 8 of 10 and 1 of 1; in all 9 of 21
    first = [
        int(AM(word_strength=strength).fit(as_table(rows)).click_prob(page)[0].argmax())
        for strength in (0, 2)
    ]
    assert first == [1, 0]  # with 2: (8 + 6 / 7) / 12 and (1 + 6 / 7) / 3
    relevance = (
        AM(word_strength=2)
        .fit(as_table(rows))
        .relevance({"query": ["q", "q"], "ad": ["tried", "lucky"]})
    )
    np.testing.assert_allclose(
        relevance["attractiveness"], [(8 + 6 / 7) / 12, (1 + 6 / 7) / 3], rtol=1e-12
    )


def test_with_ever_more_prior_all_ads_are_alike_and_clicked_from_the_top() -> None:
    model = AM(number_strength=0, word_strength=1e300).fit(as_table(LOG))
    np.testing.assert_allclose(model.relevance()["attractiveness"], 1 / 2, rtol=1e-12)
    np.testing.assert_allclose(
        model.click_prob({"query": ["q"], "ads": [["a", "b"]]}), [[3 / 4, 1 / 4]]
    )


def test_a_weight_of_two_equals_the_row_twice_and_grouped_sessions_will_do() -> None:
    sessions = random_sessions(np.random.default_rng(1), 40, weights=True)
    repeated = as_table(
        [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
    )
    models = [
        AM().fit(log) for log in (as_table(sessions, weights=True), repeated, as_grouped(repeated))
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.click_prob(repeated), models[0].click_prob(repeated))


def test_numbers_and_order_are_recovered_from_own_samples() -> None:
    """20,000 pages: the order of the ads, and the numbers within 0.02, more than five standard
    deviations."""
    model = AM().fit(as_table(LOG))
    pages = {"query": ["q"] * 20_000, "ads": [["a", "b"]] * 20_000}
    again = AM().fit({**pages, "clicks": model.sample(pages, 3)})
    page = {"query": ["q"], "ads": [["a", "b"]]}
    np.testing.assert_allclose(again.click_prob(page), model.click_prob(page), atol=0.02)


def test_a_saved_model_answers_the_same_to_the_last_bit(tmp_path: Path) -> None:
    model = AM(min_query_sessions=2, word_strength=1.5).fit(
        as_table(LOG), history=as_table([Session("q", ("a", "b", "c"), (1,))])
    )
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    asked = as_table(random_sessions(np.random.default_rng(3), 30, longest=7))
    np.testing.assert_array_equal(loaded.click_prob(asked), model.click_prob(asked))
    np.testing.assert_array_equal(loaded.log_prob(asked), model.log_prob(asked))
    assert loaded.relevance().equals(model.relevance())


@pytest.mark.parametrize(
    "settings", [{"number_strength": -1}, {"min_query_sessions": -1}, {"word_strength": -1}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        AM(**settings)
