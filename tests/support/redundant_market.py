"""Simulated sessions on pages whose ads share words, under a model with a known redundancy."""

from __future__ import annotations

from typing import Any

import numpy as np

WORDS = ("red", "blue", "cheap", "fine", "boots", "shoes", "sale", "new")
ADS = {
    f"ad{i}": " ".join(WORDS[j] for j in sorted({i % 8, (i * 3 + 1) % 8, (i // 2) % 8}))
    for i in range(16)
}


def make_pages(sessions: int, seed: int) -> dict[str, list[Any]]:
    """Pages of four ads, and random first clicks to fit a model to."""
    rng = np.random.default_rng(seed)
    ads = [rng.choice(list(ADS), 4, replace=False).tolist() for _ in range(sessions)]
    many = rng.choice([0, 1, 2, 3], sessions, p=[0.2, 0.3, 0.3, 0.2])
    clicks = [(rng.permutation(4)[:m] + 1).tolist() for m in many]
    return {"query": [f"q{i % 4}" for i in range(sessions)], "ads": ads, "clicks": clicks}


def draw_sessions(model: Any, kappa: float, sessions: int, seed: int) -> dict[str, list[Any]]:
    """Sessions of a model, fitted to random clicks, with this redundancy."""
    truth = model.clone().fit(make_pages(4000, seed), ads=ADS)
    truth.redundancy_ = kappa
    pages = make_pages(sessions, seed + 1)
    return {**pages, "clicks": truth.sample(pages, seed + 2).to_pylist()}
