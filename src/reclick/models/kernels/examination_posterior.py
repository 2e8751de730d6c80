"""The posterior of each pair's attractiveness given the examination γ, by quadrature.

With the prior Beta(s m, s (1 − m)), or a flat one when s = 0, the posterior of a pair's θ is

    p(θ) ∝ θ^(s m − 1) (1 − θ)^(s (1 − m) − 1) · θ^clicks · Π over its cells of (1 − γ θ)^skips.

In u = log θ / (1 − θ) it is θ^A (1 − θ)^B Π (1 − γθ)^skips. This has one mode, as its slope divided
by 1 − θ only falls. It is integrated on panels between the mode and where the density vanishes, or
where it is e^(Au) or e^(−Bu) and nothing else: those tails have a closed form.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.fitting.beta import BetaPrior
from reclick.fitting.posterior import PairPosteriors
from reclick.models.kernels.examination_em import ExaminationCells
from reclick.runtime.jit import kernel, subkernel
from reclick.runtime.parallel import parallel_map

LOG_HEIGHT_CUTOFF = 32.0  # the density is negligible at e^-32 of its height
TAIL_TOLERANCE = 1e-8  # a tail is exponential where other terms of the log-density are smaller
PANELS_PER_SIDE = 4  # on each side of the mode
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
PAIRS_PER_CHUNK = 16_384  # pairs worked on at once by one thread


def with_exact_intervals(
    posteriors: PairPosteriors,
    cells: ExaminationCells,
    row: Int64,
    prior: BetaPrior,
    gamma: Float64,
) -> PairPosteriors:
    """The same posteriors, with intervals of the attractiveness given γ.

    The posterior of a pair that is not in the log (row −1) is its prior [row].
    """
    attractiveness = posteriors.attractiveness

    def interval(level: float) -> tuple[Float64, Float64]:
        quantiles = posterior_quantiles(
            cells, row, prior, gamma, (0.5 - level / 2, 0.5 + level / 2)
        )
        return quantiles[:, 1].copy(), quantiles[:, 2].copy()

    return posteriors._replace(attractiveness=attractiveness._replace(interval=interval))


def posterior_quantiles(
    cells: ExaminationCells,
    row: Int64,
    prior: BetaPrior,
    gamma: Float64,
    probabilities: tuple[float, ...] = (),
) -> Float64:
    """The posterior mean of θ of some pairs, and its quantiles [row, 1 + quantile].

    `prior` is that of these pairs [row], `probabilities` are those of the quantiles.
    """
    out = np.empty((len(row), 1 + len(probabilities)))
    work = partial(_fill_chunk, cells, row, prior, gamma, np.array(probabilities, np.float64), out)
    list(parallel_map(work, range(0, len(row), PAIRS_PER_CHUNK)))
    return out


def _fill_chunk(
    cells: ExaminationCells,
    row: Int64,
    prior: BetaPrior,
    gamma: Float64,
    probabilities: Float64,
    out: Float64,
    start: int,
) -> None:
    chunk = slice(start, start + PAIRS_PER_CHUNK)
    _fill_quantiles(
        row[chunk],
        prior.mean[chunk],
        prior.strength[chunk],
        cells.clicks,
        cells.starts,
        cells.state,
        cells.skips,
        gamma,
        probabilities,
        out[chunk],
    )


@kernel
def _fill_quantiles(
    row: Int64, mean: Float64, strength: Float64, clicks: Float64, starts: Int64, state: Int32,
    skips: Float64, gamma: Float64, probabilities: Float64, out: Float64,
) -> None:  # fmt: skip
    edges, masses = np.empty(2 * PANELS_PER_SIDE + 1), np.empty(2 * PANELS_PER_SIDE + 2)
    for i in range(len(row)):
        a, b = 1.0, 1.0
        if strength[i] > 0.0:
            a, b = strength[i] * mean[i], strength[i] * (1.0 - mean[i])
        if row[i] < 0:
            _integrate(a, b, gamma[:0], skips[:0], probabilities, edges, masses, out[i])
            continue
        first, last = starts[row[i]], starts[row[i] + 1]
        examination = np.empty(last - first)
        for c in range(last - first):
            examination[c] = gamma[state[first + c]]
        _integrate(
            a + clicks[row[i]],
            b,
            examination,
            skips[first:last],
            probabilities,
            edges,
            masses,
            out[i],
        )


@subkernel
def _log_density(u: float, a: float, b: float, examination: Float64, skips: Float64) -> float:
    """A log θ + B log(1 − θ) + Σ skips log(1 − γθ), exact at both ends."""
    small = math.exp(-abs(u))
    total = -(a + b) * math.log1p(small) + (a * u if u < 0.0 else -b * u)
    theta, rest = (
        (small / (1.0 + small), 1.0 / (1.0 + small))
        if u < 0.0
        else (1.0 / (1.0 + small), small / (1.0 + small))
    )
    for c in range(len(examination)):
        total += skips[c] * (
            math.log1p(-examination[c] * theta)
            if u < 0.0
            else math.log(1.0 - examination[c] + examination[c] * rest)
        )
    return total


@subkernel
def _mode(a: float, b: float, examination: Float64, skips: Float64) -> tuple[float, float]:
    """The mode in u, and the approximate width of the density there.

    It is where A − B θ/(1−θ) − Σ skips γθ/(1−γθ) = 0, by Newton's method inside a bracket.
    """
    low, high = math.log(a) - math.log(b + skips.sum()), math.log(a) - math.log(b)
    u = low
    width = 1.0
    for _ in range(100):
        theta = 1.0 / (1.0 + math.exp(-u)) if u > -700.0 else 0.0
        rest = 1.0 / (1.0 + math.exp(u)) if u < 700.0 else 0.0
        odds = math.exp(min(u, 700.0))
        slope, curve = a - b * odds, b * odds
        for c in range(len(examination)):
            no_click = 1.0 - examination[c] + examination[c] * rest
            slope -= skips[c] * examination[c] * theta / no_click
            curve += skips[c] * examination[c] * theta * rest / (no_click * no_click)
        width = 1.0 / math.sqrt(max(rest * curve, 1e-300))
        if slope > 0.0:
            low = u
        else:
            high = u
        move = slope / curve if curve > 0.0 else math.inf
        if abs(move) < 0.01 * min(width, 1.0) or high - low < 1e-12 * (1.0 + abs(u)):
            break
        u = u + move if low < u + move < high else 0.5 * (low + high)
    return u, width


@subkernel
def _reach(
    start: float,
    width: float,
    limit: float,
    height: float,
    a: float,
    b: float,
    examination: Float64,
    skips: Float64,
) -> float:
    """Where the density vanishes on the side of `limit`, or the limit if that is nearer."""
    side = 1.0 if limit > start else -1.0
    far = abs(limit - start)
    move = min(width, far)
    while (
        move < far
        and height - _log_density(start + side * move, a, b, examination, skips) < LOG_HEIGHT_CUTOFF
    ):
        move = min(1.5 * move, far)
    while (
        height - _log_density(start + side * 0.7 * move, a, b, examination, skips)
        > LOG_HEIGHT_CUTOFF
    ):
        move *= 0.7
    return start + side * move


@subkernel
def _mass(
    low: float, high: float, height: float, a: float, b: float, examination: Float64, skips: Float64
) -> tuple[float, float]:
    """∫ p du and ∫ θ p du from low to high (Gauss-Legendre), p relative to its height."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    mass = moment = 0.0
    for k in range(len(NODES)):
        u = middle + half * NODES[k]
        density = WEIGHTS[k] * math.exp(_log_density(u, a, b, examination, skips) - height)
        mass += density
        moment += density / (1.0 + math.exp(-u))
    return half * mass, half * moment


