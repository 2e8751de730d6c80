"""Evaluating models: what is scored, cached and refused."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.evaluation import run
from reclick.models import MODELS

ADS = pa.table(
    {
        "ad": ["a", "b", "c"],
        "title": ["Cheap pizza", "Fresh pizza <b>now</b>", "Pasta"],
        "description": ["delivered hot", "stone oven", "al dente"],
        "display_url": ["a.example", "b.example", "c.example"],
    }
)
LABELS = {
    "query": ["pizza", "pizza", "pasta", "pasta"],
    "ad": ["a", "b", "c", "a"],
    "relevance": [3, 1, 2, 0],
}


def week(n: int, *, unseen: bool = False) -> pa.Table:
    """Sessions of two queries, or of three with one that no other week has."""
    rows: list[tuple[str, list[str], list[int]]] = [
        ("pizza", ["a", "b", "c"], [1]),
        ("pizza", ["b", "a", "c"], [2, 1]),
        ("pizza", ["a", "b"], []),
        ("pasta", ["c", "a"], [1]),
        ("pasta", ["c", "a", "b"], [1, 2]),
    ]
    rows = [rows[index % len(rows)] for index in range(n)] + (
        [("sushi", ["a", "c"], [2])] if unseen else []
    )
    return pa.table(
        {
            "query": [row[0] for row in rows],
            "ads": [row[1] for row in rows],
            "clicks": [row[2] for row in rows],
        }
    )


@pytest.fixture(scope="module")
def evaluation() -> rc.Evaluation:
    return rc.evaluate(
        ["multiclick", "ubm", "pm"],
        week(60, unseen=True),
        train=week(40),
        history=week(20),
        ads=ADS,
        labels=LABELS,
        resamples=200,
        seed=3,
    )


def test_every_model_has_every_metric_of_every_group(evaluation: rc.Evaluation) -> None:
    rows = evaluation.scores.to_pylist()
    groups = {
        name: {
            (row["metric"], row["sessions"], row["volume"]) for row in rows if row["model"] == name
        }
        for name in ("MultiClick", "UBM", "PM")
    }
    assert groups["MultiClick"] == groups["UBM"] == groups["PM"]
    assert len(groups["PM"]) == len([row for row in rows if row["model"] == "PM"])


def test_scores_are_those_of_the_models_methods(evaluation: rc.Evaluation) -> None:
    model = MODELS["ubm"]().fit(week(40), history=week(20), ads=ADS)
    assert evaluation.value("UBM", "log_set_likelihood") == pytest.approx(
        model.log_set_prob(week(60, unseen=True)).mean(), abs=1e-12
    )


def test_the_test_log_includes_queries_that_training_does_not_have(
    evaluation: rc.Evaluation,
) -> None:
    wanted = {"model": "UBM", "metric": "log_likelihood", "sessions": "all"}
    rows = evaluation.scores.to_pylist()
    support = {row["volume"]: row["support"] for row in rows if wanted.items() <= row.items()}
    assert support["all"] == 61
    assert support["0-10"] == 1  # sushi, of which there is nothing in training


def test_an_answer_that_a_model_does_not_have_is_null(evaluation: rc.Evaluation) -> None:
    assert evaluation.value("PM", "pr_auc") is None
    assert evaluation.value("UBM", "pr_auc") is not None


def test_labels_add_the_relevance_metrics_and_say_where_relevance_starts(
    evaluation: rc.Evaluation,
) -> None:
    assert evaluation.details["labels"] == {"pairs": 4, "queries": 2, "relevant_from": 1.5}
    assert {"reliability", "precision_recall"} == set(
        evaluation.curves["curve"].unique().to_pylist()
    )


def test_relevance_metrics_are_reported_by_volume_too(evaluation: rc.Evaluation) -> None:
    rows = [
        row
        for row in evaluation.scores.to_pylist()
        if row["model"] == "UBM" and row["metric"] == "roc_auc"
    ]
    assert {row["volume"]: row["support"] for row in rows} == {
        "all": 4, "0-10": 0, "10-50": 4, "50-100": 0, "100-500": 0, "500-1000": 0, ">1000": 0,
    }  # fmt: skip


def test_the_details_are_json_values(evaluation: rc.Evaluation) -> None:
    details = json.loads(json.dumps(evaluation.details))
    assert details["logs"]["test"] == {"name": "table", "sessions": 61, "dropped": {}}
    assert details["models"]["PM"]["settings"] == MODELS["pm"]().get_params()
    assert [sum(row) for row in details["transitions"]][:2] == pytest.approx([1, 1])
    assert details["fatigue"][0] == pytest.approx(
        12 / 61
    )  # one session in five of sixty has no click


def test_saving_writes_tables_json_and_both_reports(
    evaluation: rc.Evaluation, tmp_path: Path
) -> None:
    written = evaluation.save(tmp_path / "results")
    assert sorted(path.name for path in written) == [
        "curves.parquet",
        "differences.parquet",
        "evaluation.json",
        "report.html",
        "report.md",
        "scores.parquet",
    ]
    assert pq.read_table(tmp_path / "results" / "scores.parquet").equals(evaluation.scores)
    assert "<b>now</b>" not in (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert evaluation.to_html(tmp_path / "one.html").is_file()


def test_the_same_seed_gives_the_same_tables_and_another_seed_other_intervals() -> None:
    first, again, other = (
        rc.evaluate(["dctr", "pbm"], week(60), train=week(40), resamples=100, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first.scores.equals(again.scores)
    assert first.differences.equals(again.differences)
    assert first.scores["value"].equals(other.scores["value"])
    assert not first.scores["low"].equals(other.scores["low"])


def test_a_second_run_in_the_same_folder_fits_and_scores_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {
        "test": week(60),
        "train": week(40),
        "ads": ADS,
        "folder": tmp_path,
        "resamples": 100,
    }
    first = rc.evaluate(["multiclick", "pbm"], **arguments)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as patched:
        patched.setattr(run, "_fit", refuse)
        patched.setattr(run, "_score", refuse)
        again = rc.evaluate(["multiclick", "pbm"], **arguments)
        assert again.scores.equals(first.scores)
        for changed in (
            {"train": week(41)},
            {"test": week(61)},
            {"seed": 1},
            {"ads": ADS.slice(0, 2)},
        ):
            with pytest.raises(AssertionError, match="computed again"):
                rc.evaluate(["multiclick", "pbm"], **{**arguments, **changed})
        with pytest.raises(AssertionError, match="computed again"):
            rc.evaluate({"MultiClick": rc.MultiClick(variant="normalised")}, **arguments)


def test_a_run_that_was_stopped_continues_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {
        "test": week(60),
        "train": week(40),
        "folder": tmp_path,
        "resamples": 100,
    }
    fitted: list[str] = []
    fit = run._fit

    def fit_until_ubm(name: str, *rest: Any) -> Any:
        if name == "UBM" and "UBM" not in fitted:
            fitted.append(name)
            raise KeyboardInterrupt
        fitted.append(name)
        return fit(name, *rest)

    monkeypatch.setattr(run, "_fit", fit_until_ubm)
    with pytest.raises(KeyboardInterrupt):
        rc.evaluate(["pbm", "ubm"], **arguments)
    rc.evaluate(["pbm", "ubm"], **arguments)
    assert fitted == ["PBM", "UBM", "UBM"]


def test_cached_results_that_were_altered_are_computed_again(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "test": week(60),
        "train": week(40),
        "folder": tmp_path,
        "resamples": 100,
    }
    first = rc.evaluate(["pbm"], **arguments)
    for file in [*tmp_path.glob("models/*/*.parquet"), *tmp_path.glob("scores/*/*.parquet")]:
        file.write_bytes(b"no longer Parquet")
    assert rc.evaluate(["pbm"], **arguments).scores.equals(first.scores)


def test_a_name_cannot_lead_out_of_the_folder() -> None:
    assert "/" not in run.folder_name("../../etc/passwd")
    assert run.folder_name("a b") != run.folder_name("a-b")


def test_fitted_models_need_no_training_log() -> None:
    model = MODELS["ubm"]().fit(week(40))
    assert rc.evaluate({"mine": model}, week(60), resamples=100).value(
        "mine", "impossible"
    ) == pytest.approx(0.2)


def test_progress_reports_what_is_being_done() -> None:
    reports: list[str] = []
    rc.evaluate(
        ["ubm"],
        week(60),
        train=week(40),
        resamples=100,
        progress=lambda what, done, total: reports.append(what),
    )
    assert {
        "Reading the test log",
        "Reading the training log",
        "Fitting UBM",
        "Scoring UBM",
    } <= set(reports)


@pytest.mark.parametrize(
    ("models", "changed", "message"),
    [
        (["ubm", "nobody"], {}, "got 'nobody', expected one of"),
        ([], {}, "models: got none"),
        (["ubm:max_iterations=5"], {}, "got 'ubm:max_iterations=5'. To compare settings, give"),
        (["ubm"], {"train": None}, "UBM: not fitted yet. Give train="),
        (["ubm"], {"level": 1.5}, "level: got 1.5"),
        (["ubm"], {"resamples": -1}, "resamples: got -1"),
        (["ubm"], {"seed": -1}, "seed: got -1"),
        (["ubm"], {"test": None}, "test: got None"),
    ],
)
def test_what_makes_no_sense_is_refused(
    models: list[str], changed: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {"test": week(20), "train": week(20), **changed}
    with pytest.raises(rc.SettingError, match=message.replace("(", r"\(")):
        rc.evaluate(models, **arguments)


def test_an_unknown_score_lists_the_known_ones(evaluation: rc.Evaluation) -> None:
    with pytest.raises(rc.SettingError, match=r"metric: got 'accuracy', .*first_click_accuracy"):
        evaluation.value("UBM", "accuracy")


def test_logs_without_weight_are_refused() -> None:
    log = week(10)
    none = log.append_column("weight", pa.array([0.0] * 10))
    for models in (["ubm"], ["multiclick"]):  # grouped, and counted
        for logs in ((log, none, None), (log, log, none), (none, log, None)):
            test, train, history = logs
            with pytest.raises(rc.LogError, match="every session has weight 0"):
                rc.evaluate(
                    models, test, train=train, history=history, in_sample=True, resamples=10
                )


class CountingEngine(rc.LocalEngine):
    """Notes which of its methods are called."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.calls: list[str] = []

    def group(self, log: Any) -> Any:
        self.calls.append("group")
        return super().group(log)

    def reduce(self, step: Any, parameters: Any, blocks: Any) -> Any:
        self.calls.append("reduce")
        return super().reduce(step, parameters, blocks)


