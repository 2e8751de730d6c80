"""Questions about a single page, with the text of new ads, and the table of one query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc

LOG = {
    "query": ["pizza"] * 6 + ["taxi"] * 2,
    "ads": [["a", "b", "c"]] * 6 + [["b", "d"]] * 2,
    "clicks": [[1], [2, 1], [], [3], [1], [2], [2], []],
}
TEXT = {"a": "hot fresh pizza", "b": "cold stale pizza", "c": "hot wings", "d": "airport taxi"}
NEW = {"new": "hot fresh pizza"}
PAGE = ("pizza", ["new", "b", "c"])


@pytest.fixture(scope="module")
def model() -> rc.ClickModel:
    return rc.MultiClick(variant="normalised").fit(LOG, ads=TEXT)


Question = Callable[[rc.ClickModel, Any, Any], Any]
QUESTIONS: dict[str, Question] = {
    "click_prob": lambda model, pages, text: model.click_prob(pages, text=text),
    "expected_clicks": lambda model, pages, text: model.expected_clicks(pages, text=text),
    "satisfaction_prob": lambda model, pages, text: model.satisfaction_prob(pages, text=text),
    "log_prob": lambda model, pages, text: model.log_prob(pages, text=text),
    "log_set_prob": lambda model, pages, text: model.log_set_prob(pages, text=text),
    "next_click_prob": lambda model, pages, text: model.next_click_prob(pages, text=text),
    "instantaneous_attractiveness": lambda model, pages, text: model.instantaneous_attractiveness(
        pages, text=text
    ),
    "pages": lambda model, pages, text: model.pages(pages, text=text).click_prob(),
    "sample": lambda model, pages, text: model.sample(pages, 3, text=text).to_pylist(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_method_answers_about_one_page_with_new_text(model: rc.ClickModel, name: str) -> None:
    ask, session = QUESTIONS[name], (*PAGE, [2])
    log = {"query": ["pizza"], "ads": [PAGE[1]], "clicks": [[2]]}
    expected = ask(model, rc.read_sessions(log, ads=NEW), None)
    assert np.array_equal(ask(model, session, NEW), expected, equal_nan=name != "sample")
    assert np.array_equal(ask(model, log, NEW), expected, equal_nan=name != "sample")


@pytest.mark.parametrize("name", sorted(set(QUESTIONS) - {"sample"}))
def test_the_text_of_a_new_ad_counts(model: rc.ClickModel, name: str) -> None:
    ask, session = QUESTIONS[name], (*PAGE, [2])
    other = {"new": "cold stale pizza"}
    assert not np.array_equal(ask(model, session, NEW), ask(model, session, other))


def test_a_new_ad_with_the_words_of_a_known_one_is_as_attractive_with_a_rare_query() -> None:
    model = rc.MultiClick().fit(LOG, ads=TEXT)
    new, known = model.click_prob(("bakery", ["new", "a"]), text=NEW)[0]
    swapped = model.click_prob(("bakery", ["a", "new"]), text=NEW)[0]
    assert new == pytest.approx(swapped[0])
    assert known == pytest.approx(swapped[1])


def test_sequences_of_a_page_are_ranked_for_a_tuple_too(model: rc.ClickModel) -> None:
    two_arguments = model.rank_sequences("pizza", ["new", "b", "c"], text=NEW)
    assert model.rank_sequences(PAGE, text=NEW) == two_arguments
    with pytest.raises(rc.UsageError, match="give its query and its ads"):
        model.rank_sequences("pizza")


def test_clicks_so_far_of_a_single_page_are_one_list(model: rc.ClickModel) -> None:
    page = ("pizza", ["a", "b", "c"])
    flat, nested = model.next_click_prob(page, [2]), model.next_click_prob(page, [[2]])
    assert np.array_equal(flat, nested)
    assert np.array_equal(model.next_click_prob((*page, [2])), nested)
    assert np.array_equal(model.next_click_prob(page, []), model.next_click_prob(page))


def test_text_is_added_to_that_of_the_log_and_the_log_stays_as_it_is(
    model: rc.ClickModel,
) -> None:
    page = {"query": ["pizza"], "ads": [["new", "other"]]}
    log = rc.read_sessions(page, ads={"other": "hot pizza", "new": "cold stale pizza"})
    both = rc.read_sessions(page, ads={"other": "hot pizza", **NEW})
    assert np.array_equal(model.click_prob(log, text=NEW), model.click_prob(both))
    assert log.ads is not None
    assert log.ads["title"].to_pylist() == ["hot pizza", "cold stale pizza"]


def test_predictions_are_written_with_new_text(model: rc.ClickModel, tmp_path: Path) -> None:
    rc.predict(model, PAGE, tmp_path / "one.parquet", text=NEW)
    written = pq.read_table(tmp_path / "one.parquet")
    expected = model.click_prob(PAGE, text=NEW)[0].tolist()
    assert written["click_prob"].to_pylist() == [expected]


def test_the_relevance_of_one_query_has_the_best_ad_first(model: rc.ClickModel) -> None:
    table = model.relevance(query="pizza")
    all_pairs = [row for row in model.relevance().to_pylist() if row["query"] == "pizza"]
    assert sorted(table.to_pylist(), key=str) == sorted(all_pairs, key=str)
    relevance = table["relevance"].to_pylist()
    assert relevance == sorted(relevance, reverse=True)


def test_the_relevance_of_a_page_has_its_ads_in_order(model: rc.ClickModel) -> None:
    table = model.relevance(("pizza", ["c", "new"]), text=NEW)
    assert table["ad"].to_pylist() == ["c", "new"]
    pairs = pa.table({"query": ["pizza"] * 2, "ad": ["c", "new"]})
    assert table.equals(model.relevance(pairs, text=NEW))


def test_a_query_that_is_new_has_no_table(model: rc.ClickModel) -> None:
    with pytest.raises(rc.LogError, match=r"not seen the query 'bakery'.*relevance\(\(query, ads"):
        model.relevance(query="bakery")
    with pytest.raises(rc.UsageError, match="pairs or query, not both"):
        model.relevance(("pizza", ["a"]), query="pizza")


def test_pages_are_read_without_clicks_but_not_learned_from() -> None:
    pages = rc.read_sessions({"query": ["pizza"], "ads": [["a", "b"]]}, ads=TEXT)
    assert not pages.has_clicks
    with pytest.raises(rc.LogError, match=r"no column clicks.*columns=\{'clicks': \.\.\.\}"):
        rc.DCTR().fit(pages)
    with pytest.raises(rc.LogError, match="no column clicks"):
        rc.read_sessions({"query": ["pizza"], "ads": [["a"]]}, clicks_required=True)
    with pytest.raises(rc.LogError, match="no column clicks"):
        rc.describe(pages)


@pytest.mark.parametrize(
    "page", [("pizza", ("a", "b")), ("pizza", np.array(["a", "b"])), (7, ["a", "b"])]
)
def test_a_page_is_a_query_and_any_sequence_of_ads(model: rc.ClickModel, page: Any) -> None:
    assert model.click_prob(page).shape == (1, 2)


def test_a_tuple_of_paths_is_no_page() -> None:
    with pytest.raises(rc.LogError, match="does not exist"):
        rc.read_sessions(("a.parquet", "b.parquet"))
