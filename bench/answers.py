"""Answers of every model on three logs, to see whether two versions of the code agree.

`python answers.py write FOLDER` fits every model on a simulated market and on two real logs, calls
every method of the public interface that answers something, and saves the answers: for each log,
arrays as .npz and single values as .json. `python answers.py compare FOLDER FOLDER` prints the
largest absolute difference for each log, model and question, and exits with 1 when one is above its
limit. Models that only one of the folders has are listed and left out.

The real logs are searched in $RECLICK_DATA, or in shared/data next to the checkout. Only the
public interface is used. Settings have their current names here; `FORMER_SETTINGS` has their names
in older versions, and `REMOVED_SETTINGS` the settings that only older versions have. Priors of
attractiveness are set explicitly, because their defaults differ between versions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import reclick as rc

Array: TypeAlias = npt.NDArray[Any]
Scalar: TypeAlias = str | bool | int | float | None
Values: TypeAlias = dict[str, Array | Scalar]  # part of an answer ("" for the whole) → value
Settings: TypeAlias = dict[str, Any]

MARKET_SESSIONS = 20_000  # per week
TEST_SESSIONS = 3_000
PAGE_LENGTH = 10  # pages of real logs are cut to this many results
RANKED_PAGES = 5
RESAMPLES = 200
LIMIT = 1e-9
LUCE_LIMIT = 1e-6  # rounding errors grow in a long iterative fit

# Current name of a setting → its name in older versions; values likewise.
FORMER_SETTINGS = {
    "variant": "reading",
    "components": "kinds",
    "component_strength": "kind_strength",
    "mixing_strength": "mix_strength",
    "component_appeal_strength": "taste_strength",
    "position_effect_strength": "position_strength",
}
FORMER_VALUES = {("variant", "paper"): "leftover"}
REMOVED_SETTINGS = {"component_appeal_strength"}  # left out if a version does not have them

VARIANTS = ("paper", "examination", "normalised")  # of MultiClick
# With more iterations, LuceClick's extrapolations amplify rounding errors: results of one version
# with one thread and with two threads then differ by up to 1e-4.
LUCE: Settings = {"max_iterations": 40}
PLAIN: Settings = {  # LuceClick with fixed hyperparameters and none of its extensions
    **LUCE,
    "attractiveness_prior": "overall",
    "attractiveness_strength": 1.0,
    "satisfaction_prior": 0.4,
    "satisfaction_strength": 5.0,
    "query_strength": None,
    "transition_strength": 4.0,
    "components": 1,
    "position_effect_strength": None,
}
RICH: Settings = {  # with all of its extensions
    **PLAIN,
    "query_strength": 2.0,
    "components": 3,
    "component_strength": 4.0,
    "mixing_strength": 3.0,
    "component_appeal_strength": 3.0,
    "position_effect_strength": 3.0,
}
# Pseudo-observations of the prior of attractiveness: the defaults before they were estimated.
PRIOR_STRENGTH = {
    "dctr": 1.0,
    "pbm": 3.0,
    "ubm": 3.0,
    "bbm": 3.0,
    "cm": 0.5,
    "dcm": 0.5,
    "sdbn": 0.5,
    "dbn": 2.0,
    "ccm": 2.0,
    "thcm": 1.0,
}
WORDS: Settings = {"attractiveness_prior": "words"}
EVALUATED = ("multiclick paper", "luceclick", "ubm", "dbn", "pm", "dctr")  # already fitted
EVALUATED_UNFITTED = ("sdbn", "pbm")  # fitted by `evaluate`


# ---- logs


@dataclass(frozen=True, slots=True)
class Log:
    """A training and a test log, with their history, ad texts and labels if there are any."""

    train: rc.SessionLog
    test: rc.SessionLog
    test_table: pa.Table
    history: rc.SessionLog | None = None
    ads: pa.Table | None = None
    labels: pa.Table | None = None


def simulate_market() -> Log:
    """Simulate a market of three weeks: history, training and test."""
    market = rc.simulate(MARKET_SESSIONS, seed=0)
    history, train, test = (week.select(["query", "ads", "clicks"]) for week in market.weeks)
    test = thin_table(test)
    return Log(
        train=rc.read_sessions(train, ads=market.ads),
        test=rc.read_sessions(test, ads=market.ads),
        test_table=test,
        history=rc.read_sessions(history, ads=market.ads),
        ads=market.ads,
        labels=market.labels,
    )


def read_real_log(name: str) -> Log:
    """Read the training part of a real log, and some sessions of its test part."""
    path = data_folder() / f"{name}.parquet"
    if not path.exists():
        sys.exit(f"{path} is not there: set RECLICK_DATA to the folder of the real logs.")
    train, test = read_part(path, "train"), thin_table(read_part(path, "test"))
    return Log(rc.read_sessions(train), rc.read_sessions(test), test)


def data_folder() -> Path:
    """The folder of the real logs."""
    beside_checkout = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("RECLICK_DATA", beside_checkout))


def read_part(path: Path, split: str) -> pa.Table:
    """Read the training or the test part of a real log, with pages cut to `PAGE_LENGTH`."""
    columns, filters = ["query", "ads", "clicks"], [("split", "=", split)]
    table = pq.read_table(path, columns=columns, filters=filters).combine_chunks()
    clicks = [[c for c in row if c <= PAGE_LENGTH] for row in table["clicks"].to_pylist()]
    return pa.table(
        {
            "query": table["query"],
            "ads": pc.list_slice(table["ads"], 0, PAGE_LENGTH),
            "clicks": pa.array(clicks, pa.list_(pa.int32())),
        }
    )


def thin_table(table: pa.Table) -> pa.Table:
    """At most `TEST_SESSIONS` rows, evenly spaced."""
    rows = np.linspace(0, len(table) - 1, min(TEST_SESSIONS, len(table))).astype(np.int64)
    return table.take(pa.array(rows))


LOGS: dict[str, Callable[[], Log]] = {
    "market": simulate_market,
    "yandex": lambda: read_real_log("yandex"),
    "naver": lambda: read_real_log("naver"),
}


# ---- models


def list_models(log: Log) -> dict[str, rc.ClickModel]:
    """The models to fit, by label; models that use words only if the log has ad texts."""
    names = [name for name in rc.MODELS if name not in {"multiclick", "tcm"}]
    models = {name: make_model(name, fixed_settings(name)) for name in names}
    for variant in VARIANTS:
        models[f"multiclick {variant}"] = make_model("multiclick", {"variant": variant})
    models["luceclick plain"] = make_model("luceclick", PLAIN)
    models["luceclick rich"] = make_model("luceclick", RICH)
    if log.ads is not None:
        models["ubm words"] = make_model("ubm", WORDS)
        models["luceclick plain words"] = make_model("luceclick", {**PLAIN, **WORDS})
    return models


def fixed_settings(name: str) -> Settings:
    """The settings that make a model the same in all versions."""
    if name == "luceclick":
        return LUCE
    if name not in PRIOR_STRENGTH:
        return {}
    strength = PRIOR_STRENGTH[name]
    return {"attractiveness_prior": "overall", "attractiveness_strength": strength}


def make_model(name: str, settings: Settings) -> rc.ClickModel:
    """Create a model with these settings, under their names in the installed version."""
    model_class: Any = rc.MODELS[name]
    known_settings = model_class().get_params()
    arguments = {}
    for setting, value in settings.items():
        former_name = FORMER_SETTINGS.get(setting)
        if setting in known_settings:
            arguments[setting] = value
        elif former_name in known_settings or setting not in REMOVED_SETTINGS:
            arguments[former_name or setting] = FORMER_VALUES.get((setting, value), value)
    model: rc.ClickModel = model_class(**arguments)
    return model


# ---- questions


def report_fit(model: rc.ClickModel, log: Log) -> Values:
    """Whether an iterative fit converged, and after how many iterations."""
    names = [name for name in ("iterations_", "converged_") if hasattr(model, name)]
    return {name: np.asarray(getattr(model, name)).item() for name in names}


def ask_log_prob(model: rc.ClickModel, log: Log) -> Values:
    """Log-probabilities of click sequences."""
    return {"": model.log_prob(log.test)}


def ask_log_set_prob(model: rc.ClickModel, log: Log) -> Values:
    """Log-probabilities of click sets."""
    return {"": model.log_set_prob(log.test)}


def ask_click_prob(model: rc.ClickModel, log: Log) -> Values:
    """Click probabilities of positions."""
    return {"": model.click_prob(log.test)}


def ask_next_click_prob(model: rc.ClickModel, log: Log) -> Values:
    """Probabilities of the next click after the first click of every session that has one."""
    pages, first_clicks = clicked_pages(log)
    return {"": model.next_click_prob(pages, first_clicks)}


def ask_instantaneous_attractiveness(model: rc.ClickModel, log: Log) -> Values:
    """The attractiveness of the other ads after the first click."""
    pages, first_clicks = clicked_pages(log)
    return {"": model.instantaneous_attractiveness(pages, first_clicks)}


def ask_relevance(model: rc.ClickModel, log: Log) -> Values:
    """The relevance of all pairs of the training log."""
    return pair_values(model.relevance())


def ask_sample(model: rc.ClickModel, log: Log) -> Values:
    """One random click sequence per page."""
    sequences = model.sample(log.test, 0)
    lengths = np.asarray(pc.list_value_length(sequences))
    return {"lengths": lengths, "clicks": np.asarray(sequences.flatten())}


def ask_rank_sequences(model: rc.ClickModel, log: Log) -> Values:
    """The most likely click sequences of a few pages; clicks are padded with 0."""
    values: Values = {}
    rows = np.linspace(0, len(log.test_table) - 1, RANKED_PAGES).astype(np.int64)
    for number, page in enumerate(log.test_table.take(pa.array(rows)).to_pylist()):
        ranking = model.rank_sequences(page["query"], page["ads"], top=10)
        clicks = np.zeros((len(ranking), len(page["ads"])), np.int64)
        for row, sequence in enumerate(ranking):
            clicks[row, : len(sequence.clicks)] = sequence.clicks
        values[f"page {number} clicks"] = clicks
        probabilities = [sequence.probability for sequence in ranking]
        values[f"page {number} probabilities"] = np.array(probabilities, np.float64)
    return values


def ask_judgments(model: rc.ClickModel, log: Log) -> Values:
    """Graded pairs, by quantiles and by cut points."""
    quantiles = pair_values(rc.judgments(model, min_support=5))
    cuts = pair_values(rc.judgments(model, cuts=(0.02, 0.1, 0.3), bound="value", min_support=1))
    return prefix_keys("quartiles", quantiles) | prefix_keys("cuts", cuts)


def ask_export(model: rc.ClickModel, log: Log) -> Values:
    """Judgments written in the formats of other tools and read back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rc.export(model, folder / "pairs.qrels", min_support=5)
        rc.export(model, folder / "pairs.csv", min_support=5)
        rc.export(model, folder / "pairs.parquet", min_support=5)
        lines = sorted((folder / "pairs.qrels").read_text(encoding="utf-8").splitlines())
        rows = sorted((folder / "pairs.csv").read_text(encoding="utf-8").splitlines())
        table = pq.read_table(folder / "pairs.parquet")
    qrels: Values = {
        "grades": np.array([int(line.split()[-1]) for line in lines]),
        "pairs": digest_texts(line.rsplit(maxsplit=1)[0] for line in lines),
    }
    quepid: Values = {"rows": digest_texts(rows)}
    return (
        prefix_keys("qrels", qrels)
        | prefix_keys("quepid", quepid)
        | prefix_keys("parquet", pair_values(table))
    )