def test_the_engine_reads_the_logs_and_runs_the_fits() -> None:
    engine = CountingEngine()
    rc.evaluate(["ubm"], week(10), train=week(10), resamples=10, in_sample=True, engine=engine)
    assert {"group", "reduce"} <= set(engine.calls)


OWN_MODEL = """
import numpy as np
import reclick as rc

class Own(rc.DCTR):
    name = "own_of_a_file"
    assumes = "every ad is alike"
    reference = "a model of the tests"

    def _estimate(self, data, means, history):
        super()._estimate(data, means, history)
        self.theta_ = np.full(len(self.theta_), THETA)
"""


@pytest.mark.parametrize("where", ["a file", "a function"])
def test_a_model_outside_reclick_is_fitted_again_when_its_code_changed(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODELS, "_registered", {})
    monkeypatch.syspath_prepend(tmp_path)

    def define(theta: float) -> type[rc.ClickModel]:
        if where == "a function":

            class Own(rc.DCTR):
                name = "own_of_a_file"
                assumes = reference = "a model of the tests"

                def _estimate(self, data: Any, means: Any, history: Any) -> None:
                    super()._estimate(data, means, history)
                    self.theta_ = np.full(len(self.theta_), theta)

            return Own
        (tmp_path / "own_model.py").write_text(OWN_MODEL.replace("THETA", str(theta)))
        sys.modules.pop("own_model", None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            return importlib.import_module("own_model").Own  # type: ignore[no-any-return]
        finally:
            sys.dont_write_bytecode = before

    arguments: dict[str, Any] = {
        "test": week(20),
        "train": week(20),
        "in_sample": True,
        "resamples": 10,
    }
    for theta in (0.2, 0.45, 0.45):
        MODELS.__dict__["_registered"].clear()
        rc.register(define(theta))
        cached = rc.evaluate(["own_of_a_file"], folder=tmp_path / "results", **arguments)
        fresh = rc.evaluate(["own_of_a_file"], **arguments)
        assert cached.value("Own", "log_set_likelihood") == fresh.value("Own", "log_set_likelihood")


def test_results_of_a_model_outside_reclick_are_cached_while_its_code_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model_again.py").write_text(OWN_MODEL.replace("THETA", "0.3"))
    monkeypatch.setattr(MODELS, "_registered", {})
    monkeypatch.syspath_prepend(tmp_path)
    own = rc.register(importlib.import_module("own_model_again").Own)
    arguments: dict[str, Any] = {
        "train": week(20),
        "in_sample": True,
        "folder": tmp_path / "results",
        "resamples": 10,
    }
    first = rc.evaluate(["own_of_a_file"], week(20), **arguments)
    monkeypatch.setattr(own, "_estimate", lambda *_: pytest.fail("it is fitted again"))
    again = rc.evaluate(["own_of_a_file"], week(20), **arguments)
    assert again.scores.equals(first.scores)


def test_noise_and_redundancy_are_evaluated_as_they_are_fitted() -> None:
    models = {
        "noise": rc.UBM(noise="session"),
        "users": rc.UBM(noise="user"),
        "counts": rc.MultiClick(noise="session"),
        "redundancy": rc.MultiClick(redundancy="auto"),
    }
    train = week(240).append_column("user", pa.array([f"u{i % 40}" for i in range(240)]))
    found = rc.evaluate(models, week(60), train=train, ads=ADS, resamples=20)
    for name, model in models.items():
        fitted = model.clone().fit(train, ads=ADS)
        expected = fitted.log_set_prob(week(60)).mean()
        assert found.value(name, "log_set_likelihood") == pytest.approx(expected, abs=1e-12)
