"""One kit for every model of MODELS: a new model is tested by being registered. Its own formula is tested beside it, in tests/models."""

from __future__ import annotations

import copy
import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.errors import CannotAnswerError, NotFittedError, SettingError
from reclick.models import MODELS, ClickModel
from tests.support.conformance_kit import (
    ADS,
    LETTERS,
    LOG,
    PAGES,
    SOME_SETS_IMPOSSIBLE,
    Columns,
    Page,
    all_answers,
    all_sequences,
    as_table,
    assert_same,
    assert_sound,
    enumerated,
    fitted,
    make_log,
    pages_table,
    probabilities,
    relevance_or_reason,
    rounding,
)
from tests.support.oracles import ORACLES

EM = [name for name in MODELS if "max_iterations" in MODELS[name]().get_params()]
WORDS = [name for name in MODELS if "attractiveness_prior" in MODELS[name]().get_params()]
PAGE_IDS = [f"{page.query}-{''.join(ad[0] for ad in page.ads)}" for page in PAGES]
every_model = pytest.mark.parametrize("name", MODELS)
every_page = pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
SMALL_PAGES = [
    page
    for page in (*PAGES, Page("s", ("d", "d")), Page("q", ("never", "b", "new")))
    if len(page.ads) <= 3
]
OTHER_SETTINGS: list[
    tuple[str, dict[str, Any]]
] = [  # where something that is hidden may not matter with the defaults
    *(
        ("multiclick", {"reading": reading, "pooling": "global"})
        for reading in ("examination", "normalised")
    ),
    (
        "luceclick",
        {
            **{
                f"{name}_strength": 3.0
                for name in ("attractiveness", "satisfaction", "query", "transition", "kind", "mix")
            },
            "components": 2,
        },
    ),
    ("am", {"number_strength": 0.0, "frequent": 15}),
    ("icm", {"frequent": 15, "word_strength": 3.0}),
    ("dbn", {"continuation": 0.7}),
    ("sdbn", {"satisfaction_prior": 0.2}),
]
VERBS: dict[str, Any] = {
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


# probabilities


def test_every_model_has_a_brute_force_of_its_own() -> None:
    assert set(ORACLES) == set(MODELS)


@pytest.mark.parametrize(
    "page", SMALL_PAGES, ids=lambda page: f"{page.query}-{''.join(ad[0] for ad in page.ads)}"
)
@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in MODELS), *OTHER_SETTINGS])
def test_probabilities_equal_brute_force_over_what_is_hidden(
    name: str, settings: dict[str, Any], page: Page
) -> None:
    truth, sequences = ORACLES[name](fitted(name, **settings), *page), all_sequences(len(page.ads))
    ordered = [truth.get(clicks, 0.0) for clicks in sequences]
    sets = [
        sum(truth.get(order, 0.0) for order in itertools.permutations(clicks))
        for clicks in sequences
    ]
    assert sum(ordered) == pytest.approx(1, abs=1e-12)
    for got, expected in (
        (fitted(name, **settings).log_prob, ordered),
        (fitted(name, **settings).log_set_prob, sets),
    ):
        np.testing.assert_allclose(np.exp(got(enumerated(page))), expected, rtol=1e-10, atol=1e-12)


@every_page
@every_model
def test_probabilities_of_all_click_sequences_add_to_one(name: str, page: Page) -> None:
    assert sum(probabilities(fitted(name), page).values()) == pytest.approx(1, abs=1e-9)


@every_page
@every_model
def test_a_marginal_is_the_sum_over_the_sequences_with_that_click(name: str, page: Page) -> None:
    chance = probabilities(fitted(name), page)
    sums = [
        sum(p for clicks, p in chance.items() if j in clicks) for j in range(1, len(page.ads) + 1)
    ]
    assert fitted(name).click_prob(pages_table((page,)))[0] == pytest.approx(sums, abs=1e-9)
    assert fitted(name).expected_clicks(pages_table((page,)))[0] == pytest.approx(
        sum(sums), abs=1e-9
    )


