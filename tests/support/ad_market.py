"""Sessions of one ad per page, whose ads are alike on all their queries and by advertiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from reclick.data.ragged import Float64


def market(seed: int, sessions: int = 6_000) -> tuple[pa.Table, dict[str, list[Any]], Float64]:
    """Sessions, ads with text and the odds of each ad; those of an advertiser are alike."""
    rng, ads, queries = np.random.default_rng(seed), 60, 40
    advertiser = np.arange(ads) % 6
    odds = rng.gamma(4.0, 0.1, 6)[advertiser] * 3.0 ** (advertiser - 2.5)
    odds = odds * rng.gamma(8.0, 1 / 8, ads)
    query = rng.integers(0, queries, sessions)
    ad = (query * 7 + rng.integers(0, 9, sessions) * 5) % ads
    noise = rng.gamma(20.0, 1 / 20, (queries, ads))
    rate = (odds[ad] * noise[query, ad]) / (1 + odds[ad] * noise[query, ad])
    clicks = [[1] if each else [] for each in rng.random(sessions) < rate]
    log = pa.table(
        {
            "query": [f"q{q}" for q in query],
            "ads": [[f"ad{i}"] for i in ad],
            "clicks": pa.array(clicks, pa.list_(pa.int64())),
        }
    )
    text = {
        "ad": [f"ad{i}" for i in range(ads)],
        "title": [f"offer number{i}" for i in range(ads)],
        "display_url": [f"www.shop{k}.com" for k in advertiser],
    }
    return log, text, odds
