"""The inputs of checks: logs, pages and a fitted model; and comparisons of answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.errors import CannotAnswerError
from reclick.models.base import ClickModel

ClickSequence = tuple[int, ...]
Columns = dict[str, list[Any]]
Oracle = Callable[[Any, str, tuple[str, ...]], Mapping[ClickSequence, float]]


class Page(NamedTuple):
    """A query and the ads of its page."""

    query: str
    ads: tuple[str, ...]


LETTERS = "abcdefghijklmnop"
ADS: Columns = {
    "ad": [*LETTERS, "new"],
    "title": [
        f"{'cheap' if i % 2 else 'fine'} {'boots' if i % 3 else 'shoes'} "
        f"{'today' if i % 5 else 'now'}"
        for i in range(17)
    ],
    "description": [f"{'sale' if i % 4 else 'leather'} number{i % 7}" for i in range(17)],
    "display_url": [f"{letter}.example" for letter in (*LETTERS, "new")],
}
PAGES = (  # each is a different source of mistakes
    Page("q", ("a", "b", "c", "d")),
    Page("q", ("b", "a", "b")),  # an ad twice
    Page("never", ("a", "never", "new")),  # a query and ads that are not in the log, one with text
)
ORACLE_PAGES = (
    Page("r", ("c", "a", "b", "d")),
    PAGES[1],
    Page("q", ("never", "b", "new")),
    PAGES[2],
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
    "one session clicked from the bottom up": {
        "query": ["q"],
        "ads": [["a", "b", "c"]],
        "clicks": [[3, 2, 1]],
    },
    "one page of one ad": {"query": ["q"], "ads": [["a"]], "clicks": [[1]]},
}


class CheckSkipped(Exception):  # noqa: N818, no error: as in pytest
    """A check does not apply to a model; the message is the reason."""


class ModelCase:
    """A model under test, fitted once to the common log; checks must not change it."""

    def __init__(
        self,
        model: type[ClickModel],
        oracle: Oracle | None = None,
        settings: Mapping[str, Any] | None = None,
        rounding: float = 1e-9,
    ) -> None:
        self.model = model
        self.oracle = oracle
        self.settings = dict(settings or {})
        self.rounding = rounding
        self._probabilities: dict[Page, dict[ClickSequence, float]] = {}

    def new(self, **changes: Any) -> Any:
        """A new model with the settings of this case, not fitted."""
        return self.model(**{**self.settings, **changes})

    @cached_property
    def log(self) -> Columns:
        """The common log, with pages cut to the longest that the model takes."""
        return self.cut(LOG)

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """The common pages, cut to the same length."""
        return self.cut_pages(PAGES)

    def cut(self, log: Columns) -> Columns:
        """Cut the pages of a log to `max_page_ads` of the model; clicks below are dropped."""
        return cut_log(log, self.model.max_page_ads)

    def cut_pages(self, pages: Sequence[Page]) -> tuple[Page, ...]:
        """Cut pages to `max_page_ads` of the model."""
        return tuple(Page(page.query, page.ads[: self.model.max_page_ads]) for page in pages)

    @cached_property
    def fitted(self) -> Any:
        """The model, fitted to the common log."""
        return self.new().fit(as_table(self.log), ads=ADS)

    def answer(self, model: ClickModel, log: Columns | None = None) -> dict[str, Any]:
        """The answers of all methods of a model for a log, by default the common one."""
        return all_answers(model, self.log if log is None else self.cut(log), self.pages)

    def probabilities(self, page: Page) -> dict[ClickSequence, float]:
        """P(clicks) of every click sequence of a page."""
        if page not in self._probabilities:
            self._probabilities[page] = sequence_probabilities(self.fitted, page)
        return self._probabilities[page]

    @property
    def number(self) -> tuple[str, float]:
        """A setting that is a number, and a value that differs from the current one."""
        settings: dict[str, Any] = self.new().get_params()
        for name, value in settings.items():
            if isinstance(value, float) and value:
                return name, value / 2
        for name, value in settings.items():
            if value == "auto" and self.model.settings[name].low is not None:
                return name, 0.5
        for name, value in settings.items():
            if self.model.settings[name].integer and value:
                return name, value + 1
        raise CheckSkipped("it has no setting that is a number other than 0")

    @property
    def iterative(self) -> bool:
        """Whether the model is fitted by iterations."""
        return "max_iterations" in self.model.settings


def all_sequences(n: int) -> list[ClickSequence]:
    """Every ordered click sequence of a page of n ads, no clicks first."""
    return [
        clicks for size in range(n + 1) for clicks in itertools.permutations(range(1, n + 1), size)
    ]


def make_log(seed: int = 0, sessions: int = 420, longest: int = 12) -> Columns:
    """A random log: pages of all lengths up to `longest`, clicks out of order, repeated ads."""
    rng = np.random.default_rng(seed)
    log: Columns = {"query": [], "ads": [], "clicks": []}
    for i in range(sessions):
        n = 1 + i % longest
        ads = rng.choice(list(LETTERS), n, replace=n == 7).tolist()
        is_clicked = rng.random(n) < 0.5 / (1 + np.arange(n) * 0.4) * np.array(
            [0.4 + 0.1 * (LETTERS.index(ad) % 7) for ad in ads]
        )
        clicks = np.flatnonzero(is_clicked) + 1
        if len(clicks) > 1 and rng.random() < 0.3:
            clicks = rng.permutation(clicks)
        log["query"].append(str(rng.choice(["q", "q", "q", "r", "s", f"rare{i % 9}"])))
        log["ads"].append(ads)
        log["clicks"].append(clicks.tolist())
    return log


LOG = make_log()


def cut_log(log: Columns, most: int | None) -> Columns:
    """Cut the pages of a log to at most so many ads; clicks below are dropped."""
    if most is None:
        return log
    clicks = [
        [click for click in session_clicks if click <= most] for session_clicks in log["clicks"]
    ]
    return {**log, "ads": [ads[:most] for ads in log["ads"]], "clicks": clicks}


def as_table(log: Mapping[str, Sequence[Any]]) -> pa.Table:
    """The columns as an Arrow table, with explicit types because lists may be empty."""
    types = {
        "query": pa.string(),
        "ads": pa.list_(pa.string()),
        "clicks": pa.list_(pa.int64()),
        "weight": pa.float64(),
    }
    return pa.table({name: pa.array(values, types[name]) for name, values in log.items()})


def every_sequence(page: Page) -> pa.Table:
    """A log with a session for every click sequence of a page."""
    clicks = all_sequences(len(page.ads))
    n = len(clicks)
    return as_table({"query": [page.query] * n, "ads": [page.ads] * n, "clicks": clicks})


def sequence_probabilities(model: ClickModel, page: Page) -> dict[ClickSequence, float]:
    """P(clicks) of every click sequence of a page."""
    probabilities = np.exp(model.log_prob(every_sequence(page))).tolist()
    return dict(zip(all_sequences(len(page.ads)), probabilities, strict=True))


def pages_table(pages: Sequence[Page]) -> pa.Table:
    """The pages as a log without clicks."""
    return as_table({"query": [page.query for page in pages], "ads": [page.ads for page in pages]})


def relevance_or_reason(
    model: ClickModel, pairs: object = None, text: object = None
) -> pa.Table | str:
    """The relevance, sorted by query and ad, or the reason why the model has none."""
    try:
        table = model.relevance(pairs, text=text)
    except CannotAnswerError as error:
        return str(error)
    return table.sort_by([("query", "ascending"), ("ad", "ascending")])


def all_answers(model: ClickModel, log: Columns, pages: Sequence[Page]) -> dict[str, Any]:
    """The answers of all methods of the model for a log, and its rankings of some pages."""
    table = as_table({name: values for name, values in log.items() if name != "weight"})
    relevance = relevance_or_reason(model)
    return {
        "log_prob": model.log_prob(table),
        "log_set_prob": model.log_set_prob(table),
        "click_prob": model.click_prob(table),
        "expected_clicks": model.expected_clicks(table),
        "next_click_prob": model.next_click_prob(table),
        "rank_sequences": [
            [sequence.probability for sequence in model.rank_sequences(*page)] for page in pages
        ],
        "relevance": relevance
        if isinstance(relevance, str)
        else relevance.drop_columns(["query", "ad"]).to_pydict(),
        "sample": model.sample(table, 5).to_pylist(),
    }


def assert_close(
    actual: Any, expected: Any, what: str, *, relative: float = 0.0, absolute: float = 0.0
) -> None:
    """Raise if numbers differ by more than a tolerance."""
    np.testing.assert_allclose(
        np.asarray(actual, np.float64),
        np.asarray(expected, np.float64),
        rtol=relative,
        atol=absolute,
        err_msg=what,
    )


def assert_same(actual: Any, expected: Any, within: float, what: str = "answers") -> None:
    """Raise if answers differ by more than `within`; with 0, if they differ at all."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), (
            f"{what}: {list(actual)} instead of {list(expected)}"
        )
        for key, values in expected.items():
            assert_same(actual[key], values, within, f"{what}[{key}]")
    elif isinstance(expected, str) or (within == 0 and isinstance(expected, list)):
        assert actual == expected, f"{what}: got {actual!r}, expected {expected!r}"
    elif isinstance(expected, list) and expected and isinstance(expected[0], list):
        for actual_item, expected_item in zip(actual, expected, strict=True):
            assert_same(actual_item, expected_item, within, what)
    else:
        assert_close(actual, expected, what, relative=within, absolute=within)