def ask_propensities(model: rc.ClickModel, log: Log) -> Values:
    """The propensity of each position of the test pages."""
    return number_columns(rc.propensities(model, log.test))


def ask_after_load(model: rc.ClickModel, log: Log) -> Values:
    """Log-probabilities from a model that was saved and loaded."""
    return {"": copy_model(model).log_prob(log.test)}


def ask_after_update(model: rc.ClickModel, log: Log) -> Values:
    """Log-probabilities from a model that was updated with the test sessions, with decay 0.9."""
    return {"": copy_model(model).update(log.test, decay=0.9).log_prob(log.test)}


QUESTIONS: dict[str, Callable[[rc.ClickModel, Log], Values]] = {
    "fit": report_fit,
    "log_prob": ask_log_prob,
    "log_set_prob": ask_log_set_prob,
    "click_prob": ask_click_prob,
    "next_click_prob": ask_next_click_prob,
    "instantaneous_attractiveness": ask_instantaneous_attractiveness,
    "relevance": ask_relevance,
    "sample": ask_sample,
    "rank_sequences": ask_rank_sequences,
    "judgments": ask_judgments,
    "export": ask_export,
    "propensities": ask_propensities,
    "after load": ask_after_load,
    "after update": ask_after_update,
}


def ask_question(question: str, model: rc.ClickModel, log: Log) -> Values:
    """The answer of a model, or the class of the error if it cannot answer."""
    try:
        return QUESTIONS[question](model, log)
    except rc.CannotAnswerError as error:
        return {"error": type(error).__name__}


