"""Small logs in many blocks: engines must add up their sums alike."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of these tests are cut as much larger ones are."""
    monkeypatch.setattr("reclick.data.grouped_sessions.BLOCK_IMPRESSIONS", 200)
