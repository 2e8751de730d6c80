"""Fit what is not fitted, score every model on the test log, and compare. With a folder, what is done there already is not done again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from reclick import __version__
from reclick.errors import SettingError
from reclick.evaluation import log_facts
from reclick.evaluation.cache import Kept, timed
from reclick.evaluation.inputs import Inputs, open_inputs, refuse_unfitted
from reclick.evaluation.result import Evaluation
from reclick.metrics import (
    SESSION_METRICS,
    QueryVolumes,
    SessionSums,
    label_tables,
    least_relevant,
    relevance_scores,
    reliability,
    score,
    tables,
)
from reclick.metrics.bootstrap import check_bootstrap
from reclick.models import MODELS, ClickModel
from reclick.models.settings import check_whole
from reclick.profile import describe
from reclick.runtime.progress import Told, listening, nobody


class Judged(NamedTuple):
    """A fitted model with its sums over the test log, and how long it took."""

    model: ClickModel
    sums: SessionSums
    seconds: dict[str, float]


def evaluate(
    models: Mapping[str, ClickModel] | Iterable[str],
    test: object,
    *,
    train: object = None,
    history: object = None,
    labels: object = None,
    ads: object = None,
    folder: str | Path | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    progress: Told | None = None,
) -> Evaluation:
    """Judge models on a test log by every metric of the paper and more, with paired bootstrap intervals at `level`.

    `models` are models by the name to show, or names of `MODELS`. Those not fitted are fitted on `train`, with priors from `history`. Query volumes
    are those in `train`. `labels` (query, ad, relevance) add the relevance metrics. With a `folder`, fitted models and sums are kept there, and a
    second run on the same logs and settings takes them up. `progress(what, done, of how much or None)` is told how far things are.

    >>> week = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2, 1], [2]]}
    >>> evaluate(["multiclick", "pbm"], week, train=week, resamples=100).value("PBM", "impossible")
    0.25
    """
    chosen, tell = named(models), progress or nobody
    check_bootstrap(level, resamples)
    check_whole("seed", seed, 0)
    refuse_unfitted([name for name, model in chosen.items() if not model.fitted], train)
    inputs = open_inputs(test, train, history, ads, labels, tell)
    kept = None if folder is None else Kept(Path(folder))
    judged = {name: _judge(name, model, inputs, kept, seed, tell) for name, model in chosen.items()}
    return _compare(judged, inputs, level, resamples, seed)


def named(models: Mapping[str, ClickModel] | Iterable[str]) -> dict[str, ClickModel]:
    """Models by the name to show; those asked for by their name in MODELS have their class's name."""
    if isinstance(models, Mapping):
        chosen = dict(models)
    else:
        names = [models] if isinstance(models, str) else list(models)
        for name in names:
            if name not in MODELS:
                raise SettingError(
                    f"models: got {name!r}, expected names among {', '.join(MODELS)}."
                )
        chosen = {MODELS[name].__name__: MODELS[name]() for name in names}
    if not chosen:
        raise SettingError(f"models: got none. Give one or more of {', '.join(MODELS)}.")
    return chosen


# ---- one model


def _judge(
    name: str, model: ClickModel, inputs: Inputs, kept: Kept | None, seed: int, tell: Told
) -> Judged:
    """A model fitted, unless it is, and scored; or what an earlier run left of that."""
    fit, score = (
        partial(_fitted, name, model, inputs, tell),
        partial(_scored, name, inputs=inputs, seed=seed, tell=tell),
    )
    if kept is None:
        fitted, fit_seconds = timed(fit)
        sums, score_seconds = timed(partial(score, fitted))
    else:
        settings = {"model": model.name, "settings": model.get_params()}
        given = None if model.fitted else {**settings, **inputs.key("ads", "train", "history")}
        fitted, fit_seconds = kept.model(name, given, fit)
        asked = {
            "seed": seed,
            "metrics": list(SESSION_METRICS),
            **inputs.key("ads", "test", "train"),
        }
        sums, score_seconds = kept.sums(name, asked, partial(score, fitted))
    return Judged(fitted, sums, {"fit": fit_seconds, "score": score_seconds})


def _fitted(name: str, model: ClickModel, inputs: Inputs, tell: Told) -> ClickModel:
    if model.fitted or inputs.train is None:
        return model
    data = inputs.train.counts if model.counts_suffice else inputs.train.groups
    steps = itertools.count(1)  # settings tried and iterations, all in one
    tell(f"Fitting {name}", 0, None)
    with listening(lambda what, done, total: tell(f"Fitting {name}", next(steps), None)):
        fitted = model.clone().fit(
            data, history=None if inputs.history is None else inputs.history.counts, ads=inputs.text
        )
    done = next(steps)
    tell(f"Fitting {name}", done, done)
    return fitted


def _scored(name: str, model: ClickModel, inputs: Inputs, seed: int, tell: Told) -> SessionSums:
    return score(
        model,
        inputs.test.log,
        _volumes(inputs),
        seed=seed,
        progress=partial(tell, f"Scoring {name}"),
    )


def _volumes(inputs: Inputs) -> QueryVolumes | None:
    """The volumes of queries in training."""
    return None if inputs.train is None else QueryVolumes(inputs.train.counts)


# ---- all models


def _compare(
    judged: dict[str, Judged], inputs: Inputs, level: float, resamples: int, seed: int
) -> Evaluation:
    sums = {name: each.sums for name, each in judged.items()}
    scores, differences = tables(sums, level=level, resamples=resamples, seed=seed)
    curves = reliability(sums, level=level, resamples=resamples, seed=seed)
    details = _details(judged, inputs) | {
        "level": level,
        "resamples": resamples,
        "seed": seed,
        "version": __version__,
    }
    if inputs.labels is not None:
        pairs = {
            name: relevance_scores(each.model, inputs.labels, ads=inputs.text)
            for name, each in judged.items()
        }
        found = label_tables(
            pairs, level=level, resamples=resamples, seed=seed, volumes=_volumes(inputs)
        )
        joined = zip((scores, differences, curves), found, strict=True)
        scores, differences, curves = (pa.concat_tables(both) for both in joined)
        details["labels"] = {
            "pairs": len(inputs.labels),
            "queries": len(inputs.labels["query"].unique()),
            "relevant_from": least_relevant(inputs.labels),
        }
    return Evaluation(scores, differences, curves, describe(inputs.test.counts), details)


def _details(judged: dict[str, Judged], inputs: Inputs) -> dict[str, Any]:
    logs = {"test": inputs.test, "train": inputs.train, "history": inputs.history}
    counts = inputs.test.counts if inputs.train is None else inputs.train.counts
    satisfied = next((each.model for each in judged.values() if each.model.satisfaction), None)
    return {
        "logs": {part: log.about() for part, log in logs.items() if log is not None},
        "models": {name: _about(each) for name, each in judged.items()},
        **log_facts.moves(inputs.test.counts),
        "words": log_facts.words(counts, inputs.text),
        "disagree": log_facts.disagreements(satisfied, inputs.text),
    }


def _about(judged: Judged) -> dict[str, Any]:
    model = judged.model
    told = {
        "model": model.name,
        "settings": model.get_params(),
        "assumes": model.assumes,
        "fit": getattr(model, "message_", ""),
    }
    return {**told, "seconds": judged.seconds, "reasons": dict(judged.sums.reasons)}
