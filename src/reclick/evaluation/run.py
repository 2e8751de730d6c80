"""Fit, score and compare models; results can be cached in a folder and used again."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from reclick import __version__
from reclick.engines import Engine, as_engine
from reclick.errors import (
    Argument,
    LogError,
    SettingError,
    StoreError,
    UsageError,
    check_fitted_model,
    check_whole,
)
from reclick.evaluation.findings import collect_findings
from reclick.evaluation.inputs import (
    EvaluationInputs,
    Leakage,
    find_leakage,
    open_inputs,
    require_train,
)
from reclick.evaluation.result import (
    Evaluation,
    ScoredModel,
    collect_details,
    describe_fit,
)
from reclick.logs import read_ads
from reclick.metrics import (
    CURVE_SCHEMA,
    DIFFERENCE_SCHEMA,
    SCORE_SCHEMA,
    SESSION_METRICS,
    ChunkSums,
    QueryVolumes,
    check_bootstrap,
    default_relevance_threshold,
    label_tables,
    relevance_scores,
    reliability_curves,
    score,
    session_tables,
)
from reclick.models import MODELS, ClickModel, load
from reclick.profile import describe
from reclick.runtime import artifact
from reclick.runtime.arguments import check_arguments
from reclick.runtime.filesystem import AnyPath, Location, as_path, is_text
from reclick.runtime.outputs import complete_commit, remove_leftovers, write_files
from reclick.runtime.parallel import limit_threads
from reclick.runtime.progress import (
    ProgressOption,
    count_progress,
    rename_progress,
    track_progress,
)

Output = TypeVar("Output")
Key = dict[str, Any]  # all inputs that a cached result depends on


@check_arguments
def evaluate(
    models: Mapping[str, ClickModel] | Iterable[str],
    test: object,
    *,
    train: object = None,
    history: object = None,
    labels: object = None,
    ads: object = None,
    folder: Location | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    in_sample: bool = False,
    engine: Engine | None = None,
    progress: ProgressOption = None,
) -> Evaluation:
    """Compare models on a test log by many metrics, with paired bootstrap intervals at `level`.

    `models` are models by display name, or names of `MODELS`. Those that are not fitted are fitted
    on `train`, with priors from `history` if the model uses one. Query volumes are those in
    `train`. `labels` (query, ad, relevance) add the relevance metrics. With a `folder`, fitted
    models and scores are cached there and used again by a later run on the same logs and settings;
    for a model outside Reclick, only if the source of its module is the same. `engine` counts and
    groups the logs and runs the fits; its number of threads applies to scoring too.
    `progress(what, done, total or None)` is called as work is done.

    A training log that has all test sessions raises an error, unless `in_sample`. Models that were
    fitted on test sessions are marked in the tables and the report, and `warnings` has the details.

    >>> week = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [2]]}
    >>> result = evaluate(["multiclick", "pbm"], week, train=week, in_sample=True, resamples=100)
    >>> result.value("PBM", "impossible"), len(result.warnings)
    (0.25, 1)
    """
    by_name = name_models(models)
    check_bootstrap(level, resamples)
    seed = check_whole("seed", seed, 0)
    require_train([name for name, model in by_name.items() if not model.fitted], train)
    cache = None if folder is None else ResultCache(as_path(folder))
    engine = as_engine(engine)
    with track_progress(progress), limit_threads(getattr(engine, "threads", None)):
        inputs = open_inputs(
            test, train, history, ads, labels, models=list(by_name.values()), engine=engine
        )
        _check_page_lengths(by_name, inputs)
        leakage = find_leakage(by_name, inputs, in_sample=in_sample)
        scored_models = {
            name: _fit_and_score(name, model, inputs, cache, seed, engine)
            for name, model in by_name.items()
        }
        return _compare(scored_models, inputs, leakage, level, resamples, seed)


def report_model(
    model: ClickModel,
    log: object = None,
    *,
    ads: object = None,
    labels: object = None,
    name: str | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    engine: Engine | None = None,
    progress: ProgressOption = None,
) -> Evaluation:
    """Report on one fitted model, without a comparison; `to_html` writes the page.

    With a `log`, the model is scored on it as by `evaluate`. Without one, the report has only what
    the model has learnt: misleading ads, hidden gems and, with the text of the `ads`, effects of
    words. `name` is the display name, by default that of the class.

    >>> from reclick.models import PBM
    >>> week = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [2]]}
    >>> report_model(PBM().fit(week)).to_html("report.html")  # doctest: +SKIP
    """
    check_fitted_model(model)
    display_name = name or type(model).__name__
    if log is not None:
        return evaluate(
            {display_name: model},
            log,
            ads=ads,
            labels=labels,
            level=level,
            resamples=resamples,
            seed=seed,
            engine=engine,
            progress=progress,
        )
    if labels is not None:
        advice = "Labels are compared with a model's relevance on a log: give a log too."
        raise UsageError("Got ", Argument("labels"), f" without a log. {advice}")
    details = {
        "models": {display_name: describe_fit(model)},
        "findings_from": display_name,
        **collect_findings(model, None if ads is None else read_ads(ads)),
        "version": __version__,
    }
    scores, differences, curves = (
        schema.empty_table() for schema in (SCORE_SCHEMA, DIFFERENCE_SCHEMA, CURVE_SCHEMA)
    )
    return Evaluation(scores, differences, curves, None, details)


def name_models(models: Mapping[str, ClickModel] | Iterable[str]) -> dict[str, ClickModel]:
    """Models by display name; the display name of a model from MODELS is that of its class."""
    if isinstance(models, Mapping):
        by_name = dict(models)
        for name, model in by_name.items():
            if not (isinstance(name, str) and is_text(name) and isinstance(model, ClickModel)):
                expected = "models by the names to show: {'PBM': rc.PBM()}"
                raise SettingError("models", models, expected)
    else:
        names = [models] if isinstance(models, str) else list(models)
        for name in names:
            if isinstance(name, str) and ":" in name:
                raise UsageError(
                    f"models: got {name!r}. To compare settings, give models by the names to "
                    "show: {'PBM, strength 5': rc.PBM(attractiveness_strength=5)}."
                )
        classes = [MODELS[name] for name in names]
        by_name = {model.__name__: model() for model in classes}
    if not by_name:
        raise UsageError(f"models: got none. Give one or more of {', '.join(MODELS)}.")
    return by_name


def _check_page_lengths(models: Mapping[str, ClickModel], inputs: EvaluationInputs) -> None:
    """Raise if pages are too long for a model, before any model is fitted."""
    logs = [inputs.test] if inputs.train is None else [inputs.test, inputs.train]
    longest = max(log.counts.max_ads for log in logs)
    for name, model in models.items():
        most = model.max_page_ads
        if most is not None and longest > most:
            raise LogError(
                f"{name} is a model of pages of up to {most} ads, and there is a page of "
                f"{longest}. Leave {name} out, or cut the pages with rc.Cleaning(first={most})."
            )


# ---- one model


def _fit_and_score(
    name: str,
    model: ClickModel,
    inputs: EvaluationInputs,
    cache: ResultCache | None,
    seed: int,
    engine: Engine,
) -> ScoredModel:
    """Fit a model, unless it is fitted, and score it; both may come from the cache."""
    fit = partial(_fit, name, model, inputs, engine)
    score_ = partial(_score, name, inputs=inputs, seed=seed, engine=engine)
    if cache is None:
        fitted_model, fit_seconds = _time(fit)
        sums, score_seconds = _time(partial(score_, fitted_model))
    else:
        code = _hash_code(type(model))
        fit_key: Key | None = {
            "model": model.name,
            "settings": model.get_params(),
            "code": code,
            **inputs.key("train", "history"),
        }
        score_key: Key | None = {
            "seed": seed,
            "metrics": list(SESSION_METRICS),
            "order_table": not model.ordered,
            "code": code,
            **inputs.key("test", "train"),
        }
        if code is None:  # another version of the class would have the same key
            fit_key = score_key = None
        fitted_model, fit_seconds = cache.model(name, None if model.fitted else fit_key, fit)
        sums, score_seconds = cache.sums(name, score_key, partial(score_, fitted_model))
    seconds = {"fit": None if model.fitted else fit_seconds, "score": score_seconds}
    return ScoredModel(fitted_model, sums, seconds)


def _fit(name: str, model: ClickModel, inputs: EvaluationInputs, engine: Engine) -> ClickModel:
    if model.fitted or inputs.train is None:
        return model
    data = inputs.train.get_data(model.learns_from)
    history = inputs.history.counts if inputs.history and model.uses_history else None
    with count_progress(f"Fitting {name}"):  # counts trials and iterations together
        return model.clone().fit(data, history=history, ads=inputs.text, engine=engine)


def _score(
    name: str, model: ClickModel, inputs: EvaluationInputs, seed: int, engine: Engine
) -> ChunkSums:
    with rename_progress(f"Scoring {name}"):
        return score(model, inputs.test.log, _query_volumes(inputs), seed=seed, engine=engine)


def _query_volumes(inputs: EvaluationInputs) -> QueryVolumes | None:
    return None if inputs.train is None else QueryVolumes(inputs.train.counts)


def _time(work: Callable[[], Output]) -> tuple[Output, float]:
    """Run the work; returns its result and the seconds that it took."""
    start = time.perf_counter()
    output = work()
    return output, time.perf_counter() - start


# ---- all models


def _compare(
    scored_models: dict[str, ScoredModel],
    inputs: EvaluationInputs,
    leakage: Leakage,
    level: float,
    resamples: int,
    seed: int,
) -> Evaluation:
    sums = {name: scored_model.sums for name, scored_model in scored_models.items()}
    scores, differences = session_tables(sums, level=level, resamples=resamples, seed=seed)
    curves = reliability_curves(sums, level=level, resamples=resamples, seed=seed)
    labels = {}
    if inputs.labels is not None:
        relevance = {
            name: relevance_scores(scored_model.model, inputs.labels, ads=inputs.text)
            for name, scored_model in scored_models.items()
        }
        volumes = _query_volumes(inputs)
        tables_of_labels = label_tables(
            relevance, level=level, resamples=resamples, seed=seed, volumes=volumes
        )
        table_pairs = zip((scores, differences, curves), tables_of_labels, strict=True)
        scores, differences, curves = (pa.concat_tables(tables) for tables in table_pairs)
        labels["labels"] = {
            "pairs": len(inputs.labels),
            "queries": len(inputs.labels["query"].unique()),
            "relevant_from": default_relevance_threshold(inputs.labels),
        }
    details = {
        **collect_details(scored_models, inputs, leakage, scores),
        **labels,
        "level": level,
        "resamples": resamples,
        "seed": seed,
        "version": __version__,
    }
    return Evaluation(scores, differences, curves, describe(inputs.test.counts), details)


# ---- the cache


class ResultCache:
    """The cache folder of an evaluation: models/NAME and scores/NAME, with keys of their inputs."""

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder
        for place in (folder, folder / "models"):  # only new results are written
            if isinstance(place, Path):
                remove_leftovers(place)
                complete_commit(place)

    def model(
        self, name: str, key: Key | None, fit: Callable[[], ClickModel]
    ) -> tuple[ClickModel, float]:
        """The cached model with this key, or a new one, and the seconds of its fit.

        Without a key the model is always new.
        """
        folder = self.folder / "models" / folder_name(name)
        note_path = folder.with_name(f"{folder.name}.json")
        note = _read_note(note_path)
        if (
            key is not None
            and note.get("key") == _hash_key(key)
            and note.get("fingerprint") == _model_fingerprint(folder)
            and isinstance(note.get("seconds"), int | float)
        ):
            return load(folder), float(note["seconds"])
        model, seconds = _time(fit)
        model.save(folder)
        note = {
            "key": None if key is None else _hash_key(key),
            "fingerprint": _model_fingerprint(folder),
            "seconds": seconds,
        }
        text = json.dumps(note)
        writers = {note_path.name: lambda path: path.write_text(text, encoding="utf-8")}
        write_files(note_path.parent, writers, overwrite=True)
        return model, seconds

    def sums(
        self, name: str, key: Key | None, score: Callable[[], ChunkSums]
    ) -> tuple[ChunkSums, float]:
        """The cached sums of the same model and key, or new ones, and the seconds of scoring.

        Without a key the sums are always new.
        """
        folder = self.folder / "scores" / folder_name(name)
        model_folder = self.folder / "models" / folder_name(name)
        digest = None
        if key is not None:
            digest = _hash_key({**key, "fingerprint": _model_fingerprint(model_folder)})
        try:
            cached_scores = (
                artifact.read(folder, kind="scores") if artifact.is_artifact(folder) else None
            )
        except StoreError:
            cached_scores = None  # altered or incomplete: score again
        if (
            cached_scores is not None
            and digest is not None
            and cached_scores.settings.get("key") == digest
        ):
            seconds = cached_scores.settings.get("seconds")
            if isinstance(seconds, int | float):
                with suppress(StoreError):  # of other metrics, or altered: score again
                    return ChunkSums.from_tables(cached_scores.tables), float(seconds)
        sums, seconds = _time(score)
        settings = {"key": digest, "seconds": seconds}
        artifact.write(folder, kind="scores", settings=settings, tables=sums.to_tables())
        return sums, seconds


def folder_name(name: str) -> str:
    """A folder name for a model: its letters and digits, and a hash of its name."""
    safe = "".join(letter if letter.isalnum() else "-" for letter in name.casefold())[:60]
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _read_note(path: AnyPath) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _model_fingerprint(folder: AnyPath) -> str | None:
    """A hash of the contents of a model folder; None without a complete model."""
    try:
        artifact.read(folder, kind="model")
        return artifact.fingerprint(folder)
    except StoreError:
        return None


def _hash_key(key: Key) -> str:
    text = json.dumps({**key, "reclick": __version__}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_code(model: type[ClickModel]) -> str | None:
    """A hash of the source of the modules outside Reclick that define a class and its bases.

    Empty for the models of Reclick, whose version is in every key. None if the source cannot be
    read, or if a class is defined in a function, so that the source does not determine it.
    """
    inside = sys.stdlib_module_names | {"reclick"}
    bases_outside = [base for base in model.__mro__ if base.__module__.split(".")[0] not in inside]
    if any("<locals>" in base.__qualname__ for base in bases_outside):
        return None
    try:
        sources = {
            base.__module__: inspect.getsource(sys.modules[base.__module__])
            for base in bases_outside
        }
    except (OSError, TypeError, KeyError):  # such as a class of a notebook
        return None
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest() if sources else ""
