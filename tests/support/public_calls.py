"""Every public callable with arguments that are right, and values that are right nowhere.

`public_calls` goes through `reclick.__all__`: functions, classes, and the public methods of an
object of each class. `VALID` has a value for every parameter by its name, and for the few that
need another one by `callable.parameter`. A callable with a parameter that has neither a value
here nor a default is an error, so that a new one is not forgotten.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

import reclick as rc
from tests.support.inline_engine import InlineEngine

Make = Callable[[], Any]
LOG: dict[str, Any] = {
    "query": ["q", "q", "r", "q"],
    "ads": [["x", "y"], ["y", "x"], ["x", "z"], ["x", "y"]],
    "clicks": [[1], [2, 1], [], [2]],
}
DATED_LOG = LOG | {
    "timestamp": pa.array([0, 10**9, 2 * 10**9, 3 * 10**9], pa.timestamp("us")),
    "user": ["u", "v", "u", "w"],
}
PAGES = {"query": ["q"], "ads": [["x", "y"]]}
ADS = {"ad": ["x", "y"], "title": ["red shoes", "blue shoes"]}
LABELS = {"query": ["q", "q", "r"], "ad": ["x", "y", "x"], "relevance": [1.0, 0.0, 2.0]}
BIDS = {"query": ["q", "q", "r"], "ad": ["x", "y", "x"], "bid": [1.0, 2.0, 0.5]}
FAST = {"tune": "off", "max_iterations": 2}


class Call(NamedTuple):
    """A public callable and how to make arguments that are right."""

    name: str  # "rank_pages", "UBM.click_prob"
    call: Callable[..., Any]
    valid: dict[str, Make]

    def run(self, **changed: Any) -> None:
        """Call with right arguments, some of them changed, and use what comes out."""
        arguments = {name: make() for name, make in self.valid.items()}
        use(self.call(**(arguments | changed)))


def use(result: Any) -> None:
    """Do with a result what its maker put off."""
    if isinstance(result, rc.SessionLog):
        _ = result.summary
    elif isinstance(result, rc.Cleaning):
        _ = rc.read_sessions(DATED_LOG, cleaning=result).summary
    elif isinstance(result, rc.MonitorLimits):
        rc.monitor(model("dctr"), LOG, limits=result)
    elif isinstance(result, rc.Predictor):
        result.predict_sessions(batch())
    elif isinstance(result, rc.LocalEngine):
        rc.count(LOG, engine=result)
    elif isinstance(result, rc.ClickModel) and not hasattr(result, "counts_"):
        with contextlib.suppress(rc.NotFittedError):
            result.check_fitted()
            return
        if not isinstance(result, rc.PartitionedModel):
            result.set_params(**{k: v for k, v in FAST.items() if k == "tune" and k in result.settings})
            result.fit(LOG)
    elif isinstance(result, contextlib.AbstractContextManager):
        with result:
            pass
    elif isinstance(result, Iterator):
        list(itertools.islice(result, 100))


# ---- values that are wrong


class Stranger:
    """An object of a class of others, whose text is an error."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def nested() -> list[Any]:
    deep: list[Any] = []
    for _ in range(50):
        deep = [deep]
    return deep


def wrong_codes() -> pa.Table:
    """A table whose queries are codes outside their dictionary."""
    codes = pa.array([0, 1, 9, -1], pa.int32())
    wrong = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    return pa.table(LOG | {"query": wrong})


def closed_relation() -> Any:
    connection = duckdb.connect()
    relation = connection.sql("SELECT 'q' AS query, ['a'] AS ads, [1] AS clicks")
    connection.close()
    return relation


def generate() -> Iterator[Any]:
    yield 1
    yield None


