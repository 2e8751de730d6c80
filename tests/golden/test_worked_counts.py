"""The worked example by hand: counts, attractiveness and priors, to the printed digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.engines import count
from reclick.models.kernels.stops_and_transitions import pooled_events
from tests.support.enumeration import Session, as_table, assert_close
from tests.support.plain_counts import in_plain

ABC, DE = ("a", "b", "c"), ("d", "e")
LOG = as_table(
    [
        Session("plumber", ABC, (1,)),
        Session("plumber", ABC, (2, 1)),
        Session("plumber", ("b", "a"), (1,)),
        Session("plumber", ABC, ()),
        Session("pizza", DE, (1, 2)),
        Session("pizza", ("e", "d"), ()),
        Session("pizza", ("d", "e", "a"), (3, 1)),
    ]
)
ADS = pa.table(
    {
        "ad": ["a", "b", "c", "d", "e"],
        "title": ["Bonded & Insured", "Cheap", "Fast plumber", "Pizza", "Pizza"],
        "description": ["the plumber", "a plumber!", "Plumber.", "fresh", "Cheap"],
        "display_url": ["a.example", "b.example", "https://c.example/", "d.example", "E.example"],
    }
)
NEW = pa.table(
    {
        "ad": ["new plumber", "new sushi"],
        "title": ["Insured cheap", "Fresh"],
        "description": ["unseen", "cheap"],
    }
)
THETA = {
    ("plumber", "a"): 0.446429,
    ("plumber", "b"): 0.428571,
    ("plumber", "c"): 0.142857,
    ("pizza", "d"): 0.611111,
    ("pizza", "e"): 0.420635,
}
COLD = {("plumber", "new plumber"): 0.481481, ("sushi", "new sushi"): 0.547619}

# An earlier week: β' = 2,1,2 and β = 3,2,0, so η = 2/5, 1/3, 1; δ: 0→1 2, 0→2 1, 1→2 1, 2→3 1;
# of 5 clicks 3 are the last.
HISTORY = as_table(
    [
        Session("x", ("f", "g"), (1,)),
        Session("x", ("f", "g"), (1, 2)),
        Session("y", ("f", "g", "h"), (2, 3)),
        Session("y", ("f", "g", "h"), ()),
        Session("y", ("f", "g", "h"), ()),
    ]
)


def model(**settings: Any) -> rc.MultiClick:
    return rc.MultiClick(**({"floor": 1e-12} | settings)).fit(LOG, history=HISTORY)


def test_stops_and_transitions_are_the_printed_ones() -> None:
    exactly, more, delta = pooled_events(count(LOG))
    assert exactly.tolist() == [2, 2, 3, 0]
    assert more.tolist() == [5, 3, 0, 0]
    moves = {(last, j + 1): delta[last, j] for last, j in zip(*np.nonzero(delta), strict=True)}
    assert moves == {(0, 1): 3, (0, 2): 1, (0, 3): 1, (1, 2): 1, (2, 1): 1, (3, 1): 1}


def test_last_and_other_clicks_are_the_printed_ones() -> None:
    plain = in_plain(count(LOG))
    assert plain.last_clicks == {
        ("plumber", "a"): 2,
        ("plumber", "b"): 1,
        ("pizza", "d"): 1,
        ("pizza", "e"): 1,
    }
    assert plain.clicks - plain.last_clicks == {
        ("plumber", "b"): 1,
        ("pizza", "d"): 1,
        ("pizza", "a"): 1,
    }


@pytest.mark.parametrize("variant", ["paper", "normalised"])
def test_attractiveness_has_the_printed_digits(variant: str) -> None:
    table = rc.MultiClick(min_query_sessions=4, variant=variant).fit(LOG, ads=ADS).relevance()
    got = {(row["query"], row["ad"]): round(row["attractiveness"], 6) for row in table.to_pylist()}
    assert got.keys() == {*THETA, ("pizza", "a")}
    assert {pair: got[pair] for pair in THETA} == THETA


def test_the_log_may_bring_its_text() -> None:
    log = rc.read_sessions(LOG, ads=ADS)
    assert (
        rc.MultiClick(min_query_sessions=4)
        .fit(log)
        .relevance()
        .equals(rc.MultiClick(min_query_sessions=4).fit(LOG, ads=ADS).relevance())
    )


def test_new_ads_have_the_printed_attractiveness() -> None:
    fitted = rc.MultiClick(min_query_sessions=4).fit(LOG, ads=ADS)
    pairs = pa.table({"query": [query for query, _ in COLD], "ad": [ad for _, ad in COLD]})
    assert np.array(fitted.relevance(pairs, text=NEW)["attractiveness"]).round(6).tolist() == list(
        COLD.values()
    )


def test_new_ads_have_the_printed_attractiveness_on_a_page_too() -> None:
    fitted = rc.MultiClick(min_query_sessions=4).fit(LOG, ads=ADS)
    queries = ["plumber", "sushi"]
    pages = pa.table({"query": queries, "ads": [["new plumber"], ["new sushi"]]})
    log = rc.read_sessions(pages, ads=NEW, clicks_required=False)
    got = fitted.instantaneous_attractiveness(log, [[], []])[:, 0]
    stop = [fitted.fatigue_and_transitions(query).eta[0] for query in queries]
    assert (got / (1 - np.array(stop))).round(6).tolist() == list(COLD.values())


def test_priors_from_history_by_hand_for_each_query() -> None:
    fitted = model()
    assert_close(fitted.eta_, [2 / 5, 1 / 3, 1, 1])
    assert_close(fitted.gamma_, [[2 / 3, 1 / 3, 0], [0, 1, 0], [0, 0, 1], [1 / 2, 1 / 2, 0]])
    plumber, pizza, unseen = (
        fitted.fatigue_and_transitions(query) for query in ("plumber", "pizza", "sushi")
    )
    # plumber: β' = 1,2,1, β = 3,1,0, δ: 0→1 2, 0→2 1, 2→1 1; each prior is worth 10
    assert_close(plumber.eta, [(1 + 4) / 14, (2 + 10 / 3) / 13, 1, 1])
    assert_close(
        plumber.gamma, [[2 / 3, 1 / 3, 0], [0, 1, 0], [1 / 11, 0, 10 / 11], [1 / 2, 1 / 2, 0]]
    )
    # pizza: β' = 1,0,2, β = 2,2,0, δ: 0→1 1, 0→3 1, 1→2 1, 3→1 1
    assert_close(pizza.eta, [(1 + 4) / 13, (10 / 3) / 12, 1, 1])
    row = [(1 + 20 / 3) / 12, (10 / 3) / 12, 1 / 12]
    assert_close(pizza.gamma, [row, [0, 1, 0], [0, 0, 1], [6 / 11, 5 / 11, 0]])
    assert_close(unseen.eta, fitted.eta_)
    assert_close(unseen.gamma, fitted.gamma_)


def test_priors_from_history_by_hand_for_all_queries_together() -> None:
    fitted = model(pooling="global")
    eta = [(2 + 4) / 17, (2 + 10 / 3) / 15, 1, 1]
    gamma = [
        [(3 + 20 / 3) / 15, (1 + 10 / 3) / 15, 1 / 15],
        [0, 1, 0],
        [1 / 11, 0, 10 / 11],
        [6 / 11, 5 / 11, 0],
    ]
    assert_close(fitted.eta_, eta)
    assert_close(fitted.gamma_, gamma)
    for query in ("plumber", "pizza", "sushi"):
        assert_close(fitted.fatigue_and_transitions(query).eta, eta)
        assert_close(fitted.fatigue_and_transitions(query).gamma, gamma)


def test_a_stronger_prior_by_hand() -> None:
    plumber = model(strength=20).fatigue_and_transitions("plumber")
    assert_close(plumber.eta, [(1 + 8) / 24, (2 + 20 / 3) / 23, 1, 1])
    assert_close(plumber.gamma[2], [1 / 21, 0, 20 / 21])


def test_without_history_the_prior_is_the_log_itself() -> None:
    fitted = rc.MultiClick(floor=1e-12).fit(LOG)
    assert_close(fitted.eta_, [2 / 7, 2 / 5, 1, 1])
    assert_close(fitted.gamma_, [[3 / 5, 1 / 5, 1 / 5], [0, 1, 0], [1, 0, 0], [1, 0, 0]])
    assert fitted.satisfaction_ == 5 / 8
    assert_close(
        fitted.fatigue_and_transitions("plumber").eta, [(1 + 20 / 7) / 14, (2 + 4) / 13, 1, 1]
    )


@pytest.mark.parametrize(
    ("strength", "expected"),
    [
        # the history's rate is 3/5; (pizza, a) was clicked, not last; the other two never
        (
            10,
            {
                ("plumber", "a"): 8 / 12,
                ("plumber", "b"): 7 / 12,
                ("pizza", "a"): 6 / 11,
                ("plumber", "c"): 3 / 5,
                ("sushi", "z"): 3 / 5,
            },
        ),
        (
            0,
            {
                ("plumber", "a"): 1,
                ("plumber", "b"): 1 / 2,
                ("pizza", "a"): 0,
                ("plumber", "c"): 3 / 5,
                ("sushi", "z"): 3 / 5,
            },
        ),
        (
            5,
            {
                ("plumber", "a"): 5 / 7,
                ("plumber", "b"): 4 / 7,
                ("pizza", "a"): 3 / 6,
                ("plumber", "c"): 3 / 5,
                ("sushi", "z"): 3 / 5,
            },
        ),
    ],
)
def test_satisfaction_by_hand(strength: float, expected: dict[tuple[str, str], float]) -> None:
    fitted = model(satisfaction_strength=strength)
    pairs = pa.table({"query": [query for query, _ in expected], "ad": [ad for _, ad in expected]})
    np.testing.assert_allclose(
        fitted.relevance(pairs)["satisfaction"], list(expected.values()), rtol=1e-14
    )


def test_nobody_clicks_the_same_position_again() -> None:
    for fitted in (model(), model(pooling="global"), rc.MultiClick().fit(LOG)):
        for query in ("plumber", "pizza", "sushi"):
            gamma = fitted.fatigue_and_transitions(query).gamma
            assert [gamma[j, j - 1] for j in (1, 2, 3)] == [0, 0, 0]
            np.testing.assert_allclose(gamma.sum(axis=1), 1, rtol=1e-12)
