"""A session click by click: probabilities of the next click and of given clicks, and sampling.

The families differ in the next click only. `next_click` has a branch for each, so that everything
else is compiled once for all of them.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.data.ragged import Array, longest_run, read_only, run_indices, run_sizes
from reclick.runtime.interrupts import hold_interrupts
from reclick.runtime.jit import inline_kernel, kernel, subkernel

# Families as the kernels know them: the four variants of a choice, a chain, a walk of single
# steps, a scan, a walk by a matrix.
PAPER, EXAMINATION, NORMALISED, LUCE, CHAIN, WALK, SCAN, MATRIX_WALK = 0, 1, 2, 3, 4, 5, 6, 7
PLAIN_STEPS = 2  # columns of `steps` without redundancy
IMPOSSIBLE = 1e-300  # a sum of weights below this is too small to divide by


class Clicks(NamedTuple):
    """The clicks of many sessions, one session after another."""

    click: Int32  # [click] positions from 1, in the order clicked
    starts: Int64  # [session + 1] where each session's clicks start

    @property
    def counts(self) -> Int64:
        """The number of clicks [session]."""
        return run_sizes(self.starts)

    @property
    def session(self) -> Int64:
        """The session of each click [click]."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)

    def last(self) -> Int64:
        """The last click, 0 where there is none [session]."""
        out = np.zeros(len(self.starts) - 1, np.int64)
        clicked = self.counts > 0
        out[clicked] = self.click[self.starts[1:][clicked] - 1]
        return out

    def select(self, rows: Int64) -> Clicks:
        """The clicks of some sessions, in this order."""
        index, starts = run_indices(self.starts, rows)
        return Clicks(self.click[index], starts)


class StepTables(NamedTuple):
    """Pages as `next_click` reads them: one or more components, each with its own parameters.

    `stop` and `gamma` are those of a choice; of a chain, `gamma` is P(next click) and `stop` is
    P(end), both by the last click; of a scan, `gamma` is P(examined) and `stop` is P(going down);
    of a walk by a matrix, `gamma` is P(examined next) and `stop` is P(end). `steps` is None where
    no component is a walk or a scan, so that kernels without them are smaller and compile faster.
    """

    family: Int64  # [component, page]
    theta: Float64  # [component, impression]
    rho: Float64  # [component, impression]
    stop: Float64  # [row, clicks so far or last click]
    gamma: Float64  # [row, last, position]
    steps: Float64 | None  # [row, (forward, back)] of a walk, or [row, κ, …] of redundancy
    row: Int64  # [component, page] of stop, gamma and steps
    starts: Int64  # [page + 1]
    weights: Float64  # [page, component] mixing weights

    @property
    def longest(self) -> int:
        """The ads on the longest page."""
        return longest_run(self.starts)


@subkernel
def choice_rates(
    variant: int, weight: float, examined: float, satisfied: float, stop: float
) -> tuple[float, float]:
    """(scale, P(end)) of a choice, where P(next click is j) = scale · θ_j γ_lj.

    weight = Σ θγ and examined = Σ γ over the positions not clicked yet.
    """
    if weight < IMPOSSIBLE:  # all positions are clicked, or none can be
        return 0.0, 1.0
    tired = 0.0 if variant == LUCE else stop
    if variant == PAPER:
        outside = max(0.0, 1.0 - weight)
    elif variant == EXAMINATION:
        outside = max(0.0, examined - weight)
    elif variant == LUCE:
        outside = stop
    else:
        outside = 0.0
    scale = (1.0 - satisfied) * (1.0 - tired) / (outside + weight)
    # A sum, not 1 − Σ: exact when tiny.
    return scale, min(1.0, satisfied + (1.0 - satisfied) * tired + scale * outside)


@subkernel
def walk_visits(
    theta: Float64, forward: float, back: float, last: int, free: Float64, visits: Float64
) -> None:
    """Fill visits[i] with the expected examinations of position i before the next click.

    They come from the start (position 1, or a step from the last click) and from neighbours that
    were examined and not clicked: v_i = s_i + v_{i−1} (1 − θ_{i−1}) forward + v_{i+1} (1 − θ_{i+1})
    back, θ being 0 where clicked already. A tridiagonal system, solved forward and back.
    """
    n = len(theta)
    upper = np.empty(n)
    for i in range(n):
        start = 0.0
        if last == 0:
            start = 1.0 if i == 0 else 0.0
        elif i == last:
            start = forward
        elif i == last - 2:
            start = back
        from_above = (1.0 - theta[i - 1] * free[i - 1]) * forward if i > 0 else 0.0
        from_below = (1.0 - theta[i + 1] * free[i + 1]) * back if i < n - 1 else 0.0
        pivot = 1.0 - from_above * upper[i - 1] if i > 0 else 1.0
        upper[i] = from_below / pivot
        visits[i] = (start + from_above * visits[i - 1]) / pivot if i > 0 else start
    for i in range(n - 2, -1, -1):
        visits[i] += upper[i] * visits[i + 1]