@every_page
@every_model
def test_the_probability_of_a_set_is_the_sum_over_its_orders_and_any_of_them_asks_for_it(
    name: str, page: Page
) -> None:
    chance = probabilities(fitted(name), page)
    sums = [
        sum(chance[order] for order in itertools.permutations(sorted(clicks))) for clicks in chance
    ]
    assert np.exp(fitted(name).log_set_prob(enumerated(page))) == pytest.approx(
        sums, abs=1e-12, rel=1e-9
    )


@every_page
@every_model
def test_the_next_click_is_the_ratio_of_sums_over_sequences_with_that_prefix(
    name: str, page: Page
) -> None:
    chance = probabilities(fitted(name), page)
    begun: dict[tuple[int, ...], float] = {}
    for clicks, p in chance.items():
        for many in range(len(clicks) + 1):
            begun[clicks[:many]] = begun.get(clicks[:many], 0.0) + p
    asked = [clicks for clicks in chance if begun[clicks] > 1e-14]
    got = fitted(name).next_click_prob(
        pages_table((page,) * len(asked)), [list(clicks) for clicks in asked]
    )
    for clicks, row in zip(asked, got, strict=True):
        ratios = [begun.get((*clicks, j), 0.0) / begun[clicks] for j in range(1, len(page.ads) + 1)]
        assert row == pytest.approx(ratios, abs=1e-7), clicks


@every_page
@every_model
def test_ranking_lists_the_true_best_sequences(name: str, page: Page) -> None:
    chance = probabilities(fitted(name), page)
    for length in (None, *range(len(page.ads) + 1)):
        listed = fitted(name).rank_sequences(page.query, page.ads, length=length, top=5)
        best = sorted(
            (p for clicks, p in chance.items() if p > 0 and length in (None, len(clicks))),
            reverse=True,
        )[:5]
        assert [each.probability for each in listed] == pytest.approx(best, rel=1e-9)
        assert [chance[each.clicks] for each in listed] == pytest.approx(best, rel=1e-9)
        assert len({each.clicks for each in listed}) == len(listed)


@every_model
def test_samples_come_as_often_as_they_are_likely(name: str) -> None:
    page, many = PAGES[2], 20_000
    drawn = [
        tuple(clicks)
        for clicks in fitted(name)
        .sample(pages_table((page,) * many), np.random.default_rng(3))
        .to_pylist()
    ]
    for clicks, p in probabilities(fitted(name), page).items():
        off = abs(drawn.count(clicks) / many - p)
        assert off <= 5 * np.sqrt(p * (1 - p) / many) + 1e-9, clicks


