"""Random requests to a running service: no answer may be a 5xx or differ from the API description.

Schemathesis draws the requests from the OpenAPI description of the service, in rounds, each with
the next seed. After each round the counts are written to bench/work/requests-SEED.json, so that a
run that was stopped continues later, as long as the code of the service is the same. Runs with
different first seeds can run at the same time.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import reclick.service
from bench.measure import WORK, print_row
from tests.support.random_requests import ask_at_random
from tests.support.service import run_service, save

ROUND = 4_000  # largest number of requests in a round


def main(requests: int = 100_000, seed: int = 1) -> bool:
    """Send requests until there are enough, and print how many answers were wrong."""
    path = WORK / f"requests-{seed}.json"
    state = _read_state(path, seed)
    with TemporaryDirectory() as folder:
        names = ("luceclick", "ubm")
        for name in names:
            save(Path(folder) / name, name)
        with run_service(*(f"{folder}/{name}" for name in names), "--quiet") as client:
            address = str(client.base_url).rstrip("/")
            while state["asked"] < requests:
                n_requests = max(100, min(ROUND, requests - state["asked"]))
                n_answers, problems = ask_at_random(address, n_requests, seed=state["seed"])
                state["asked"] += n_answers
                state["problems"] += problems
                state["seed"] += 1
                _write_state(path, state)
                print(f"{state['asked']:,} requests, {len(state['problems'])} problems", flush=True)
            assert client.get("/readyz").status_code == 200
    for problem in state["problems"][:5]:
        print(problem)
    wrong = len(state["problems"])
    return print_row(
        f"{state['asked']:,} random requests: answers that are 5xx or not as described",
        str(wrong),
        "0",
        not wrong,
    )


def _source() -> str:
    """A digest of the code of the service."""
    digest = hashlib.sha256()
    for path in sorted(Path(reclick.service.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_state(path: Path, seed: int) -> dict[str, Any]:
    empty: dict[str, Any] = {"source": _source(), "seed": seed, "asked": 0, "problems": []}
    if not path.exists():
        return empty
    earlier: dict[str, Any] = json.loads(path.read_text())
    return earlier if earlier["source"] == empty["source"] else empty


def _write_state(path: Path, state: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(state))
    temporary.replace(path)
