"""Noise: a component of random clicks for any model. Vectors, brute force, and simulated bots."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.clicks.distribution import Clicks
from reclick.clicks.mixture import MixturePages
from reclick.clicks.noise import NoisePages
from reclick.errors import CannotAnswerError, LogError, UsageError
from reclick.logs import as_log
from reclick.models import DBN, UBM, MultiClick
from reclick.models.noise import HeldOut, Noise, NoiseFit, judge_users, read_users
from reclick.predictor import Predictor, predict
from tests.golden.test_worked_example import pages
from tests.support.click_families import all_sequences, to_clicks

LENGTH = 5


def noise_pages(numbers: list[float], count: int = 1) -> NoisePages:
    """Pages with this distribution of the number of clicks, so many times."""
    share = np.array(numbers)
    stop = share / np.cumsum(share[::-1])[::-1]
    n = len(numbers) - 1
    return NoisePages.build(stop[None], np.arange(count + 1) * n, np.zeros(count, np.int64))


def test_multiclick_with_noise_by_hand() -> None:
    """Noise .1 with P(m) = .2, .5, .2, .1, to the printed digits."""
    expected = {
        (): 0.6491,
        (1,): 0.219306167,
        (2,): 0.052047467,
        (3,): 0.027452267,
        (1, 2): 0.016958117,
        (1, 3): 0.007035617,
        (2, 1): 0.004823561,
        (2, 3): 0.004196988,
        (3, 1): 0.004051231,
        (3, 2): 0.004357865,
        (1, 2, 3): 0.001933383,
        (1, 3, 2): 0.001933383,
        (2, 1, 3): 0.001688439,
        (2, 3, 1): 0.001710212,
        (3, 1, 2): 0.001704769,
        (3, 2, 1): 0.001700535,
    }
    parts = pages("paper", 16), noise_pages([0.2, 0.5, 0.2, 0.1], 16)
    mixed = MixturePages(parts, np.tile([0.9, 0.1], (16, 1)))
    clicks = to_clicks(list(expected))
    np.testing.assert_allclose(
        np.exp(mixed.log_prob(clicks)), list(expected.values()), rtol=0, atol=6e-10
    )
    np.testing.assert_allclose(
        mixed.click_prob()[:3], [0.262845414, 0.093054719, 0.057764690], atol=6e-10
    )
    random = 0.1 * np.exp(parts[1].log_prob(clicks)) / np.exp(mixed.log_prob(clicks))
    assert random[1] == pytest.approx(0.075997255, abs=6e-10)
    assert random[-1] == pytest.approx(0.980083450, abs=6e-10)


def test_random_clicks_are_as_the_sum_over_all_sequences() -> None:
    numbers = [0.3, 0.3, 0.2, 0.15, 0.05]
    sequences = list(all_sequences(4))
    found = noise_pages(numbers, len(sequences))
    chances = np.exp(found.log_prob(to_clicks(sequences)))
    for size in range(5):
        of_size = [p for clicks, p in zip(sequences, chances, strict=True) if len(clicks) == size]
        np.testing.assert_allclose(of_size, numbers[size] / len(of_size), atol=1e-15)
    clicked = [sum(p for c, p in zip(sequences, chances, strict=True) if j in c) for j in (1, 2)]
    np.testing.assert_allclose(noise_pages(numbers).click_prob()[:2], clicked)
    sets = np.exp(found.log_set_prob(to_clicks(sequences)))
    for clicks, p in zip(sequences, sets, strict=True):
        orders = itertools.permutations(clicks)
        assert p == pytest.approx(sum(chances[sequences.index(order)] for order in orders))


def make_world(
    model: Any, sessions: int, seed: int, queries: int = 10
) -> tuple[Any, dict[str, list[Any]]]:
    """A model that is true, and sessions of it."""
    rng = np.random.default_rng(seed)
    log: dict[str, list[Any]] = {
        "query": [f"q{i % queries}" for i in range(sessions)],
        "ads": [rng.permutation(list("abcdefgh"))[:LENGTH].tolist() for _ in range(sessions)],
        "clicks": [[] for _ in range(sessions)],
    }
    truth = model.clone().set_params(max_iterations=1).fit(log)
    truth.theta_ = rng.beta(2, 5, len(truth.theta_))
    if model.name == "dbn":
        truth.rho_ = rng.beta(4, 4, len(truth.rho_))
    else:
        truth.gamma_ = np.triu(np.tile(0.8 ** np.arange(LENGTH), (LENGTH + 1, 1)))
    return truth, {**log, "clicks": truth.sample(log, seed + 1).to_pylist()}


def add_bots(log: dict[str, list[Any]], bots: Any, seed: int) -> dict[str, list[Any]]:
    """Some sessions of a log clicked at random: every position, with one half."""
    rng = np.random.default_rng(seed)
    clicks = list(log["clicks"])
    for i in np.flatnonzero(bots):
        clicks[i] = (rng.permutation(LENGTH)[: rng.binomial(LENGTH, 0.5)] + 1).tolist()
    return {**log, "clicks": clicks}


def biases(model: Any, truth: Any) -> tuple[float, float]:
    return float(np.mean(model.theta_ - truth.theta_)), float(np.mean(model.rho_ - truth.rho_))


class BotFit(NamedTuple):
    """A world with bots: the share of them and what is found, and biases of three fits."""

    bots: float
    found: float
    told_apart: float  # mean P(noise) of bots, less that of the others
    without_bots: tuple[float, float]  # biases of θ and ρ, of a fit to the sessions of no bot
    without_noise: tuple[float, float]
    with_noise: tuple[float, float]


def fit_to_bots(share: float, seed: int) -> BotFit:
    model = DBN(continuation=0.8)
    truth, log = make_world(model, 6000, seed)
    bots = np.random.default_rng(1000 + seed).random(6000) < share
    dirty = add_bots(log, bots, 2000 + seed)
    clean = {name: [column[i] for i in np.flatnonzero(~bots)] for name, column in dirty.items()}
    fits = model.clone().fit(clean), model.clone().fit(dirty)
    with_noise = model.clone().set_params(noise="session").fit(dirty)
    assert with_noise.noise_ is not None
    judged = with_noise.noise_prob(dirty)
    assert judged.mean() == pytest.approx(with_noise.noise_.share, abs=0.005)
    apart = float(judged[bots].mean() - judged[~bots].mean())
    found = (biases(each, truth) for each in (*fits, with_noise))
    return BotFit(float(bots.mean()), with_noise.noise_.share, apart, *found)


@pytest.mark.parametrize(("share", "apart"), [(0.05, 0.4), (0.2, 0.5)])
def test_bots_are_found_and_bias_estimates_less(share: float, apart: float) -> None:
    """Means over three worlds of 6,000 sessions: the share within .02, each within .04.

    θ and ρ are compared with those of a fit to the sessions without the bots, whose own bias is no
    matter of noise: the difference is at most a fifth (θ) or a quarter (ρ) of that without noise.
    """
    worlds = [fit_to_bots(share, seed) for seed in range(3)]
    off = np.array([each.found - each.bots for each in worlds])
    assert abs(off.mean()) < 0.02, worlds
    assert (abs(off) < 0.04).all(), worlds
    assert min(each.told_apart for each in worlds) > apart, worlds
    clean, before, after = (
        np.mean([getattr(each, name) for each in worlds], axis=0)
        for name in ("without_bots", "without_noise", "with_noise")
    )
    assert (abs(after - clean) < abs(before - clean) / [5, 4]).all(), worlds


def test_there_is_no_noise_unless_held_out_sessions_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log itself gains by 20 % of bots; the parts held out are made to lose."""
    model = DBN(continuation=0.8, noise="session", attractiveness_prior="overall")
    _, log = make_world(DBN(continuation=0.8), 1500, 0)
    dirty = add_bots(log, np.random.default_rng(3).random(1500) < 0.2, 1)
    assert model.clone().fit(dirty).noise_.share > 0.1  # type: ignore[union-attr]

    def lose(self: NoiseFit, noise: Noise, fold: HeldOut) -> tuple[Any, Any]:
        gain, weight = measure(self, noise, fold)
        return -abs(gain), weight

    measure = NoiseFit._measure_gain
    monkeypatch.setattr(NoiseFit, "_measure_gain", lose)
    assert model.clone().fit(dirty).noise_.share == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("model", [UBM(), DBN(continuation=0.8)])
