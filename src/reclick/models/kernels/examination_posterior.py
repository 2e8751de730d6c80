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
from reclick.fitting.posterior import PairPosteriors
from reclick.models.kernels.examination_em import ExaminationCells
from reclick.runtime.jit import kernel
from reclick.runtime.parallel import parallel_map

DROP = 32.0  # the density is nothing at e^-32 of its height
LINEAR = 1e-8  # a tail is an exponential when all else is less than this in the log-density
PANELS = 4  # on each side of the mode
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
PART = 16_384  # pairs worked on at once by one thread


def with_posterior(
    beliefs: PairPosteriors,
    cells: ExaminationCells,
    row: Int64,
    prior: Float64,
    strength: float,
    gamma: Float64,
) -> PairPosteriors:
    """The same beliefs, with intervals of attractiveness from its posterior given γ; that of a pair never seen (row −1) is its prior."""
    belief = beliefs.attractiveness
    means = np.where(row >= 0, prior[np.maximum(row, 0)] if len(prior) else 0.5, belief.value)

    def interval(level: float) -> tuple[Float64, Float64]:
        found = posteriors(cells, row, means, strength, gamma, (0.5 - level / 2, 0.5 + level / 2))
        return found[:, 1].copy(), found[:, 2].copy()

    return beliefs._replace(attractiveness=belief._replace(interval=interval))


def posteriors(
    cells: ExaminationCells,
    row: Int64,
    mean: Float64,
    strength: float,
    gamma: Float64,
    shares: tuple[float, ...] = (),
) -> Float64:
    """The posterior mean of θ of some pairs, and its quantiles at these shares: [row, 1 + share]; `mean` is of their priors."""
    out = np.empty((len(row), 1 + len(shares)))
    work = partial(_part, cells, row, mean, strength, gamma, np.array(shares, np.float64), out)
    list(parallel_map(work, range(0, len(row), PART)))
    return out


def _part(
    cells: ExaminationCells,
    row: Int64,
    mean: Float64,
    strength: float,
    gamma: Float64,
    shares: Float64,
    out: Float64,
    start: int,
) -> None:
    part = slice(start, start + PART)
    _posteriors(
        row[part],
        mean[part],
        strength,
        cells.clicks,
        cells.starts,
        cells.state,
        cells.skips,
        gamma,
        shares,
        out[part],
    )


@kernel
def _posteriors(
    row: Int64, mean: Float64, strength: float, clicks: Float64, starts: Int64, state: Int32, skips: Float64, gamma: Float64, shares: Float64,
    out: Float64,
) -> None:  # fmt: skip
    edges, masses = np.empty(2 * PANELS + 1), np.empty(2 * PANELS + 2)
    for i in range(len(row)):
        a, b = (strength * mean[i], strength * (1.0 - mean[i])) if strength > 0.0 else (1.0, 1.0)
        if row[i] < 0:
            _integrate(a, b, gamma[:0], skips[:0], shares, edges, masses, out[i])
            continue
        first, last = starts[row[i]], starts[row[i] + 1]
        eye = np.empty(last - first)
        for c in range(last - first):
            eye[c] = gamma[state[first + c]]
        _integrate(a + clicks[row[i]], b, eye, skips[first:last], shares, edges, masses, out[i])


@kernel
def _log_density(u: float, a: float, b: float, eye: Float64, skips: Float64) -> float:
    """A log θ + B log(1 − θ) + Σ skips log(1 − γθ), exact at both ends."""
    small = math.exp(-abs(u))
    total = -(a + b) * math.log1p(small) + (a * u if u < 0.0 else -b * u)
    theta, rest = (
        (small / (1.0 + small), 1.0 / (1.0 + small))
        if u < 0.0
        else (1.0 / (1.0 + small), small / (1.0 + small))
    )
    for c in range(len(eye)):
        total += skips[c] * (
            math.log1p(-eye[c] * theta) if u < 0.0 else math.log(1.0 - eye[c] + eye[c] * rest)
        )
    return total


@kernel
def _mode(a: float, b: float, eye: Float64, skips: Float64) -> tuple[float, float]:
    """Where A − B θ/(1−θ) − Σ skips γθ/(1−γθ) is 0, by Newton's method inside a bracket, and about how wide the density is there."""
    low, high = math.log(a) - math.log(b + skips.sum()), math.log(a) - math.log(b)
    u = low
    width = 1.0
    for _ in range(100):
        theta = 1.0 / (1.0 + math.exp(-u)) if u > -700.0 else 0.0
        rest = 1.0 / (1.0 + math.exp(u)) if u < 700.0 else 0.0
        odds = math.exp(min(u, 700.0))
        slope, curve = a - b * odds, b * odds
        for c in range(len(eye)):
            none = 1.0 - eye[c] + eye[c] * rest
            slope -= skips[c] * eye[c] * theta / none
            curve += skips[c] * eye[c] * theta * rest / (none * none)
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


