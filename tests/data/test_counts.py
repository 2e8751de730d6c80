"""Counts: what they are of a log, and that they add, subtract, fade and save exactly."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reclick as rc
from reclick.data.counts import Counts
from reclick.engines import as_counts, count
from reclick.engines.local import counter
from reclick.engines.local.counter import sort_pairs
from reclick.errors import LogError, SettingError, StoreError, UsageError
from tests.support.enumeration import Session, as_table, random_sessions
from tests.support.plain_counts import by_hand, check_canonical, in_plain

SEEDS = st.integers(0, 2**32)


def sessions_of(seed: int, size: int = 40, *, weights: bool = False) -> list[Session]:
    return random_sessions(np.random.default_rng(seed), size, weights=weights)


def counted(sessions: list[Session], *, weights: bool = False) -> Counts:
    return count(as_table(sessions, weights=weights)) if sessions else counter.Counter().finish()


@given(SEEDS, st.booleans())
@settings(max_examples=40)
def test_counts_are_those_made_by_hand(seed: int, weights: bool) -> None:
    sessions = sessions_of(seed, weights=weights)
    counts = counted(sessions, weights=weights)
    assert in_plain(counts) == by_hand(sessions)
    check_canonical(counts)


@given(SEEDS, st.integers(0, 40), st.booleans())
@settings(max_examples=40)
def test_counts_of_a_log_are_the_sum_over_any_split_in_any_order(
    seed: int, cut: int, weights: bool
) -> None:
    sessions = sessions_of(seed, weights=weights)
    one, two = counted(sessions[:cut], weights=weights), counted(sessions[cut:], weights=weights)
    whole = counted(sessions, weights=weights)
    assert one + two == whole == two + one


@given(SEEDS, st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=25)
def test_counts_of_many_days_add_in_any_grouping(seed: int, cuts: list[int]) -> None:
    sessions = sessions_of(seed, 60)
    days = [
        counted(sessions[a:b]) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True)
    ]
    left, right = counter.Counter().finish(), counter.Counter().finish()
    for day in days:
        left = left + day
    for day in reversed(days):
        right = day + right
    assert left == right == counted(sessions)


@given(SEEDS, st.integers(0, 40), st.booleans())
@settings(max_examples=40)
def test_taking_a_day_away_is_never_having_counted_it(seed: int, cut: int, weights: bool) -> None:
    sessions = sessions_of(seed, weights=weights)
    one, two = counted(sessions[:cut], weights=weights), counted(sessions[cut:], weights=weights)
    rest = one + two - two
    assert rest == one
    check_canonical(rest)


def test_queries_ads_and_click_lists_of_a_day_taken_away_are_gone() -> None:
    kept = [Session("q", ("a", "b"), (1,))]
    day = [Session("only today", ("a", "c", "d", "e"), (4, 1, 2)), Session("q", ("new",), ())]
    rest = counted(kept + day) - counted(day)
    assert rest.queries.to_pylist() == ["q"]
    assert rest.ads.to_pylist() == ["a", "b"]
    assert rest.sequence_clicks.tolist() == [1]
    assert rest.lengths.shape == (3, 2)
    assert rest == counted(kept)


def test_counts_less_themselves_are_empty() -> None:
    counts = counted(sessions_of(3))
    nothing = counts - counts
    assert nothing == counter.Counter().finish()
    assert (nothing.total, len(nothing.queries), len(nothing.ads), nothing.max_ads) == (0, 0, 0, 0)
    assert nothing + counts == counts == counts + nothing
    assert repr(nothing) == "Counts(0 sessions, 0 queries, 0 ads, 0 pairs)"


MORE = {
    "sessions": ([Session("q", ("a",), (1,))], [Session("q", ("a",), (1,))] * 2),
    "a query": ([Session("q", ("a",), (1,))], [Session("r", ("a",), (1,))]),
    "an ad": ([Session("q", ("a",), (1,))], [Session("q", ("b",), (1,))]),
    "clicks": ([Session("q", ("a",), ())], [Session("q", ("a",), (1,))]),
    "the click on the other ad of the same page": (
        [Session("q", ("a", "b"), (1,))],
        [Session("q", ("b", "a"), (1,))],
    ),
    "a click before the last, where impressions are left": (
        [Session("q", ("a", "b", "c"), (1, 3)), Session("q", ("b", "a", "c"), ())],
        [Session("q", ("b", "a", "c"), (1, 3))],
    ),
    "a click before the last for a last one": (
        [Session("q", ("a", "b"), (1, 2))],
        [Session("q", ("b", "a"), (1, 2))],
    ),
    "pages of another length": (
        [Session("q", ("a", "a"), ()), Session("q", ("a", "a"), ())],
        [Session("q", ("a", "a", "a"), ()), Session("q", ("a",), ())],
    ),
    "a shorter page of a query that then has ads and no sessions": (
        [Session("q", ("a", "b"), ()), Session("r", ("a",), ())],
        [Session("q", ("a",), ())],
    ),
    "a longer page of a query that then has sessions and no ads": (
        [Session("q", ("a",), ()), Session("q", ("a",), ()), Session("r", ("a", "b"), ())],
        [Session("q", ("a", "a"), ())],
    ),
}


@pytest.mark.parametrize("what", MORE)
def test_taking_away_what_is_not_there_is_refused(what: str) -> None:
    counts, more = (counted(sessions) for sessions in MORE[what])
    with pytest.raises(SettingError, match="hold more than the counts they are taken from"):
        counts - more


@given(SEEDS)
@settings(max_examples=20)
def test_a_row_of_weight_two_is_the_row_twice(seed: int) -> None:
    sessions = sessions_of(seed, 20)
    twice = [replace(s, weight=2.0) for s in sessions]
    assert counted(twice, weights=True) == counted(sessions + sessions)
    assert counted([replace(s, weight=3.0) for s in sessions], weights=True) == counted(
        sessions
    ) + counted(sessions) + counted(sessions)


@given(SEEDS)
@settings(max_examples=20)
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    sessions = sessions_of(seed)
    shuffled = [sessions[i] for i in np.random.default_rng(seed + 1).permutation(len(sessions))]
    assert counted(shuffled) == counted(sessions)


def test_order_of_ads_and_of_clicks_does_matter() -> None:
    page = counted([Session("q", ("a", "b"), (1, 2))])
    assert page != counted([Session("q", ("b", "a"), (1, 2))])
    assert page != counted([Session("q", ("a", "b"), (2, 1))])
    assert page != counted([Session("q", ("a", "b"), (1,))])
    assert page != counted([Session("r", ("a", "b"), (1, 2))])
    assert page != "counts"


def test_an_ad_twice_on_a_page_is_two_impressions_of_one_pair() -> None:
    counts = counted([Session("q", ("a", "b", "a"), (3, 1, 3, 2))])
    assert counts.impressions.tolist() == [2, 1]
    assert counts.clicks.tolist() == [2, 1]
    assert counts.last_clicks.tolist() == [0, 1]
    assert counts.sequence_clicks.tolist() == [3, 1, 2]
    assert counts.lengths[3, 3] == 1


def test_decay_scales_every_count_and_nothing_else() -> None:
    counts = counted(sessions_of(5, weights=True), weights=True)
    faded = counts.decay(0.25)
    for field in fields(Counts):
        before, after = getattr(counts, field.name), getattr(faded, field.name)
        if field.name in {"impressions", "clicks", "last_clicks", "sessions", "lengths"}:
            assert after.tolist() == (before * 0.25).tolist()
        else:
            assert after is before
    assert faded.total == counts.total / 4
    assert counts.decay(1.0) == counts


def test_decayed_days_add_up_and_can_be_taken_away() -> None:
    one, two = counted(sessions_of(6)), counted(sessions_of(7))
    window = (one.decay(0.9) + two).decay(0.9)
    assert window.total == pytest.approx(0.81 * one.total + 0.9 * two.total, rel=1e-12)
    rest = window - one.decay(0.9).decay(0.9)
    assert rest.queries.to_pylist() == two.queries.to_pylist()
    assert rest.pair_ad.tolist() == two.pair_ad.tolist()
    assert rest.sessions == pytest.approx(two.sessions * 0.9, rel=1e-9)
    assert rest.clicks == pytest.approx(two.clicks * 0.9, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("factor", [0.0, -0.5, 1.0001, float("nan"), float("inf")])
def test_a_decay_that_is_no_share_is_refused(factor: float) -> None:
    with pytest.raises(
        SettingError,
        match=r": got .*, expected a (number|factor above 0 and at most 1)",
    ):
        counted(sessions_of(1)).decay(factor)


@given(SEEDS, st.booleans())
@settings(max_examples=15)
def test_saved_counts_are_loaded_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, seed: int, weights: bool
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    counts = counted(sessions_of(seed, weights=weights), weights=weights)
    counts.save(folder)
    loaded = Counts.load(folder)
    assert loaded == counts
    assert [each.to_dict() for each in loaded.logs] == [each.to_dict() for each in counts.logs]
    for field in fields(Counts):
        if field.name in ("logs", "folders", "outcomes"):  # no outcome is known here
            continue
        before, after = getattr(counts, field.name), getattr(loaded, field.name)
        assert (
            (after.type, len(after)) == (before.type, len(before))
            if isinstance(before, pa.Array)
            else after.dtype == before.dtype
        )
    assert loaded + counts == counts + counts
    assert as_counts(folder) == as_counts(str(folder)) == counts


def test_the_sum_of_a_list_is_that_of_its_counts() -> None:
    days = [counted(sessions_of(seed)) for seed in range(3)]
    assert sum(days) == Counts.sum(days)
    for wrong in (5, "5", None, 0.0):
        with pytest.raises(UsageError, match="Counts are added to and subtracted from counts"):
            _ = wrong + days[0]


def test_counts_that_somebody_else_saved_are_not_lost(tmp_path: Path) -> None:
    day = rc.count({"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]]})
    day.save(tmp_path)
    mine, theirs = Counts.load(tmp_path), Counts.load(tmp_path)
    (theirs + day).save(tmp_path)
    for total in (mine + day, Counts.sum([day, mine]), mine.decay(0.5), mine + day - day):
        with pytest.raises(StoreError, match="Load it again and repeat the update, or save with"):
            total.save(tmp_path)
    assert Counts.load(tmp_path).total == 2
    (mine + day + day).save(tmp_path, overwrite=True)
    assert Counts.load(tmp_path).total == 3


def test_counts_are_saved_again_by_those_who_saved_them_last(tmp_path: Path) -> None:
    day = rc.count({"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]]})
    first = day + day
    first.save(tmp_path / "c")
    second, third = first + day, first + day + day
    for total in (second, third, first, first - day):
        total.save(tmp_path / "c")
        assert Counts.load(tmp_path / "c") == total
    third.save(tmp_path / "d")


def test_empty_counts_are_saved_and_loaded(tmp_path: Path) -> None:
    nothing = counter.Counter().finish()
    nothing.save(tmp_path / "counts")
    assert Counts.load(tmp_path / "counts") == nothing
    assert Counts.load(tmp_path / "counts") + counted(sessions_of(1)) == counted(sessions_of(1))


def test_decayed_counts_keep_every_bit_when_saved(tmp_path: Path) -> None:
    counts = counted(sessions_of(8)).decay(0.1).decay(1 / 3)
    counts.save(tmp_path / "counts")
    assert Counts.load(tmp_path / "counts") == counts


def test_every_format_of_a_log_gives_the_same_counts(tmp_path: Path) -> None:
    sessions = sessions_of(9, 300)
    table = as_table(sessions)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=7)
    pq.write_table(table.slice(0, 100), tmp_path / "part1.parquet")
    pq.write_table(table.slice(100), tmp_path / "part2.parquet", row_group_size=50)
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    )
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["query", "ads", "clicks"])
        writer.writerows([s.query, json.dumps(s.ads), json.dumps(s.clicks)] for s in sessions)
    expected = count(table)
    assert count(tmp_path / "log.parquet") == expected
    assert count(str(tmp_path / "part*.parquet")) == expected
    assert count(tmp_path / "log.jsonl") == expected
    assert count(tmp_path / "log.csv") == expected
    assert in_plain(expected) == by_hand(sessions)


def test_batches_and_chunks_of_any_size_give_the_same_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = as_table(sessions_of(10, 500))
    expected = count(table)
    monkeypatch.setattr(counter, "CHUNK_SESSIONS", 13)
    assert count(table) == expected
    assert count(pa.Table.from_batches(table.to_batches(max_chunksize=17))) == expected


@pytest.mark.parametrize("most", [9, 2**31 - 1])
def test_pairs_are_sorted_by_the_first_code_and_then_the_second(most: int) -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, most, (2, 500), endpoint=True).astype(np.int32)
    in_first, in_second, order = sort_pairs(first, second)
    assert list(zip(in_first.tolist(), in_second.tolist(), strict=True)) == sorted(
        zip(first.tolist(), second.tolist(), strict=True)
    )
    np.testing.assert_array_equal(first[order], in_first)
    np.testing.assert_array_equal(np.sort(order), np.arange(500))


def test_a_large_log_of_many_pairs_is_counted_exactly() -> None:
    rng = np.random.default_rng(11)
    size = 60_000  # sessions of one ad, more pairs and click lists than any table starts with
    query, ad, clicked = (
        rng.integers(0, 3_000, size),
        rng.integers(0, 900, size),
        rng.random(size) < 0.3,
    )
    table = pa.table(
        {
            "query": [f"q{i}" for i in query],
            "ads": [[f"a{i}"] for i in ad],
            "clicks": pa.array([[1] if c else [] for c in clicked], pa.list_(pa.int32())),
        }
    )
    counts = count(table)
    keys, impressions = np.unique(query * 1_000 + ad, return_counts=True)
    clicks = np.bincount(np.searchsorted(keys, query * 1_000 + ad), clicked, len(keys))
    plain = in_plain(counts)
    assert plain.impressions == {
        (f"q{k // 1_000}", f"a{k % 1_000}"): n
        for k, n in zip(keys.tolist(), impressions.tolist(), strict=True)
    }
    assert plain.clicks == {
        (f"q{k // 1_000}", f"a{k % 1_000}"): n
        for k, n in zip(keys.tolist(), clicks.tolist(), strict=True)
        if n
    }
    check_canonical(counts)
    assert count(table.slice(0, 20_000)) + count(table.slice(20_000)) == counts


def test_strings_of_every_kind_are_counted_apart() -> None:
    queries = ["e\u0301", "é", "É", " é", "👟", "حذاء", "x" * 10_000, "x" * 10_001]
    counts = counted([Session(query, ("ad",), (1,)) for query in queries])
    assert counts.queries.to_pylist() == sorted(queries, key=lambda text: text.encode())
    assert counts.volumes.tolist() == [1.0] * len(queries)


def test_totals_of_counts_are_those_of_the_log() -> None:
    sessions = sessions_of(12, weights=True)
    counts = counted(sessions, weights=True)
    plain = by_hand(sessions)
    assert counts.total == sum(s.weight for s in sessions)
    volumes = {
        query: sum(s.weight for s in sessions if s.query == query)
        for query in sorted({s.query for s in sessions})
    }
    assert dict(zip(counts.queries.to_pylist(), counts.volumes.tolist(), strict=True)) == volumes
    assert counts.max_ads == max(len(s.ads) for s in sessions)
    assert counts.per_sequence().sum() == counts.total
    assert counts.lengths.sum() == sum(plain.lengths.values())


def test_progress_is_told_while_counting() -> None:
    told: list[tuple[int, int | None]] = []
    count(
        as_table(sessions_of(1, 30)), progress=lambda what, done, total: told.append((done, total))
    )
    assert told[-1] == (30, 30)


def test_a_log_without_clicks_cannot_be_counted() -> None:
    with pytest.raises(LogError, match="clicks"):
        count({"query": ["q"], "ads": [["a"]]})


def test_counts_are_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(counted(sessions_of(1)))


def test_a_model_folder_is_not_counts(tmp_path: Path) -> None:
    from reclick.models import MultiClick

    MultiClick().fit(as_table(sessions_of(1))).save(tmp_path / "model")
    with pytest.raises(StoreError, match="holds a model, expected counts"):
        Counts.load(tmp_path / "model")


def test_counts_that_have_nearly_faded_still_answer_and_slide() -> None:
    old = rc.count({"query": ["q", "q"], "ads": [["x"], ["x"]], "clicks": [[], [1]]})
    for _ in range(300):
        old = old.decay(0.9)
    day = rc.count({"query": ["z"], "ads": [["y"]], "clicks": [[1]]})
    both = old + day
    assert both.pair_query.tolist() == [0, 1]
    assert both.queries.to_pylist() == ["q", "z"]
    assert rc.MultiClick().fit(both).relevance().num_rows == 2
    assert (both - day).total == pytest.approx(0, abs=1e-9)


# ---- 17: weights that are too large to add


def weigh(*weights: float) -> dict[str, object]:
    size = len(weights)
    return {"query": ["q"] * size, "ads": [["a", "b"]] * size, "clicks": [[1]] * size} | {
        "weight": list(weights)
    }


@pytest.mark.parametrize("reduce", [rc.count, rc.DCTR().fit, rc.DBN(max_iterations=1).fit])
def test_weights_that_add_up_to_more_than_is_exact_are_an_error(
    reduce: Callable[[object], object],
) -> None:
    """Finding 17: each weight is right, and 2^53 + 1 + 1 was 2^53."""
    reduce(weigh(2.0**51, 2.0**51))
    for weights in ((2.0**52, 1.0), (2.0**53,)):  # on pages of two ads
        with pytest.raises(rc.LogError, match="table: weights add up to"):
            reduce(weigh(*weights))


def test_counts_that_add_up_to_more_than_is_exact_are_an_error() -> None:
    """Finding 17: each day is right, and the sum of the days is not."""
    day = rc.count(weigh(2.0**51))
    assert (day + day).total == 2.0**52
    with pytest.raises(rc.LogError, match=r"The sum of the counts: weights add up to 1\.351e\+16"):
        _ = day + day + day
