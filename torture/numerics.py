"""Every model on small random logs: checks by enumeration, and comparison with the oracles."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import reclick as rc
from reclick.errors import CannotAnswerError
from tests.support.oracles import ORACLES
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import run_in_child

WEIGHTS = (1.0, 1.0, 0.5, 3.0, 1e-6, 1e9, 2.0**45)  # 160 impressions add up to less than 2^53
TOLERANCE = 1e-8
NEAR_ONE = 1e-7  # closer to 1, the odds of a probability have too few digits for an oracle
WEIGHTED_LOG: dict[str, list[Any]] = {
    "query": ["q"],
    "ads": [["a", "b"]],
    "clicks": [[1]],
    "weight": [2.0],
}


class Numerics(Campaign):
    """Probabilities of all click sequences sum to 1, and agree with marginals and the oracle."""

    name = "numerics"
    share = 2.0

    def prepare(self, folder: Path) -> None:
        """Compile the kernels of every model."""
        rng = random.Random(0)
        self.names = [name for name in rc.MODELS if rc.MODELS[name].max_page_ads != 2]  # not TCM
        for name in self.names:
            for log in (small_log(rng), small_log(rng), WEIGHTED_LOG):
                check_model(name, log, ("q", ("a", "b")), False)

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Fit a model to a small log and enumerate a page."""
        name = rng.choice(self.names)
        log = small_log(rng)
        page = random_page(rng)
        with_oracle = rng.random() < 0.5
        (folder / "log.json").write_text(str((name, log, page)))
        outcome = run_in_child(lambda: check_model(name, log, page, with_oracle), timeout=120)
        if outcome.status == "traceback" and "AssertionError" in outcome.message:
            return Failure("wrong answer", f"{name}: {outcome.message}")
        return explain_outcome(outcome, name)


def small_log(rng: random.Random) -> dict[str, list[Any]]:
    """A log of one to forty sessions, with or without weights, some of them extreme."""
    log: dict[str, list[Any]] = {"query": [], "ads": [], "clicks": []}
    queries, ads = ["q", "r", "s"][: rng.randint(1, 3)], "abcdef"[: rng.randint(1, 6)]
    habit = rng.choice(["none", "all", "first", "any", "any", "any"])
    for _ in range(rng.randint(1, 40)):
        page = [rng.choice(ads) for _ in range(rng.randint(1, 4))]
        positions = list(range(1, len(page) + 1))
        rng.shuffle(positions)
        many = rng.randint(0, len(page))
        clicks = {"none": [], "all": positions, "first": [1], "any": positions[:many]}[habit]
        log["query"].append(rng.choice(queries))
        log["ads"].append(page)
        log["clicks"].append(clicks)
    if rng.random() < 0.5:
        log["weight"] = [rng.choice(WEIGHTS) for _ in log["query"]]
    return log


def random_page(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """A page of one to four ads, some of them never shown or shown twice."""
    ads = tuple(rng.choice("abcdefz") for _ in range(rng.randint(1, 4)))
    return rng.choice(["q", "r", "s", "new"]), ads


def check_model(
    name: str, log: dict[str, list[Any]], page: tuple[str, tuple[str, ...]], with_oracle: bool
) -> None:
    """Fit a model, and compare its answers with the enumeration of all sequences."""
    model_type = rc.MODELS[name]
    fast = {"tune": "off", "max_iterations": 20}
    settings = {key: value for key, value in fast.items() if key in model_type.settings}
    model: Any = model_type(**settings).fit(log, progress=False)
    query, ads = page
    sequences = [
        clicks
        for n in range(len(ads) + 1)
        for clicks in itertools.permutations(range(1, len(ads) + 1), n)
    ]
    table = pa.table(
        {
            "query": [query] * len(sequences),
            "ads": [list(ads)] * len(sequences),
            "clicks": pa.array([list(sequence) for sequence in sequences], pa.list_(pa.int32())),
        }
    )
    try:
        chance = np.exp(model.log_prob(table))
    except CannotAnswerError:
        return
    assert np.isfinite(chance).all(), f"{name}: {chance}"
    assert abs(chance.sum() - 1) < TOLERANCE, f"{name}: the sequences add to {chance.sum()!r}"
    marginals = np.asarray(model.click_prob({"query": [query], "ads": [list(ads)]})[0])
    expected = [
        sum(p for p, clicks in zip(chance, sequences, strict=True) if j + 1 in clicks)
        for j in range(len(ads))
    ]
    assert np.allclose(marginals[: len(ads)], expected, atol=TOLERANCE), (
        f"{name}: {marginals} {expected}"
    )
    sets = np.exp(model.log_set_prob(table))
    for clicks, value in zip(sequences, sets, strict=True):
        same = [p for p, c in zip(chance, sequences, strict=True) if set(c) == set(clicks)]
        assert math.isclose(value, sum(same), abs_tol=TOLERANCE), f"{name}: {clicks}"
    if with_oracle and name in ORACLES and _is_for_oracle(model, log, query, ads):
        truth = ORACLES[name](model, query, ads)
        oracle_values = [truth.get(clicks, 0.0) for clicks in sequences]
        assert np.allclose(chance, oracle_values, atol=TOLERANCE), (
            f"{name}: {chance} oracle {oracle_values}"
        )


def _is_for_oracle(model: Any, log: dict[str, list[Any]], query: str, ads: tuple[str, ...]) -> bool:
    """Whether an oracle can compute the page: enough digits, and parameters of every position."""
    if len(ads) > max(map(len, log["ads"])):
        return False
    pairs = {"query": [query] * len(ads), "ad": list(ads)}
    return all(1 - p > NEAR_ONE for p in model.relevance(pairs)["attractiveness"].to_pylist())