def test_where_there_is_no_noise_the_model_is_as_without(model: Any, seed: int) -> None:
    """100 queries: fits to a part of 3,000 sessions are far from the truth."""
    _, log = make_world(model, 3000, seed, queries=100)
    plain, asked = model.clone().fit(log), model.clone().set_params(noise="session").fit(log)
    assert asked.noise_ is not None
    assert asked.noise_.share == 0
    np.testing.assert_allclose(asked.theta_, plain.theta_, atol=1e-9)
    np.testing.assert_allclose(asked.log_set_prob(log), plain.log_set_prob(log), atol=1e-9)
    assert not asked.noise_prob(log).any()


def test_few_bots_are_found_where_pairs_are_rare() -> None:
    """5 % of 6,000 sessions with 100 queries, within .02: EM from a fit to all of them finds 0."""
    worlds = []
    for seed in range(2):
        model = DBN(continuation=0.8)
        _, log = make_world(model, 6000, seed, queries=100)
        bots = np.random.default_rng(1000 + seed).random(6000) < 0.05
        model.set_params(noise="session").fit(add_bots(log, bots, 2000 + seed))
        assert model.noise_ is not None
        worlds.append(model.noise_.share - bots.mean())
    np.testing.assert_allclose(worlds, 0, atol=0.02)


