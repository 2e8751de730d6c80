"""Three models in folders, and a service over them in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from reclick.service import create_app
from tests.support.service import save


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models by name; no test may write to them."""
    root = tmp_path_factory.mktemp("models")
    for name in ("luceclick", "ubm", "multiclick"):
        save(root / name, name)
    return {name: root / name for name in ("luceclick", "ubm", "multiclick")}


@pytest.fixture(scope="session")
def client(folders: dict[str, Path]) -> Iterator[TestClient]:
    """A client of a service over the folders, all loaded."""
    with ready_client(create_app(folders)) as client:
        yield client


def ready_client(app: object) -> TestClient:
    """A client whose service has loaded its models when it is entered."""
    return ReadyClient(app)  # type: ignore[arg-type]


class ReadyClient(TestClient):
    """A client that waits on entering until the service is ready."""

    def __enter__(self) -> ReadyClient:
        super().__enter__()
        deadline = time.monotonic() + 60
        while not self._is_ready():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self

    def _is_ready(self) -> bool:
        """Whether the service is ready; within a short time limit it may not answer at all."""
        answer = self.get("/readyz")
        return bool(answer.content) and answer.json().get("status") == "ready"
