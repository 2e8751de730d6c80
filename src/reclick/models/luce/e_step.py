"""What the sessions say under given parameters of LuceClick: one pass, and the steps that climb. The mathematics is told in luceclick.

After k clicks, the last at l, a user of kind t weighs each free position with w_j = θ_j φ_jt e_t(l, j), θ being that of the ad at its position (its
spot), and the end with ω_t(k) f_q; a click satisfies her with the odds of ρ times ς_t. The pass adds up how strongly each parameter was *pulled*,
act · w / Z (act being the chance that the user was still choosing), beside how often it was chosen.
"""

from __future__ import annotations

import numpy as np

from reclick.data.batch import Float64, Int32, Int64
from reclick.models.luce.satisfaction import satisfaction_of
from reclick.runtime.jit import kernel

FLOOR = 1e-12  # weights stay above
SWEEPS = 3  # rounds over the factors of a weight in one step
SMALL = 1e-200  # a product of chances below this goes to the logarithm before it underflows


@kernel
def follow(  # noqa: PLR0912, PLR0915, one loop over the sessions, so that each is in the cache for all its sums
    pair: Int32, page: Int64, click: Int32, clicks: Int64, weight: Float64, query: Int32, spot: Int32,
    theta: Float64, taste: Float64, rho: Float64, loose: Float64, ease: Float64, eye: Float64, out: Float64, spread: Float64, share: Float64,
    pulled: Float64, satisfied: Float64, doubt: Float64, eye_pulled: Float64, eye_chosen: Float64,
    out_pulled: Float64, out_chosen: Float64, query_pulled: Float64, query_chosen: Float64, kind_chosen: Float64, taste_chosen: Float64,
    asked: Float64, ease_chosen: Float64, ease_pulled: Float64,
    known: Float64, chance: Float64, likely: Float64, own: bool, mixed: bool, tasted: bool, eased: bool,
) -> float:  # fmt: skip
    """Add the pulls and choices of all sessions to the statistics, and return their log-likelihood, and what ρ being uncertain adds to it.

    theta [spot], eye [kind, last, position], out [kind, clicks], spread [query] if it is every query's own, else [1], share [query, kind] if mixed,
    else [1, kind], taste [pair, kind] if tasted, ease [kind], asked [pair, kind] if eased. likely [session] gets each log-likelihood where it has
    room, and known what is told of the pairs, in the columns of `Evidence`.
    chance [kind, clicks so far, position + 1] is room for one session; the last column is the end's.
    """
    components, n_most = eye.shape[0], chance.shape[2] - 1
    free, pull, local = np.empty(n_most), np.empty(n_most), np.empty(n_most)
    still = np.empty(
        (components, chance.shape[1])
    )  # [kind, clicks so far] P(the user was choosing | what happened)
    content = np.zeros(
        (components, chance.shape[1])
    )  # [kind, clicks so far] P(satisfied by the last click)
    fitting = (
        len(likely) == 0
    )  # else sessions are scored: one does not tell of ρ, whose mean counts
    belief, doubtful, itself = np.empty(components), np.zeros(components), np.zeros(len(known))
    total = 0.0
    for s in range(len(weight)):
        first, n = page[s], page[s + 1] - page[s]
        begin, many = clicks[s], clicks[s + 1] - clicks[s]
        f = spread[query[s]] if own else spread[0]
        q = query[s] if mixed else 0
        for j in range(n):
            local[j] = theta[spot[first + j]]
            pull[j] = 0.0
        best = -np.inf
        for t in range(components):
            free[:n] = 1.0
            if tasted:
                for j in range(n):
                    local[j] = theta[spot[first + j]] * taste[pair[first + j], t]
            product, logs, last, at = 1.0, 0.0, 0, 0
            for k in range(min(many + 1, n)):
                outside = out[t, k] * f
                z = outside
                for j in range(n):
                    w = local[j] * eye[t, last, j] * free[j]
                    chance[t, k, j] = w
                    z += w
                for j in range(n):
                    chance[t, k, j] /= z
                chance[t, k, n_most] = outside / z
                content[t, k], still[t, k] = 0.0, 1.0
                if (
                    last > 0
                ):  # what is not known of ρ makes what follows the click likelier, or less so
                    at = pair[first + last - 1]
                    c = satisfaction_of(rho[at], ease[t])
                    spare = 0.5 * loose[at] * c * (1.0 - c)
                    content[t, k] = c if fitting else c + spare * (1.0 - 2.0 * c)
                    logs -= spare * fitting
                c = content[t, k]
                if k < many:
                    last = click[begin + k]
                    free[last - 1] = 0.0
                    product *= (1.0 - c) * chance[t, k, last - 1]
                else:
                    leave = (1.0 - c) * chance[t, k, n_most]
                    still[t, k] = leave / (c + leave)
                    product *= c + leave
                    if last > 0 and fitting:
                        no, yes = still[t, k], 1.0 - still[t, k]
                        doubtful[t] = yes * no
                        logs += 0.5 * loose[at] * yes * no
                        still[t, k] -= 0.5 * loose[at] * yes * no * (no - yes)
                if product < SMALL:
                    logs += np.log(max(product, 1e-300))
                    product = 1.0
            belief[t] = logs + np.log(product) + np.log(share[q, t])
            best = max(best, belief[t])
        sum_ = 0.0
        for t in range(components):
            belief[t] = np.exp(belief[t] - best)
            sum_ += belief[t]
        found = best + np.log(sum_)
        total += weight[s] * found
        if len(likely) > 0:
            likely[s] = found
        for t in range(components):
            mass = weight[s] * belief[t] / sum_
            if components > 1:
                kind_chosen[q, t] += mass
            last = 0
            for k in range(min(many + 1, n)):
                act = mass * still[t, k]
                if eased and last > 0:
                    at, c = pair[first + last - 1], content[t, k]
                    asked[at, t] += mass
                    ease_pulled[t] += mass * (c + 0.5 * loose[at] * c * (1.0 - c) * (1.0 - 2.0 * c))
                for j in range(n):
                    v = act * chance[t, k, j]
                    pull[j] += v
                    eye_pulled[t, last, j] += v
                out_pulled[t, k] += act * chance[t, k, n_most]
                if len(known) > 0:
                    c, end = content[t, k], chance[t, k, n_most]
                    over = c + (1.0 - c) * end
                    # Whether an end was chosen, or the user satisfied, is not seen: comparisons with the end tell less, of ads with each other more.
                    hidden = 1.0 + (end * c / over if over > 0.0 else 0.0)
                    for j in range(n):
                        itself[pair[first + j]] += chance[
                            t, k, j
                        ]  # an ad that stands there twice is not compared with itself
                    for j in range(n):
                        at, v = pair[first + j], chance[t, k, j]
                        known[at, t * tasted] += act * v * (1.0 - hidden * (1.0 - end))
                        known[at, known.shape[1] // 2 + t * tasted] += (
                            act * v * hidden * (1.0 - end - itself[at])
                        )
                    for j in range(n):
                        itself[pair[first + j]] = 0.0
                if own:
                    query_pulled[query[s]] += act * chance[t, k, n_most]
                if k < many:
                    eye_chosen[t, last, click[begin + k] - 1] += mass
                    last = click[begin + k]
                    if tasted:
                        taste_chosen[pair[first + last - 1], t] += mass
                else:
                    out_chosen[t, k] += act
                    if own:
                        query_chosen[query[s]] += act
                    if last > 0:
                        at = pair[first + last - 1]
                        satisfied[at] += mass - act
                        doubt[at] += mass * doubtful[t]
                        ease_chosen[t] += (mass - act) * eased
            if tasted or t == components - 1:
                for j in range(n):
                    pulled[spot[first + j], t * tasted] += pull[j]
                    pull[j] = 0.0
    return total


