"""Fits in buckets: the same model as in memory, whatever the buckets and the tasks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.engines.bucketed_log import assign_buckets
from reclick.errors import CannotAnswerError, LogError, SettingError, StoreError
from reclick.simulation import simulate
from tests.support.inline_engine import InlineEngine

FEW: dict[str, Any] = {"max_iterations": 4}
MODELS: list[rc.ClickModel] = [
    rc.GCTR(), rc.RCTR(), rc.DCTR(), rc.ICM(), rc.MultiClick(), rc.CM(), rc.DCM(), rc.SDBN(),
    rc.PBM(**FEW), rc.BBM(**FEW), rc.UBM(), rc.DBN(**FEW),
    rc.DBN(continuation="query", initiation="query", satisfaction_prior="auto", **FEW),
    rc.CCM(initiation="query", **FEW), rc.THCM(**FEW), rc.MODELS["scan"](**FEW),
    rc.CM(initiation="one"), rc.DCM(initiation="query"), rc.SDBN(initiation="query"),
]  # fmt: skip
COUNTED = {"gctr", "rctr", "dctr", "icm", "multiclick", "cm", "dcm", "sdbn"}


@pytest.fixture(scope="module")
def week() -> Any:
    return simulate(600, weeks=1, queries=30, seed=4).weeks[0]


def assert_same(one: rc.ClickModel, lazy: Any, log: Any, tolerance: float = 1e-9) -> None:
    """Equal parameters, reports, counts, provenance and answers."""
    two = lazy.to_memory()
    names = (*one.pair_parameters, *one.query_parameters, *one.global_parameters)
    for name in names:
        first, second = getattr(one, name), getattr(two, name)
        if first is None or isinstance(first, str):
            assert first == second, name
        else:
            np.testing.assert_allclose(first, second, rtol=0, atol=tolerance, err_msg=name)
    for name in ("iterations_", "converged_", "prior_report_", "hyperparameters_"):
        assert getattr(one, name, None) == getattr(two, name, None)
    assert one.training_counts == two.training_counts
    assert lazy.training_totals == one.training_totals
    assert [each.log for each in one.provenance_] == [each.log for each in lazy.provenance_]
    unknown = ("a new query", ["a new ad", one.training_ads[0].as_py()])
    for pages in (log, unknown):
        np.testing.assert_allclose(
            lazy.click_prob(pages), one.click_prob(pages), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_fit_in_buckets_is_the_fit_in_memory(
    model: rc.ClickModel, week: Any, tmp_path: Path
) -> None:
    lazy = model.fit_to(tmp_path / "model", week, buckets=3, engine=InlineEngine(tasks=2))
    assert isinstance(lazy, rc.BucketedModel)
    exact = model.name in COUNTED and not model.get_params().get("initiation")
    assert_same(model.clone().fit(week), lazy, week, 1e-15 if exact else 1e-9)
    assert not model.fitted


def test_counted_models_are_equal_to_the_last_bit(week: Any, tmp_path: Path) -> None:
    for model in (rc.SDBN(attractiveness_prior="overall"), rc.MultiClick()):
        lazy = model.fit_to(tmp_path / model.name, week, buckets=3)
        assert_same(model.clone().fit(week), lazy, week, 0.0)


@pytest.mark.parametrize("buckets", [1, 200])
def test_any_number_of_buckets(buckets: int, tmp_path: Path) -> None:
    log = simulate(100, weeks=1, queries=5, seed=4).weeks[0]  # nearly all buckets are empty
    model = rc.UBM(max_iterations=2)
    lazy = model.fit_to(tmp_path / "model", log, buckets=buckets)  # in this process
    assert_same(model.clone().fit(log), lazy, log)


def test_one_query_with_half_the_sessions(tmp_path: Path) -> None:
    tail = simulate(500, weeks=1, queries=20, seed=4).weeks[0].select(["query", "ads", "clicks"])
    head = pa.table({name: pa.repeat(tail[name][0], tail.num_rows) for name in tail.column_names})
    log = pa.concat_tables([tail, head.cast(tail.schema)])
    model = rc.CCM(max_iterations=5)
    lazy = model.fit_to(tmp_path / "model", log, buckets=3, engine=InlineEngine())
    assert_same(model.clone().fit(log), lazy, log)


def test_words_and_a_history_count_as_in_memory(week: Any, tmp_path: Path) -> None:
    ads = {ad: f"word{i % 5} thing{i % 7}" for i, ad in enumerate(rc.count(week).ads.to_pylist())}
    given: dict[str, Any] = {"ads": ads, "history": simulate(500, weeks=1, seed=5).weeks[0]}
    for model in (rc.DCTR(), rc.UBM(attractiveness_prior="words", max_iterations=5)):
        one = model.clone().fit(week, **given)
        folder = tmp_path / model.name
        lazy = model.fit_to(folder, week, buckets=3, engine=InlineEngine(), **given)
        assert_same(one, lazy, week)
        page, text = ("tea", ["new"]), {"new": "word3 thing2"}
        np.testing.assert_allclose(
            lazy.click_prob(page, text=text), one.click_prob(page, text=text), rtol=0, atol=1e-9
        )


def test_settings_are_chosen_on_the_same_sample_of_queries(
    week: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.models.dbn.CV_SESSIONS", 300)
    model = rc.DBN(max_iterations=3, folds=2)
    lazy = model.fit_to(tmp_path / "model", week, buckets=4, engine=InlineEngine())
    assert_same(model.clone().fit(week), lazy, week)


def test_the_prior_of_many_ads_is_chosen_on_the_same_sample(
    week: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.fitting.attractiveness_prior.MAX_PAIRS", 60)
    lazy = rc.DCTR().fit_to(tmp_path / "model", week, buckets=4, engine=InlineEngine())
    assert_same(rc.DCTR().fit(week), lazy, week, 1e-15)


def test_counts_and_files_are_read_in_parts(week: Any, tmp_path: Path) -> None:
    pq.write_table(week, tmp_path / "log.parquet", row_group_size=300)
    one = rc.DCTR().fit(str(tmp_path / "log.parquet"))
    for number, log in enumerate((rc.count(week), str(tmp_path / "log.parquet"))):
        lazy = rc.DCTR().fit_to(tmp_path / f"{number}", log, buckets=4, engine=InlineEngine())
        assert lazy.to_memory().training_counts == one.training_counts


# ---- LuceClick


def random_log(n: int, seed: int, *, queries: int = 40, conversions: bool = False) -> pa.Table:
    """Pages of 1 to 6 ads, a few queries with most sessions, clicks in any order.

    Half of the queries have no known conversions.
    """
    rng = np.random.default_rng(seed)
    log: dict[str, list[Any]] = {"query": [], "ads": [], "clicks": [], "conversions": []}
    for _ in range(n):
        page = rng.choice(60, rng.integers(1, 7), replace=False)
        clicks = rng.choice(len(page), rng.integers(0, min(len(page), 3) + 1), replace=False) + 1
        query = int(queries * rng.random() ** 2)
        log["query"].append(f"query {query}")
        log["ads"].append([f"ad {ad}" for ad in page])
        log["clicks"].append(clicks.tolist())
        known = rng.choice(3, len(clicks)) if query % 2 else np.zeros(len(clicks), int)
        log["conversions"].append([(None, False, True)[each] for each in known])
    if not conversions:
        del log["conversions"]
    return pa.table(log)


OFF: dict[str, Any] = {"tune": "off", "max_iterations": 12}
NO_STRENGTHS: dict[str, Any] = {
    "satisfaction_strength": None,
    "query_strength": None,
    "mixing_strength": None,
    "position_effect_strength": None,
}


def assert_same_luce(model: rc.LuceClick, log: Any, lazy: Any, **given: Any) -> rc.LuceClick:
    """The same, with the shared parameters, and the statistics that updates continue from."""
    one, two = model.clone().fit(log, **given), lazy.to_memory()
    assert_same(one, lazy, log)
    for name in ("gamma_", "omega_", "mixing_", "satisfaction_", "objective_"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(two, name), rtol=1e-10, atol=1e-9, err_msg=name
        )
    values, tables = one._to_tables()
    other_values, other_tables = two._to_tables()
    assert other_values.keys() == values.keys()
    assert other_tables.keys() == tables.keys()
    for name in tables:
        if name.startswith("luce_"):
            for column in tables[name].column_names:
                first, second = (
                    pc.list_flatten(each[name][column])
                    if pa.types.is_large_list(each[name].schema.field(column).type)
                    else each[name][column]
                    for each in (tables, other_tables)
                )
                np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9, err_msg=name)
    return one


@pytest.mark.parametrize(
    ("settings", "buckets"),
    [
        (OFF, 3),
        (OFF, 1),
        (OFF, 200),
        ({**OFF, "components": 3}, 3),
        ({**OFF, **NO_STRENGTHS}, 3),
        ({**OFF, **NO_STRENGTHS, "components": 2}, 4),
        ({**OFF, "attractiveness_prior": 0.2, "attractiveness_strength": 5}, 3),
    ],
)
def test_luceclick_in_buckets_is_luceclick_in_memory(
    settings: dict[str, Any], buckets: int, tmp_path: Path
) -> None:
    log = random_log(300, seed=1, queries=6 if buckets == 200 else 40)
    model = rc.LuceClick(**settings)
    lazy = model.fit_to(tmp_path / "model", log, buckets=buckets, engine=InlineEngine(tasks=2))
    assert_same_luce(model, log, lazy)


def test_luceclick_in_buckets_with_one_query_of_half_the_sessions(tmp_path: Path) -> None:
    log = random_log(400, seed=2)
    head = log.slice(0, 1).take([0] * 300)
    log, model = pa.concat_tables([log, head]), rc.LuceClick(**OFF)
    assert_same_luce(model, log, model.fit_to(tmp_path / "model", log, buckets=3))
    alone, only = pa.concat_tables([head, log.slice(0, 1)]), rc.LuceClick(max_iterations=5)
    assert_same_luce(only, alone, only.fit_to(tmp_path / "one", alone, buckets=3))


def test_luceclick_in_buckets_chooses_on_the_same_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, model = random_log(600, seed=3), rc.LuceClick(max_iterations=20)
    for module in ("reclick.fitting.folds", "reclick.models.bucket_luce"):
        monkeypatch.setattr(f"{module}.MAX_SESSIONS", 300)
    monkeypatch.setattr("reclick.fitting.attractiveness_prior.MAX_PAIRS", 150)
    ads = {f"ad {ad}": f"word{ad % 5} thing{ad % 7}" for ad in range(55)}
    lazy = model.fit_to(tmp_path / "model", log, buckets=3, ads=ads, engine=InlineEngine())
    one = assert_same_luce(model, log, lazy, ads=ads)
    page, text = ("query 1", ["new", "ad 3"]), {"new": "word3 thing2"}
    np.testing.assert_allclose(
        lazy.click_prob(page, text=text), one.click_prob(page, text=text), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("settings", [{}, {"outcome_weight": 0}, {"redundancy": 0.7}], ids=repr)
def test_luceclick_in_buckets_with_conversions_and_words(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    log = random_log(300, seed=4, queries=12, conversions=True)
    model = rc.LuceClick(**OFF, **settings)
    ads = {f"ad {ad}": f"word{ad % 5} thing{ad % 7}" for ad in range(60)}
    lazy = model.fit_to(tmp_path / "model", log, buckets=60, ads=ads, engine=InlineEngine())
    assert_same_luce(model, log, lazy, ads=ads)


def test_luceclick_fitted_in_buckets_can_be_updated(tmp_path: Path) -> None:
    log, later = random_log(400, seed=5), random_log(200, seed=6)
    model = rc.LuceClick(**OFF)
    lazy = model.fit_to(tmp_path / "model", log, buckets=3, engine=InlineEngine())
    one, two = model.clone().fit(log).update(later), cast(rc.LuceClick, lazy.to_memory())
    two.update(later)
    np.testing.assert_allclose(two.theta_, one.theta_, rtol=0, atol=1e-9)
    assert one.iterations_ == two.iterations_


# ---- memory and files


class WatchedEngine(InlineEngine):
    """Keeps the largest result of a task in each round, in bytes, and the files between rounds."""

    def __init__(self) -> None:
        super().__init__(tasks=2)
        self.results: list[int] = []
        self.files: list[int] = []

    def run(self, task: Any, n: int, what: str) -> list[Any]:
        import pickle

        found = super().run(task, n, what)
        if what == "":
            self.results.append(max(len(pickle.dumps(each)) for each in found))
            rows = Path(str(task.args[1].folder)).glob("rows-*")
            self.files.append(len(list(rows)))
        return found


@pytest.mark.parametrize(
    ("model", "rows"),  # files of rows: of the step before, of this one, of earlier ones
    [
        (rc.UBM(max_iterations=6, attractiveness_prior="overall", tolerance=0), 3),
        (rc.LuceClick(max_iterations=9, tolerance=0, tune="off"), 6),
    ],
    ids=["UBM", "LuceClick"],
)
def test_tasks_return_totals_alone_and_old_rows_go(
    model: rc.ClickModel, rows: int, tmp_path: Path
) -> None:
    log = simulate(1_000, weeks=1, queries=400, seed=4).weeks[0]
    engine = WatchedEngine()
    lazy = model.fit_to(tmp_path / "model", log, buckets=4, engine=engine)
    rounds = engine.results[-6:]
    assert max(rounds) < 2 * lazy.training_totals.pairs  # less than two bytes a pair
    assert max(engine.files) <= rows * 4
    assert max(engine.sent) < 20_000


def _break(what: str) -> Callable[..., Any]:
    class Broken(InlineEngine):
        def run(self, task: Any, n: int, doing: str) -> list[Any]:
            if doing == what:
                super().run(task, n - 1, doing)
                raise RuntimeError("lost")
            return super().run(task, n, doing)

    return Broken


@pytest.mark.parametrize("what", ["parts read", "buckets written", ""])
def test_a_fit_that_fails_leaves_the_old_model(what: str, week: Any, tmp_path: Path) -> None:
    folder, shared = tmp_path / "model", tmp_path / "shared"
    rc.GCTR().fit(week).save(folder, buckets=2)
    with pytest.raises(RuntimeError, match="lost"):
        rc.UBM(max_iterations=3).fit_to(folder, week, buckets=4, engine=_break(what)(folder=shared))
    assert rc.load(folder).name == "gctr"
    assert not list(shared.iterdir())
    rc.DCTR().fit_to(folder, week, buckets=4)
    assert rc.load(folder).name == "dctr"


def test_a_model_just_written_is_opened_at_its_first_use(week: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    models = [rc.UBM(**FEW).fit_to(folder, week, buckets=2) for _ in range(2)]
    assert all(isinstance(model, rc.UBM) for model in models)
    assert models[1].buckets == 2
    assert type(models[1]) is type(rc.load(folder))
    with pytest.raises(StoreError, match="was saved again since it was fitted"):
        models[0].click_prob(week)
    later = rc.DCTR().fit_to(folder, week, buckets=3)
    later.provenance_ = ()
    assert (later.buckets, later.provenance_) == (3, ())
    assert copy(later).buckets == 3


def test_a_driver_of_a_fit_in_buckets_needs_no_compiled_kernels(week: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    pq.write_table(week, log)
    program = f"""
