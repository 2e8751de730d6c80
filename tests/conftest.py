"""Settings of the test suite."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("RECLICK_PROGRESS", "0")  # long tests write no progress to standard error
settings.register_profile(
    "reclick", deadline=None, max_examples=50
)  # the first call of a kernel compiles it
settings.load_profile("reclick")
