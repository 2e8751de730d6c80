"""Every public callable with arguments that are right, and values that are right nowhere.

`public_calls` goes through `reclick.__all__`: functions, classes, and the public methods of an
object of each class. `VALID` has a value for every parameter by its name, and for the few that
need another one by `callable.parameter`. A callable with a parameter that has neither a value
here nor a default is an error, so that a new one is not forgotten.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import inspect
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

import reclick as rc
from tests.support.damaged_arrow import FAR, code_outside, move_offset
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
LONGEST_MESSAGE = 3000
# A function that the caller gives may raise what it likes.
OF_THE_CALLER = {("progress", "class"), ("progress", "function")}


class Call(NamedTuple):
    """A public callable and how to make arguments that are right."""

    name: str  # "rank_pages", "UBM.click_prob"
    call: Callable[..., Any]
    valid: dict[str, Make]

    def run(self, **changed: Any) -> None:
        """Call with right arguments, some of them changed, and use what comes out."""
        arguments = {name: make() for name, make in self.valid.items()}
        use(self.call(**(arguments | changed)))

    def find_breach(self, changed: dict[str, str]) -> str | None:
        """What a call with hostile values, by their titles, raised that no user should see."""
        if OF_THE_CALLER & changed.items():
            return None
        try:
            self.run(**{name: HOSTILE[title]() for name, title in changed.items()})
        except rc.ReclickError as error:
            return "a message that is too long" if len(str(error)) > LONGEST_MESSAGE else None
        except BaseException as error:  # Rust raises what is no Exception
            return f"{type(error).__name__}: {str(error)[:200]}"
        return None


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
        if not isinstance(result, rc.BucketedModel):
            result.set_params(
                **{k: v for k, v in FAST.items() if k == "tune" and k in result.settings}
            )
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


def wrong_codes_of_users() -> pa.Table:
    """A log with an extra column whose codes are far outside their dictionary."""
    return pa.table(LOG | {"user": code_outside(["u", "v", "u", "u"])})


def wrong_codes_of_ads() -> pa.Table:
    """A table of pairs with every value that one may have; the ads are codes far outside."""
    pairs = {"query": ["q", "q", "r"], "ad": code_outside(["x", "y", "x"])}
    numbers = ("relevance", "grade", "score", "bid", "value", "noise_prob")
    texts = {"title": ["red", "blue", "red"], "user": code_outside(["u", "v", "u"])}
    return pa.table(pairs | texts | {name: [1.0, 0.0, 0.5] for name in numbers})


def wrong_offsets() -> pa.Table:
    """A log whose lists of ads start outside of their values."""
    log = pa.table(LOG)
    return log.set_column(1, "ads", move_offset(log["ads"].chunk(0), 2, FAR))


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
    "a folder": Path,
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
    "codes of users outside": wrong_codes_of_users,
    "codes of ads outside": wrong_codes_of_ads,
    "offsets outside": wrong_offsets,
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
    return next(iter(rc.read_sessions(DATED_LOG).batches(with_rows=True)))


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


def page() -> Any:
    """The distribution over the clicks of the pages of the log."""
    return model("dctr").pages(LOG)


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


@functools.cache
def partitioned() -> Any:
    folder = tempfile.mkdtemp(prefix="partitioned-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model("dctr").save(folder, buckets=2)
    return rc.load(folder)


def saved_counts() -> str:
    name = new_name()
    counts().save(name)
    return name


class Fresh(rc.UBM):
    """A model of a user's own."""

    name = "fresh"


def saved_log() -> str:
    name = f"{new_name()}.jsonl"
    rows = [dict(zip(LOG, values, strict=True)) for values in zip(*LOG.values(), strict=True)]
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def block_rows() -> Any:
    return rc.BlockRows(slice(0, 1), slice(0, 2))


