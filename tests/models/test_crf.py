"""CRF: the worked example, slopes by differences, the maximum, recovery, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reclick.clicks.distribution import Clicks
from reclick.data.batch import Float64
from reclick.engines import as_grouped
from reclick.errors import CannotAnswerError, LogError
from reclick.models import CRF, load
from reclick.models.crf import CRFBlock, CRFPages, CRFParameters, e_step, summarise_pages
from reclick.text.similarity import AdSimilarity
from tests.support.enumeration import as_table, random_sessions

LIKE = np.array([[1, 0.6, 0.1], [0.6, 1, 0.3], [0.1, 0.3, 1]])
SETS = {
    (): 0.316434,
    (1,): 0.316434,
    (2,): 0.135614571,
    (3,): 0.0791085,
    (1, 2): 0.05513677,
    (1, 3): 0.068089317,
    (2, 3): 0.021617917,
    (1, 2, 3): 0.007564925,
}


def the_pages(redundancy: float = 1.5) -> CRFPages:
    chance = np.array([0.5, 0.3, 0.2])
    odds = np.log(chance / (1 - chance))
    return CRFPages(
        odds,
        np.zeros(3),
        np.zeros((3, 3)),
        redundancy,
        LIKE.ravel(),
        np.array([0, 3]),
        np.array([0, 9]),
    )


def clicks_of(*positions: int) -> Clicks:
    return Clicks(np.array(positions, np.int32), np.array([0, len(positions)]))


def test_sets_have_the_probabilities_of_the_worked_example() -> None:
    pages = the_pages()
    for clicks, expected in SETS.items():
        assert np.exp(pages.log_prob(clicks_of(*clicks)))[0] == pytest.approx(expected, abs=6e-10)
    np.testing.assert_allclose(
        pages.click_prob(), [0.447225012, 0.219934184, 0.176380659], atol=6e-10
    )
    following, end = pages.next_click_prob(clicks_of(1, 2))
    assert following[2] == pytest.approx(0.120649453, abs=6e-10)
    assert end[0] == pytest.approx(1 - following[2])


def test_the_normaliser_and_the_slope_of_kappa_are_those_of_the_worked_example() -> None:
    """Clicks {1, 2}: log P = log-odds − log Z, and d log P / dκ = E[Σ s] − s_12."""
    appeal, log_normaliser = the_pages().appeal, 1.150640591
    block = CRFBlock(
        first_pair=0,
        n_pairs=3,
        pair=np.arange(3, dtype=np.int32),
        page=np.array([0, 3]),
        weight=np.ones(1),
        similarity=LIKE.ravel(),
        clicks=np.array([1.0, 1.0, 0.0]),
        by_position=np.array([1.0, 1.0, 0.0]),
        by_pairs=np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        by_similarity=0.6,
    )
    found = e_step(CRFParameters(appeal, np.zeros(3), np.zeros((3, 3)), np.array([1.5])), block)
    expected = appeal[:2].sum() - 1.5 * 0.6 - log_normaliser
    assert found.log_likelihood == pytest.approx(expected, abs=6e-10)
    assert found.totals["similarity"][0] == pytest.approx(-0.546058706, abs=6e-10)


def test_without_similarity_clicks_are_independent() -> None:
    np.testing.assert_allclose(the_pages(redundancy=0).click_prob(), [0.5, 0.3, 0.2])


def small_log(seed: int, longest: int = 4) -> Any:
    return as_table(random_sessions(np.random.default_rng(seed), 60, longest=longest))


def test_slopes_are_those_of_the_log_likelihood() -> None:
    sessions = as_grouped(small_log(1))
    rng, counts = np.random.default_rng(2), sessions.counts
    n, ads = sessions.max_ads, len(counts.ads)
    words = np.sort(rng.integers(0, 5, (ads, 2)), axis=1) + np.array([0, 5])
    similarity = AdSimilarity(np.arange(0, 2 * ads + 1, 2), words.ravel().astype(np.int32))
    block = summarise_pages(
        sessions.whole, similarity=similarity, pair_ad=counts.pair_ad, longest=n
    )
    point = CRFParameters(
        rng.normal(size=len(counts.impressions)),
        rng.normal(size=n),
        np.triu(rng.normal(size=(n, n)), 1),
        rng.normal(size=1),
    )
    found = e_step(point, block)
    slope = CRFParameters(
        found.pairs["appeal"],
        found.totals["position"],
        found.totals["pairs"],
        found.totals["similarity"],
    )

    def value(vector: Float64) -> float:
        return e_step(point.unflatten(vector), block).log_likelihood

    at, step = point.flatten(), 1e-5
    for i in (0, 3, len(point.appeal), len(point.appeal) + 1, len(at) - 1, *range(-n * n, -1)):
        bump = np.zeros(len(at))
        bump[i] = step
        numeric = (value(at + bump) - value(at - bump)) / (2 * step)
        assert slope.flatten()[i] == pytest.approx(numeric, abs=1e-6)


def test_the_likelihood_is_that_of_the_model_it_makes() -> None:
    log = small_log(5)
    model = CRF(tolerance=1e-12, max_iterations=2000).fit(log)
    sessions = as_grouped(log)
    point = CRFParameters(
        model.appeal_, model.position_, model.position_pairs_, np.array([model.kappa_])
    )
    nothing = AdSimilarity.of(sessions.counts.ads, None)
    block = summarise_pages(
        sessions.whole,
        similarity=nothing,
        pair_ad=sessions.counts.pair_ad,
        longest=sessions.max_ads,
    )
    found = e_step(point, block)
    assert found.log_likelihood == pytest.approx(model.log_set_prob(log).sum(), rel=1e-10)
    np.testing.assert_allclose(found.pairs["appeal"], 0.5 * model.appeal_, atol=1e-4)
    assert (np.diff(model.objective_) >= 0).all()
    assert model.converged_


def jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def test_effects_of_pairs_and_of_similarity_are_recovered() -> None:
    """Tolerance: .2 for W, .3 for κ; 30,000 sessions of three of six ads, two by two alike."""
    rng = np.random.default_rng(3)
    names = ["a1", "a2", "b1", "b2", "c1", "c2"]
    text = {"a": "red shoes", "b": "blue boots", "c": "green hats"}
    ads = {name: f"{text[name[0]]} {name[1]}shop" for name in names}
    pages = [rng.choice(names, 3, replace=False).tolist() for _ in range(30_000)]
    appeal = dict(zip(names, rng.normal(0, 0.5, 6), strict=True))
    position, kappa = np.array([0.2, -0.5, -1.0]), 1.5
    pairs = np.array([[0, 0.4, 0.2], [0, 0, 0.6], [0, 0, 0.0]])
    words = {name: set(ads[name].split()) for name in names}
    clicks = []
    for page in pages:
        like = np.array(
            [[len(words[x] & words[y]) / len(words[x] | words[y]) for y in page] for x in page]
        )
        one = CRFPages(
            np.array([appeal[ad] for ad in page]),
            position,
            pairs,
            kappa,
            like.ravel(),
            np.array([0, 3]),
            np.array([0, 9]),
        )
        clicks.append(one.sample(rng).click.tolist())
    log = {"query": ["q"] * len(pages), "ads": pages, "clicks": clicks}
    model = CRF(interaction_precision=0.01).fit(log, ads=ads)
    np.testing.assert_allclose(
        model.position_pairs_[np.triu_indices(3, 1)], [0.4, 0.2, 0.6], atol=0.2
    )
    assert model.kappa_ == pytest.approx(kappa, abs=0.3)
    without = CRF(similarity=None).fit(log, ads=ads)
    assert without.kappa_ == 0
    assert model.log_set_prob(log).mean() > without.log_set_prob(log).mean()


def test_the_information_of_a_pair_is_that_of_its_sessions_and_its_prior() -> None:
    """Pages of one ad: each session has θ (1 − θ), the prior 0.5."""
    log = {"query": ["q"] * 40, "ads": [["a"]] * 30 + [["b"]] * 10, "clicks": [[1], []] * 20}
    model = CRF(tolerance=1e-12).fit(log)
    theta = model.theta_
    sessions = np.array([30, 10])[np.argsort(model.training_counts.ads.to_pylist())]
    np.testing.assert_allclose(model.information_, 0.5 + sessions * theta * (1 - theta))
    low, high = (model.relevance()[f"attractiveness_{end}"].to_numpy() for end in ("low", "high"))
    assert (high - low)[0] < (high - low)[1]


def test_a_saved_model_answers_the_same(tmp_path: Path) -> None:
    log = small_log(7)
    model = CRF().fit(log)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").log_set_prob(log), model.log_set_prob(log)
    )


def test_positions_never_shown_are_as_the_last_one() -> None:
    log = {"query": ["q"] * 6, "ads": [["a", "b"]] * 6, "clicks": [[1], [2], [], [], [1, 2], [1]]}
    model = CRF().fit(log)
    model.position_pairs_ = np.zeros((2, 2))
    chances = model.click_prob(("q", ["a", "b", "a", "a"]))[0]
    a, b = (model.appeal_[model.training_counts.ads.to_pylist().index(ad)] for ad in "ab")
    odds = np.array([a, b, a, a]) + model.position_[[0, 1, 1, 1]]
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-odds)))


def test_longer_pages_are_refused_with_the_reason() -> None:
    page = {"query": ["q"], "ads": [[f"a{i}" for i in range(13)]], "clicks": [[1]]}
    with pytest.raises(LogError, match="a page of 13 ads: CRF sums over all sets"):
        CRF().fit(page)
    with pytest.raises(CannotAnswerError, match="13 ads: exact up to 12"):
        CRF().fit(small_log(1)).click_prob(page)


def test_an_unseen_ad_has_the_odds_of_its_position_however_extreme() -> None:
    """Odds that no probability kept away from 0 can hold."""
    model = CRF().fit({"query": ["q"], "ads": [["a"]], "clicks": [[1]]}, progress=False)
    model.position_ = np.array([-30.0])
    chance = np.exp(model.log_prob({"query": ["q"] * 2, "ads": [["x"]] * 2, "clicks": [[], [1]]}))
    assert np.log(chance[1]) - np.log(chance[0]) == pytest.approx(-30.0)


def test_all_iterations_may_run_though_steps_vanish() -> None:
    """At the optimum a step of L-BFGS moves nothing: its curvature is 0."""
    log = {"query": ["q"] * 6, "ads": [["a", "b"]] * 6, "clicks": [[1], [1, 2], [], [2], [1], []]}
    precise = CRF(tolerance=1e-12).fit(log)
    model = CRF(tolerance=0, max_iterations=2_000).fit(log)
    assert not model.converged_
    np.testing.assert_allclose(model.theta_, precise.theta_, rtol=1e-6)