@every_model
def test_a_seed_gives_the_same_sample(name: str) -> None:
    first, again, other = (fitted(name).sample(LOG, seed) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


@every_model
def test_answers_are_finite_or_a_stated_impossibility(name: str) -> None:
    log = {column: [*LOG[column], *enumerated(PAGES[3]).to_pydict()[column]] for column in LOG}
    assert_sound(fitted(name), log, name)


@every_model
def test_an_order_free_model_holds_a_click_back_up_the_page_impossible_and_an_ordered_one_does_not(
    name: str,
) -> None:
    falling = [
        p
        for page in PAGES
        for clicks, p in probabilities(fitted(name), page).items()
        if list(clicks) != sorted(clicks)
    ]
    assert any(p > 0 for p in falling) == fitted(name).ordered


# fitting


@pytest.mark.parametrize("name", EM)
def test_the_objective_never_falls(name: str) -> None:
    model: Any = fitted(name)
    gains = np.diff(model.objective_)
    assert len(model.objective_) == model.iterations_ > 1
    assert (gains >= -1e-9 * np.abs(model.objective_[1:])).all()


@pytest.mark.parametrize("name", EM)
def test_converged_tells_the_truth(name: str) -> None:
    cut: Any = MODELS[name](max_iterations=1).fit(LOG)  # type: ignore[call-arg]
    assert cut.converged_ is False
    assert "not converged" in cut.message_
    assert "1 iteration" in cut.message_
    long: Any = MODELS[name](max_iterations=10_000).fit(LOG)  # type: ignore[call-arg]
    assert long.converged_ is True
    assert "not" not in long.message_
    assert (long.objective_[-1] - long.objective_[-2]) / len(LOG["query"]) < long.tolerance


@every_model
def test_a_model_with_an_objective_has_the_settings_of_an_iterative_one(name: str) -> None:
    learnt = {"objective_", "converged_", "iterations_", "message_"} & set(vars(fitted(name)))
    assert len(learnt) == (4 if name in EM else 0)


@every_model
def test_a_weight_of_two_equals_the_row_twice(name: str) -> None:
    small = make_log(1, 120, longest=6)
    twice = {
        column: [value for i, value in enumerate(values) for _ in range(1 + i % 2)]
        for column, values in small.items()
    }
    weighted = MODELS[name]().fit(
        as_table({**small, "weight": [1.0 + i % 2 for i in range(120)]}), ads=ADS
    )
    assert_same(
        all_answers(weighted, small),
        all_answers(MODELS[name]().fit(as_table(twice), ads=ADS), small),
        rounding(weighted),
        but=("sample",),
    )


@every_model
def test_the_order_of_the_rows_does_not_matter(name: str) -> None:
    order = np.random.default_rng(4).permutation(len(LOG["query"]))
    shuffled = {column: [values[i] for i in order] for column, values in LOG.items()}
    assert_same(
        all_answers(MODELS[name]().fit(as_table(shuffled), ads=ADS)),
        all_answers(fitted(name)),
        rounding(fitted(name)),
        but=("sample",),
    )


@every_model
def test_fitting_again_gives_the_same_to_the_last_bit(name: str) -> None:
    assert_same(
        all_answers(MODELS[name]().fit(as_table(LOG), ads=ADS)), all_answers(fitted(name)), 0
    )


SMALL_LOGS: dict[str, Columns] = {
    "no click at all": {
        "query": ["q"] * 3,
        "ads": [["a", "b", "c"], ["b"], ["a", "b"]],
        "clicks": [[], [], []],
    },
    "every position clicked": {
        "query": ["q"] * 3,
        "ads": [["a", "b", "c"], ["b"], ["a", "b"]],
        "clicks": [[1, 2, 3], [1], [1, 2]],
    },
    "one session without a click": {"query": ["q"], "ads": [["a", "b"]], "clicks": [[]]},
    "one session with a click": {"query": ["q"], "ads": [["a", "b"]], "clicks": [[2]]},
    "one session with all clicked backwards": {
        "query": ["q"],
        "ads": [["a", "b", "c"]],
        "clicks": [[3, 2, 1]],
    },
    "one page of one ad": {"query": ["q"], "ads": [["a"]], "clicks": [[1]]},
}


@pytest.mark.parametrize("log", SMALL_LOGS.values(), ids=SMALL_LOGS.keys())
@every_model
def test_a_tiny_log_is_no_trouble(name: str, log: Columns) -> None:
    model = MODELS[name]().fit(as_table(log))
    for page in PAGES:
        assert sum(probabilities(model, page).values()) == pytest.approx(1, abs=1e-9)
    assert_sound(model, make_log(2, 24), name)
    relevance_or_reason(model)


@every_model
def test_a_log_with_history_is_fitted_and_answers_stay_sound(name: str) -> None:
    model = MODELS[name]().fit(as_table(make_log(5, 60, longest=4)), history=as_table(LOG), ads=ADS)
    assert_sound(model, LOG, name)


@every_model
def test_every_strength_may_be_zero(name: str) -> None:
    none = {setting: 0 for setting in MODELS[name]().get_params() if setting.endswith("strength")}
    model = MODELS[name](**none).fit(as_table(LOG))
    for page in PAGES:
        assert sum(probabilities(model, page).values()) == pytest.approx(1, abs=1e-9)


# pages and pairs never seen


@every_model
def test_an_unseen_query_and_an_unseen_ad_get_a_sensible_answer(name: str) -> None:
    strange: Columns = {
        "query": ["never", "q", "never"],
        "ads": [["never1", "never2"], ["a", "never"], ["a"]],
        "clicks": [[1], [1], []],
    }
    marginals = fitted(name).click_prob(strange)
    assert ((marginals > 0) & (marginals < 1))[~np.isnan(marginals)].all()
    assert_sound(fitted(name), strange, name)


@every_model
def test_a_page_longer_than_any_of_the_log_gets_an_answer(name: str) -> None:
    model = MODELS[name]().fit(as_table(make_log(6, 60, longest=3)))
    long: Columns = {"query": ["q"], "ads": [list(LETTERS[:12])], "clicks": [[1, 2]]}
    assert_sound(model, long, name)


@pytest.mark.parametrize("name", WORDS)
def test_words_give_an_ad_never_seen_a_value_of_its_own(name: str) -> None:
    good = {
        "ad": ["x1", "x2"],
        "title": ["splendid thing", "dull thing"],
        "description": ["", ""],
        "display_url": ["x1.example", "x2.example"],
    }
    seen = {
        "ad": ["g1", "g2", "b1", "b2"],
        "title": ["splendid one", "splendid two", "dull one", "dull two"],
    }
    rows = [
        (pair, clicks)
        for pair, clicks in (
            (["g1", "b1"], [1]),
            (["b2", "g2"], [2]),
            (["g2", "b1"], [1]),
            (["b1", "g1"], []),
        )
        for _ in range(10)
    ]
    log = {
        "query": ["q"] * 40,
        "ads": [ads for ads, _ in rows],
        "clicks": [clicks for _, clicks in rows],
    }
    text = {**seen, "description": [""] * 4, "display_url": [f"{ad}.example" for ad in seen["ad"]]}
    model = MODELS[name](attractiveness_prior="words").fit(log, ads=text)  # type: ignore[call-arg]
    page = rc.read_sessions(
        {"query": ["q"] * 2, "ads": [["x1"], ["x2"]]}, ads=good, clicks_required=False
    )
    splendid, dull = model.click_prob(page)[:, 0]
    assert splendid / (1 - splendid) > 1.2 * dull / (
        1 - dull
    )  # as odds, which differ as much near 1 as near 0
    relevance = relevance_or_reason(model, {"query": ["q", "q"], "ad": ["x1", "x2"]}, good)
    assert not isinstance(relevance, str)
    assert relevance["attractiveness"][0].as_py() > 1.2 * relevance["attractiveness"][1].as_py()


# relevance


@every_model
def test_relevance_has_its_columns_or_a_reason(name: str) -> None:
    model = fitted(name)
    table = relevance_or_reason(model)
    if isinstance(table, str):
        assert type(model).__name__ in table
        assert len(table) > 30
        return
    values = ["attractiveness", "satisfaction", "relevance"]
    bounds = [column for value in values for column in (value, f"{value}_low", f"{value}_high")]
    assert table.column_names == ["query", "ad", *bounds, "impressions", "clicks"]
    assert (table["satisfaction"].null_count == 0) == model.satisfaction
    for value in values if model.satisfaction else ("attractiveness", "relevance"):
        middle, low, high = (
            table[column].to_numpy() for column in (value, f"{value}_low", f"{value}_high")
        )
        assert ((low >= 0) & (low <= middle) & (middle <= high) & (high <= 1)).all()
    assert sum(table["impressions"].to_pylist()) == sum(len(ads) for ads in LOG["ads"])
    assert sum(table["clicks"].to_pylist()) == sum(len(clicks) for clicks in LOG["clicks"])
    shown = {(query, ad) for query, ads in zip(LOG["query"], LOG["ads"], strict=True) for ad in ads}
    assert set(zip(table["query"].to_pylist(), table["ad"].to_pylist(), strict=True)) == shown


@every_model
def test_relevance_of_pairs_asked_for_comes_in_their_order_with_unseen_ones(name: str) -> None:
    asked = {"query": ["q", "never", "q"], "ad": ["b", "a", "never"]}
    try:
        table = fitted(name).relevance(asked)
    except CannotAnswerError:
        return
    assert table["query"].to_pylist() == asked["query"]
    assert table["ad"].to_pylist() == asked["ad"]
    assert table["impressions"].to_pylist()[1:] == [0, 0]
    assert all(0 <= value <= 1 for value in table["attractiveness"].to_pylist())


# saving


@every_model
def test_a_saved_model_answers_the_same_to_the_last_bit(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path / "model")
    again = rc.load(tmp_path / "model")
    assert type(again) is MODELS[name]
    assert again.get_params() == fitted(name).get_params()
    assert_same(all_answers(again), all_answers(fitted(name)), 0)
    assert [again.rank_sequences(*page) for page in PAGES] == [
        fitted(name).rank_sequences(*page) for page in PAGES
    ]
    assert (
        again.click_prob(pages_table()).tobytes()
        == fitted(name).click_prob(pages_table()).tobytes()
    )


@pytest.mark.parametrize("name", WORDS)
def test_a_saved_model_with_a_words_prior_answers_the_same_to_the_last_bit(
    name: str, tmp_path: Path
) -> None:
    model = MODELS[name](attractiveness_prior="words").fit(  # type: ignore[call-arg]
        as_table(make_log(7, 80, longest=4)), ads=ADS
    )
    model.save(tmp_path / "model")
    assert_same(all_answers(rc.load(tmp_path / "model")), all_answers(model), 0)


# manners


@every_model
def test_settings_are_keyword_only_with_immutable_defaults(name: str) -> None:
    settings = list(inspect.signature(MODELS[name]).parameters.values())
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in settings)
    assert all(
        isinstance(each.default, str | int | float | bool | tuple | None) for each in settings
    )
    assert MODELS[name]().get_params() == {each.name: each.default for each in settings}