@subkernel
def walk_step(
    theta: Float64, forward: float, back: float, last: int, free: Float64, out: Float64
) -> float:
    """Fill out[j] with P(next click is j) = visits of j · θ_j, and return P(end).

    The walk ends with a step that stops, or that leaves the page at either side.
    """
    n = len(theta)
    walk_visits(theta, forward, back, last, free, out)
    stops = 1.0 - forward - back
    end = 0.0
    if last > 0:
        end = stops + (forward if last == n else 0.0) + (back if last == 1 else 0.0)
    for i in range(n):
        leave = stops + (forward if i == n - 1 else 0.0) + (back if i == 0 else 0.0)
        end += out[i] * (1.0 - theta[i] * free[i]) * leave
        out[i] *= theta[i] * free[i]
    return end


@subkernel
def scan_step(
    theta: Float64,
    rho: Float64,
    first: int,
    size: int,
    gamma: Float64,
    down: float,
    last: int,
    free: Float64,
    out: Float64,
    at: int,
) -> float:
    """Fill out[at + j] with P(next click is j) of a directional scan, and return P(end).

    The page is theta[first : first + size]. From the start every user goes down.
    """
    satisfied_prob = rho[first + last - 1] if last > 0 else 0.0
    below = 1.0 if last == 0 else (1.0 - satisfied_prob) * down  # P(scanning down, no click so far)
    for j in range(last, size):
        rate = theta[first + j] * gamma[j] * free[j]
        out[at + j] = below * rate
        below *= 1.0 - rate
    if last == 0:
        return below
    out[at + last - 1] = 0.0
    above = (1.0 - satisfied_prob) * (1.0 - down)
    for j in range(last - 2, -1, -1):
        rate = theta[first + j] * gamma[j] * free[j]
        out[at + j] = above * rate
        above *= 1.0 - rate
    return satisfied_prob + below + above


@subkernel
def matrix_walk_visits(
    theta: Float64, moves: Float64, last: int, free: Float64, visits: Float64
) -> None:
    """Fill visits[i] with the expected examinations of position i before the next click.

    v_i = V_{last, i} + Σ_j v_j (1 − θ_j) V_{j, i}, θ being 0 where clicked already, and V[last,
    position] the moves. Columns of the system are dominant, so elimination needs no pivots.
    """
    n = len(theta)
    system = np.empty((n, n))
    for i in range(n):
        visits[i] = moves[last, i]
        for j in range(n):
            system[i, j] = -(1.0 - theta[j] * free[j]) * moves[j + 1, i]
        system[i, i] += 1.0
    solve_in_place(system, visits)


@subkernel
def solve_in_place(system: Float64, values: Float64) -> None:
    """Replace the values by the solution of a linear system that needs no pivots."""
    n = len(values)
    for k in range(n):
        for i in range(k + 1, n):
            factor = system[i, k] / system[k, k]
            for j in range(k + 1, n):
                system[i, j] -= factor * system[k, j]
            values[i] -= factor * values[k]
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, n):
            values[k] -= system[k, j] * values[j]
        values[k] /= system[k, k]


@subkernel
def leave_page(moves: Float64, stop: Float64, position: int, size: int) -> float:
    """P(the walk ends after a position): it stops, or goes to a position that the page lacks."""
    leave = float(stop[position])
    for j in range(size, moves.shape[1]):
        leave += moves[position, j]
    return leave


@subkernel
def matrix_walk_step(
    theta: Float64, moves: Float64, stop: Float64, last: int, free: Float64, out: Float64
) -> float:
    """Fill out[j] with P(next click is j) = visits of j · θ_j, and return P(end)."""
    n = len(theta)
    matrix_walk_visits(theta, moves, last, free, out)
    end = leave_page(moves, stop, last, n)
    for i in range(n):
        end += out[i] * (1.0 - theta[i] * free[i]) * leave_page(moves, stop, i + 1, n)
        out[i] *= theta[i] * free[i]
    return end


