"""What the tests of the cascade models share: random logs, draws, and common promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reclick.models import ClickModel, load
from tests.support.enumeration import Session, as_table, random_sessions


def small_log(seed: int, count: int = 80) -> pa.Table:
    """Pages of 1 to 5 ads with an ad twice on some, clicks in any order, and weights."""
    return as_table(
        random_sessions(np.random.default_rng(seed), count, longest=5, weights=True), weights=True
    )


def learnt(model: ClickModel) -> dict[str, Any]:
    names = (*model.pair_parameters, *model.global_parameters)
    return {name: getattr(model, name) for name in names}


def assert_keeps_its_promises(make: Callable[[], ClickModel], folder: Path) -> None:
    """Weights, unseen queries, saving and the order of clicks are handled as in every model."""
    sessions = random_sessions(np.random.default_rng(7), 80, longest=5, weights=True)
    log = as_table(sessions, weights=True)
    model = make().fit(log)
    twice = make().fit(
        as_table(
            [Session(s.query, s.ads, s.clicks) for s in sessions for _ in range(int(s.weight))]
        )
    )
    downwards = make().fit(
        as_table(
            [Session(s.query, s.ads, tuple(sorted(s.path)), s.weight) for s in sessions],
            weights=True,
        )
    )
    for other, tolerance in ((twice, 1e-12), (downwards, 1e-9)):
        for name, value in learnt(model).items():
            if value is not None:
                np.testing.assert_allclose(
                    np.asarray(getattr(other, name)),
                    np.asarray(value),
                    rtol=tolerance,
                    err_msg=name,
                )

    pages = pa.table(
        {"query": ["never seen", "q", "r"], "ads": [["a", "new"], ["a"], list("abcdefabcdef")]}
    )
    chances = model.click_prob(pages)
    shown = np.arange(12) < np.array([[2], [1], [12]])
    assert ((chances > 0) & (chances < 1))[shown].all()
    unknown = model.click_prob({"query": ["never seen", "nor this"], "ads": [["new"], ["other"]]})
    assert unknown[0, 0] == unknown[1, 0]

    model.save(folder / "model")
    back = load(folder / "model")
    assert back.get_params() == model.get_params()
    for name, value in learnt(model).items():
        np.testing.assert_array_equal(
            np.asarray(getattr(back, name)), np.asarray(value), err_msg=name
        )
    np.testing.assert_array_equal(back.click_prob(pages), chances)
    np.testing.assert_array_equal(back.log_set_prob(log), model.log_set_prob(log))
    assert back.relevance().equals(model.relevance())


def assert_never_falls(objective: Sequence[float]) -> None:
    assert (np.diff(objective) >= -1e-9 * (1 + np.abs(objective[1:]))).all()


def with_values(model: ClickModel, pages: pa.Table, **values: Any) -> ClickModel:
    """A model that knows the pages' pairs, with these learnt values: the truth to draw from."""
    model.fit(pages.append_column("clicks", pa.array([[]] * len(pages), pa.list_(pa.int64()))))
    for name, value in values.items():
        setattr(model, name, value)
    return model


def random_pages(
    count: int, ads: int, length: int, seed: int, bottom: str | None = None
) -> pa.Table:
    """Pages of one query: `length` of the ads "00", "01", … in random order, then perhaps one ad
    that is always at the bottom."""
    order = np.random.default_rng(seed).permuted(np.tile(np.arange(ads), (count, 1)), axis=1)[
        :, :length
    ]
    names = np.array([f"{i:02}" for i in range(ads)])
    return pa.table(
        {
            "query": ["q"] * count,
            "ads": [[*row, *([] if bottom is None else [bottom])] for row in names[order].tolist()],
        }
    )


def drawn(truth: ClickModel, pages: pa.Table, seed: int) -> pa.Table:
    return pages.append_column("clicks", truth.sample(pages, seed))


def spread(count: int, low: float, high: float) -> npt.NDArray[np.float64]:
    return np.linspace(low, high, count)
