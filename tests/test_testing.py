"""A model of somebody else's: written, registered, checked; and broken, with messages that help."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

import reclick as rc
from reclick.clicks.chain import ChainPages, chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.counts import Counts
from reclick.errors import StoreError, UnknownModelError, UsageError
from reclick.fitting.beta import BetaPrior, posterior_mean
from reclick.models.registry import ModelRegistry
from reclick.testing import CHECKS, ConformanceError, check_model
from reclick.text.word_rates import TextIndex

QUICK = ("sum", "marginals", "sets", "next_click", "ranking", "order", "description", "settings")


class Halving(rc.ClickModel):
    """P(click) = θ(q, d) · decline^(position − 1), each position independently."""

    name: ClassVar[str] = "halving"
    assumes: ClassVar[str] = "examination falls by a constant factor per position"
    reference: ClassVar[str] = "a model of the tests"
    fits_from_counts: ClassVar[bool] = True
    pair_parameters: ClassVar[tuple[str, ...]] = ("theta_", "exposure_")
    global_parameters: ClassVar[tuple[str, ...]] = ("prior_mean_",)

    decline: float = rc.setting(default=0.5, low=0.1, high=1, help="examination per position")
    attractiveness_strength: float = rc.setting(default=1.0, low=0)

    def _estimate(self, counts: Counts, prior: BetaPrior, history: Counts) -> None:
        self.exposure_ = counts.impressions
        self.theta_ = posterior_mean(counts.clicks, counts.impressions, *prior)

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_prior(self.theta_, batch, self._pairs.find(batch), text)
        position = np.concatenate([np.arange(size) for size in np.diff(batch.page)])
        return chain_pages(batch, fill, (theta * self.decline**position,))


def fill(page: Any, chance: Any, next_click: Any, end: Any) -> None:
    """P(next click | last click) where every position is clicked independently with `chance`."""
    for s in range(len(page) - 1):
        for last in range(page[s + 1] - page[s] + 1):
            none = 1.0
            for j in range(last, page[s + 1] - page[s]):
                next_click[s, last, j] = none * chance[page[s] + j]
                none *= 1 - chance[page[s] + j]
            end[s, last] = none


def oracle(model: Halving, query: str, ads: Sequence[str]) -> dict[tuple[int, ...], float]:
    theta = model.relevance({"query": [query] * len(ads), "ad": list(ads)})["attractiveness"]
    chance = [value * model.decline**i for i, value in enumerate(theta.to_pylist())]
    return {
        tuple(i + 1 for i, hit in enumerate(bits) if hit): float(
            np.prod([p if hit else 1 - p for p, hit in zip(chance, bits, strict=True)])
        )
        for bits in itertools.product((False, True), repeat=len(ads))
    }


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRegistry]:
    """The registry, with what a test registers taken back."""
    monkeypatch.setattr(rc.MODELS, "_registered", {})
    rc.MODELS.__dict__.pop("_installed", None)
    yield rc.MODELS
    rc.MODELS.__dict__.pop("_installed", None)


def test_a_model_of_ones_own_passes_all_checks(registry: ModelRegistry) -> None:
    assert rc.register(Halving) is Halving
    report = check_model(Halving, oracle=oracle)
    assert set(report.passed) == set(CHECKS) - set(report.skipped)
    assert set(report.skipped) == {"objective", "convergence", "words", "saving_words"}
    assert "it is not fitted by iterations" in str(report)


def test_without_an_oracle_or_registration_the_report_says_what_to_do() -> None:
    report = check_model(Halving, only=("oracle", "saving", "sum"))
    assert report.passed == ["sum"]
    assert "Pass oracle=…, a function of (model, query, ads)" in report.skipped["oracle"]
    assert "rc.register(Halving)" in report.skipped["saving"]


class TwoChances(Halving):
    """The probabilities do not add to 1: the end of a session is counted twice."""

    name: ClassVar[str] = "two"

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        pages = super()._page_distribution(batch, text)

        def wrong(start: int, end: int) -> PageDistribution:
            right: Any = pages(start, end)
            return ChainPages(right.next_click, 2 * right.end, right.starts, right.table)

        return wrong


class Ordered(Halving):
    """Declares an order of clicks that it does not have."""

    name: ClassVar[str] = "ordered"
    ordered: ClassVar[bool] = True


class Undescribed(Halving):
    """Has a setting without help, and a mutable one."""

    name: ClassVar[str] = "undescribed"
    mystery: float = rc.setting(default=1.0)


class Forgetful(Halving):
    """A fit depends on the order of the rows."""

    name: ClassVar[str] = "forgetful"
    fits_from_counts: ClassVar[bool] = False

    def _collect(self, sessions: Any, *arguments: Any, **options: Any) -> Any:
        first = sessions.slice(0, 100) if hasattr(sessions, "slice") else sessions
        return super()._collect(first, *arguments, **options)

    def _estimate(self, data: Any, prior: BetaPrior, history: Counts) -> None:
        super()._estimate(data.counts, prior, history)


@pytest.mark.parametrize(
    ("model", "check", "message"),
    [
        (TwoChances, "sum", "they add to 2.0"),
        (Ordered, "order", "ordered = True, possible = False"),
        (Undescribed, "description", "the setting mystery has no help"),
        (Forgetful, "row_order", "answers["),
    ],
)
def test_a_broken_model_fails_with_a_message_that_helps(
    model: type[rc.ClickModel], check: str, message: str
) -> None:
    with pytest.raises(ConformanceError) as failure:
        check_model(model, only=[check, "seed"])
    assert f"{model.__name__}: 1 checks passed\n  failed {check}: " in str(failure.value)
    assert message in str(failure.value)
    assert (CHECKS[check].__doc__ or "") in str(failure.value)


def test_a_wrong_formula_is_seen_by_the_oracle_alone() -> None:
    def other(model: Any, query: str, ads: Sequence[str]) -> dict[tuple[int, ...], float]:
        return oracle(model.clone().set_params(decline=0.9).fit(LOG), query, ads)

    from reclick.testing.cases import LOG

    assert check_model(Halving, only=QUICK).failed == {}
    with pytest.raises(ConformanceError, match=r"log_prob of Page\(query='r'.*against the oracle"):
        check_model(Halving, oracle=other, only=("oracle",))


# the registry


def test_a_registered_model_is_saved_loaded_evaluated_and_listed(
    registry: ModelRegistry, tmp_path: Any
) -> None:
    rc.register(Halving)
    rc.register(Halving)  # a cell of a notebook that is run again
    log = {"query": ["q"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2], [1]]}
    Halving().fit(log).save(tmp_path / "model")
    assert isinstance(rc.load(tmp_path / "model"), Halving)
    assert list(rc.MODELS)[-1] == "halving"
    assert rc.MODELS["halving"] is Halving
    assert "Halving" in str(
        rc.evaluate(["halving"], train=log, test=log, in_sample=True, resamples=0)
    )


def test_a_model_that_is_not_registered_cannot_be_loaded(tmp_path: Any) -> None:
    log = {"query": ["q"] * 2, "ads": [["a", "b"]] * 2, "clicks": [[1], []]}
    Halving().fit(log).save(tmp_path / "model")
    with pytest.raises(StoreError, match=r"'halving'.*call rc.register first"):
        rc.load(tmp_path / "model")


def test_what_cannot_be_registered(registry: ModelRegistry) -> None:
    def make(**attributes: Any) -> type[rc.ClickModel]:
        return type("Own", (Halving,), attributes)

    for model, message in (
        (dict, "expected a subclass of reclick.ClickModel"),
        (make(name=None), "Own has no name"),
        (make(assumes=3), "Own has no assumes"),
        (make(name="My Model"), "expected lowercase letters"),
        (make(name="ubm"), "A model 'ubm' exists already"),
    ):
        with pytest.raises((UsageError, rc.SettingError), match=message):
            rc.register(model)  # type: ignore[type-var]
    rc.register(Halving)
    with pytest.raises(UsageError, match="A model 'halving' exists already"):
        rc.register(make())


def test_installed_packages_announce_models(
    registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced = [
        EntryPoint(name, f"tests.test_testing:{model}", "reclick.models")
        for name, model in (("halving", "Halving"), ("other", "TwoChances"), ("ubm", "Halving"))
    ]
    monkeypatch.setattr("reclick.models.registry.entry_points", lambda group: announced)
    registry.__dict__.pop("_installed", None)
    assert list(rc.MODELS)[-2:] == ["halving", "other"]
    assert rc.MODELS["halving"].__name__ == "Halving"
    assert rc.MODELS["ubm"] is rc.UBM
    with pytest.raises(UsageError, match="loads TwoChances, whose name is 'two'"):
        rc.MODELS["other"]


def test_an_unknown_model_lists_the_right_ones_and_the_nearest(registry: ModelRegistry) -> None:
    with pytest.raises(UnknownModelError, match=r"one of .*thcm.*\. Did you mean 'ubm'"):
        rc.MODELS["uvm"]
    assert rc.MODELS.get("uvm") is None
    assert "uvm" not in rc.MODELS
    assert len(rc.MODELS) == len(list(rc.MODELS)) >= 17


@pytest.mark.parametrize("name", [["ubm"], None, 3, ("ubm",)], ids=repr)
def test_a_name_that_is_no_text_is_an_unknown_model(name: Any) -> None:
    with pytest.raises(UnknownModelError, match=r"model: got .*, expected one of luceclick"):
        rc.MODELS[name]
    assert name not in rc.MODELS
    log = {"query": ["q"], "ads": [["a"]], "clicks": [[1]]}
    with pytest.raises(UnknownModelError):
        rc.evaluate([name], log, train=log, in_sample=True)


class _Package:
    name = "broken-package"


@pytest.fixture
def broken(registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two installed packages: the module of the first is not there."""
    announced = [
        EntryPoint("broken", "no_such_module:Model", "reclick.models"),
        EntryPoint("halving", "tests.test_testing:Halving", "reclick.models"),
    ]
    vars(announced[0])["dist"] = _Package
    monkeypatch.setattr("reclick.models.registry.entry_points", lambda group: announced)
    registry.__dict__.pop("_installed", None)