@kernel
def _reach(
    start: float,
    width: float,
    limit: float,
    height: float,
    a: float,
    b: float,
    eye: Float64,
    skips: Float64,
) -> float:
    """How far from the mode the density is nothing, on the side of `limit`, or the limit if that is nearer."""
    side = 1.0 if limit > start else -1.0
    far = abs(limit - start)
    move = min(width, far)
    while move < far and height - _log_density(start + side * move, a, b, eye, skips) < DROP:
        move = min(1.5 * move, far)
    while height - _log_density(start + side * 0.7 * move, a, b, eye, skips) > DROP:
        move *= 0.7
    return start + side * move


@kernel
def _mass(
    low: float, high: float, height: float, a: float, b: float, eye: Float64, skips: Float64
) -> tuple[float, float]:
    """∫ p du and ∫ θ p du from low to high (Gauss-Legendre), p relative to its height."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    mass = moment = 0.0
    for k in range(len(NODES)):
        u = middle + half * NODES[k]
        density = WEIGHTS[k] * math.exp(_log_density(u, a, b, eye, skips) - height)
        mass += density
        moment += density / (1.0 + math.exp(-u))
    return half * mass, half * moment


@kernel
def _integrate(
    a: float,
    b: float,
    eye: Float64,
    skips: Float64,
    shares: Float64,
    edges: Float64,
    masses: Float64,
    out: Float64,
) -> None:
    """Fill out with the mean of θ and its quantiles."""
    total_skips, slack = skips.sum(), 1.0
    for c in range(len(eye)):
        slack = min(slack, max(1.0 - eye[c], 1e-12))
    bottom = math.log(LINEAR) - math.log(1.0 + b + total_skips)  # below, the density is e^(Au)
    top = math.log(1.0 + a + total_skips) - math.log(LINEAR * slack)  # above, e^(−Bu)
    mode, width = _mode(a, b, eye, skips)
    mode = min(max(mode, bottom), top)
    height = _log_density(mode, a, b, eye, skips)
    low = _reach(mode, 8.0 * width, bottom, height, a, b, eye, skips)
    high = _reach(mode, 8.0 * width, top, height, a, b, eye, skips)
    for k in range(PANELS + 1):
        edges[PANELS - k] = (
            mode + (low - mode) * (k / PANELS) ** 1.5
        )  # narrower where the density is
        edges[PANELS + k] = mode + (high - mode) * (k / PANELS) ** 1.5
    masses[0] = math.exp(_log_density(low, a, b, eye, skips) - height) / a
    masses[-1] = math.exp(_log_density(high, a, b, eye, skips) - height) / b
    total, moment = masses[0] + masses[-1], masses[-1]
    for k in range(2 * PANELS):
        masses[k + 1], first = _mass(edges[k], edges[k + 1], height, a, b, eye, skips)
        total += masses[k + 1]
        moment += first
    out[0] = moment / total
    for q in range(len(shares)):
        out[1 + q] = _quantile(shares[q] * total, height, a, b, eye, skips, edges, masses)


@kernel
def _quantile(
    wanted: float,
    height: float,
    a: float,
    b: float,
    eye: Float64,
    skips: Float64,
    edges: Float64,
    masses: Float64,
) -> float:
    """The θ below which there is this mass: in a tail by its formula, else in its panel by Newton's method inside a bracket."""
    if wanted <= masses[0]:
        return math.exp(max(edges[0] + math.log(wanted / masses[0]) / a, -745.0))
    below, k = masses[0], 0
    while k < 2 * PANELS and below + masses[k + 1] < wanted:
        below += masses[k + 1]
        k += 1
    if k == 2 * PANELS:
        left = max(masses[-1] - (wanted - below), 1e-300)
        return 1.0 / (1.0 + math.exp(-min(edges[-1] - math.log(left / masses[-1]) / b, 745.0)))
    low, high = edges[k], edges[k + 1]
    u = low + (high - low) * (wanted - below) / masses[k + 1]
    for _ in range(100):
        over = below + _mass(edges[k], u, height, a, b, eye, skips)[0] - wanted
        if over < 0.0:
            low = u
        else:
            high = u
        density = math.exp(_log_density(u, a, b, eye, skips) - height)
        move = -over / density if density > 0.0 else math.inf
        if abs(move) < 1e-10 * (1.0 + abs(u)) or high - low < 1e-14 * (1.0 + abs(u)):
            break
        u = u + move if low < u + move < high else 0.5 * (low + high)
    return 1.0 / (1.0 + math.exp(-u))