@every_model
def test_settings_are_read_changed_and_cloned(name: str) -> None:
    model = fitted(name)
    before = model.get_params()
    twin = model.clone()
    assert type(twin) is type(model)
    assert twin.get_params() == before
    assert not twin.fitted
    assert model.fitted
    number = next(
        setting for setting, value in before.items() if isinstance(value, float) and value
    )
    changed = twin.set_params(**{number: before[number] / 2})
    assert changed is twin
    assert twin.get_params() == {**before, number: before[number] / 2}
    assert model.get_params() == before
    with pytest.raises(SettingError, match=f"Settings: {next(iter(before))}"):
        twin.set_params(strenth=1)
    with pytest.raises(SettingError, match=number):
        MODELS[name](**{number: "much"})


@every_model
def test_changing_a_setting_of_a_fitted_model_makes_it_forget(name: str) -> None:
    model = MODELS[name]().fit(SMALL_LOGS["one session with a click"])
    number = next(
        setting
        for setting, value in model.get_params().items()
        if isinstance(value, float) and value
    )
    assert model.set_params(**{number: model.get_params()[number]}).fitted
    assert not model.set_params(**{number: model.get_params()[number] / 2}).fitted


@every_model
def test_the_repr_shows_the_settings(name: str) -> None:
    for model in (MODELS[name](), fitted(name)):
        settings = ", ".join(
            f"{setting}={value!r}" for setting, value in model.get_params().items()
        )
        assert repr(model).startswith(f"{type(model).__name__}({settings})")