@pytest.fixture(scope="module")
def of_users() -> tuple[Any, dict[str, list[Any]], Any]:
    """300 users of 10 sessions each, 12 % of whom click at random."""
    _, log = make_world(UBM(), 3000, 5)
    user = np.arange(3000) % 300
    bots = (np.random.default_rng(6).random(300) < 0.12)[user]
    dirty = {**add_bots(log, bots, 9), "user": [f"u{each}" for each in user]}
    return UBM(noise="user", max_iterations=50).fit(dirty), dirty, bots


def test_users_who_click_at_random_are_told_from_the_others(of_users: Any) -> None:
    model, log, bots = of_users
    assert model.noise_.user_share == pytest.approx(bots.mean(), abs=0.02)
    judged = model.noise_prob(log)
    assert ((judged > 0.5) == bots).all()
    assert judged[bots].mean() > 0.97
    alone = {name: column for name, column in log.items() if name != "user"}
    with pytest.raises(LogError, match="no column user"):
        model.clone().fit(alone)


def test_a_session_without_a_user_is_one_of_its_own() -> None:
    log = {
        "query": ["q"] * 5,
        "ads": [["a"]] * 5,
        "clicks": [[1], [], [], [], [1]],
        "user": ["u", None, "v", None, "u"],
    }
    read = read_users(as_log(pa.table(log)))
    assert read.user.tolist() == [0, 2, 1, 3, 0]
    assert read.names.to_pylist() == ["u", "v", None, None]


def test_all_sessions_of_a_user_are_held_out_together() -> None:
    user = np.random.default_rng(1).integers(0, 40, 400)
    log = {
        "query": ["q"] * 400,
        "ads": [["a"]] * 400,
        "clicks": [[]] * 400,
        "user": [f"u{each}" for each in user],
        "weight": [2.0] * 400,
    }
    data = read_users(as_log(pa.table(log))).data
    parts = data.fold_weights()
    np.testing.assert_allclose(parts.sum(axis=0), 2.0)
    for one in range(40):
        assert len(np.unique(parts[:, user == one].argmax(axis=0))) == 1
    assert (parts.sum(axis=1) > 100).all()


def test_a_user_is_judged_by_the_share_of_users_and_all_sessions_together() -> None:
    """Log-odds of noise: those of a user, log .05 / .95, and the sum over the sessions."""
    shown = {"query": ["q"] * 3, "ads": [list("abc")] * 3, "user": ["u", "u", "v"]}
    log = {**shown, "clicks": [[1], [1, 2, 3], []]}
    model = UBM(noise="user").fit(log)
    plain = np.exp(model.log_set_prob(log))
    model.noise_ = Noise(0.2, 0.05, np.zeros((4, 4)), np.ones(4), 0.4)
    random = np.array([0.4 * 0.6**2, 0.4**3, 0.6**3])
    odds = 0.05 / 0.95 * random / plain
    both = 0.05 / 0.95 * (random / plain)[:2].prod()
    expected = [both / (1 + both)] * 2 + [odds[2] / (1 + odds[2])]
    found = model.noise_prob(log)
    np.testing.assert_allclose(found, expected)
    table = judge_users(model, as_log(log))
    assert table["sessions"].to_pylist() == [2, 1]
    np.testing.assert_allclose(table["noise_prob"].to_numpy(), expected[1:])


def test_random_clicks_on_a_page_longer_than_any_are_those_of_its_pages() -> None:
    numbers = np.zeros((3, 3))
    numbers[1, :2], numbers[2] = [0.4, 0.6], [0.5, 0.3, 0.2]
    noise = Noise(0.2, None, numbers, np.array([5.0, 3.0, 2.0]), 0.4)
    ads = [list("ab"), list("abcd"), list("abcd"), list("abcd")]
    log = {"query": ["q"] * 4, "ads": ads, "clicks": [[2, 1], [], [3], [4, 1]]}
    model = MultiClick().fit(log)
    (batch,) = as_log(log).batches()
    pages = noise._random_pages(model, batch)(0, 4)
    found = noise.log_prob(np.diff(batch.page), np.diff(batch.clicks), ordered=True)
    np.testing.assert_allclose(found, pages.log_prob(Clicks(batch.click, batch.clicks)))
    assert found[1] > found[2] > found[3]  # as pages of all lengths: 5, 3 and 2 of 10 sessions


