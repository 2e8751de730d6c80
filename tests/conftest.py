"""Settings of the test suite."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("reclick", deadline=None)  # the first call of a kernel compiles it
settings.load_profile("reclick")