def test_a_package_that_cannot_be_loaded_is_named(broken: None) -> None:
    with pytest.raises(
        rc.ReclickError,
        match=r"The model 'broken' of the package broken-package cannot be loaded: its entry point "
        r"'no_such_module:Model' raised ModuleNotFoundError: No module named 'no_such_module'\.",
    ):
        rc.MODELS["broken"]
    assert "broken" in rc.MODELS
    assert rc.MODELS["halving"].__name__ == "Halving"


def test_the_list_of_models_goes_on_after_a_broken_one(
    broken: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reclick.cli.model_commands import models

    monkeypatch.setenv("COLUMNS", "300")
    models(None)
    out = capsys.readouterr().out
    assert "broken: The model 'broken' of the package broken-package cannot be loaded" in out
    assert "examination falls by a constant factor per position" in out


def test_a_model_of_another_package_is_shown_with_its_own_module(
    broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from reclick.cli.model_commands import models

    models("halving")
    out = capsys.readouterr().out
    assert "tests.test_testing.Halving" in out
    assert "reclick.Halving" not in out
    assert "docs/models" not in out


@pytest.mark.parametrize(
    ("only", "got"), [(["sum", "typo"], r"\['typo'\]"), ([], r"\[\]"), ("typo", "typo")]
)
def test_checks_that_do_not_exist_are_refused(only: Any, got: str) -> None:
    with pytest.raises(
        rc.SettingError, match=rf"only: got .*{got}.* expected one or more of .*sum"
    ):
        check_model(Halving, only=only)
    assert check_model(Halving, only="sum").passed == ["sum"]


def test_long_pages_that_are_refused_are_a_skip_with_a_reason() -> None:
    report = check_model(rc.MultiClick, only=["long_pages"])
    assert report.passed == []
    assert "pages of 14 ads are refused by both" in report.skipped["long_pages"]
    assert check_model(Halving, only=["long_pages"]).passed == ["long_pages"]


def test_values_that_make_no_sense_are_refused() -> None:
    log = {"query": ["q"], "ads": [["a", "b"]], "clicks": [[1]]}
    for digits in (400, 5_000):
        with pytest.raises(rc.SettingError, match=r"max_iterations: got .*It is too large"):
            rc.UBM(max_iterations=10**digits)
        with pytest.raises(rc.SettingError, match=r"tolerance: got .*It is too large"):
            rc.UBM(tolerance=-(10**digits))
    with pytest.raises(rc.SettingError, match=r"progress: got 5, expected .*a function"):
        rc.UBM().fit(log, progress=5)  # type: ignore[arg-type]
    model = rc.DCTR().fit(log)
    wrong: list[tuple[str, Any]] = [
        *(("top", value) for value in ("x", 0, 2.5, True)),
        *(("length", value) for value in ("x", 1.5, 1.0, 3, -1, True, [1])),
    ]
    for name, value in wrong:
        with pytest.raises(rc.SettingError, match=f"{name}: got"):
            model.rank_sequences("q", ["a", "b"], **{name: value})