def evaluate_models(models: Mapping[str, rc.ClickModel], log: Log) -> Iterator[tuple[str, Values]]:
    """Every number of an evaluation of several models, by model label."""
    new_models = {label: make_model(label, fixed_settings(label)) for label in EVALUATED_UNFITTED}
    evaluation = rc.evaluate(
        {label: models[label] for label in EVALUATED if label in models} | new_models,
        log.test,
        train=log.train,
        history=log.history,
        labels=log.labels,
        ads=log.ads,
        resamples=RESAMPLES,
        seed=0,
    )
    tables = {
        "scores": evaluation.scores,
        "differences": evaluation.differences,
        "curves": evaluation.curves,
    }
    for name, table in tables.items():
        for number, row in enumerate(table.to_pylist()):
            texts = [v for k, v in row.items() if isinstance(v, str) and k != "model"]
            place = [str(number)] if name == "curves" else []
            prefix = " ".join([name, *texts, *place])
            numbers = {k: v for k, v in row.items() if not isinstance(v, str)}
            yield row["model"], prefix_keys(prefix, numbers)


# ---- parts of answers


def clicked_pages(log: Log) -> tuple[rc.SessionLog, list[list[int]]]:
    """The test pages that have a click, and the first click on each."""
    table = log.test_table.filter(pc.greater(pc.list_value_length(log.test_table["clicks"]), 0))
    first_clicks = [[clicks[0]] for clicks in table["clicks"].to_pylist()]
    return rc.read_sessions(table, ads=log.ads), first_clicks