HOSTILE: dict[str, Make] = {
    "None": lambda: None,
    "empty text": lambda: "",
    "text": lambda: "no such thing",
    "text with /": lambda: "no/such/place.parquet",
    "the folder": lambda: ".",
    "a folder": lambda: Path(),
    "half a pair": lambda: "\ud800",
    "zero byte": lambda: "a\0b",
    "long text": lambda: "x" * 5000,
    "markup": lambda: "[/] [bold]\x1b[31m",
    "uri": lambda: "nothing://x/y",
    "empty bytes": lambda: b"",
    "bytes": lambda: b"\xff\xfe",
    "object": object,
    "stranger": Stranger,
    "class": lambda: rc.UBM,
    "function": lambda: len,
    "true": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "half": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "2**70": lambda: 2**70,
    "10**400": lambda: 10**400,
    "complex": lambda: 1j,
    "numpy nan": lambda: np.float64("nan"),
    "empty list": list,
    "list of None": lambda: [None],
    "list of numbers": lambda: [-1, 2**70, float("nan")],
    "list of texts": lambda: ["\ud800", "", "x"],
    "nested": nested,
    "empty dict": dict,
    "dict": lambda: {1: object()},
    "dict of lists": lambda: {"query": [None], "ads": [[None]], "clicks": [["x"]]},
    "dict of numbers": lambda: {"x": float("nan"), "y": -1},
    "set": lambda: {1, "x"},
    "generator": generate,
    "different lengths": lambda: LOG | {"query": ["q"]},
    "numbers as queries": lambda: LOG | {"query": [1.5] * 4},
    "clicks below 1": lambda: LOG | {"clicks": [[-1], [0], [9], [2**40]]},
    "clicks as text": lambda: LOG | {"clicks": ["1", "x", "", "2"]},
    "closed relation": closed_relation,
    "two columns of one name": lambda: pd.DataFrame(
        [["q", ["a"], [1], 3]], columns=["query", "ads", "clicks", "clicks"]
    ),
    "codes outside": wrong_codes,
    "empty table": lambda: pa.table({}),
    "no rows": lambda: pa.table(LOG).slice(0, 0),
    "nulls": lambda: pa.table({name: pa.nulls(3) for name in ("query", "ads", "ad", "bid")}),
    "array": lambda: np.full((2, 2), np.nan),
    "empty array": lambda: np.zeros(0),
    "array of negatives": lambda: np.array([-1, -(2**40)]),
    "array of objects": lambda: np.array([None, {}], dtype=object),
    "wrong length": lambda: np.arange(10**4),
}


# ---- objects to ask


@functools.cache
def model(name: str) -> Any:
    """A fitted model, which nobody may change."""
    settings = {key: FAST[key] for key in FAST if key in rc.MODELS[name].settings}
    return rc.MODELS[name](**settings).fit(LOG, ads=ADS)


def changeable(name: str) -> Any:
    """A fitted model of one's own."""
    settings = {key: FAST[key] for key in FAST if key in rc.MODELS[name].settings}
    return rc.MODELS[name](**settings).fit(LOG)


@functools.cache
def batch() -> rc.SessionBatch:
    """The log as a batch."""
    return next(iter(rc.read_sessions(DATED_LOG).batches()))


@functools.cache
def grouped() -> rc.GroupedSessions:
    return rc.LocalEngine().group(rc.read_sessions(LOG))


@functools.cache
def counts() -> rc.Counts:
    return rc.count(LOG)


@functools.cache
def evaluation() -> rc.Evaluation:
    return rc.evaluate(["dctr"], LOG | {"query": ["q", "s", "r", "q"]}, train=LOG, resamples=5)


@functools.cache
def comparison() -> Any:
    return rc.compare_mechanisms(model("dctr"), BIDS, resamples=5, auctions=2)


@functools.cache
def judgment_comparison() -> Any:
    return rc.compare_judgments(LABELS, LABELS)


@functools.cache
def simulation() -> Any:
    return rc.simulate(20, weeks=1, queries=3)


@functools.cache
def auction_result() -> Any:
    return rc.run_auction(model("dctr"), "q", {"x": 1.0, "y": 2.0})


def clicks() -> rc.Clicks:
    return rc.Clicks(np.array([1], np.int32), np.array([0, 1], np.int64))


numbers = itertools.count()


def new_name() -> str:
    """A name that nothing has yet, in the current folder."""
    return f"new-{next(numbers)}"