def assert_valid(model: ClickModel, log: Columns) -> None:
    """Raise if answers are not probabilities, or −inf although the model does not declare it."""
    table = as_table(log)
    sequences, sets = model.log_prob(table), model.log_set_prob(table)
    marginals = model.click_prob(table)
    beyond = np.arange(marginals.shape[1]) >= np.array([len(ads) for ads in log["ads"]])[:, None]
    assert (np.isnan(marginals) == beyond).all(), "click_prob: nan on the page, or a value beyond"
    inside = marginals[~beyond]
    assert ((inside >= 0) & (inside <= 1 + 1e-12)).all(), "click_prob is outside [0, 1]"
    assert not np.isnan(sequences).any(), "log_prob has nan"
    assert not np.isnan(sets).any(), "log_set_prob has nan"
    assert (sequences <= sets + 1e-9).all(), "a sequence is likelier than its set of clicks"
    assert (sets <= 1e-9).all(), "log_set_prob is above 0"
    if model.all_sets_possible:
        assert np.isfinite(sets).all(), (
            "log_set_prob is −inf for a session: declare all_sets_possible = False if that is meant"
        )
        falls = np.array([list(clicks) != sorted(clicks) for clicks in log["clicks"]])
        assert np.isfinite(sequences[~falls]).all(), "log_prob is −inf for clicks down the page"
        assert (np.isfinite(sequences[falls]) == model.ordered).all(), (
            f"clicks back up the page: ordered = {model.ordered}, but log_prob disagrees"
        )