def copy_model(model: rc.ClickModel) -> rc.ClickModel:
    """Save and load the model."""
    with tempfile.TemporaryDirectory() as name:
        model.save(Path(name) / "model")
        return rc.load(Path(name) / "model")


def pair_values(table: pa.Table) -> Values:
    """The numbers of a table of pairs, sorted by query and ad, and a digest of the pairs."""
    table = table.sort_by([("query", "ascending"), ("ad", "ascending")])
    queries, ads = table["query"].to_pylist(), table["ad"].to_pylist()
    pairs = digest_texts(f"{query}\t{ad}" for query, ad in zip(queries, ads, strict=True))
    return {"pairs": pairs, **number_columns(table.drop_columns(["query", "ad"]))}


def number_columns(table: pa.Table) -> Values:
    """The columns of numbers, nan for null."""
    return {
        name: np.asarray(table[name].cast(pa.float64()).to_numpy(), np.float64)
        for name in table.column_names
    }


def digest_texts(texts: Iterable[str]) -> str:
    """A short digest of the texts, in their order."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def prefix_keys(prefix: str, values: Values) -> Values:
    """The same values under longer names."""
    return {f"{prefix} {name}": value for name, value in values.items()}


# ---- files


@dataclass(slots=True)
class AnswerSheet:
    """All answers on one log, by "model/question/part"."""

    arrays: dict[str, Array] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)

    def add(self, label: str, question: str, values: Values) -> None:
        """Add an answer."""
        for part, value in values.items():
            key = f"{label}/{question}/{part}"
            if isinstance(value, np.ndarray):
                self.arrays[key] = value
            else:
                self.scalars[key] = value

    def save(self, folder: Path, name: str) -> None:
        """Save as NAME.npz and NAME.json."""
        folder.mkdir(parents=True, exist_ok=True)
        keys = list(self.arrays)
        members: Any = {f"array{number}": self.arrays[key] for number, key in enumerate(keys)}
        np.savez_compressed(folder / f"{name}.npz", keys=np.array(keys), **members)
        text = json.dumps(self.scalars, indent=0, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, name: str) -> AnswerSheet:
        """Load what `save` wrote."""
        with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
            keys = file["keys"].tolist()
            arrays = {key: file[f"array{number}"] for number, key in enumerate(keys)}
        return cls(arrays, json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))

    def values(self) -> Values:
        """Arrays and scalars together."""
        return {**self.arrays, **self.scalars}


def write_answers(folder: Path, names: Iterable[str], without: str | None) -> None:
    """Fit every model on these logs, collect its answers, and save them.

    Models whose label starts with `without` are left out.
    """
    logging.getLogger("reclick").setLevel(
        logging.ERROR
    )  # judgments log how many pairs they leave out
    print(f"reclick of {Path(rc.__file__).parent}", flush=True)
    for name in names:
        start = time.perf_counter()
        collect_answers(name, LOGS[name](), without).save(folder, name)
        print(f"{name}: {time.perf_counter() - start:.0f} s in total", flush=True)


def collect_answers(name: str, log: Log, without: str | None) -> AnswerSheet:
    """The answers of all models on one log."""
    sheet = AnswerSheet()
    models = list_models(log)
    if without is not None:
        models = {label: model for label, model in models.items() if not label.startswith(without)}
    for label, model in models.items():
        start = time.perf_counter()
        uses_history = getattr(
            model, "uses_history", True
        )  # older versions ignore what they do not
        model.fit(log.train, history=log.history if uses_history else None)
        fit_seconds = time.perf_counter() - start
        for question in QUESTIONS:
            sheet.add(label, question, ask_question(question, model, log))
        seconds = time.perf_counter() - start - fit_seconds
        print(f"{name}: {label}, fit {fit_seconds:.1f} s, questions {seconds:.1f} s", flush=True)
    for label, values in evaluate_models(models, log):
        sheet.add(label, "evaluate", values)
    return sheet


# ---- comparison


def compare_answers(folders: tuple[Path, Path], names: Iterable[str]) -> bool:
    """Print all differences and a summary; return whether all are within their limits."""
    summary: dict[str, float] = {}
    print(f"{'log':<8} {'model':<24} {'question':<30} {'difference':>10}")
    for name in names:
        first, second = (AnswerSheet.load(folder, name).values() for folder in folders)
        one_only = {*map(find_label, first)} ^ {*map(find_label, second)}
        if one_only:
            print(f"{name:<8} only in one folder: {', '.join(sorted(one_only))}")
        first, second = (
            {key: value for key, value in values.items() if find_label(key) not in one_only}
            for values in (first, second)
        )
        for (label, question), (difference, part) in compare_sheets(first, second).items():
            note = f"  {part or 'the whole'}" if difference > find_limit(label) else ""
            print(f"{name:<8} {label:<24} {question:<30} {difference:>10.2g}{note}")
            summary[label] = max(summary.get(label, 0.0), difference)
    print("\nLargest difference of each model")
    for label, difference in summary.items():
        verdict = "ok" if difference <= find_limit(label) else "DIFFERENT"
        print(f"{label:<24} {difference:>10.2g}   limit {find_limit(label):g}   {verdict}")
    return all(difference <= find_limit(label) for label, difference in summary.items())


def compare_sheets(first: Values, second: Values) -> dict[tuple[str, str], tuple[float, str]]:
    """By model and question, the largest difference and the part of the answer that has it."""
    largest: dict[tuple[str, str], tuple[float, str]] = {}
    for key in [*first, *(key for key in second if key not in first)]:
        label, question, part = key.split("/", 2)
        if key in first and key in second:
            difference = measure_difference(first[key], second[key])
        else:
            folder = "first" if key in first else "second"
            difference, part = np.inf, f"{part}: only in the {folder} folder"
        best = largest.get((label, question))
        if best is None or difference > best[0]:
            largest[label, question] = (difference, part)
    return largest


def measure_difference(first: Array | Scalar, second: Array | Scalar) -> float:
    """The largest absolute difference; infinite for values that cannot be subtracted.

    >>> measure_difference(np.array([1.0, np.nan, np.inf]), np.array([1.5, np.nan, np.inf]))
    0.5
    >>> measure_difference("CannotAnswerError", 1.0), measure_difference(None, None)
    (inf, 0.0)
    """
    if not (is_number(first) and is_number(second)):
        return 0.0 if type(first) is type(second) and first == second else np.inf
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        return np.inf
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        differences = np.where(equal, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(differences), np.inf, differences).max(initial=0.0))


def is_number(value: Array | Scalar) -> bool:
    """Whether the value is a number or an array of numbers; booleans do not count."""
    if isinstance(value, np.ndarray):
        return True
    return isinstance(value, int | float) and not isinstance(value, bool)


def find_label(key: str) -> str:
    """The model label in the key of an answer."""
    return key.split("/", 1)[0]


def find_limit(label: str) -> float:
    """The largest difference that is allowed for a model."""
    return LUCE_LIMIT if label.startswith("luceclick") else LIMIT


def main() -> None:
    """Read the command line and run `write` or `compare`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="fit all models and save their answers")
    write.add_argument("folder", type=Path)
    write.add_argument("--without", metavar="LABEL", help="leave out models that start like this")
    compare = commands.add_parser("compare", help="print how far two folders of answers differ")
    compare.add_argument("first", type=Path)
    compare.add_argument("second", type=Path)
    for command in (write, compare):
        command.add_argument("--logs", nargs="+", choices=list(LOGS), default=list(LOGS))
    arguments = parser.parse_args()
    if arguments.command == "write":
        write_answers(arguments.folder, arguments.logs, arguments.without)
    else:
        sys.exit(not compare_answers((arguments.first, arguments.second), arguments.logs))


if __name__ == "__main__":
    main()
