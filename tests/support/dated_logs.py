"""Days of a log with the time of every session."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def day(number: int, sessions: int = 120, *, times: bool = True) -> pa.Table:
    """A day of the log: the same few pages come every day."""
    rng = np.random.default_rng(number)
    ads = [["a", "b", "c"], ["b", "a"]]
    table = pa.table(
        {
            "query": rng.choice(["shoes", "boots"], sessions).tolist(),
            "ads": [ads[each] for each in rng.integers(0, 2, sessions)],
            "clicks": [[1, 2][:each] for each in rng.integers(0, 3, sessions)],
        }
    )
    if times:
        seconds = rng.integers(0, 86_400, sessions) * np.timedelta64(1, "s")
        start = np.datetime64(f"2026-03-{number:02}", "us")
        table = table.append_column("timestamp", pa.array(start + seconds))
    return table