OBJECTS: dict[str, Make] = {
    "BadRow": lambda: rc.BadRow("log.csv", 1, "x"),
    "BlockRows": block_rows,
    "BucketWriter": lambda: rc.BucketWriter.start(new_name(), 2),
    "Clicks": clicks,
    "Counts": counts,
    "DuckDBEngine": rc.DuckDBEngine,
    "Evaluation": evaluation,
    "GroupedSessions": grouped,
    "JudgmentComparison": judgment_comparison,
    "LocalEngine": rc.LocalEngine,
    "LogProfile": lambda: rc.describe(LOG),
    "LogRecord": lambda: counts().logs[0],
    "MechanismComparison": comparison,
    "ModelRegistry": rc.ModelRegistry,
    "MonitorReport": lambda: rc.monitor(model("dctr"), LOG),
    "NDCGResult": lambda: rc.ndcg(LABELS, LABELS),
    "OrderTable": lambda: rc.OrderTable.fit(LOG),
    "PageDistribution": page,
    "BucketedModel": partitioned,
    "PoolEngine": InlineEngine,  # the same methods, without processes
    "Predictions": lambda: rc.Predictor(model("dctr")).predict_pages(batch(), page()),
    "Predictor": lambda: rc.Predictor(model("dctr")),
    "QueryBlock": lambda: grouped().whole,
    "RankingComparison": lambda: rc.compare_rankings(model("dctr"), PAGES, PAGES, draws=4),
    "ReadSummary": lambda: rc.read_sessions(LOG).summary,
    "ReliabilityCurves": lambda: rc.ReliabilityCurves(evaluation().curves),
    "SeenLog": lambda: rc.SeenLog(counts().logs[0], "fit", "2026-03-01"),
    "SessionBatch": batch,
    "SessionLog": lambda: rc.read_sessions(LOG),
    "Setting": lambda: rc.UBM.settings["tolerance"],
    "Simulation": simulation,
    "RayEngine": InlineEngine,
    "SparkEngine": InlineEngine,
    "StopsAndTransitions": lambda: model("multiclick").fatigue_and_transitions("q"),
    "TransitionShares": lambda: rc.TransitionShares(((0.5, 0.5), (0.0, 1.0), (1.0, 0.0)), (0.1,)),
}
CHANGING = {"fit", "update", "set_params"}  # methods that need a model of one's own
# Methods for the code of models and engines, which Reclick calls with objects of its own making:
# arrays that were checked, blocks, functions. The classes alone are those of Python itself.
FOR_CODE: dict[str, set[str]] = {
    "BucketWriter": {"commit", "copy"},
    "Cleaning": {"clean_batch", "shorten_sessions"},
    "Clicks": {"select"},
    "ClickModel": {"map_batch", "map_pages", "score_clicks", "find_known", "find_volumes"},
    "Counts": {"from_tables", "of_sequences", "split"},
    "Engine": {
        "prepare",
        "reduce",
        "map",
        "map_parts",
        "join_parts",
        "read_parts",
        "run",
        "run_parts",
    },
    "GroupedSessions": {"keep_queries", "reweight", "select"},
    "PageDistribution": {
        "top_sequences",
        "log_prob",
        "log_set_prob",
        "next_click_prob",
        "ranks",
        "sample",
        "select",
    },
    "BucketedModel": {"open"},
    "Predictor": {"predict_chunk", "predict_pages", "predict_sessions"},
    "QueryBlock": {"reweight", "select"},
    "SessionLog": {"accept_parts", "to_frame_reader"},
    "SparkEngine": {"check_executors"},
    "TrainingTotals": {"of"},
}
PROTOCOLS = {"Engine", "PageDistribution"}  # not made, but implemented
NOT_MADE = {"ClickModel", "BucketedModel", "RayEngine", "SessionLog"}  # by users, or cheaply
ENGINES = {"LocalEngine", "DuckDBEngine", "PoolEngine", "RayEngine", "SparkEngine"}
AS_IN_PYTHON = {"RemotePath"}  # a part of pathlib.Path, with pathlib's errors
VALID: dict[str, Make] = {
    "last": block_rows,
    "a": lambda: LABELS,
    "ad": lambda: "x",
    "ads": lambda: ADS,
    "b": lambda: LABELS,
    "bids": lambda: BIDS,
    "bucket": lambda: 0,
    "buckets": lambda: 2,
    "cache_bytes": lambda: 10**6,
    "candidates": lambda: BIDS,
    "clicks": lambda: [1],
    "counts": counts,
    "description": lambda: "red shoes",
    "dialect": lambda: "bigquery",
    "display_url": lambda: "shoes.example",
    "draws": lambda: 3,
    "end": lambda: 2,
    "factor": lambda: 0.5,
    "folder": new_name,
    "judgments": lambda: LABELS,
    "length": lambda: 2,
    "log": lambda: LOG,
    "metric": lambda: "log_likelihood",
    "model": lambda: model("dctr"),
    "n": lambda: 2,
    "n_sessions": lambda: 2,
    "new_pages": lambda: PAGES,
    "old_pages": lambda: PAGES,
    "on": lambda: "page",
    "other": lambda: counts().logs[0],
    "page": lambda: "q",
    "pages": lambda: PAGES,
    "pairs": lambda: {"query": ["q"], "ad": ["x"]},
    "parts": lambda: [counts()],
    "path": new_name,
    "query": lambda: "q",
    "resamples": lambda: 5,
    "rng": lambda: 1,
    "run": lambda: LABELS,
    "sessions": lambda: LOG,
    "size": lambda: 10,
    "source": lambda: LOG,
    "start": lambda: 0,
    "table": lambda: pa.table(LABELS),
    "target": new_name,
    "title": lambda: "shoes",
    "to": new_name,
    "top": lambda: 3,
    "value": lambda: 0.1,
}
# Where a parameter needs another value than others of its name.
OWN: dict[str, Make] = {
    "BucketWriter.folder": new_name,
    "BucketWriter.parts": lambda: "parts-x",
    "ClickModel.explain.text": lambda: None,
    "ClickModel.first_page.ads": lambda: 2,
    "ClickModel.fit.ads": lambda: ADS,
    "ClickModel.instantaneous_attractiveness.pages": lambda: PAGES,
    "ClickModel.noise_prob.sessions": lambda: DATED_LOG,
    "ClickModel.rank_sequences.ads": lambda: ["x", "y"],
    "ClickModel.report.ads": lambda: None,
    "ClickModel.save.buckets": lambda: None,
    "ClickModel.update.ads": lambda: None,
    "ClickModel.update.sessions": lambda: LOG | {"query": ["s"] * 4},
    "Cleaning.first": lambda: 2,
    "Counts.load.folder": saved_counts,
    "Counts.split.n": lambda: 1,
    "Evaluation.value.model": lambda: "DCTR",
    "Evaluation.sessions": lambda: "all",
    "Evaluation.plot.sessions": lambda: "all",
    "Evaluation.table.sessions": lambda: "all",
    "Evaluation.to_latex.sessions": lambda: "all",
    "Evaluation.value.sessions": lambda: "all",
    "Engine.count.log": lambda: rc.read_sessions(LOG),
    "Engine.group.log": lambda: rc.read_sessions(LOG),
    "ModelRegistry.add.model": lambda: Fresh,
    "ModelRegistry.find.name": lambda: "ubm",
    "PoolEngine.folder": lambda: None,
    "SparkEngine.folder": lambda: None,
    "SparkEngine.buckets": lambda: None,
    "OrderTable.log_order_prob.clicks": clicks,
    "Predictor.top": lambda: 3,
    "Predictor.validate.pages": lambda: pa.record_batch(PAGES),
    "ReliabilityCurves.plot.models": lambda: None,
    "SparkEngine.session": lambda: None,  # refused: a session takes seconds to start
    "Setting.default": lambda: 1.0,
    "Setting.check.name": lambda: "tolerance",
    "best_page.ads": lambda: ["x", "y"],
    "convert.pages": lambda: None,
    "convert.source": saved_log,
    "convert.to": lambda: f"{new_name()}.parquet",
    "counting_sql.table": lambda: "sessions",
    "evaluate.ads": lambda: None,
    "evaluate.folder": lambda: None,
    "evaluate.models": lambda: ["dctr"],
    "evaluate.test": lambda: LOG | {"query": ["q", "s", "r", "q"]},
    "evaluate.train": lambda: LOG,
    "export.log": lambda: None,
    "export.min_support": lambda: 1,
    "export.pairs": lambda: None,
    "export.to": lambda: f"{new_name()}.qrels",
    "judgments.min_support": lambda: 1,
    "judgments.pairs": lambda: None,
    "limit_threads.threads": lambda: 1,
    "load.folder": saved_model,
    "predict.to": lambda: f"{new_name()}.parquet",
    "price_intervals.model": lambda: model("luceclick"),
    "price_intervals.bids": lambda: {"x": 1.0, "y": 2.0},
    "propensities.log": lambda: None,
    "propensities.model": lambda: model("pbm"),
    "read_ads.source": lambda: ADS,
    "read_bids.source": lambda: BIDS,
    "read_judgments.source": lambda: LABELS,
    "read_labels.source": lambda: LABELS,
    "read_sessions.ads": lambda: None,
    "read_sessions.click": lambda: None,
    "read_sessions.pages": lambda: None,
    "register.model": lambda: rc.UBM,  # refused: there is one, and another would stay
    "run_auction.bids": lambda: {"x": 1.0, "y": 2.0},
    "run_auctions.draws": lambda: 0,
    "sample_bids.ads": lambda: 2,
    "sample_bids.auctions": lambda: 3,
    "sessions_from_events.clicks": lambda: {"page": ["p"], "ad": ["x"]},
    "sessions_from_events.impressions": lambda: {
        "query": ["q", "q"],
        "ad": ["x", "y"],
        "position": [1, 2],
        "page": ["p", "p"],
    },
    "sessions_from_events.to": lambda: None,
    "setting.default": lambda: 1.0,
    "simulate.page": lambda: (1, 4),
    "simulate.queries": lambda: 3,
    "simulate.sessions": lambda: 20,
    "simulate.weeks": lambda: 1,
    "simulate_auctions.sessions": lambda: 20,
    "split.ads": lambda: None,
    "split.cuts": lambda: ("1970-01-01T00:10:00", "1970-01-01T00:20:00"),
    "split.sessions": lambda: DATED_LOG,
    "to_ir_measures.table": lambda: rc.judgments(model("dctr"), min_support=1),
    "to_ranx.table": lambda: rc.judgments(model("dctr"), min_support=1),
    "updating.folder": saved_model,
}


