"""BBM: its posterior against numerical integration, from one impression to a hundred thousand, and
its predictions against UBM's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, special, stats

from reclick.data.batch import Float64
from reclick.fitting.beta import BetaPrior
from reclick.models import BBM, UBM
from reclick.models.kernels.examination_em import ExaminationCells
from reclick.models.kernels.examination_posterior import posterior_quantiles
from tests.support.enumeration import Session, as_table, random_sessions

SHARES = (0.05, 0.5, 0.95)


def one_pair(clicks: float, skips: list[float]) -> ExaminationCells:
    starts, state = np.array([0, len(skips)]), np.arange(len(skips), dtype=np.int32)
    return ExaminationCells(
        np.array([clicks]), np.zeros(0), np.zeros(0), starts, state, np.array(skips, np.float64)
    )


def found(
    clicks: float, eyes: list[float], skips: list[float], mean: float, strength: float
) -> Float64:
    """Mean and quantiles."""
    return posterior_quantiles(
        one_pair(clicks, skips),
        np.array([0]),
        BetaPrior(np.array([mean]), np.array([strength])),
        np.array(eyes, np.float64),
        SHARES,
    ).ravel()


def dense(
    clicks: float, eyes: list[float], skips: list[float], mean: float, strength: float
) -> Float64:
    """The same by sums over a hundred thousand points of u = log θ / (1 − θ), around where the
    density is."""
    a, b = (strength * mean + clicks, strength * (1 - mean)) if strength else (1.0 + clicks, 1.0)
    low, high = -40 - 60 / min(a, 1), 40 + 60 / min(b, 1)
    for _ in range(6):
        u = np.linspace(low, high, 100_001)
        log = a * special.log_expit(u) + b * special.log_expit(-u)
        for eye, many in zip(eyes, skips, strict=True):
            log += many * np.log(1 - eye + eye * special.expit(-u))
        inside = np.flatnonzero(log > log.max() - 40)
        low, high = u[max(inside[0] - 1, 0)], u[min(inside[-1] + 1, len(u) - 1)]
    density = np.exp(log - log.max())
    below = integrate.cumulative_simpson(density, x=u, initial=0)
    quantiles = special.expit(np.interp(np.array(SHARES) * below[-1], below, u))
    return np.array([density @ special.expit(u) / density.sum(), *quantiles])


@pytest.mark.parametrize(
    ("mean", "strength"), [(0.3, 3.0), (0.1, 1.0), (0.9, 2.0), (0.5, 0.0), (0.01, 50.0)]
)
@pytest.mark.parametrize("clicks", [0.0, 1.0, 30.0, 50_000.0])
@pytest.mark.parametrize(
    ("eyes", "skips"),
    [
        ([], []),
        ([0.5], [1.0]),
        ([0.02], [1.0]),
        ([1 - 1e-9], [1.0]),
        ([0.9, 0.3], [3.0, 1e5]),
        ([0.999, 0.5, 0.1], [40.0, 1e3, 0.5]),
    ],
)
def test_mean_and_quantiles_equal_dense_sums(
    clicks: float, eyes: list[float], skips: list[float], mean: float, strength: float
) -> None:
    np.testing.assert_allclose(
        found(clicks, eyes, skips, mean, strength),
        dense(clicks, eyes, skips, mean, strength),
        rtol=2e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize(
    ("clicks", "skips"),
    [(0, 1), (1, 0), (1, 1), (3, 1_000), (20_000, 80_000), (99_999, 1), (0, 100_000)],
)
def test_an_ad_that_is_always_looked_at_has_a_beta(clicks: int, skips: int) -> None:
    beta = stats.beta(0.9 + clicks, 2.1 + skips)
    np.testing.assert_allclose(
        found(clicks, [1.0], [float(skips)], 0.3, 3.0), [beta.mean(), *beta.ppf(SHARES)], rtol=1e-7
    )


def test_posterior_of_a_tiny_log_equals_integration_of_its_definition() -> None:
    log = random_sessions(np.random.default_rng(2), 25, ads="abc", queries="qr", longest=3)
    model = BBM(attractiveness_strength=0).fit(as_table(log))  # a flat prior: no singular ends
    table = model.relevance(level=0.5)
    for row in table.to_pylist():
        seen: list[tuple[int, int, bool]] = []
        for s in log:
            last = 0
            for position, ad in enumerate(s.ads, 1):
                if (s.query, ad) == (row["query"], row["ad"]):
                    seen.append((last, position, position in s.clicks))
                last = position if position in s.clicks else last

        def density(x: float, seen: list[tuple[int, int, bool]] = seen) -> float:
            chances = [model.gamma_[last, position - 1] * x for last, position, _ in seen]
            return float(
                np.prod(
                    [
                        chance if clicked else 1 - chance
                        for chance, (_, _, clicked) in zip(chances, seen, strict=True)
                    ]
                )
            )

        whole = integrate.quad(density, 0, 1, epsabs=0)[0]
        assert row["attractiveness"] == pytest.approx(
            integrate.quad(lambda x: x * density(x), 0, 1, epsabs=0)[0] / whole, rel=1e-7
        )
        assert integrate.quad(density, 0, row["attractiveness_low"], epsabs=0)[
            0
        ] / whole == pytest.approx(0.25, abs=1e-7)
        assert integrate.quad(density, row["attractiveness_high"], 1, epsabs=0)[
            0
        ] / whole == pytest.approx(0.25, abs=1e-7)


def test_a_pair_never_seen_has_its_prior() -> None:
    model = BBM(attractiveness_prior=0.2, attractiveness_strength=4.0).fit(
        as_table(random_sessions(np.random.default_rng(3), 30))
    )
    row = model.relevance({"query": ["new"], "ad": ["a"]}).to_pylist()[0]
    assert row["attractiveness"] == 0.2
    bounds = [row["attractiveness_low"], row["attractiveness_high"]]
    assert bounds == pytest.approx(stats.beta(0.8, 3.2).ppf([0.05, 0.95]).tolist(), rel=1e-7)


def test_extreme_priors_stay_finite() -> None:
    for mean, strength in ((1e-6, 1e-6), (1 - 1e-6, 1e-6), (0.5, 1e12), (1e-6, 1e300)):
        for clicks in (0.0, 1.0, 1e9):
            values = found(clicks, [0.5, 1 - 1e-9], [1.0, 1e9], mean, strength)
            assert np.isfinite(values).all()
            assert (np.diff(values[1:]) >= 0).all()
            assert ((values >= 0) & (values <= 1)).all()


def test_a_skip_far_down_says_less_than_a_skip_on_top() -> None:
    top, down = found(0, [0.95], [20.0], 0.3, 3.0), found(0, [0.05], [20.0], 0.3, 3.0)
    assert top[0] < 0.05 < 0.2 < down[0] < 0.3
    assert top[3] - top[1] < down[3] - down[1]


def test_gamma_is_that_of_ubm_and_predictions_use_the_posterior_mean() -> None:
    log = as_table(random_sessions(np.random.default_rng(4), 100))
    bbm, ubm = BBM().fit(log), UBM().fit(log)
    assert np.array_equal(bbm.gamma_, ubm.gamma_)
    means = posterior_quantiles(
        bbm._cells, np.arange(len(bbm.theta_)), bbm._pair_prior(), bbm.gamma_.ravel()
    )[:, 0]
    assert np.array_equal(bbm.theta_, means)
    counts = bbm._pairs.counts
    query, ad = (
        names[codes[0]].as_py()
        for names, codes in ((counts.queries, counts.pair_query), (counts.ads, counts.pair_ad))
    )
    assert np.exp(bbm.log_prob(as_table([Session(query, (ad,), (1,))])))[0] == pytest.approx(
        means[0] * bbm.gamma_[0, 0]
    )


@pytest.mark.parametrize(("many", "tolerance"), [(9_000, 0.15), (60_000, 0.05)])
def test_intervals_cover_what_simulated_sessions_were_made_with(
    many: int, tolerance: float
) -> None:
    """Of 300 pairs, 90 % intervals hold the true θ of 84 to 96 % (γ_1 = 1 settles the scale), with
    90 or with 600 impressions each.

    γ of a rare state is learnt from the θ of highest density, so with few impressions a pair it is
    a little high: 0.15, and 0.05 with more.
    """
    rng = np.random.default_rng(0)
    pages = {
        "query": [f"q{i % 60}" for i in range(many)],
        "ads": [rng.permutation(list("abcde"))[:3].tolist() for _ in range(many)],
    }
    truth = BBM(max_iterations=1).fit({**pages, "clicks": [[]] * many})
    truth.theta_ = rng.beta(0.9, 2.1, len(truth.theta_))
    truth.gamma_ = np.array([[1.0, 0.6, 0.3], [0.0, 0.7, 0.4], [0.0, 0.0, 0.8], [0.0, 0.0, 0.0]])
    learnt = BBM(tolerance=1e-6, max_iterations=2000).fit(
        {**pages, "clicks": truth.sample(pages, 1).to_pylist()}
    )
    table = learnt.relevance()
    low, high = np.array(table["attractiveness_low"]), np.array(table["attractiveness_high"])
    assert 0.84 < ((low <= truth.theta_) & (truth.theta_ <= high)).mean() < 0.96
    np.testing.assert_allclose(
        learnt.gamma_[[0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]],
        [1.0, 0.6, 0.3, 0.7, 0.4, 0.8],
        atol=tolerance,
    )