@inline_kernel
def repeat_factor(steps: Float64, row: int, size: int, j: int, free: Float64) -> float:
    """exp(−κ σ_j), with 1 − σ_j = Π (1 − s_ij) over the positions i clicked so far."""
    kappa, width, factor = steps[row, 0], int(steps[row, 1]), 1.0
    if kappa == 0.0:
        return 1.0
    for i in range(size):
        if free[i] == 0.0:
            factor *= 1.0 - steps[row, PLAIN_STEPS + i * width + j]
    return float(np.exp(-kappa * (1.0 - factor)))


def pack_redundancy(kappa: float, overlap: Float64) -> Float64:
    """κ and the overlap [page, clicked, other] of pages as `steps` [page, …]."""
    pages, width, _ = overlap.shape
    head = np.tile([kappa, float(width)], (pages, 1))
    return np.concatenate([head, overlap.reshape(pages, width * width)], axis=1)


@inline_kernel
def next_click(
    family: int,
    theta: Float64,
    rho: Float64,
    first: int,
    size: int,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: int,
    k: int,
    last: int,
    free: Float64,
    out: Float64,
    at: int,
) -> float:
    """Fill out[at + j] with P(next click is j), 0 for clicked ones, and return P(end).

    The page is theta[first : first + size]; free is 1.0 where not clicked yet, else 0.0.
    """
    if steps is not None:  # numba leaves the branch out where steps is None
        if family == SCAN:
            down, examination = stop[row, last], gamma[row, last]
            return scan_step(theta, rho, first, size, examination, down, last, free, out, at)
        if family == WALK:
            here, there = theta[first : first + size], out[at : at + size]
            return walk_step(here, steps[row, 0], steps[row, 1], last, free, there)
        if family == MATRIX_WALK:
            here, there = theta[first : first + size], out[at : at + size]
            return matrix_walk_step(here, gamma[row], stop[row], last, free, there)
    if family == CHAIN:
        for j in range(size):
            out[at + j] = gamma[row, last, j] * free[j]
        return float(stop[row, last])
    weight = examined = 0.0
    for j in range(size):
        transition = gamma[row, last, j] * free[j]
        out[at + j] = theta[first + j] * transition
        if steps is not None and steps.shape[1] > PLAIN_STEPS and transition > 0.0:
            out[at + j] *= repeat_factor(steps, row, size, j, free)
        weight += out[at + j]
        examined += transition
    satisfied = rho[first + last - 1] if last > 0 else 0.0
    scale, end = choice_rates(family, weight, examined, satisfied, stop[row, k])
    for j in range(size):
        out[at + j] *= scale
    return end


@inline_kernel
def expand_path(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    s: int,
    depth: int,
    last: int,
    free: Float64,
    prefix: Float64,
    chance: Float64,
    onward: Float64,
) -> float:
    """Continue a path of `depth` clicks on page s, and return P(the path, then the end).

    theta and rho have the impressions of all components, one component after another: views of one
    would cost time.

    From prefix[depth, component] = P(component, path), fill chance[depth, component, position] with
    P(next click), and onward[depth, position] with P(the path, then this position).
    """
    components, widest, impressions = prefix.shape[1], onward.shape[1], starts[len(starts) - 1]
    first, size = starts[s], starts[s + 1] - starts[s]
    complete = 0.0
    for t in range(components):
        at = (depth * components + t) * widest
        end = next_click(
            family[t, s], theta, rho, t * impressions + first, size, stop, gamma, steps, row[t, s],
            depth, last, free, chance, at,
        )  # fmt: skip
        complete += prefix[depth, t] * end
        for j in range(size):
            before = onward[depth, j] if t > 0 else 0.0
            onward[depth, j] = before + prefix[depth, t] * chance[at + j]
    return complete


@kernel
def follow_each(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    click: Int32,
    clicks: Int64,
    free: Float64,
    chance: Float64,
    following: Float64,
    end: Float64,
    log_prefix: Float64,
    log_prob: Float64,
) -> None:
    """Follow the clicks of every page, and fill the arrays of `FollowedClicks`. free is all 1."""
    for s in range(len(end)):
        first, size = starts[s], starts[s + 1] - starts[s]
        begin, beyond = clicks[s], clicks[s + 1]
        for c in range(begin, beyond + 1):  # once more than there are clicks
            last = 0
            if c > begin:
                last = click[c - 1]
                chance[c - 1] = following[first + last - 1]
                free[last - 1] = 0.0
            end[s] = next_click(
                family[s], theta, rho, first, size, stop, gamma, steps, row[s],
                c - begin, last, free, following, first,
            )  # fmt: skip
        log_prefix[s] = 0.0
        log_prob[s] = np.log(end[s])
        for c in range(begin, beyond):
            log_prefix[s] += np.log(chance[c])
            log_prob[s] += np.log(chance[c])
            free[click[c] - 1] = 1.0


