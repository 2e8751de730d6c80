"""Click sequences of one page under sequential choice: the kernels. reclick.pages runs them over many pages.

Two more codes are for models without such a product. CHAIN: gamma[l, j] itself is P(next click is j) after one at l, for j below l only, so
clicks go down the page (theta = 1, rho = 0); marginals need no sets then, and pages may have any length. WALK: the eye steps forward or
back from position to position until it clicks or stops.

State: k clicks so far, the last at position l (0 = start), some positions clicked. The next click is at free position j with
P(j) = go · w_j / (outside + Σ w), w_j = θ_j γ_lj over free j; the rest ends the session. A reading says what "go" and "outside" are.

The parameters of a page, in this order everywhere:
    reading  a code of READINGS
    theta    [position] attractiveness;  rho  [position] satisfaction
    stop     [clicks so far] fatigue η, or the outside weight ω of "luce"; for WALK the chances of a step forward and of one back;
             for CHAIN P(end) after each last click, 0 = start
    gamma    [last, position] where the eye goes; row 0 is the start; γ_ll is any finite number, never used
The page's length is len(theta): stop and gamma may be longer, what lies beyond the page is not read.
Positions are from 1 in clicks and sequences, and index j - 1 in arrays. Clicks must be on the page: the caller has checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reclick.compiled import compiled

if TYPE_CHECKING:
    from reclick.batch import Float64, Int32, Int64

READINGS = {"leftover": 0, "examination": 1, "normalised": 2, "luce": 3}
LEFTOVER, EXAMINATION, NORMALISED, LUCE, CHAIN, WALK = 0, 1, 2, 3, 4, 5  # plain numbers, for the kernels
MAX_EXACT = 12  # ads on a page, for exact marginals: 2^12 sets of clicks
MAX_SET = 16  # clicks in a session, for the exact probability of a set: 2^16 subsets
MAX_NODES = 5_000_000  # prefixes looked at in the search for the most likely sequences: about half a second
MAX_RANKED = 1_000_000  # sequences of one length, for the exact rank of one of them: some tenths of a second at the worst
TIE = 1e-9  # probabilities that differ by no more than this share of the greater one are tied, so that rounding breaks no tie
ANY_LENGTH = -1


@compiled
def _share(reading: int, weight: float, sight: float, satisfied: float, stop: float) -> tuple[float, float]:
    """Say what a reading means: (share, P(end)), where P(j) = share · w_j, weight = Σ θγ and sight = Σ γ over free positions."""
    if weight < 1e-300:  # all clicked, 0/0, or too little to divide by: nothing left to click
        return 0.0, 1.0
    tired = 0.0 if reading == LUCE else stop
    go = (1.0 - satisfied) * (1.0 - tired)
    if reading == LEFTOVER:
        outside = max(0.0, 1.0 - weight)
    elif reading == EXAMINATION:
        outside = max(0.0, sight - weight)
    elif reading == LUCE:
        outside = stop
    else:
        outside = 0.0
    share = go / (outside + weight)
    return share, min(1.0, satisfied + (1.0 - satisfied) * tired + share * outside)  # a sum, not 1 − Σ: exact when tiny


@compiled
def walk_visits(theta: Float64, forward: float, back: float, last: int, free: Float64, visits: Float64) -> None:
    """Fill visits[i] with the expected looks at position i before the next click, for an eye that steps forward or back, or stops.

    Looks come from the start (position 1, or a step from the last click) and from looks next door that led to no click:
    v_i = s_i + v_{i−1} (1 − θ_{i−1}) α + v_{i+1} (1 − θ_{i+1}) γ, θ being 0 where clicked already: a band of three, solved there and back.
    """
    n = len(theta)
    upper = np.empty(n)
    for i in range(n):
        start = 1.0 if last == 0 and i == 0 else forward if last > 0 and i == last else back if last > 0 and i == last - 2 else 0.0
        from_left = (1.0 - theta[i - 1] * free[i - 1]) * forward if i > 0 else 0.0
        from_right = (1.0 - theta[i + 1] * free[i + 1]) * back if i < n - 1 else 0.0
        pivot = 1.0 - from_left * upper[i - 1] if i > 0 else 1.0
        upper[i] = from_right / pivot
        visits[i] = (start + from_left * visits[i - 1]) / pivot if i > 0 else start
    for i in range(n - 2, -1, -1):
        visits[i] += upper[i] * visits[i + 1]


@compiled
def walk_step(theta: Float64, forward: float, back: float, last: int, free: Float64, out: Float64) -> float:
    """Fill out[j] with P(next click is j) = looks at j · θ_j, and return P(end): the steps that stop, or leave the page at either side."""
    n = len(theta)
    walk_visits(theta, forward, back, last, free, out)
    stops = 1.0 - forward - back
    end = 0.0 if last == 0 else stops + (forward if last == n else 0.0) + (back if last == 1 else 0.0)
    for i in range(n):
        leave = stops + (forward if i == n - 1 else 0.0) + (back if i == 0 else 0.0)
        end += out[i] * (1.0 - theta[i] * free[i]) * leave
        out[i] *= theta[i] * free[i]
    return end


@compiled
def walk_marginals(theta: Float64, forward: float, back: float, out: Float64) -> None:
    """Fill out with P(position is ever clicked) = reach θ / (1 − (1 − θ) return): the walk does not heed the clicks, each look may click anew."""
    n = len(theta)
    rise = 0.0  # P(from here the eye comes to the position above)
    for i in range(n - 1, 0, -1):
        rise = back / (1.0 - forward * rise)
        out[i - 1] = forward * rise  # a return by way of the ads below; there is none below the last
    out[n - 1] = 0.0
    reach, fall = 1.0, 0.0  # P(the eye comes here), P(it comes here from the position above)
    for i in range(n):
        again = out[i] + back * fall
        out[i] = reach * theta[i] / (1.0 - (1.0 - theta[i]) * again)
        fall = forward / (1.0 - back * fall)
        reach *= fall


@compiled
def step(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, k: int, last: int, free: Float64, out: Float64) -> float:
    """Fill out[j] with P(next click is j), 0 for clicked ones, and return P(end). free is 1.0 where not clicked yet, else 0.0."""
    if reading == WALK:
        return walk_step(theta, stop[0], stop[1], last, free, out)
    if reading == CHAIN:
        for j in range(len(theta)):
            out[j] = gamma[last, j] * free[j]
        return float(stop[last])
    weight = sight = 0.0
    for j in range(len(theta)):
        eye = gamma[last, j] * free[j]
        out[j] = theta[j] * eye
        weight += out[j]
        sight += eye
    share, end = _share(reading, weight, sight, rho[last - 1] if last > 0 else 0.0, stop[k])
    for j in range(len(theta)):
        out[j] *= share
    return end


@compiled
def _walk(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32, chances: Float64, out: Float64) -> float:
    """Follow the clicks: chances[k] = P(click k + 1 given those before), out = P(each next click), and return P(end here)."""
    free = np.ones(len(theta))
    last = 0
    end = step(reading, theta, rho, stop, gamma, 0, last, free, out)
    for k in range(len(clicks)):
        last = clicks[k]
        chances[k] = out[last - 1]
        free[last - 1] = 0.0
        end = step(reading, theta, rho, stop, gamma, k + 1, last, free, out)
    return end


@compiled
def log_prob(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32) -> float:
    """Log of the probability of exactly these clicks in this order: Σ log P(click | before) + log P(end | all)."""
    chances = np.empty(len(clicks))
    end = _walk(reading, theta, rho, stop, gamma, clicks, chances, np.empty(len(theta)))
    total = np.log(end)
    for chance in chances:
        total += np.log(chance)
    return float(total)


@compiled
def next_click_prob(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32, out: Float64) -> float:
    """Fill out with P(next click is j given the clicks so far), 0 for clicked ones, and return P(end given the clicks so far)."""
    made = np.sort(clicks) if reading == CHAIN else clicks  # a chain goes down the page: what is clicked is above what comes next
    return _walk(reading, theta, rho, stop, gamma, made, np.empty(len(clicks)), out)


@compiled
def _reach(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, members: Int32, scale: Float64) -> Float64:
    """P(the first clicks are this set, this one last), for all subsets of the members: reach[set, index of last].

    members[0] = 0 is the start and bit b of a set is members[b + 1]. P(j) at click k + 1 is divided by scale[k], against underflow.
    """
    n = len(theta)
    size = len(members) - 1
    free = np.ones(n)
    onward = np.empty(n)  # [position] P(this set, then this position), but for the θ of a product w = θγ
    chance = np.empty(n)
    reach = np.zeros((1 << size, size + 1))  # [set, index of last]
    reach[0, 0] = 1.0
    for chosen in range((1 << size) - 1):  # a set comes after its subsets; the full one leads nowhere
        k = 0
        for b in range(size):
            free[members[b + 1] - 1] = 1.0 - ((chosen >> b) & 1)
            k += (chosen >> b) & 1
        onward[:] = 0.0
        for b in range(size + 1):
            if reach[chosen, b] <= 0.0:
                continue
            last = members[b]
            if reading == WALK:
                walk_step(theta, stop[0], stop[1], last, free, chance)
                for j in range(n):
                    onward[j] += chance[j] * reach[chosen, b] / scale[k]
                continue
            weight = sight = 0.0
            for j in range(n):
                eye = gamma[last, j] * free[j]
                weight += theta[j] * eye
                sight += eye
            share, _ = _share(reading, weight, sight, rho[last - 1] if last > 0 else 0.0, stop[k])
            share *= reach[chosen, b] / scale[k]
            for j in range(n):
                onward[j] += share * gamma[last, j]
        for b in range(size):
            if not (chosen >> b) & 1:
                j = members[b + 1] - 1
                reach[chosen | (1 << b), b + 1] = onward[j] if reading == WALK else theta[j] * onward[j]
    return reach


@compiled
def click_prob(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, out: Float64) -> None:
    """Fill out with P(position is clicked) = Σ over sets of P(the set was clicked and this position was its last click)."""
    n = len(theta)
    if reading == CHAIN:
        for j in range(n):
            out[j] = gamma[0, j]
            for i in range(j):
                out[j] += out[i] * gamma[i + 1, j]
        return
    if reading == WALK:
        walk_marginals(theta, stop[0], stop[1], out)
        return
    members = np.arange(n + 1).astype(np.int32)
    reach = _reach(reading, theta, rho, stop, gamma, members, np.ones(n))
    out[:] = 0.0
    for chosen in range(1, 1 << n):
        for j in range(n):
            out[j] += reach[chosen, j + 1]


@compiled
def log_set_prob(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32) -> float:
    """Log of the probability that exactly these positions are clicked, in whatever order."""
    if reading == CHAIN or len(clicks) < 2:  # one order only
        return log_prob(reading, theta, rho, stop, gamma, np.sort(clicks))
    m = len(clicks)
    out = np.empty(len(theta))
    scale = np.empty(m)
    _walk(reading, theta, rho, stop, gamma, clicks, scale, out)
    scale = np.maximum(scale, 1e-18)  # the given order may be impossible; 16 times this floor still cannot overflow
    members = np.zeros(m + 1, np.int32)
    members[1:] = clicks
    reach = _reach(reading, theta, rho, stop, gamma, members, scale)
    free = np.ones(len(theta))
    for click in clicks:
        free[click - 1] = 0.0
    total = 0.0
    for last in range(m + 1):
        arrive = reach[(1 << m) - 1, last]
        if arrive > 0.0:
            total += arrive * step(reading, theta, rho, stop, gamma, m, members[last], free, out)
    return float(np.log(total) + np.sum(np.log(scale)))


@compiled
def _insert(prob: float, path: Int32, length: int, sequences: Int32, lengths: Int32, probs: Float64) -> None:
    """Put a sequence at its place in the list, best first; among equals the earlier one stays ahead; the last one falls out."""
    place = len(probs) - 1
    while place > 0 and probs[place - 1] < prob:
        probs[place] = probs[place - 1]
        lengths[place] = lengths[place - 1]
        sequences[place] = sequences[place - 1]
        place -= 1
    probs[place] = prob
    lengths[place] = length
    sequences[place] = 0
    for k in range(length):
        sequences[place, k] = path[k + 1]


@compiled
def search(
    reading: int,
    theta: Float64,
    rho: Float64,
    stop: Float64,
    gamma: Float64,
    length: int,
    sequences: Int32,  # [place, step]
    lengths: Int32,  # [place]
    probs: Float64,  # [place]
) -> int:
    """Fill the list with the most likely complete sequences and return the prefixes looked at, more than MAX_NODES if it gave up.

    Depth first, shorter sequences before longer ones and in lexicographic order, so a tie never displaces what is listed. A prefix
    bounds its completions: one that is not above the last of a full list is left. When no prefix is that long, none is longer.
    """
    n = len(theta)
    free = np.ones(n)
    path = np.zeros(n + 1, np.int32)  # [depth] path[0] = 0 is the start
    cursor = np.zeros(n + 1, np.int32)  # [depth] the next position to try
    prefix = np.ones(n + 1)  # [depth] probability of the clicks so far
    chance = np.empty((n + 1, n))  # [depth, position]
    nodes = 0
    for size in range(max(length, 0), (n if length == ANY_LENGTH else length) + 1):
        alive = False
        depth = 0
        cursor[0] = 0
        while depth >= 0:
            if cursor[depth] == 0:
                end = step(reading, theta, rho, stop, gamma, depth, path[depth], free, chance[depth])
                nodes += 1
                if nodes > MAX_NODES:
                    return nodes
                if depth == size:
                    alive = True
                    if prefix[depth] * end > probs[-1]:
                        _insert(prefix[depth] * end, path, size, sequences, lengths, probs)
                    cursor[depth] = n
            j = cursor[depth]
            while j < n and prefix[depth] * chance[depth, j] <= probs[-1]:
                j += 1
            if j < n:
                cursor[depth] = j + 1
                prefix[depth + 1] = prefix[depth] * chance[depth, j]
                depth += 1
                path[depth] = j + 1
                free[j] = 0.0
                cursor[depth] = 0
            else:
                if depth > 0:
                    free[path[depth] - 1] = 1.0
                depth -= 1
        if not alive:
            break
    return nodes


@compiled
def mixed_prob(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, share: Float64, clicks: Int32) -> float:
    """P(exactly these clicks in this order) of users of several kinds: stop and gamma have a row for each kind, share[t] are of kind t."""
    chances, out = np.empty(len(clicks)), np.empty(len(theta))
    total = 0.0
    for t in range(len(share)):
        end = _walk(reading, theta, rho, stop[t], gamma[t], clicks, chances, out)
        total += share[t] * end * np.prod(chances)
    return total


@compiled
def _contest(
    reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, share: Float64, clicks: Int32, chance: float
) -> tuple[int, int, int, float]:
    """Compare all possible sequences as long as the clicks with some chance: how many are above it, and how many are tied.

    Returns, after those two, how many of the tied have the set of the clicks, and the greatest probability of all. Users as in mixed_prob.
    Depth first. A prefix bounds its completions: one that is below the chance is left, and so is an impossible one.
    """
    n, m, kinds = len(theta), len(clicks), len(share)
    clicked = np.zeros(n, np.int64)
    for click in clicks:
        clicked[click - 1] = 1
    free = np.ones(n)
    path = np.zeros(m + 1, np.int32)  # [depth] path[0] = 0 is the start
    cursor = np.zeros(m + 1, np.int32)  # [depth] the next position to try
    inside = np.zeros(m + 1, np.int64)  # [depth] how many of the path are among the clicks
    prefix = np.empty((m + 1, kinds))  # [depth, kind] P(a user is of the kind and clicks the path)
    ahead = np.empty((m + 1, kinds, n))  # [depth, kind, position]
    onward = np.zeros((m + 1, n))  # [depth, position] P(the path, then this position), of all kinds
    above = tied = same = depth = 0
    best = 0.0
    low = chance * (1.0 - TIE)
    prefix[0] = share
    for t in range(kinds):
        step(reading, theta, rho, stop[t], gamma[t], 0, 0, free, ahead[0, t])
    _onward(prefix[0], ahead[0], onward[0])
    while depth >= 0:
        j = cursor[depth]
        while j < n and (onward[depth, j] <= 0.0 or onward[depth, j] < low):
            j += 1
        if j == n:
            if depth > 0:
                free[path[depth] - 1] = 1.0
            depth -= 1
            continue
        cursor[depth] = j + 1
        for t in range(kinds):
            prefix[depth + 1, t] = prefix[depth, t] * ahead[depth, t, j]
        inside[depth + 1] = inside[depth] + clicked[j]
        depth += 1
        path[depth] = j + 1
        free[j] = 0.0
        found = 0.0
        for t in range(kinds):
            found += prefix[depth, t] * step(reading, theta, rho, stop[t], gamma[t], depth, path[depth], free, ahead[depth, t])
        if depth < m:
            _onward(prefix[depth], ahead[depth], onward[depth])
            cursor[depth] = 0
            continue
        cursor[depth] = n
        best = max(best, found)
        if found * (1.0 - TIE) > chance:
            above += 1
        elif found >= low:
            tied += 1
            same += inside[depth] == m
    return above, tied, same, best


@compiled
def _onward(prefix: Float64, ahead: Float64, onward: Float64) -> None:
    """Fill onward[j] with P(the path, then j), from prefix[kind] and ahead[kind, j]."""
    for j in range(len(onward)):
        onward[j] = prefix[0] * ahead[0, j]
        for t in range(1, len(prefix)):
            onward[j] += prefix[t] * ahead[t, j]


@compiled
def standing(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, clicks: Int32, out: Int64) -> None:
    """Say how the clicks stand among all sequences of their length: as mixed_standing, with users of one kind."""
    mixed_standing(reading, theta, rho, np.expand_dims(stop, 0), np.expand_dims(gamma, 0), np.ones(1), clicks, out)


@compiled
def mixed_standing(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, share: Float64, clicks: Int32, out: Int64) -> None:
    """Say how the clicks stand among all sequences of their length, to users of several kinds.

    Fills out with the number of those that are likelier, of those as likely, itself among them, of the likeliest, and of those of the likeliest that
    have the set of the clicks. Impossible sequences are tied with each other.
    """
    m = len(clicks)
    chance = mixed_prob(reading, theta, rho, stop, gamma, share, clicks)
    above, tied, same, best = _contest(reading, theta, rho, stop, gamma, share, clicks, chance)
    if chance <= 0.0:
        sequences = orders = 1
        for k in range(m):
            sequences *= len(theta) - k
            orders *= k + 1
        tied, same = sequences - above, orders  # the orders of the set are all impossible too where nothing is above
    out[0], out[1], out[2], out[3] = above, tied, tied, same
    if above > 0:
        _, out[2], out[3], _ = _contest(reading, theta, rho, stop, gamma, share, clicks, best)


@compiled
def sample(reading: int, theta: Float64, rho: Float64, stop: Float64, gamma: Float64, rng: np.random.Generator, out: Int32) -> int:
    """Draw a session: the clicks go to out, padded with 0, and their number is returned."""
    n = len(theta)
    free = np.ones(n)
    chance = np.empty(n)
    out[:] = 0
    last = 0
    for k in range(n):
        step(reading, theta, rho, stop, gamma, k, last, free, chance)
        left = rng.random()
        j = 0
        while j < n and left >= chance[j]:
            left -= chance[j]
            j += 1
        if j == n:
            return k
        last = j + 1
        free[j] = 0.0
        out[k] = last
    return n