@kernel
def raise_weights(
    value: Float64, chosen: Float64, pulled: Float64, strength: Float64, rate: Float64
) -> Float64:
    """The next value of weights x that stand in a product of two: the root y of chosen + s − pulled y² − rate x y = 0, times x.

    The prior is worth s log x − rate x (a Gamma of mean s / rate). Of a product of two the logarithm is worth `chosen`, and its weight costs at most
    pulled (y² + z²) / 2 where its factors move by y and z: so the objective cannot fall.
    """
    new = np.empty(len(value))
    for i in range(len(value)):
        new[i] = _raised(value[i], chosen[i], pulled[i], strength[i], rate[i])
    return new


@kernel
def _raised(x: float, chosen: float, pulled: float, strength: float, rate: float) -> float:
    b, c = rate * x, chosen + strength
    if c == 0.0:
        return FLOOR if pulled > 0.0 or b > 0.0 else x
    if pulled > 1e-300:
        return float(max(x * 2.0 * c / (b + np.sqrt(b * b + 4.0 * pulled * c)), FLOOR))
    return max(x * c / b, FLOOR) if b > 0.0 else x


@kernel
def raise_tastes(
    theta: Float64,
    taste: Float64,
    chosen: Float64,
    pulled: Float64,
    strength: Float64,
    rate: Float64,
    component_appeal_strength: Float64,
    taste_rate: Float64,
) -> tuple[Float64, Float64]:
    """The next θ [pair] and φ [pair, kind]: as raise_weights, of weights θ φ, where the one moves by how far the other has moved so far."""
    new, tastes = theta.copy(), taste.copy()
    for i in range(len(theta)):
        total = chosen[i].sum()
        for _ in range(SWEEPS):
            demand = 0.0
            for t in range(taste.shape[1]):
                demand += pulled[i, t] * (tastes[i, t] / taste[i, t]) ** 2
            new[i] = _raised(theta[i], total, demand, strength[i], rate[i])
            moved = (new[i] / theta[i]) ** 2
            for t in range(taste.shape[1]):
                tastes[i, t] = _raised(
                    taste[i, t],
                    chosen[i, t],
                    pulled[i, t] * moved,
                    component_appeal_strength[i, t],
                    taste_rate[i, t],
                )
    return new, tastes