@pytest.mark.parametrize("verb", VERBS)
@every_model
def test_a_model_that_is_not_fitted_says_so(name: str, verb: str) -> None:
    with pytest.raises(NotFittedError, match="fit"):
        VERBS[verb](MODELS[name]())


@every_model
def test_the_model_says_what_it_is(name: str) -> None:
    model = MODELS[name]
    assert model.name == name == name.lower()
    assert issubclass(model, ClickModel)
    for text in (model.assumes, model.reference):
        assert len(text) > 10
    assert model.__doc__
    assert ">>>" in model.__doc__


@every_model
def test_nothing_given_is_changed(name: str) -> None:
    columns, frame, ads = copy.deepcopy(LOG), pd.DataFrame(LOG), copy.deepcopy(ADS)
    kept = frame.copy(deep=True)
    model = MODELS[name]().fit(columns, history=frame, ads=ads)
    all_answers(model, columns)
    for given in (columns, frame):
        model.click_prob(given)
        model.log_set_prob(given)
        model.next_click_prob(given, [[] for _ in LOG["query"]])
    assert columns == LOG
    assert ads == ADS
    pd.testing.assert_frame_equal(frame, kept)


@every_model
def test_answering_changes_nothing_in_the_model(name: str) -> None:
    model = MODELS[name]().fit(as_table(make_log(8, 40, longest=4)))
    before = {key: copy.deepcopy(value) for key, value in vars(model).items() if key.endswith("_")}
    first = all_answers(model)
    assert_same(all_answers(model), first, 0)
    for key, value in before.items():
        assert (
            np.array_equal(np.asarray(getattr(model, key), object), np.asarray(value, object))
            or getattr(model, key) == value
        )


