"""What the conformance kit asks with: one small log with everything in it, enumerated pages, and all verbs of a model at once."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.errors import CannotAnswerError
from reclick.models import MODELS, ClickModel

Float64 = npt.NDArray[np.float64]
Sequence = tuple[int, ...]
Columns = dict[str, list[Any]]

SOME_SETS_IMPOSSIBLE = (
    "cm",
    "pm",
    "am",
)  # they say so: one click at most, the first k positions only, the k most attractive only
LETTERS = "abcdefghijklmnop"
ADS: Columns = {
    "ad": [*LETTERS, "new"],
    "title": [
        f"{'cheap' if i % 2 else 'fine'} {'boots' if i % 3 else 'shoes'} {'today' if i % 5 else 'now'}"
        for i in range(17)
    ],
    "description": [f"{'sale' if i % 4 else 'leather'} number{i % 7}" for i in range(17)],
    "display_url": [f"{letter}.example" for letter in (*LETTERS, "new")],
}


class Page(NamedTuple):
    query: str
    ads: tuple[str, ...]


PAGES = (
    Page("q", ("a",)),
    Page("q", ("b", "a")),
    Page("r", ("c", "a", "b")),
    Page("q", ("a", "b", "c", "d")),
    Page("q", ("a", "b", "a")),  # an ad twice
    Page("q", ("b", "never", "new", "a")),  # unseen ads, one with text
    Page("never", ("a", "never", "new")),  # unseen query
)


def all_sequences(n: int) -> list[Sequence]:
    """Every ordered click sequence of a page of n ads, no clicks first."""
    return [
        clicks for many in range(n + 1) for clicks in itertools.permutations(range(1, n + 1), many)
    ]


def make_log(seed: int = 0, sessions: int = 420, longest: int = 12) -> Columns:
    """A log with pages of all lengths up to `longest`, reverse clicks, an ad twice on a page, and queries frequent and rare."""
    rng = np.random.default_rng(seed)
    log: Columns = {"query": [], "ads": [], "clicks": []}
    for i in range(sessions):
        n = 1 + i % longest
        ads = rng.choice(list(LETTERS), n, replace=n == 7).tolist()
        attracted = rng.random(n) < 0.5 / (1 + np.arange(n) * 0.4) * np.array(
            [0.4 + 0.1 * (LETTERS.index(ad) % 7) for ad in ads]
        )
        clicks = np.flatnonzero(attracted) + 1
        if len(clicks) > 1 and rng.random() < 0.3:
            clicks = rng.permutation(clicks)
        log["query"].append(str(rng.choice(["q", "q", "q", "r", "s", f"rare{i % 9}"])))
        log["ads"].append(ads)
        log["clicks"].append(clicks.tolist())
    return log


LOG = make_log()


def as_table(log: Columns) -> pa.Table:
    """The columns as Arrow, with types that hold for empty lists too."""
    types = {
        "query": pa.string(),
        "ads": pa.list_(pa.string()),
        "clicks": pa.list_(pa.int64()),
        "weight": pa.float64(),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in log.items()})


@cache
def fitted(name: str, **settings: Any) -> ClickModel:
    """The model, by default with its defaults, fitted to the log once for all tests; they must not change it."""
    return MODELS[name](**settings).fit(as_table(LOG), ads=ADS)


def enumerated(page: Page) -> pa.Table:
    """A log of every click sequence of a page."""
    sequences = all_sequences(len(page.ads))
    return as_table(
        {
            "query": [page.query] * len(sequences),
            "ads": [page.ads] * len(sequences),
            "clicks": sequences,
        }
    )


def probabilities(model: ClickModel, page: Page) -> dict[Sequence, float]:
    """P(clicks) of every click sequence of a page."""
    return dict(
        zip(
            all_sequences(len(page.ads)),
            np.exp(model.log_prob(enumerated(page))).tolist(),
            strict=True,
        )
    )


def pages_table(pages: tuple[Page, ...] = PAGES) -> pa.Table:
    """The pages as a log without clicks."""
    return as_table({"query": [page.query for page in pages], "ads": [page.ads for page in pages]})


def relevance_or_reason(
    model: ClickModel, pairs: object = None, text: object = None
) -> pa.Table | str:
    """The relevance, in an order of its own, or why the model has none."""
    try:
        table = model.relevance(pairs, text=text)
    except CannotAnswerError as error:
        return str(error)
    return table.sort_by([("query", "ascending"), ("ad", "ascending")])


def all_answers(model: ClickModel, log: Columns = LOG) -> dict[str, Any]:
    """What every verb of the model says about a log."""
    table = as_table({name: values for name, values in log.items() if name != "weight"})
    relevance = relevance_or_reason(model)
    return {
        "log_prob": model.log_prob(table),
        "log_set_prob": model.log_set_prob(table),
        "click_prob": model.click_prob(table),
        "expected_clicks": model.expected_clicks(table),
        "next_click_prob": model.next_click_prob(table),
        "rank_sequences": [
            [each.probability for each in model.rank_sequences(*page)] for page in PAGES
        ],
        "relevance": relevance
        if isinstance(relevance, str)
        else relevance.drop_columns(["query", "ad"]).to_pydict(),
        "sample": model.sample(table, 5).to_pylist(),
    }


def rounding(model: ClickModel) -> float:
    """How far sums in another order may lead apart: the many iterations of LuceClick add to it, most where users are of several kinds."""
    return 1e-6 if model.name == "luceclick" else 1e-9


def assert_same(
    got: dict[str, Any], expected: dict[str, Any], within: float, *, but: tuple[str, ...] = ()
) -> None:
    """The same answers, to the last bit where `within` is 0."""
    for name in set(expected) - set(but):
        _assert_same(name, got[name], expected[name], within)


def _assert_same(name: str, got: Any, expected: Any, within: float) -> None:
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), name
        for key, values in expected.items():
            _assert_same(f"{name}[{key}]", got[key], values, within)
    elif isinstance(expected, str) or (within == 0 and isinstance(expected, list)):
        assert got == expected, name
    elif isinstance(expected, list) and expected and isinstance(expected[0], list):
        for mine, theirs in zip(got, expected, strict=True):
            _assert_same(name, mine, theirs, within)
    else:
        np.testing.assert_allclose(
            np.asarray(got, np.float64),
            np.asarray(expected, np.float64),
            rtol=within,
            atol=within,
            err_msg=name,
        )


def assert_sound(model: ClickModel, log: Columns, name: str) -> None:
    """Answers are probabilities, and −inf only where the model says that it may be."""
    table = as_table(log)
    ordered, sets, marginals = (
        model.log_prob(table),
        model.log_set_prob(table),
        model.click_prob(table),
    )
    sizes = np.array([len(ads) for ads in log["ads"]])
    beyond = np.arange(marginals.shape[1]) >= sizes[:, None]
    assert (np.isnan(marginals) == beyond).all()
    assert ((marginals >= 0) & (marginals <= 1 + 1e-12))[~beyond].all()
    assert not np.isnan(ordered).any()
    assert not np.isnan(sets).any()
    assert (ordered <= sets + 1e-9).all()
    assert (sets <= 1e-9).all()
    if name not in SOME_SETS_IMPOSSIBLE:
        assert np.isfinite(sets).all()
        falls = np.array([list(clicks) != sorted(clicks) for clicks in log["clicks"]])
        assert np.isfinite(ordered[~falls]).all()
        assert (np.isfinite(ordered[falls]) == model.ordered).all()
