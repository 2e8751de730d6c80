"""MultiClick against a brute force in plain Python, on random small logs, and the promises of its
interface."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from reclick.engines import count
from reclick.errors import BadRowsError, CannotAnswerError, LogError, NotFittedError, SettingError
from reclick.logs import read_sessions
from reclick.models import ICM, MODELS, ClickModel, MultiClick, batching, load
from reclick.models.noise import Noise
from tests.support.enumeration import (
    Brute,
    Clicks,
    Session,
    ads_table,
    all_sequences,
    as_table,
    assert_close,
    random_sessions,
)

VARIANTS = ("paper", "examination", "normalised")
POOLINGS = ("query", "global")
TEXTS = {
    "a": "red shoes",
    "b": "red red boots",
    "c": "blue boots sale",
    "d": "sale",
    "e": "",
    "f": "green shoes red",
    "z": "never seen words",
}
NEW_TEXTS = {"x": "red sale unheard", "y": "nothing known"}  # ads only in the pages asked about


def page_rows(sessions: list[Session]) -> pa.Table:
    return as_table(sessions).drop_columns("clicks")


class Case:
    """A model and its brute force, fitted on the same random log, and sessions to ask about."""

    def __init__(
        self,
        seed: int,
        variant: str,
        pooling: str,
        *,
        text: bool = False,
        history: bool = False,
        weights: bool = False,
        **settings: Any,
    ) -> None:
        rng = np.random.default_rng(seed)
        train = random_sessions(rng, 60, weights=weights)
        before = random_sessions(rng, 40, queries="qt", longest=3 + seed % 3) if history else None
        texts = ads_table(TEXTS) if text else None
        settings = {"variant": variant, "pooling": pooling, "min_query_sessions": 18, **settings}
        log = read_sessions(as_table(train, weights=weights), ads=texts)
        self.model = MultiClick(**settings).fit(
            log, history=None if before is None else as_table(before)
        )
        tokens = {ad: words.split() for ad, words in (TEXTS | NEW_TEXTS).items()} if text else None
        self.brute = Brute(train, before, tokens, **settings)
        asked = random_sessions(rng, 12, queries="qrsu", ads="abcdefxyz", longest=4)
        asked += [
            Session("q", ("a", "b", "a"), (3, 1)),
            Session("unseen", ("x", "y"), (2, 1)),
            Session("q", ("a", "b", "c", "d", "e"), (5, 2)),
        ]
        asked += [
            Session("r", ("f", "a", "x", "c", "b", "d"), (6, 3)),
            Session("s", ("a",), (1,)),
            Session("s", ("y",), ()),
        ]
        self.asked = asked
        self.log = read_sessions(as_table(asked), ads=ads_table(NEW_TEXTS) if text else None)
        self.distributions = [self.brute.distribution(s.query, s.ads) for s in asked]


SEEDED = [
    (variant, pooling, text, history)
    for variant in VARIANTS
    for pooling in POOLINGS
    for text in (False, True)
    for history in (False, True)
]
CASES: dict[str, Callable[[], Case]] = {
    f"{variant}-{pooling}{'-text' * text}{'-history' * history}": partial(
        Case, seed, variant, pooling, text=text, history=history
    )
    for seed, (variant, pooling, text, history) in enumerate(SEEDED)
}
CASES |= {
    "weights": partial(Case, 50, "paper", "query", text=True, weights=True, strength=3.0),
    "weak priors": partial(
        Case,
        51,
        "examination",
        "query",
        history=True,
        strength=0.5,
        satisfaction_strength=0.25,
        floor=1e-4,
    ),
    "no satisfaction prior": partial(Case, 52, "normalised", "query", satisfaction_strength=0.0),
    "no prior at all": partial(Case, 53, "paper", "query", strength=0.0, satisfaction_strength=0.0),
    "no prior at all, global": partial(
        Case, 56, "normalised", "global", history=True, strength=0.0, satisfaction_strength=0.0
    ),
    "every query frequent": partial(Case, 54, "paper", "global", text=True, min_query_sessions=0),
    "no query frequent": partial(Case, 55, "paper", "query", text=True, min_query_sessions=1e9),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def test_log_prob_equals_enumeration(case: Case) -> None:
    expected = [chances[s.path] for s, chances in zip(case.asked, case.distributions, strict=True)]
    assert_close(np.exp(case.model.log_prob(case.log)), expected)
    possible = np.array(expected) > 0
    np.testing.assert_allclose(
        case.model.log_prob(case.log)[possible], np.log(np.array(expected)[possible]), rtol=1e-10
    )


@pytest.mark.parametrize("variant", ["paper", "examination", "normalised"])
@pytest.mark.parametrize("pooling", ["query", "global"])
@pytest.mark.parametrize("many", [1, 1_000_000])
def test_without_a_prior_what_was_never_seen_is_still_possible(
    variant: str, pooling: str, many: float
) -> None:
    weighted = [
        Session("q", ("a", "b", "c"), (1,), many),
        Session("r", ("a", "b", "c"), (3, 2), many),
    ]
    model = MultiClick(variant=variant, pooling=pooling, strength=0, satisfaction_strength=0).fit(
        as_table(weighted, weights=True)
    )
    every = as_table(
        [
            Session(query, ("a", "b", "c"), clicks)
            for query in ("q", "r", "never")
            for clicks in all_sequences(3)
        ]
    )
    log_prob = model.log_prob(every)
    assert np.isfinite(log_prob).all()
    assert np.exp(log_prob).sum() == pytest.approx(3.0, abs=1e-9)


def test_every_sequence_has_its_enumerated_probability_and_they_add_to_one(case: Case) -> None:
    for s, chances in list(zip(case.asked, case.distributions, strict=True))[-6:]:
        every = [Session(s.query, s.ads, clicks) for clicks in all_sequences(len(s.ads))]
        got = np.exp(case.model.log_prob(read_sessions(as_table(every), ads=case.log.ads)))
        assert_close(got, list(chances.values()))
        assert got.sum() == pytest.approx(1.0, abs=1e-12)


def test_log_set_prob_adds_up_the_orders(case: Case) -> None:
    expected = [
        sum(chances[order] for order in itertools.permutations(s.path))
        for s, chances in zip(case.asked, case.distributions, strict=True)
    ]
    assert_close(np.exp(case.model.log_set_prob(case.log)), expected)


def test_click_prob_equals_enumeration_and_adds_to_the_expected_clicks(case: Case) -> None:
    got = case.model.click_prob(case.log)
    for row, s in zip(got, case.asked, strict=True):
        assert_close(row[: len(s.ads)], case.brute.marginals(s.query, s.ads))
        assert np.isnan(row[len(s.ads) :]).all()
    expected = [
        sum(len(clicks) * p for clicks, p in chances.items()) for chances in case.distributions
    ]
    assert_close(case.model.expected_clicks(case.log), expected)


def test_next_click_prob_equals_the_formula(case: Case) -> None:
    so_far = [s.path[: i % 3] for i, s in enumerate(case.asked)]
    got = case.model.next_click_prob(case.log, so_far)
    own = case.model.next_click_prob(case.log)
    for row, own_row, s, clicks in zip(got, own, case.asked, so_far, strict=True):
        page = case.brute.page(s.query, s.ads)
        for answer, given in ((row, clicks), (own_row, s.path)):
            following = case.brute.following(page, given)
            assert_close(
                answer[: len(s.ads)], [following.get(j, 0.0) for j in range(1, len(s.ads) + 1)]
            )
            assert np.isnan(answer[len(s.ads) :]).all()


def test_rank_sequences_lists_the_likeliest(case: Case) -> None:
    for place in (0, 13, 14, 15):
        s, chances = case.asked[place], case.distributions[place]
        for length in (None, 0, 1, min(2, len(s.ads))):
            wanted = {
                clicks: p
                for clicks, p in chances.items()
                if p > 0 and (length is None or len(clicks) == length)
            }
            ranked = case.model.rank_sequences(
                s.query, s.ads, length=length, top=7, text=case.log.ads
            )
            assert_close([r.probability for r in ranked], sorted(wanted.values(), reverse=True)[:7])
            assert_close([wanted[r.clicks] for r in ranked], [r.probability for r in ranked])
            assert len({r.clicks for r in ranked}) == len(ranked)


def test_instantaneous_attractiveness_equals_the_formula(case: Case) -> None:
    got = case.model.instantaneous_attractiveness(case.log)
    for row, s in zip(got, case.asked, strict=True):
        theta, rho, eta, _ = case.brute.page(s.query, s.ads)
        left = (1 - eta[len(s.path)]) * (1 - (rho[s.path[-1] - 1] if s.path else 0.0))
        expected = [
            math.nan if j in s.path else theta[j - 1] * left for j in range(1, len(s.ads) + 1)
        ]
        assert_close(row[: len(s.ads)], expected)
        assert np.isnan(row[len(s.ads) :]).all()


def test_instantaneous_attractiveness_with_redundancy_and_noise() -> None:
    """After a click on *a*, whose two words *b* has: θ · exp(−3 (1 − 1/e)); *c* has none of them.

    Noise changes nothing: it is of other users.
    """
    log = {"query": ["q"] * 4, "ads": [["a", "b", "c"]] * 4, "clicks": [[1], [], [2, 1], [3]]}
    ads = {"a": "red shoes", "b": "red shoes", "c": "blue"}
    page, clicks = ("q", ["a", "b", "c"]), [[1]]
    plain, redundant = (MultiClick(redundancy=kappa).fit(log, ads=ads) for kappa in (0.0, 3.0))
    before = plain.instantaneous_attractiveness(page, clicks)
    expected = before * [1, math.exp(-3 * (1 - math.exp(-1))), 1]
    np.testing.assert_allclose(redundant.instantaneous_attractiveness(page, clicks), expected)
    redundant.noise_ = Noise(0.2, None, np.full((4, 4), 0.25), np.ones(4), 0.5)
    np.testing.assert_allclose(redundant.instantaneous_attractiveness(page, clicks), expected)


def test_relevance_equals_the_formulas_for_seen_and_unseen_pairs(case: Case) -> None:
    pairs = [(query, ad) for query in ("q", "r", "unseen") for ad in "abcdefxyz"]
    asked = pa.table({"query": [query for query, _ in pairs], "ad": [ad for _, ad in pairs]})
    got = case.model.relevance(asked, text=case.log.ads)
    assert got.select(["query", "ad"]).equals(asked.cast(got.select(["query", "ad"]).schema))
    theta, rho = (
        [case.brute.theta(*pair) for pair in pairs],
        [case.brute.rho(*pair) for pair in pairs],
    )
    assert_close(got["attractiveness"], theta)
    assert_close(got["satisfaction"], rho)
    assert_close(got["relevance"], np.multiply(theta, rho))
    for name in ("attractiveness", "satisfaction", "relevance"):
        low, high = np.array(got[f"{name}_low"]), np.array(got[f"{name}_high"])
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_query_habits_equal_the_formulas(case: Case) -> None:
    for query, n in (("q", 3), ("r", 4), ("unseen", 6), ("s", 1)):
        habits = case.model.fatigue_and_transitions(query, n)
        eta, gamma = case.brute.habits(query, n)
        assert_close(habits.eta, eta[: n + 1])
        assert_close(habits.gamma, [row[:n] for row in gamma[: n + 1]])
        assert all(habits.gamma[j, j - 1] == 0 for j in range(1, n + 1))


# ---- an answer does not depend on what else is asked, or on how the log is cut


ANSWERS: dict[str, Callable[[ClickModel, Any], npt.NDArray[np.float64]]] = {
    "log_prob": lambda model, log: model.log_prob(log),
    "log_set_prob": lambda model, log: model.log_set_prob(log),
    "click_prob": lambda model, log: model.click_prob(log),
    "expected_clicks": lambda model, log: model.expected_clicks(log),
    "next_click_prob": lambda model, log: model.next_click_prob(log),
    "instantaneous_attractiveness": lambda model, log: model.instantaneous_attractiveness(log),
    "sample": lambda model, log: np.array(model.sample(log, 3).flatten(), float),
    "relevance": lambda model, _: np.stack(
        [np.array(column) for column in model.relevance().columns[2:]]
    ),
}


def same(one: npt.NDArray[np.float64], two: npt.NDArray[np.float64]) -> bool:
    return one.shape == two.shape and one.tobytes() == two.tobytes()


def fitted(seed: int = 0, **settings: Any) -> MultiClick:
    sessions = random_sessions(np.random.default_rng(seed), 80)
    return MultiClick(**({"min_query_sessions": 20} | settings)).fit(
        as_table(sessions), ads=ads_table(TEXTS)
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_page_longer_than_any_counted_is_answered_the_same_alone_and_among_longer_ones(
    variant: str, pooling: str
) -> None:
    model = fitted(variant=variant, pooling=pooling)
    longer = Session("q", tuple("abcdef"), (5, 6, 1))
    longest = Session("q", tuple("abcdefabc"), (9, 1))
    for answer in ("log_prob", "click_prob", "next_click_prob", "instantaneous_attractiveness"):
        alone = ANSWERS[answer](model, as_table([longer]))[0]
        among = ANSWERS[answer](model, as_table([longest, longer]))[1]
        np.testing.assert_allclose(
            np.atleast_1d(among)[: np.size(alone)], np.atleast_1d(alone), rtol=1e-13
        )


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_come_in_the_order_of_the_log_over_many_parts_and_threads(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted()
    table = as_table(random_sessions(np.random.default_rng(1), 300, queries="qrstu"))
    whole = ANSWERS[answer](model, table)
    monkeypatch.setattr(batching, "CHUNK_SESSIONS", 7)
    cut = pa.Table.from_batches(table.to_batches(max_chunksize=31))
    np.testing.assert_allclose(ANSWERS[answer](model, cut), whole, rtol=1e-13)
    if answer not in {"relevance", "sample"}:
        assert len(whole) == 300
        single = [ANSWERS[answer](model, table.slice(i, 1))[0] for i in (0, 123, 299)]
        for row, i in zip(single, (0, 123, 299), strict=True):
            np.testing.assert_allclose(
                np.atleast_1d(row), np.atleast_1d(whole[i])[: np.size(row)], rtol=1e-13
            )


def test_weights_of_a_log_do_not_change_answers() -> None:
    model = fitted()
    sessions = random_sessions(np.random.default_rng(2), 30, weights=True)
    assert same(
        model.log_prob(as_table(sessions, weights=True)), model.log_prob(as_table(sessions))
    )
    assert same(
        model.click_prob(as_table(sessions, weights=True)), model.click_prob(as_table(sessions))
    )


def test_samples_follow_the_probabilities() -> None:
    model = fitted(variant="normalised")
    page = Session("q", ("a", "f", "b"), ())
    draws = 20_000
    table = page_rows([page] * draws)
    found = Counter(
        tuple(clicks) for clicks in model.sample(table, np.random.default_rng(5)).to_pylist()
    )
    for clicks in all_sequences(3):
        p = math.exp(model.log_prob(as_table([Session("q", page.ads, clicks)]))[0])
        assert abs(found[clicks] - draws * p) <= 4.5 * math.sqrt(draws * p * (1 - p)) + 1e-9, (
            clicks
        )  # 16 sequences: a chance of 1e-4 to fail
    assert model.sample(table, 7).equals(model.sample(table, np.random.default_rng(7)))
    assert not model.sample(table, 7).equals(model.sample(table, 8))


# ---- saving, updating, forgetting


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_saving_and_loading_changes_no_bit_of_an_answer(
    tmp_path: Path, pooling: str, history: bool, text: bool
) -> None:
    rng = np.random.default_rng(3)
    train, before = random_sessions(rng, 90), random_sessions(rng, 50, longest=5)
    model = MultiClick(
        pooling=pooling,
        min_query_sessions=20,
        strength=1 / 3,
        satisfaction_strength=0.7,
        word_strength=0.3,
    )
    model.fit(
        as_table(train),
        history=as_table(before) if history else None,
        ads=ads_table(TEXTS) if text else None,
    )
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, MultiClick)
    log = read_sessions(
        as_table(random_sessions(rng, 80, queries="qru", ads="abcdxyz", longest=6)),
        ads=ads_table(NEW_TEXTS),
    )
    for name, answer in ANSWERS.items():
        assert same(answer(loaded, log), answer(model, log)), name
    assert loaded.rank_sequences("q", ["a", "x", "b"]) == model.rank_sequences("q", ["a", "x", "b"])
    assert loaded.get_params() == model.get_params()
    assert repr(loaded) == repr(model)
    assert loaded.counts_ == model.counts_
    for one, two in ((loaded.eta_, model.eta_), (loaded.gamma_, model.gamma_)):
        assert same(one, two)
    loaded.save(tmp_path / "again")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("model", "again")
    )
    assert first == second


def assert_same_model(one: MultiClick, two: MultiClick) -> None:
    log = as_table(
        random_sessions(np.random.default_rng(99), 60, queries="qru", ads="abcdef", longest=5)
    )
    for name, answer in ANSWERS.items():
        assert same(answer(one, log), answer(two, log)), name


@pytest.mark.parametrize("pooling", POOLINGS)
def test_updating_with_a_day_equals_fitting_on_both_days(tmp_path: Path, pooling: str) -> None:
    rng = np.random.default_rng(4)
    one, two = (
        random_sessions(rng, 50, ads="abcd"),
        random_sessions(rng, 50, queries="rst", ads="cdef", longest=5),
    )
    for texts in (None, ads_table(TEXTS)):
        both = MultiClick(pooling=pooling, min_query_sessions=20).fit(
            as_table(one + two), ads=texts
        )
        updated = (
            MultiClick(pooling=pooling, min_query_sessions=20)
            .fit(as_table(one), ads=texts)
            .update(as_table(two))
        )
        assert_same_model(updated, both)
        updated = MultiClick(pooling=pooling, min_query_sessions=20).fit(as_table(one), ads=texts)
        updated.save(tmp_path / "model")
        reloaded = load(tmp_path / "model")
        assert isinstance(reloaded, MultiClick)
        assert_same_model(reloaded.update(count(as_table(two))), both)


def test_updating_with_text_of_the_day_equals_fitting_with_all_text() -> None:
    rng = np.random.default_rng(14)
    one, two = random_sessions(rng, 50, ads="abcd"), random_sessions(rng, 50, ads="cdef")
    early = {ad: words for ad, words in TEXTS.items() if ad in "abcd"}
    late = {ad: words for ad, words in TEXTS.items() if ad in "cdefz"}
    both = MultiClick(min_query_sessions=20).fit(as_table(one + two), ads=ads_table(TEXTS))
    updated = (
        MultiClick(min_query_sessions=20)
        .fit(as_table(one), ads=ads_table(early))
        .update(read_sessions(as_table(two), ads=ads_table(late)))
    )
    assert_same_model(updated, both)


def test_newer_text_of_an_ad_replaces_the_older() -> None:
    rng = np.random.default_rng(15)
    one, two = random_sessions(rng, 50), random_sessions(rng, 50)
    changed = TEXTS | {"a": "wholly new words"}
    updated = (
        MultiClick()
        .fit(as_table(one), ads=ads_table(TEXTS))
        .update(as_table(two), ads=ads_table(changed))
    )
    assert_same_model(updated, MultiClick().fit(as_table(one + two), ads=ads_table(changed)))


@pytest.mark.parametrize("history", [False, True])
def test_forgetting_a_day_equals_never_having_counted_it(history: bool) -> None:
    rng = np.random.default_rng(5)
    one, two, three = (
        random_sessions(rng, 40, queries=queries, longest=longest)
        for queries, longest in (("qrs", 4), ("xr", 6), ("qt", 3))
    )
    before = as_table(random_sessions(rng, 40)) if history else None
    model = MultiClick(min_query_sessions=20).fit(as_table(one + two), history=before)
    assert_same_model(
        model.update(forget=as_table(two)),
        MultiClick(min_query_sessions=20).fit(as_table(one), history=before),
    )
    slid = (
        MultiClick(min_query_sessions=20)
        .fit(as_table(one + two), history=before)
        .update(as_table(three), forget=as_table(one))
    )
    assert_same_model(
        slid, MultiClick(min_query_sessions=20).fit(as_table(two + three), history=before)
    )


def test_forgetting_what_was_never_counted_is_refused_and_changes_nothing() -> None:
    model, unchanged = fitted(), fitted()
    with pytest.raises(SettingError, match="hold more than"):
        model.update(forget=as_table([Session("never", ("a",), ())]))
    assert_same_model(model, unchanged)


def test_a_fit_that_fails_leaves_the_model_as_it_was() -> None:
    model, unchanged = fitted(), fitted()
    with pytest.raises(BadRowsError):
        model.fit({"query": ["q"], "ads": [["a"]], "clicks": [[2]]})
    assert_same_model(model, unchanged)


def test_decay_lets_what_was_counted_fade_before_the_new_day() -> None:
    rng = np.random.default_rng(6)
    one, two = (count(as_table(random_sessions(rng, 40))) for _ in range(2))
    faded = MultiClick().fit(one).update(two, decay=0.5)
    assert faded.counts_ == one.decay(0.5) + two
    assert_same_model(faded, MultiClick().fit(one.decay(0.5) + two))
    with pytest.raises(SettingError, match="decay"):
        faded.update(decay=0.0)


def test_fitting_on_counts_equals_fitting_on_the_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    log, before = as_table(random_sessions(rng, 70)), as_table(random_sessions(rng, 50))
    count(log).save(tmp_path / "counts")
    plain = MultiClick(min_query_sessions=20).fit(log, history=before, ads=ads_table(TEXTS))
    assert_same_model(
        MultiClick(min_query_sessions=20).fit(
            count(log), history=count(before), ads=ads_table(TEXTS)
        ),
        plain,
    )
    assert_same_model(
        MultiClick(min_query_sessions=20).fit(
            tmp_path / "counts", history=before, ads=ads_table(TEXTS)
        ),
        plain,
    )


def test_history_decides_the_prior_and_stays_when_the_model_is_updated() -> None:
    rng = np.random.default_rng(8)
    one, two, before = (as_table(random_sessions(rng, 40)) for _ in range(3))
    updated = MultiClick().fit(one, history=before).update(two)
    both = MultiClick().fit(pa.concat_tables([one, two]), history=before)
    assert_same_model(updated, both)
    assert not same(both.eta_, MultiClick().fit(pa.concat_tables([one, two])).eta_)


# ---- words


def test_an_ad_without_text_is_not_taken_for_the_word_its_id_spells() -> None:
    # The ad "sale" has no text; ads with the word "sale" in their text are clicked every time, and
    # it never is.
    sessions = [Session("q", ("d", "sale"), (1,))] * 10
    model = MultiClick().fit(as_table(sessions), ads=ads_table({"d": "sale"}))
    assert model.relevance({"query": ["q"], "ad": ["d"]})["attractiveness"][0].as_py() == 1.0
    assert model.relevance({"query": ["q"], "ad": ["sale"]})["attractiveness"][
        0
    ].as_py() == pytest.approx(0.5 / 11)


def test_the_words_of_a_new_ad_are_not_taken_for_ids_of_a_model_without_text() -> None:
    model = MultiClick().fit(as_table([Session("q", ("red", "b"), (1,))] * 10))
    new = model.relevance({"query": ["q"], "ad": ["x"]}, text=ads_table({"x": "red"}))
    assert new["attractiveness"][0].as_py() == 0.5  # the overall rate: no word of it is known


def test_an_ad_without_words_has_the_overall_rate_and_a_wide_interval() -> None:
    model = MultiClick().fit(as_table([Session("q", ("e", "b"), (2,))] * 10), ads=ads_table(TEXTS))
    row = model.relevance({"query": ["q"], "ad": ["e"]}).to_pylist()[0]
    assert row["attractiveness"] == 0.5
    assert row["attractiveness_low"] < 0.05
    assert row["attractiveness_high"] > 0.95


def test_words_may_have_a_prior_which_is_that_of_icm() -> None:
    rng = np.random.default_rng(16)
    one, two = as_table(random_sessions(rng, 50)), as_table(random_sessions(rng, 50))
    both, texts = pa.concat_tables([one, two]), ads_table(TEXTS)
    pairs = {"query": ["q", "r", "unseen", "q"], "ad": ["a", "b", "c", "x"]}
    for strength in (0.0, 3.0):
        theirs = (
            ICM(word_strength=strength, min_query_sessions=20)
            .fit(both, ads=texts)
            .relevance(pairs, text=ads_table(NEW_TEXTS))
        )
        updated = (
            MultiClick(word_strength=strength, min_query_sessions=20)
            .fit(one, ads=texts)
            .update(two)
        )
        for name in ("attractiveness", "attractiveness_low", "attractiveness_high"):
            np.testing.assert_array_equal(
                updated.relevance(pairs, text=ads_table(NEW_TEXTS))[name], theirs[name]
            )
        assert_same_model(
            updated, MultiClick(word_strength=strength, min_query_sessions=20).fit(both, ads=texts)
        )
    weak, strong = (
        fitted(word_strength=strength).relevance()["attractiveness"].to_numpy()
        for strength in (0.0, 3.0)
    )
    assert np.ptp(strong) < np.ptp(weak)


# ---- nothing is impossible


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_events_never_seen_in_training_stay_possible(variant: str, pooling: str) -> None:
    # Trained on single clicks at the top only: no second click, no other position, no session
    # without a click.
    model = MultiClick(variant=variant, pooling=pooling).fit(
        as_table([Session("q", ("a", "b", "c"), (1,))] * 50)
    )
    asked = [Session("q", ("a", "b", "c"), clicks) for clicks in all_sequences(3)] + [
        Session("new", ("x", "y"), (2, 1))
    ]
    log_prob = model.log_prob(as_table(asked))
    assert np.isfinite(log_prob).all()
    assert np.exp(log_prob[:-1]).sum() == pytest.approx(1.0, abs=1e-12)


def test_a_log_without_any_click_can_be_fitted_and_asked() -> None:
    model = MultiClick().fit(as_table([Session("q", ("a", "b"), ())] * 5))
    assert np.isfinite(
        model.log_prob(as_table([Session("q", ("a", "b"), (2, 1)), Session("q", ("a", "b"), ())]))
    ).all()
    assert (np.array(model.relevance()["attractiveness"]) == 0.0).all()
    assert np.isfinite(np.array(model.relevance()["relevance_high"])).all()


def test_empty_counts_can_be_fitted_and_asked() -> None:
    day = count(as_table([Session("q", ("a", "b"), (1,))]))
    model = MultiClick().fit(day).update(forget=day)
    assert np.isfinite(model.log_prob(as_table([Session("q", ("a", "b"), (2, 1))]))).all()
    assert model.relevance().num_rows == 0


# ---- long pages


def test_a_page_of_thirteen_has_no_exact_marginals_and_still_has_log_probs() -> None:
    model = fitted()
    twelve, thirteen = (Session("q", tuple("abcdef" * 3)[:n], (n, 1, 5)) for n in (12, 13))
    assert model.click_prob(as_table([twelve])).shape == (1, 12)
    for ask in (model.click_prob, model.expected_clicks):
        with pytest.raises(CannotAnswerError, match="a page of 13 ads: exact up to 12"):
            ask(as_table([twelve, thirteen]))
    page = as_table([thirteen])
    assert np.isfinite(model.log_prob(page)).all()
    assert np.isfinite(model.log_set_prob(page)).all()
    assert (
        model.next_click_prob(page).shape
        == model.instantaneous_attractiveness(page).shape
        == (1, 13)
    )
    assert len(model.sample(page, 0)) == 1
    assert model.rank_sequences("q", thirteen.ads, top=2)[0].probability > 0


def test_long_pages_add_to_one_by_sampling() -> None:
    model = fitted()
    page = page_rows([Session("q", tuple("abcdefabcd"), ())] * 4_000)
    clicks = model.sample(page, 1).to_pylist()
    expected = model.expected_clicks(page)[0]
    many = np.array([len(each) for each in clicks])
    assert abs(many.mean() - expected) < 4 * many.std() / math.sqrt(len(many))


# ---- settings, printing, mistakes


def test_settings_are_given_back_cloned_and_changed() -> None:
    model = MultiClick(
        variant="normalised",
        pooling="global",
        strength=3.0,
        satisfaction_strength=0.0,
        min_query_sessions=7,
        word_strength=2.0,
        floor=1e-4,
    )
    settings = model.get_params()
    assert settings == {
        "variant": "normalised", "pooling": "global", "strength": 3.0, "satisfaction_strength": 0.0,
        "outcome_weight": 1.0,
        "min_query_sessions": 7, "word_strength": 2.0,
        "floor": 1e-4, "redundancy": 0.0, "noise": None,
    }  # fmt: skip
    model.fit(as_table(random_sessions(np.random.default_rng(0), 20)))
    copy = model.clone()
    assert copy.get_params() == settings
    assert model.fitted
    assert not copy.fitted
    assert copy.set_params(strength=5.0, variant="paper") is copy
    assert copy.get_params() == settings | {"strength": 5.0, "variant": "paper"}
    assert model.get_params() == settings


def test_settings_changed_after_a_fit_take_effect_at_the_next_one() -> None:
    model = fitted()
    assert model.set_params(**model.get_params()).fitted
    model.set_params(variant="normalised", pooling="global", strength=2.0)
    with pytest.raises(NotFittedError):
        model.log_prob(as_table([Session("q", ("a",), ())]))
    sessions = as_table(random_sessions(np.random.default_rng(0), 80))
    model.fit(sessions, ads=ads_table(TEXTS))
    assert_same_model(model, fitted(variant="normalised", pooling="global", strength=2.0))


def test_a_model_shows_its_settings_and_what_it_learnt() -> None:
    assert repr(MultiClick()) == "MultiClick()"
    changed = MultiClick(strength=3, variant="normalised", floor=1e-6)
    assert repr(changed) == "MultiClick(variant='normalised', strength=3)"
    shown = repr(fitted())
    assert "fitted on Counts(80 sessions, 3 queries, 6 ads" in shown
    assert "eta_ = [" in shown
    assert "gamma_[0] = [" in shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"variant": "luce"},
            "variant: got 'luce', expected one of 'paper', 'examination', 'normalised'",
        ),
        ({"pooling": "Query"}, "pooling: got 'Query', expected one of 'query', 'global'"),
        ({"strength": -1}, "strength: got -1"),
        ({"satisfaction_strength": -0.1}, "satisfaction_strength: got -0.1"),
        ({"strength": math.inf}, "strength: got inf"),
        ({"strength": math.nan}, "strength: got nan"),
        ({"min_query_sessions": -1}, "min_query_sessions: got -1"),
        ({"word_strength": -1}, "word_strength: got -1"),
        ({"floor": 0.0}, "floor: got 0.0"),
        ({"floor": 0.2}, "floor: got 0.2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MultiClick(**settings)
    with pytest.raises(SettingError, match=message):
        MultiClick().set_params(**settings)


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(
        SettingError,
        match=r"'strenght' is not a setting of MultiClick\. Did you mean 'strength'.* Settings",
    ):
        MultiClick().set_params(strenght=3)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_model_that_is_not_fitted_says_so(answer: str, tmp_path: Path) -> None:
    message = r"MultiClick is not fitted yet\. Call fit\(sessions\) first, or rc\.load\(folder\)"
    with pytest.raises(NotFittedError, match=message):
        ANSWERS[answer](MultiClick(), as_table([Session("q", ("a",), ())]))
    for call in (
        lambda: MultiClick().save(tmp_path / "m"),
        lambda: MultiClick().update(),
        lambda: MultiClick().fatigue_and_transitions("q"),
    ):
        with pytest.raises(NotFittedError, match=message):
            call()
    assert not (tmp_path / "m").exists()


def test_questions_that_make_no_sense_are_refused() -> None:
    model = fitted()
    with pytest.raises(SettingError, match="length: got 4, expected 0 to 3"):
        model.rank_sequences("q", ["a", "b", "c"], length=4)
    with pytest.raises(SettingError, match="top: got 0, expected a whole number of 1 or more"):
        model.rank_sequences("q", ["a"], top=0)
    with pytest.raises(SettingError, match="level"):
        model.relevance(level=1.0)
    with pytest.raises(LogError, match="clicks"):
        model.log_prob(page_rows([Session("q", ("a",), ())]))
    with pytest.raises(LogError, match="got 1 lists for 2 pages"):
        model.next_click_prob(page_rows([Session("q", ("a",), ())] * 2), [[]])
    with pytest.raises(BadRowsError, match="position 2 on a page of 1"):
        model.next_click_prob(page_rows([Session("q", ("a",), ())]), [[2]])


def test_bad_rows_of_a_log_are_left_out_of_the_answers_when_asked() -> None:
    model = fitted()
    good: list[Clicks] = [(1,), (2, 1)]
    rows = {
        "query": ["q", "q", "r"],
        "ads": [["a", "b"], ["a"], ["b", "c"]],
        "clicks": [list(good[0]), [5], list(good[1])],
    }
    table = pa.table(rows)
    kept = model.log_prob(read_sessions(table, on_error="drop"))
    assert same(kept, model.log_prob(table.take([0, 2])))
    with pytest.raises(BadRowsError, match="1 of 3 rows"):
        model.log_prob(table)


def test_every_model_is_found_by_its_name() -> None:
    assert MODELS["multiclick"] is MultiClick
    assert all(
        model.name == name and model.assumes and model.reference for name, model in MODELS.items()
    )