# ---- all of them


def public_calls() -> Iterator[Call]:
    """Functions, classes and methods of `reclick.__all__`, each with arguments that are right."""
    for name in rc.__all__:
        what = getattr(rc, name)
        if name in AS_IN_PYTHON or not callable(what):
            continue
        if not isinstance(what, type):
            yield make_call(name, what, [name])
        elif not issubclass(what, BaseException):
            yield from _class_calls(name, what)
    yield make_call("datasets.market", rc.datasets.market, ["simulate"])


def _class_calls(name: str, what: type) -> Iterator[Call]:
    is_model = issubclass(what, rc.ClickModel)
    is_record = dataclasses.is_dataclass(what) or issubclass(what, tuple)
    makes = name not in PROTOCOLS | NOT_MADE
    if makes and (not is_record or name in {"Cleaning", "MonitorLimits", "Setting"}):
        yield make_call(name, what, [name])
    if name in {"ClickModel", "Engine"}:
        return
    families = [
        name,
        *(["ClickModel"] if is_model else []),
        *(["Engine"] if name in ENGINES else []),
    ]
    for method in public_methods(what):
        if any(method in FOR_CODE.get(family, ()) for family in families):
            continue
        is_static = not inspect.signature(getattr(what, method)).parameters.get("self")
        if is_static:
            call = getattr(what, method)
        else:
            call = functools.partial(_call_method, _object_of(name, what, method), method)
        labels = [f"{family}.{method}" for family in families]
        yield make_call(f"{name}.{method}", call, labels, getattr(what, method))