import gc, reclick as rc
from numba.core.dispatcher import Dispatcher
engine = rc.PoolEngine(workers=1)
few = dict(max_iterations=3, attractiveness_prior="overall")
for number, model in enumerate((rc.UBM(**few), rc.DBN(continuation=0.9, **few))):
    model.fit_to("{tmp_path}/" + str(number), "{log}", buckets=3, engine=engine)
print([each for each in gc.get_objects() if isinstance(each, Dispatcher) and each.overloads])
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out.strip() == "[]"


def test_a_bucket_of_other_values_is_not_saved(
    week: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate, values = rc.GCTR._estimate, iter(range(100))

    def unsteady(self: Any, *data: Any) -> None:
        estimate(self, *data)
        self.rate_ += next(values) / 1000

    monkeypatch.setattr(rc.GCTR, "_estimate", unsteady)
    with pytest.raises(CannotAnswerError, match="one version"):
        rc.GCTR().fit_to(tmp_path / "model", week, buckets=4)
    assert not (tmp_path / "model" / "manifest.json").exists()


# ---- refusals


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (rc.POM(), "POM cannot be fitted in buckets"),
        (rc.LuceClick(redundancy="auto"), "Set redundancy=0"),
        (rc.UBM(noise="session"), "Leave out noise"),
        (rc.UBM(components=2), "Set components=1"),
        (rc.MultiClick(strength="auto"), "Set strength=10"),
    ],
    ids=repr,
)
def test_what_cannot_be_fitted_in_buckets_is_refused(
    model: rc.ClickModel, says: str, week: Any, tmp_path: Path
) -> None:
    with pytest.raises(CannotAnswerError, match=says):
        model.fit_to(tmp_path / "model", week, buckets=2)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "model",
    [rc.CCM(**FEW), rc.DBN(satisfaction_prior=0.4, **FEW), rc.DBN(outcome_weight=0, **FEW)],
    ids=repr,
)
def test_outcomes_of_clicks_count_as_in_memory(model: rc.ClickModel, tmp_path: Path) -> None:
    log = random_log(300, seed=4, queries=12, conversions=True)
    lazy = model.fit_to(tmp_path / "model", log, buckets=60, engine=InlineEngine())
    assert_same(model.clone().fit(log), lazy, log)