def saved_model() -> str:
    name = new_name()
    model("dctr").save(name)
    return name


def partitioned() -> Any:
    name = new_name()
    model("dctr").save(name, buckets=2)
    return rc.load(name)


def saved_counts() -> str:
    name = new_name()
    counts().save(name)
    return name


def remote() -> rc.RemotePath:
    return rc.RemotePath.from_uri("memory://torture/file")


OBJECTS: dict[str, Make] = {
    "BadRow": lambda: rc.BadRow("log.csv", 1, "x"),
    "BucketWriter": lambda: rc.BucketWriter.start(new_name(), 2),
    "Cleaning": rc.Cleaning,
    "Clicks": clicks,
    "Counts": counts,
    "DuckDBEngine": rc.DuckDBEngine,
    "Evaluation": evaluation,
    "GroupedSessions": grouped,
    "JudgmentComparison": judgment_comparison,
    "LocalEngine": rc.LocalEngine,
    "LogProfile": lambda: rc.describe(LOG),
    "LogRecord": lambda: model("dctr").provenance[0].log,
    "MechanismComparison": comparison,
    "ModelRegistry": rc.ModelRegistry,
    "MonitorReport": lambda: rc.monitor(model("dctr"), LOG),
    "NDCGResult": lambda: rc.ndcg(LABELS, LABELS),
    "OrderTable": lambda: rc.OrderTable.fit(LOG),
    "PageDistribution": lambda: model("dctr").pages(PAGES),
    "PartitionedModel": partitioned,
    "PoolEngine": InlineEngine,  # the same methods, without processes
    "Predictions": lambda: rc.Predictor(model("dctr")).predict_pages(
        batch(), model("dctr").pages(LOG)
    ),
    "Predictor": lambda: rc.Predictor(model("dctr")),
    "QueryBlock": lambda: grouped().whole,
    "RankingComparison": lambda: rc.compare_rankings(model("dctr"), PAGES, PAGES, draws=4),
    "ReadSummary": lambda: rc.read_sessions(LOG).summary,
    "ReliabilityCurves": lambda: evaluation().reliability,
    "SeenLog": lambda: model("dctr").provenance[0],
    "SessionBatch": batch,
    "SessionLog": lambda: rc.read_sessions(LOG),
    "Setting": lambda: rc.UBM.settings["tolerance"],
    "Simulation": simulation,
    "SparkEngine": InlineEngine,
    "StopsAndTransitions": lambda: model("multiclick").fatigue_and_transitions("q"),
    "TrainingTotals": lambda: rc.TrainingTotals.of(counts()),
    "TransitionShares": lambda: None,
}
CHANGING = {"fit", "update", "set_params"}  # methods of a model of one's own
VALID: dict[str, Make] = {
    "ad": lambda: "x",
    "ads": lambda: ADS,
    "bids": lambda: BIDS,
    "candidates": lambda: BIDS,
    "clicks": lambda: [[1]],
    "counts": counts,
    "draws": lambda: 3,
    "folder": new_name,
    "impressions": lambda: {"query": ["q"], "ad": ["x"], "position": [1], "page": ["p"]},
    "judgments": lambda: LABELS,
    "labels": lambda: LABELS,
    "level": lambda: 0.9,
    "log": lambda: LOG,
    "model": lambda: model("dctr"),
    "models": lambda: ["dctr"],
    "n": lambda: 2,
    "name": lambda: "x",
    "new_pages": lambda: PAGES,
    "old_pages": lambda: PAGES,
    "pages": lambda: PAGES,
    "pairs": lambda: {"query": ["q"], "ad": ["x"]},
    "path": new_name,
    "query": lambda: "q",
    "resamples": lambda: 5,
    "rng": lambda: 1,
    "run": lambda: LABELS,
    "sessions": lambda: LOG,
    "size": lambda: 10,
    "source": lambda: LOG,
    "target": new_name,
    "test": lambda: LOG | {"query": ["q", "s", "r", "q"]},
    "to": new_name,
    "train": lambda: LOG,
}