def public_methods(what: type) -> list[str]:
    """The public methods that a class has from Reclick, not from Python."""
    return [
        name
        for name, member in inspect.getmembers(what, callable)
        if not name.startswith("_")
        if next(k for k in what.__mro__ if name in vars(k)).__module__.startswith("reclick")
    ]


def _object_of(name: str, what: type, method: str) -> Make:
    if issubclass(what, rc.ClickModel) and name != "BucketedModel":
        key = what.name
        if method in CHANGING:
            return functools.partial(changeable, key)
        return functools.partial(model, key)
    return OBJECTS[name]


def _call_method(make: Make, method: str, **arguments: Any) -> Any:
    return getattr(make(), method)(**arguments)


def make_call(
    name: str, call: Callable[..., Any], labels: list[str], described: Any = None
) -> Call:
    """A callable with a value for each parameter; without one that is an error."""
    valid: dict[str, Make] = {}
    for parameter in inspect.signature(described or call).parameters.values():
        if parameter.name == "self" or parameter.kind in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }:
            continue
        own = [OWN[key] for label in labels if (key := f"{label}.{parameter.name}") in OWN]
        has_default = parameter.default is not parameter.empty
        if own:
            valid[parameter.name] = own[0]
        elif parameter.name in VALID and (
            not has_default or parameter.name in {"draws", "resamples"}
        ):
            valid[parameter.name] = VALID[parameter.name]
        elif has_default:
            valid[parameter.name] = functools.partial(_same, parameter.default)
        else:
            raise LookupError(f"{name}: give {parameter.name} a value in VALID or OWN.")
    return Call(name, call, valid)


def _same(value: Any) -> Any:
    return value