@kernel
def raise_worth(
    worth: Float64,
    of_query: Int64,
    size: int,
    chosen: Float64,
    pulled: Float64,
    moved: Float64,
    pair: Int64,
    exposure: Float64,
    strength: float,
) -> Float64:
    """The next worth of positions to queries [: size] and to ads [size :, a spot each]: as raise_weights, the one by how far the other has moved.

    of_query, pair, chosen and pulled [spot, kind] are of spots; moved [pair, kind] is how far θ and tastes have moved so far, and a unit of a spot's
    worth was pulled by `exposure` [spot] before these sessions.
    """
    new, many = worth.copy(), len(of_query)
    demand, wanted, asked = np.empty(many), np.zeros(size), np.empty(size)
    for i in range(many):
        demand[i] = exposure[i] * worth[of_query[i]] * worth[size + i]
        wanted[of_query[i]] += chosen[i]
        for t in range(pulled.shape[1]):
            demand[i] += pulled[i, t] * moved[pair[i], t] ** 2
    for _ in range(SWEEPS):
        asked[:] = 0.0
        for i in range(many):
            asked[of_query[i]] += demand[i] * (new[size + i] / worth[size + i]) ** 2
        for q in range(size):
            new[q] = _raised(worth[q], wanted[q], asked[q], strength, strength)
        for i in range(many):
            far = new[of_query[i]] / worth[of_query[i]]
            new[size + i] = _raised(
                worth[size + i], chosen[i], demand[i] * far * far, strength, strength
            )
    return new


@kernel
def leap(first: Float64, second: Float64, third: Float64, weight: Float64) -> tuple[float, float]:
    """Squared lengths of a step and of the change between two steps, on the scale of logarithms, each parameter counting by its weight."""
    step = bend = 0.0
    for i in range(len(first)):
        if first[i] == second[i] == third[i]:
            continue
        r = np.log(second[i] / first[i])
        v = np.log(third[i] / second[i]) - r
        step += weight[i] * r * r
        bend += weight[i] * v * v
    return step, bend


@kernel
def land(first: Float64, second: Float64, third: Float64, far: float, ceiling: float) -> Float64:
    """Extrapolate: first · exp(2 a r + a² v), where two steps would lead if they went on to their limit (SQUAREM); a = far, and 1 is the third."""
    out = first.copy()
    for i in range(len(first)):
        if first[i] == second[i] == third[i]:
            continue
        r = np.log(second[i] / first[i])
        v = np.log(third[i] / second[i]) - r
        out[i] = min(
            max(first[i] * np.exp(min(max(2.0 * far * r + far * far * v, -5.0), 5.0)), FLOOR),
            ceiling,
        )
    return out


@kernel
def marks(pair: Int32, page: Int64, click: Int32, clicks: Int64) -> Int64:
    """A number [session] from 0 to 2³¹ − 1 that looks drawn at random but follows from the pairs shown and the clicks in their order."""
    out = np.empty(len(page) - 1, np.int64)
    for s in range(len(out)):
        h = np.uint64(0x9E3779B97F4A7C15)
        for i in range(page[s], page[s + 1]):
            h = (h ^ np.uint64(pair[i] + 1)) * np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(29)
        for c in range(clicks[s], clicks[s + 1]):
            h = (h ^ np.uint64(click[c] + 0x10000)) * np.uint64(0x94D049BB133111EB)
            h ^= h >> np.uint64(32)
        out[s] = np.int64(h >> np.uint64(33))
    return out
