"""Models in buckets answer as the whole model, to the last bit, and refuse damaged folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.errors import CannotAnswerError
from reclick.models import MODELS, ClickModel
from reclick.models.partitioned import PartitionedModel
from reclick.runtime import artifact

WORDS = ("hot", "cold", "cheap", "pizza", "tea", "shop")
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "luceclick, all effects and outcomes": (
        "luceclick",
        {"tune": "off", "components": 2, "position_effect_strength": 5.0},
    ),
    "luceclick, nothing per query": (
        "luceclick",
        {
            "tune": "off",
            "components": 2,
            "query_strength": None,
            "mixing_strength": None,
            "satisfaction_strength": None,
            "position_effect_strength": None,
        },
    ),
    "multiclick, global": ("multiclick", {"pooling": "global", "min_query_sessions": 5}),
    "multiclick, outcomes": ("multiclick", {}),
    "dbn, per query": ("dbn", {"continuation": "query", "initiation": "query"}),
    "icm, own words": ("icm", {"min_query_sessions": 5}),
}
SHORT = {"max_iterations": 15}


def make_log(sessions: int, *, queries: int, seed: int, outcomes: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    query = rng.integers(0, queries, sessions)
    pages = [[f"ad{(3 * q + a) % 70}" for a in rng.permutation(6)[:4]] for q in query]
    clicks = [(rng.permutation(4) + 1)[: rng.integers(0, 4)].tolist() for _ in query]
    log: dict[str, Any] = {"query": [f"query {q} ü" for q in query]}
    log |= {"ads": pages, "clicks": clicks}
    if outcomes:
        log["dwell_seconds"] = [rng.exponential(30, len(each)).tolist() for each in clicks]
    return log


def make_ads(first: int, last: int) -> pa.Table:
    texts = [" ".join(WORDS[(i * k) % 6] for k in (1, 2, 3)) for i in range(first, last)]
    return pa.table({"ad": [f"ad{i}" for i in range(first, last)], "title": texts})


TEST = make_log(80, queries=30, seed=2)  # 20 queries are known
TEST["ads"] = [[*page[:2], f"ad{i % 90}", page[3]] for i, page in enumerate(TEST["ads"])]
NEW_TEXT = make_ads(50, 90)


@cache
def fitted(variant: str) -> ClickModel:
    name, settings = VARIANTS[variant]
    short = SHORT if "max_iterations" in MODELS[name].settings else {}
    log = make_log(400, queries=20, seed=1, outcomes="outcomes" in variant)
    return MODELS[name](**settings, **short).fit(log, ads=make_ads(0, 55))


def saved(model: ClickModel, folder: Path, buckets: int, **options: Any) -> PartitionedModel:
    model.save(folder, buckets=buckets)
    loaded = rc.load(folder, **options)
    assert isinstance(loaded, PartitionedModel)
    return loaded


def answers(model: ClickModel) -> dict[str, Any]:
    """All that a model says of the test log, of one page, and of pairs known and new."""
    text = {"text": NEW_TEXT}
    found: dict[str, Any] = {
        "log_prob": model.log_prob(TEST, **text),
        "log_set_prob": model.log_set_prob(TEST, **text),
        "click_prob": model.click_prob(TEST, **text),
        "without text": model.click_prob(TEST),
        "next_click_prob": model.next_click_prob(TEST, **text),
        "satisfaction_prob": refusal_or(lambda: model.satisfaction_prob(TEST)),
        "sample": model.sample(TEST, 3, **text).to_pylist(),
        "rank_sequences": model.rank_sequences("query 3 ü", ["ad9", "ad80", "never"], **text),
        "new query": model.rank_sequences("never", ["ad9", "ad80", "never"]),
        "relevance": refusal_or(model.relevance),
        "of a query": refusal_or(lambda: model.relevance(query="query 3 ü")),
        "of pairs": refusal_or(lambda: model.relevance(PAIRS, **text, level=0.5)),
        "draws": refusal_or(lambda: model.sample_relevance(PAIRS, 3, 1).attractiveness),
        "explain": refusal_or(lambda: model.explain("query 3 ü", "ad9")),
        "totals": model.training_totals,
    }
    for batch in rc.read_sessions(TEST).batches():
        found |= {"known": model.find_known(batch), "volumes": model.find_volumes(batch)}
    return found


PAIRS = {
    "query": ["query 3 ü", "never", "query 7 ü", "query 3 ü", "query 11 ü"],
    "ad": ["ad9", "ad9", "ad80", "never", "ad33"],
}


def refusal_or(answer: Any) -> Any:
    try:
        return answer()
    except CannotAnswerError as error:
        return str(error)


def assert_same(a: Any, b: Any, name: str) -> None:
    if isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif isinstance(a, tuple) and any(isinstance(each, np.ndarray) for each in a):
        for one, other in zip(a, b, strict=True):
            assert_same(one, other, name)
    else:
        assert a.equals(b) if isinstance(a, pa.Table) else a == b, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_in_buckets_answers_as_the_whole_model(variant: str, tmp_path: Path) -> None:
    whole = fitted(variant)
    expected = answers(whole)
    for buckets in (1, 7, 200):
        model = saved(whole, tmp_path / str(buckets), buckets)
        found = answers(model)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value, f"{name}, {buckets} buckets")


@pytest.mark.parametrize(
    "variant", ["luceclick, all effects and outcomes", "multiclick, outcomes", "ubm", "gctr"]
)
def test_a_model_in_memory_again_is_the_one_that_was_saved(variant: str, tmp_path: Path) -> None:
    whole = fitted(variant)
    again = saved(whole, tmp_path / "buckets", 7).to_memory()
    assert type(again) is type(whole)
    again.save(tmp_path / "again")
    whole.save(tmp_path / "whole")
    first, second = (artifact.read(tmp_path / each) for each in ("again", "whole"))
    assert first.settings == second.settings
    assert first.tables.keys() == second.tables.keys()
    for name, table in first.tables.items():
        assert table.equals(second.tables[name]), name