@subkernel
def _integrate(
    a: float,
    b: float,
    examination: Float64,
    skips: Float64,
    probabilities: Float64,
    edges: Float64,
    masses: Float64,
    out: Float64,
) -> None:
    """Fill out with the mean of θ and its quantiles."""
    total_skips, slack = skips.sum(), 1.0
    for c in range(len(examination)):
        slack = min(slack, max(1.0 - examination[c], 1e-12))
    bottom = math.log(TAIL_TOLERANCE) - math.log(
        1.0 + b + total_skips
    )  # below, the density is e^(Au)
    top = math.log(1.0 + a + total_skips) - math.log(TAIL_TOLERANCE * slack)  # above, e^(−Bu)
    mode, width = _mode(a, b, examination, skips)
    mode = min(max(mode, bottom), top)
    height = _log_density(mode, a, b, examination, skips)
    low = _reach(mode, 8.0 * width, bottom, height, a, b, examination, skips)
    high = _reach(mode, 8.0 * width, top, height, a, b, examination, skips)
    for k in range(PANELS_PER_SIDE + 1):
        edges[PANELS_PER_SIDE - k] = (
            mode + (low - mode) * (k / PANELS_PER_SIDE) ** 1.5
        )  # narrower where the density is
        edges[PANELS_PER_SIDE + k] = mode + (high - mode) * (k / PANELS_PER_SIDE) ** 1.5
    masses[0] = math.exp(_log_density(low, a, b, examination, skips) - height) / a
    masses[-1] = math.exp(_log_density(high, a, b, examination, skips) - height) / b
    total, moment = masses[0] + masses[-1], masses[-1]
    for k in range(2 * PANELS_PER_SIDE):
        masses[k + 1], first = _mass(edges[k], edges[k + 1], height, a, b, examination, skips)
        total += masses[k + 1]
        moment += first
    out[0] = moment / total
    for q in range(len(probabilities)):
        out[1 + q] = _quantile(
            probabilities[q] * total, height, a, b, examination, skips, edges, masses
        )


@subkernel
def _quantile(
    mass: float,
    height: float,
    a: float,
    b: float,
    examination: Float64,
    skips: Float64,
    edges: Float64,
    masses: Float64,
) -> float:
    """Find the θ below which there is this mass.

    In a tail by its closed form, else in a panel by Newton's method inside a bracket.
    """
    if mass <= masses[0]:
        return math.exp(max(edges[0] + math.log(mass / masses[0]) / a, -745.0))
    below, k = masses[0], 0
    while k < 2 * PANELS_PER_SIDE and below + masses[k + 1] < mass:
        below += masses[k + 1]
        k += 1
    if k == 2 * PANELS_PER_SIDE:
        remaining = max(masses[-1] - (mass - below), 1e-300)
        return 1.0 / (1.0 + math.exp(-min(edges[-1] - math.log(remaining / masses[-1]) / b, 745.0)))
    low, high = edges[k], edges[k + 1]
    u = low + (high - low) * (mass - below) / masses[k + 1]
    for _ in range(100):
        over = below + _mass(edges[k], u, height, a, b, examination, skips)[0] - mass
        if over < 0.0:
            low = u
        else:
            high = u
        density = math.exp(_log_density(u, a, b, examination, skips) - height)
        move = -over / density if density > 0.0 else math.inf
        if abs(move) < 1e-10 * (1.0 + abs(u)) or high - low < 1e-14 * (1.0 + abs(u)):
            break
        u = u + move if low < u + move < high else 0.5 * (low + high)
    return 1.0 / (1.0 + math.exp(-u))
