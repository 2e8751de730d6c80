"""PM: clicks from the top, as many as are usual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reclick.engines import as_grouped
from reclick.errors import CannotAnswerError, SettingError
from reclick.models import PM, load
from tests.support.enumeration import Session, all_sequences, as_table, random_sessions

LOG = [
    Session("q", ("a", "b"), ()),
    Session("q", ("a", "b"), (2,)),
    Session("q", ("b", "a"), (2, 1)),
    Session("r", ("a", "b"), (1,)),
    Session("r", ("a", "b", "c", "d"), (4, 2, 3)),
]  # of 2 ads: 1, 2, 1 sessions with 0, 1, 2 clicks; of 4 ads: one with 3; in all 1, 2, 1, 1


def plain_numbers(
    sessions: list[Session], n: int, strength: float, history: list[Session] | None = None
) -> list[float]:
    """P(m | n), m = 0 … n, from its definition."""

    def shrunk(source: list[Session], prior: list[float]) -> list[float]:
        seen = [sum(s.weight for s in source if len(s.path) == m) for m in range(n + 1)]
        total = sum(seen) + strength
        return [
            (seen[m] + strength * prior[m]) / total if total else prior[m] for m in range(n + 1)
        ]

    share = shrunk(sessions if history is None else history, [1 / (n + 1)] * (n + 1))
    for source in [sessions] if history is None else [history, sessions]:
        share = shrunk([s for s in source if len(s.ads) == n], share)
    return share


def test_a_worked_example() -> None:
    model = PM(number_strength=0).fit(as_table(LOG))
    asked = as_table(
        [Session("q", ("a", "b"), clicks) for clicks in all_sequences(2)]
    )  # (), 1, 2, 1 2, 2 1
    np.testing.assert_allclose(
        np.exp(model.log_prob(asked)), [1 / 4, 1 / 2, 0, 1 / 4, 0], atol=1e-15
    )
    np.testing.assert_allclose(
        np.exp(model.log_set_prob(asked)), [1 / 4, 1 / 2, 0, 1 / 4, 1 / 4], atol=1e-15
    )
    np.testing.assert_allclose(
        model.click_prob({"query": ["new"], "ads": [["x", "y"]]}), [[3 / 4, 1 / 4]]
    )


def test_a_page_length_never_seen_pools_all_lengths_and_leaves_out_what_does_not_fit() -> None:
    model = PM(number_strength=0).fit(as_table(LOG))
    pages = {"query": ["q"] * 3, "ads": [["a"], list("abc"), list("abcdefg")]}
    expected = np.full((3, 7), np.nan)
    expected[0, :1] = 2 / 3  # 1 and 2 sessions with 0 and 1 clicks
    expected[1, :3] = 4 / 5, 2 / 5, 1 / 5
    expected[2] = 4 / 5, 2 / 5, 1 / 5, 0, 0, 0, 0
    np.testing.assert_allclose(model.click_prob(pages), expected, atol=1e-15)


@pytest.mark.parametrize("strength", [0.0, 1.0, 7.5])
@pytest.mark.parametrize("past", [False, True])
def test_log_prob_equals_the_definition(strength: float, past: bool) -> None:
    rng = np.random.default_rng(4)
    train, before = random_sessions(rng, 30, weights=True), random_sessions(rng, 20, longest=5)
    history = as_table(before) if past else None
    model = PM(number_strength=strength).fit(as_table(train, weights=True), history=history)
    for n in (1, 2, 3, 4, 5):
        numbers = plain_numbers(train, n, strength, before if past else None)
        sequences = (
            list(all_sequences(n)) if n < 5 else [tuple(range(1, m + 1)) for m in range(n + 1)]
        )
        expected = [
            numbers[len(clicks)] if clicks == tuple(range(1, len(clicks) + 1)) else 0.0
            for clicks in sequences
        ]
        got = np.exp(
            model.log_prob(
                as_table([Session("q", tuple("abcdef"[:n]), clicks) for clicks in sequences])
            )
        )
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
        assert got.sum() == pytest.approx(1, abs=1e-12)


def test_with_a_strength_every_number_of_clicks_is_possible() -> None:
    model = PM().fit(as_table([Session("q", ("a", "b", "c"), (1,))]))
    asked = as_table(
        [
            Session("q", tuple("abcdefghijklmnop"[:n]), tuple(range(1, m + 1)))
            for n in (1, 2, 3, 4, 16)
            for m in range(n + 1)
        ]
    )
    assert np.isfinite(model.log_prob(asked)).all()
    assert np.isfinite(model.log_set_prob(asked)).all()


def test_the_next_click_is_the_next_position_and_after_strange_clicks_there_is_none() -> None:
    model = PM(number_strength=0).fit(as_table(LOG))
    pages = {"query": ["q"] * 6, "ads": [["a", "b"]] * 5 + [["a"]]}
    got = model.next_click_prob(pages, [[], [1], [1, 2], [2], [2, 1], []])
    np.testing.assert_allclose(
        got, np.array([[3 / 4, 0], [0, 1 / 3], [0, 0], [0, 0], [0, 0], [2 / 3, np.nan]]), atol=1e-15
    )
    long = model.next_click_prob({"query": ["q"] * 2, "ads": [list("abcd")] * 2}, [[3, 1], [1, 3]])
    np.testing.assert_array_equal(long, np.zeros((2, 4)))


def test_the_likeliest_sequences_are_the_first_positions() -> None:
    ranked = PM(number_strength=0).fit(as_table(LOG)).rank_sequences("q", ["a", "b"])
    assert [r.clicks for r in ranked] == [(1,), (), (1, 2)]


def test_a_weight_of_two_equals_the_row_twice_and_grouped_sessions_will_do() -> None:
    sessions = random_sessions(np.random.default_rng(1), 40, weights=True)
    repeated = as_table(
        [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
    )
    models = [
        PM().fit(log) for log in (as_table(sessions, weights=True), repeated, as_grouped(repeated))
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.numbers_, models[0].numbers_)


def test_numbers_are_recovered_from_own_samples() -> None:
    """20,000 pages of each length: within 0.02, more than five standard deviations."""
    model = PM().fit(as_table(LOG))
    pages = {"query": ["q"] * 40_000, "ads": [["a", "b"], ["a", "b", "c", "d"]] * 20_000}
    again = PM().fit({**pages, "clicks": model.sample(pages, 3)})
    np.testing.assert_allclose(again.numbers_[[2, 4]], model.numbers_[[2, 4]], atol=0.02)


def test_a_saved_model_answers_the_same_to_the_last_bit(tmp_path: Path) -> None:
    model = PM().fit(as_table(LOG), history=as_table([Session("q", ("a", "b", "c"), (1,))]))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    asked = as_table(random_sessions(np.random.default_rng(3), 30, longest=7))
    np.testing.assert_array_equal(loaded.click_prob(asked), model.click_prob(asked))
    np.testing.assert_array_equal(loaded.log_prob(asked), model.log_prob(asked))


def test_it_has_no_relevance_and_says_why() -> None:
    with pytest.raises(CannotAnswerError, match="its clicks go down the page for all ads"):
        PM().fit(as_table(LOG)).relevance()


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(SettingError, match="number_strength"):
        PM(number_strength=-1)
