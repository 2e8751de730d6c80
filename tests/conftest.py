"""Settings of the test suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

os.environ.setdefault("RECLICK_PROGRESS", "0")  # long tests write no progress to standard error
settings.register_profile(
    "reclick", deadline=None, max_examples=50
)  # the first call of a kernel compiles it
settings.load_profile("reclick")

# A file runs in one worker. Those that take longest start first, so that none is alone at the end.
LONG_FILES = (
    "tests/service/test_lab.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_site.py",
    "tests/service/test_hosting.py",
    "tests/engines/test_spark.py",
    "tests/conformance/test_conformance.py",
    "tests/models/test_bucketed_model.py",
    "tests/service/test_hostile_connections.py",
    "tests/models/test_bucket_fit.py",
    "tests/engines/test_tasks.py",
    "tests/torture/test_slice.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of the long files to the front, and keep the order of all others."""
    rank = {name: i for i, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))