def test_outcomes_of_clicks_are_refused_where_they_are_counted(tmp_path: Path) -> None:
    log = {"query": ["a", "b"] * 4, "ads": [["x", "y"]] * 8, "clicks": [[1], [2]] * 4}
    log["conversions"] = [[True], [False]] * 4
    for model in (rc.SDBN(), rc.SDBN(satisfaction_prior=0.4), rc.MultiClick(), rc.DBN()):
        with pytest.raises(CannotAnswerError, match="outcome_weight=0") as refusal:
            model.fit_to(tmp_path / "model", log, buckets=2)
        assert ("satisfaction_prior" in str(refusal.value)) == (model.name == "dbn")
    model = rc.SDBN(outcome_weight=0)
    lazy = model.fit_to(tmp_path / "model", log, buckets=2)
    assert_same(model.clone().fit(log), lazy, log)


@pytest.mark.parametrize("argument", ["sessions", "history"])
def test_impressions_too_large_to_add_are_refused(argument: str, tmp_path: Path) -> None:
    large = {"query": ["q", "r"], "ads": [["a", "b", "c"]] * 2, "clicks": [[1], []]}
    large["weight"] = [2.0**51] * 2  # 2^52 sessions, 3 · 2^52 impressions
    logs: dict[str, Any] = {"sessions": large | {"weight": [1.0, 2.0]}, argument: large}
    with pytest.raises(LogError, match="impressions, and counts are exact only up to"):
        rc.DCTR().fit_to(tmp_path / "model", **logs, buckets=2)
    assert not (tmp_path / "model").exists()


def test_wrong_arguments_are_refused(week: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(SettingError, match="buckets"):
        rc.DCTR().fit_to(folder, week, buckets=0)
    with pytest.raises(SettingError, match="PoolEngine"):
        rc.DCTR().fit_to(folder, week, buckets=2, engine=rc.DuckDBEngine())
    with pytest.raises(LogError, match="Give it the log itself"):
        rc.UBM().fit_to(folder, rc.count(week), buckets=2)
    shutil.rmtree(folder, ignore_errors=True)
    rc.DCTR().fit_to(folder, week, buckets=2)
    with pytest.raises(CannotAnswerError, match="opened from buckets"):
        rc.load(folder).fit_to(folder, week, buckets=2)


def test_buckets_are_dealt_by_their_size() -> None:
    assert assign_buckets({0: 9, 1: 1, 2: 1, 5: 8}, 2) == [[0, 2], [1, 5]]
    assert assign_buckets({3: 1.0}, 4) == [[3]]
