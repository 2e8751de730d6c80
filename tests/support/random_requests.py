"""Requests drawn from the service's own OpenAPI description, valid and invalid ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def ask_at_random(address: str, total: int, *, seed: int = 0) -> tuple[int, list[str]]:
    """Ask every operation some requests; how many were asked, and what was wrong.

    The same seed draws the same requests.
    """
    session = requests.Session()
    description = session.get(f"{address}/openapi.json", timeout=30).json()
    schema = schemathesis.openapi.from_dict(description)
    operations: list[Any] = [cast(Any, each).ok() for each in schema.get_all_operations()]
    each = max(1, total // (2 * len(operations)))
    asked, problems = 0, []
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            found = Findings(address, session)
            try:
                _draw(operation, mode, each, seed, found)
            except (Exception, BaseExceptionGroup) as problem:
                if type(problem).__name__ != "Unsatisfiable":  # nothing invalid can be said
                    found.problems.append(f"{operation.label}: {problem!r}")
            asked += found.asked
            problems += found.problems
    return asked, problems


@dataclass
class Findings:
    """What came of the requests to one operation."""

    address: str
    session: requests.Session
    asked: int = 0
    problems: list[str] = field(default_factory=list)

    def ask(self, case: Any) -> None:
        """Send one request and check its answer."""
        self.asked += 1
        try:
            case.call_and_validate(
                base_url=self.address, session=self.session, checks=CHECKS, timeout=30
            )
        except (Exception, BaseExceptionGroup) as problem:  # any failed check
            self.problems.append(f"{case.method} {case.path}: {problem}")


def _draw(operation: Any, mode: GenerationMode, examples: int, seed: int, found: Findings) -> None:
    @with_seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        found.ask(case)

    ask()
