"""What a fit maximises: the log-likelihood of its own answers plus the log-density of its priors.

Written once more in plain Python, from the pages of docs/models. A fit is where every small change
of a parameter lowers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reclick.models import CCM, CRF, DBN, PBM, POM, UBM, DirectionalScan
from reclick.models.pom import prior_moves
from tests.support.cascades import small_log
from tests.support.enumeration import as_table, random_sessions
from tests.support.oracles import centre, logistic

THETA: dict[str, Any] = {"attractiveness_prior": 0.3, "attractiveness_strength": 3}
CLOSELY: dict[str, Any] = {"max_iterations": 20_000, "tolerance": 1e-12}
LogPrior = Callable[[Any], float]


def beta(values: Iterable[float], mean: float, strength: float) -> float:
    """Log-density of Betas whose mode after c of n is (c + s m) / (n + s)."""
    return sum(
        strength * (mean * math.log(x) + (1 - mean) * math.log(1 - x))
        for x in np.ravel(np.asarray(values)).tolist()
    )


def dbn(model: DBN) -> float:
    clicked = np.asarray(model.training_counts.clicks) > 0
    value = beta(model.theta_, 0.3, 3)
    value += beta(model.rho_[clicked], model.satisfaction_, 1)
    if model.query_initiation_ is None:
        return value + beta([model.initiation_], 0.9, 1)
    assert model.query_continuation_ is not None
    value += beta(model.query_initiation_, model.initiation_, 20)
    return value + beta(model.query_continuation_, model.continuation_, 20)


def ccm(model: CCM) -> float:
    value = beta(model.theta_, 0.3, 3)
    for alpha, mean in zip(model.alpha_, (0.9, 0.8, 0.5), strict=True):
        value += beta([alpha], mean, 10)
    if model.query_initiation_ is not None:
        return value + beta(model.query_initiation_, model.initiation_, 20)
    return value + beta([model.initiation_], 0.9, 1) if model.initiation else value


def scan(model: DirectionalScan) -> float:
    value = beta(model.theta_, 0.3, 3) + beta(model.rho_, 0.1, 3) + beta(model.down_[2:], 0.7, 2)
    for (last, j), gamma in np.ndenumerate(model.gamma_):
        distance = j + 1 - last
        nearest = 0.95 if distance > 0 else 0.5
        value += beta([gamma], nearest * 0.8 ** max(abs(distance) - 1, 0), 5)
    return value


def pom(model: POM) -> float:
    means = prior_moves(model.moves_.shape[1] - 1)
    possible = means > 0
    return beta(model.theta_, 0.3, 3) + 5 * float(
        (means[possible] * np.log(model.moves_[possible])).sum()
    )


def components(model: PBM | UBM) -> float:
    """θ is drawn to its prior where the shift is 0; shifts are normal with deviation 3."""
    centres = [logistic(centre(theta, model)) for theta in model.theta_.tolist()]
    apart = model.shifts_ - model.shifts_.mean()
    return beta(centres, 0.3, 3) - 0.5 * float(apart @ apart) / 9 + examination(model)


def examination(model: PBM | UBM) -> float:
    """γ of the states that were reached."""
    if model.gamma_.ndim == 1:
        return beta(model.gamma_, 0.8, 1)
    upper = [model.gamma_[above, r] for r in range(model.gamma_.shape[1]) for above in range(r + 1)]
    return beta(upper, 0.8, 1)


def crf(model: CRF) -> float:
    """Normal priors: v around the log-odds of the mean, all others around 0."""
    mean = model.prior_mean_
    away = model.position_ - math.log(mean / (1 - mean))
    return -0.5 * float(
        0.5 * model.appeal_ @ model.appeal_
        + 0.01 * away @ away
        + (model.position_pairs_**2).sum()
        + model.kappa_**2
    )


CASES: list[tuple[Any, LogPrior, tuple[str, ...]]] = [
    (
        DBN(continuation=0.8, initiation="one", **THETA, **CLOSELY),
        dbn,
        ("theta_", "rho_", "initiation_"),
    ),
    (
        DBN(continuation="query", initiation="query", **THETA, **CLOSELY),
        dbn,
        ("theta_", "rho_", "query_initiation_", "query_continuation_"),
    ),
    (CCM(**THETA, **CLOSELY), ccm, ("theta_", "alpha_")),
    (CCM(initiation="one", **THETA, **CLOSELY), ccm, ("theta_", "alpha_", "initiation_")),
    (CCM(initiation="query", **THETA, **CLOSELY), ccm, ("theta_", "alpha_", "query_initiation_")),
    (DirectionalScan(**THETA, **CLOSELY), scan, ("theta_", "rho_", "gamma_")),
    (POM(**THETA, **CLOSELY), pom, ("theta_",)),
    (PBM(components=2, examination_prior=0.8, **THETA, **CLOSELY), components, ("gamma_",)),
    (CRF(**CLOSELY), crf, ("position_pairs_",)),
    (UBM(components=3, examination_prior=0.8, **THETA, **CLOSELY), components, ()),
]
LABELS = [f"{each.name} {each.get_params().get('initiation')}" for each, _, _ in CASES]


def log_of(model: Any) -> pa.Table:
    """Every state is reached: pages of three ads, 400 sessions."""
    if model.name in ("pbm", "ubm"):
        sessions = random_sessions(np.random.default_rng(5), 400, longest=3, weights=True)
        return as_table(sessions, weights=True)
    return small_log(11)


@pytest.mark.parametrize(("model", "log_prior", "moved"), CASES, ids=LABELS)
def test_a_fit_is_at_the_top_of_the_log_posterior(
    model: Any, log_prior: LogPrior, moved: tuple[str, ...]
) -> None:
    log = log_of(model)
    fitted = model.clone().fit(log)
    weight = log["weight"].to_numpy()

    def objective() -> float:
        chances = fitted.log_prob(log) if fitted.ordered else fitted.log_set_prob(log)
        return float(weight @ chances) + log_prior(fitted)

    best = objective()
    assert best == pytest.approx(fitted.objective_[-1], abs=2e-5)
    for name in moved:
        value = np.array(getattr(fitted, name), dtype=np.float64)
        for place in list(np.ndindex(value.shape))[:12]:
            changes = []
            for step in (-3e-3, 3e-3):
                changed = value.copy()
                changed[place] = np.clip(changed[place] + step, 1e-9, 1 - 1e-9)
                setattr(fitted, name, changed if value.ndim else float(changed))
                changes.append(objective() - best)
            setattr(fitted, name, value if value.ndim else float(value))
            assert max(changes) < 1e-6, (name, place, changes)


@pytest.mark.parametrize("model", [each for each, _, _ in CASES if each.name != "crf"])
def test_exposure_is_what_the_attractiveness_is_a_share_of(model: Any) -> None:
    """θ = (clicks + s m) / (exposure + s); intervals are of Betas with this strength."""
    fitted = model.clone().fit(log_of(model))
    clicks = np.asarray(fitted.training_counts.clicks)
    shown = np.asarray(fitted.training_counts.impressions)
    share = (clicks + 3 * 0.3) / (fitted.exposure_ + 3)
    if model.name == "ccm":  # a click is tried twice: whether it attracts, and is relevant
        assert (share <= fitted.theta_).all()
        assert (fitted.exposure_ >= 2 * clicks).all()
    elif model.name in ("pbm", "ubm"):  # a mean over components, of which none is this share
        np.testing.assert_allclose(share, fitted.theta_, atol=0.1)
        assert (fitted.exposure_ <= shown + 1e-9).all()
    else:
        np.testing.assert_allclose(share, fitted.theta_, rtol=1e-4)
    assert (fitted.exposure_ >= clicks - 1e-9).all()