class FollowedClicks(NamedTuple):
    """Probabilities of the clicks of pages, from the first click to the last."""

    chance: Float64  # [click] P(this click | those before it)
    following: Float64  # [impression] P(next click is here | the clicks)
    end: Float64  # [page] P(the session ends | the clicks)
    log_prefix: Float64  # [page] log P(the first clicks are these, in their order)
    log_prob: Float64  # [page] log P(these are all clicks, in their order)


def follow_clicks(tables: StepTables, clicks: Clicks) -> FollowedClicks:
    """Follow the clicks of each page; the tables have one component."""
    pages, impressions = len(tables.starts) - 1, int(tables.starts[-1])
    path = FollowedClicks(np.empty(len(clicks.click)), np.empty(impressions), *np.empty((3, pages)))
    family, theta, rho, stop, gamma, steps, row, starts, _ = tables
    follow_each(
        family[0], theta[0], rho[0], stop, gamma, steps, row[0], starts,
        read_only(clicks.click), read_only(clicks.starts), np.ones(tables.longest), *path,
    )  # fmt: skip
    return path


@kernel
def _draw_each(
    family: Int64,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    steps: Float64 | None,
    row: Int64,
    starts: Int64,
    rng: np.random.Generator,
    free: Float64,
    chance: Float64,
    click: Int32,
    clicks: Int64,
) -> None:
    """Draw a session for every page. free is all 1."""
    n_clicks = 0
    for s in range(len(family)):
        first, size = starts[s], starts[s + 1] - starts[s]
        last = 0
        for k in range(size):
            next_click(
                family[s], theta, rho, first, size, stop, gamma, steps, row[s],
                k, last, free, chance, 0,
            )  # fmt: skip
            remaining = rng.random()
            j = 0
            while j < size and remaining >= chance[j]:
                remaining -= chance[j]
                j += 1
            if j == size:
                break
            last = j + 1
            free[j] = 0.0
            click[n_clicks] = last
            n_clicks += 1
        for c in range(clicks[s], n_clicks):
            free[click[c] - 1] = 1.0
        clicks[s + 1] = n_clicks


def draw_clicks(tables: StepTables, rng: np.random.Generator) -> Clicks:
    """Draw a session for each page: its component by the mixing weights, then its clicks."""
    pages, impressions = len(tables.starts) - 1, int(tables.starts[-1])
    family, theta, rho, stop, gamma, steps, row, starts, weights = tables
    if weights.shape[1] == 1:
        component_tables = family[0], theta[0], rho[0], stop, gamma, steps, row[0], starts
    else:
        is_later = rng.random(pages)[:, None] > np.cumsum(weights, axis=1)[:, :-1]
        component = is_later.sum(axis=1)
        page = component, np.arange(pages)
        impression = np.repeat(component, np.diff(starts)), np.arange(impressions)
        component_tables = (
            read_only(family[page]), read_only(theta[impression]), read_only(rho[impression]),
            stop, gamma, steps, read_only(row[page]), starts,
        )  # fmt: skip
    click, clicks = np.empty(impressions, np.int32), np.zeros(pages + 1, np.int64)
    longest = tables.longest
    with hold_interrupts():
        _draw_each(*component_tables, rng, np.ones(longest), np.empty(longest), click, clicks)
    return Clicks(click[: clicks[-1]].copy(), clicks)


def kernel_input(array: Array) -> Array:
    """The array, contiguous and read-only, so that kernels compile once, for one array type."""
    return read_only(cast(Array, np.ascontiguousarray(array)))


def single_component(
    family: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    row: Int64,
    starts: Int64,
    steps: Float64 | None = None,
) -> StepTables:
    """The tables of pages that are not mixtures."""
    pages = len(starts) - 1
    return StepTables(
        family=read_only(np.full((1, pages), family)),
        theta=kernel_input(theta)[None],
        rho=kernel_input(rho)[None],
        stop=kernel_input(stop),
        gamma=kernel_input(gamma),
        steps=None if steps is None else read_only(steps),
        row=read_only(row[None]),
        starts=read_only(starts),
        weights=read_only(np.ones((pages, 1))),
    )
