"""A slice of the random requests; `python -m bench requests` asks 100,000."""

from __future__ import annotations

from pathlib import Path

from tests.support.random_requests import ask_at_random
from tests.support.service import run_service


def test_random_requests_find_no_server_error_and_no_undocumented_answer(
    folders: dict[str, Path],
) -> None:
    with run_service(str(folders["ubm"]), "--quiet") as client:
        asked, problems = ask_at_random(str(client.base_url).rstrip("/"), 500)
    assert asked > 200
    assert problems == []