@every_model
def test_two_models_share_nothing(name: str) -> None:
    first = MODELS[name]().fit(SMALL_LOGS["every position clicked"])
    before = first.click_prob(pages_table())
    MODELS[name]().fit(SMALL_LOGS["no click at all"])
    np.testing.assert_array_equal(first.click_prob(pages_table()), before)


@every_model
def test_clicks_come_from_any_kind_of_input(name: str) -> None:
    table = as_table(LOG)
    expected = fitted(name).log_set_prob(table)
    for given in (LOG, table, pd.DataFrame(LOG), rc.read_sessions(table), table.to_batches()[0]):
        np.testing.assert_array_equal(fitted(name).log_set_prob(given), expected)


def test_some_sets_are_impossible_only_where_that_is_said() -> None:
    assert set(SOME_SETS_IMPOSSIBLE) <= set(MODELS)
    assert all(
        np.isneginf(fitted(name).log_set_prob(enumerated(PAGES[3]))).any()
        for name in SOME_SETS_IMPOSSIBLE
    )


def test_the_enumeration_is_complete() -> None:
    assert [len(all_sequences(n)) for n in range(1, 5)] == [2, 5, 16, 65]
    assert isinstance(enumerated(PAGES[3]), pa.Table)


@every_model
def test_a_fit_that_was_stopped_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = {"query": ["q"] * 6, "ads": [["a", "b"]] * 6, "clicks": [[1], [2], [], [1, 2], [1], []]}
    page = {"query": ["q"], "ads": [["a", "b"]]}
    model = MODELS[name]().fit(log)
    before = model.click_prob(page)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MODELS[name], "_learn", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit({"query": ["q"] * 2, "ads": [["c", "d"]] * 2, "clicks": [[2], [2]]})
    assert (model.click_prob(page) == before).all()
    fresh = MODELS[name]()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(log)
    assert not fresh.fitted


@every_model
def test_what_is_clicked_next_below_does_not_depend_on_the_order_of_an_order_free_model(
    name: str,
) -> None:
    if MODELS[name].ordered or name == "pm":
        return
    page = {"query": ["q"], "ads": [["a", "b", "c"]]}
    model = fitted(name)
    assert (model.next_click_prob(page, [[1, 2]]) == model.next_click_prob(page, [[2, 1]])).all()


@every_model
def test_a_file_of_long_pages_is_predicted_or_refused_like_click_prob(
    name: str, tmp_path: Path
) -> None:
    pages = {"query": ["q"] * 3, "ads": [[f"a{i}" for i in range(14)]] * 3}
    model = fitted(name)
    try:
        expected = model.click_prob(pages)
    except CannotAnswerError:
        with pytest.raises(CannotAnswerError):
            rc.predict(model, pages, tmp_path / "out.parquet", top=0)
        return
    rc.predict(model, pages, tmp_path / "out.parquet", top=0)
    assert pq.read_table(tmp_path / "out.parquet")["click_prob"].to_pylist() == expected.tolist()