def test_predictions_have_the_noise_and_can_leave_it_out(of_users: Any, tmp_path: Path) -> None:
    model, log, bots = of_users
    model.save(tmp_path / "model")
    loaded = rc.load(tmp_path / "model")
    predict(loaded, pa.table(log), tmp_path / "all.parquet", top=0)
    table = pq.read_table(tmp_path / "all.parquet")
    np.testing.assert_allclose(table["noise_prob"].to_numpy(), model.noise_prob(log))
    predict(loaded, pa.table(log), tmp_path / "clean.parquet", top=0, max_noise=0.5)
    clean = pq.read_table(tmp_path / "clean.parquet")
    assert clean.num_rows == (~bots).sum()
    assert model.fit(tmp_path / "clean.parquet").training_counts.total == clean.num_rows
    with pytest.raises(UsageError, match="no component"):
        Predictor(UBM().fit(log), noise=True)
    with pytest.raises(CannotAnswerError, match="noise='session'"):
        UBM().fit(log).noise_prob(log)


@pytest.mark.parametrize("name", ["multiclick", "ubm", "dbn", "luceclick"])
def test_answers_are_those_of_the_mixture(name: str, tmp_path: Path) -> None:
    """The pages of any model: 3 ads, all sequences, and what is saved."""
    log: dict[str, list[Any]] = {
        "query": ["q"] * 6,
        "ads": [list("abc")] * 6,
        "clicks": [[1], [], [2], [1, 2], [1, 3], []],
    }
    model: Any = rc.MODELS[name]().fit(log)
    plain = {name: np.asarray(each) for name, each in answers(model, log).items()}
    numbers = np.zeros((4, 4))
    numbers[3] = [0.2, 0.5, 0.2, 0.1]
    model.noise_ = Noise(0.2, None, numbers, np.ones(4), 0.4)
    ordered = model.ordered
    mixed = answers(model, log)
    sequences = [tuple(each) for each in log["clicks"]]
    random = [
        numbers[3, len(each)] / (len(list(all_of_size(len(each)))))
        if ordered
        else 0.4 ** len(each) * 0.6 ** (3 - len(each))
        for each in sequences
    ]
    np.testing.assert_allclose(mixed["chance"], 0.8 * plain["chance"] + 0.2 * np.array(random))
    # P(click) of random clicks is .4 in both: E(m) / 3 = 1.2 / 3, or the rate of a position.
    np.testing.assert_allclose(mixed["click"], 0.8 * plain["click"] + 0.2 * 0.4)
    if model.satisfaction:
        np.testing.assert_allclose(mixed["satisfied"], 0.8 * plain["satisfied"])
    model.save(tmp_path / "model")
    again = answers(rc.load(tmp_path / "model"), log)
    np.testing.assert_array_equal(again["chance"], mixed["chance"])


def all_of_size(size: int) -> Any:
    return itertools.permutations((1, 2, 3), size)


def answers(model: Any, log: Any) -> dict[str, Any]:
    chance = model.log_prob(log) if model.ordered else model.log_set_prob(log)
    found = {"chance": np.exp(chance), "click": model.click_prob(log)}
    if model.satisfaction:
        found["satisfied"] = model.satisfaction_prob(log)
    return found


@pytest.mark.parametrize("name", ["multiclick", "luceclick"])
def test_an_update_counts_noise_less(name: str) -> None:
    log = {"query": ["q"] * 8, "ads": [list("abc")] * 8, "clicks": [[1], [], [], [1, 2]] * 2}
    model: Any = rc.MODELS[name]().fit(log)
    numbers = np.zeros((4, 4))
    numbers[3] = [0.1, 0.1, 0.1, 0.7]
    model.noise_ = Noise(0.2, None, numbers, np.ones(4), 0.5)
    new = {"query": ["q"] * 3, "ads": [list("abc")] * 3, "clicks": [[3, 2, 1], [1], []]}
    kept = 1 - model.noise_prob(new)
    assert kept[0] < 0.2 < 0.8 < kept[1]
    model.update(new)
    assert model.training_counts.total == pytest.approx(8 + kept.sum())
    assert model.noise_.share == 0.2
    with pytest.raises(UsageError):
        model.update(new)  # seen before
    assert len(MultiClick(noise="session").fit(log).provenance_) == 1
