"""LightGBM's ranker trained on clicks, with our propensities as weights and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
import pyarrow.csv as arrow_csv
import pytest

from reclick.exports import export
from reclick.models import PBM

Float64 = npt.NDArray[np.float64]
ADS, POSITIONS = 8, 8
LOOKS = 1 / np.arange(1, POSITIONS + 1) ** 1.5


class Market:
    """Queries with ads of two features: the first is what attracts, the site ranks by the second.

    The second says nothing about attractiveness, and the ranking has some noise.
    """

    def __init__(self, queries: int, sessions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.features = rng.random((queries, ADS, 2))  # [query, ad, feature]
        self.attractive = 0.05 + 0.6 * self.features[..., 0] ** 2  # [query, ad]
        self.query = np.repeat(np.arange(queries), sessions)  # [session]
        noise = rng.normal(0, 0.35, (len(self.query), ADS))
        self.page = np.argsort(
            -(self.features[self.query, :, 1] + noise), axis=1
        )  # [session, position] ads
        chance = LOOKS * np.take_along_axis(self.attractive[self.query], self.page, axis=1)
        self.clicked = rng.random(chance.shape) < chance  # [session, position]

    def log(self) -> dict[str, list[Any]]:
        return {
            "query": [f"q{query}" for query in self.query],
            "ads": [[f"ad{ad}" for ad in page] for page in self.page.tolist()],
            "clicks": [(np.flatnonzero(clicked) + 1).tolist() for clicked in self.clicked],
        }

    def ndcg(self, ranker: lightgbm.LGBMRanker) -> float:
        """Of the ranking, against true attractiveness."""
        scores = np.asarray(ranker.predict(self.features.reshape(-1, 2))).reshape(-1, ADS)
        discount = 1 / np.log2(np.arange(2, ADS + 2))
        ranked = np.take_along_axis(
            self.attractive, np.argsort(-scores, axis=1, kind="stable"), axis=1
        )
        return float(np.mean(ranked @ discount / (-np.sort(-self.attractive, axis=1) @ discount)))


def trained(market: Market, weight: Float64) -> lightgbm.LGBMRanker:
    """A ranker on the sessions with one click, each counting as the position of its click says."""
    one = np.flatnonzero(market.clicked.sum(axis=1) == 1)
    features = market.features[market.query[one, None], market.page[one]].reshape(-1, 2)
    labels = market.clicked[one].reshape(-1).astype(int)
    weights = np.repeat(weight[market.clicked[one].argmax(axis=1)], POSITIONS)
    ranker = lightgbm.LGBMRanker(
        n_estimators=30,
        num_leaves=8,
        random_state=0,
        n_jobs=1,
        deterministic=True,
        force_row_wise=True,
        verbose=-1,
    )
    return ranker.fit(features, labels, group=np.full(len(one), POSITIONS), sample_weight=weights)


@pytest.fixture(scope="module")
def market() -> Market:
    return Market(queries=100, sessions=60, seed=3)


@pytest.fixture(scope="module")
def propensity(market: Market, tmp_path_factory: pytest.TempPathFactory) -> Float64:
    path: Path = tmp_path_factory.mktemp("p") / "propensities.csv"
    export(PBM().fit(market.log()), path, format="propensities")
    return np.asarray(arrow_csv.read_csv(path)["propensity"].to_numpy())


def test_the_propensities_are_near_those_the_clicks_were_drawn_with(propensity: Float64) -> None:
    np.testing.assert_allclose(propensity, LOOKS, atol=0.05)


def test_weighted_by_propensity_the_ranker_ranks_better(
    market: Market, propensity: Float64
) -> None:
    fresh = Market(queries=300, sessions=1, seed=4)
    plain, weighted = (
        fresh.ndcg(trained(market, weight)) for weight in (np.ones(POSITIONS), 1 / propensity)
    )
    assert weighted > plain + 0.02
    assert weighted > 0.97
