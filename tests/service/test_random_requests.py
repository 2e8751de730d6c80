"""A slice of the random requests; `python -m bench requests` asks 100,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.random_requests import ask_at_random
from tests.support.service import run_service


@pytest.mark.parametrize("name", ["luceclick", "ubm"])
def test_random_requests_find_no_server_error_and_no_undocumented_answer(
    folders: dict[str, Path], name: str
) -> None:
    with run_service(str(folders[name]), "--quiet") as client:
        asked, problems = ask_at_random(str(client.base_url).rstrip("/"), 120)
    assert asked > 50
    assert problems == []
