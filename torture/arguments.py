"""Public functions, classes and methods with invalid arguments: only ReclickErrors are allowed."""

from __future__ import annotations

import contextlib
import logging
import os
import random
from pathlib import Path

from tests.support.public_calls import HOSTILE, Call, public_calls
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import run_in_child

CALLS_PER_CHILD = 15


class HostileArguments(Campaign):
    """Every public callable, with one or two arguments replaced by hostile values."""

    name = "hostile arguments"
    share = 2.0

    def prepare(self, folder: Path) -> None:
        """Call everything once with valid arguments, in a separate folder, to compile kernels."""
        logging.disable(logging.WARNING)
        # Polars starts threads, which a forked child does not have.
        self.calls = [call for call in public_calls() if "to_polars" not in call.name]
        with contextlib.chdir(folder):
            for call in self.calls:
                with contextlib.suppress(Exception):
                    call.run()

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Run some calls in one child; fail if one raises anything except a ReclickError."""
        calls = [call for call in rng.choices(self.calls, k=CALLS_PER_CHILD) if call.valid]
        tries = [(call, _choose(call, rng)) for call in calls]

        def work() -> list[str]:
            os.chdir(folder)
            return [
                f"{call.name}({hostile_arguments}): {breach}"
                for call, hostile_arguments in tries
                if (breach := call.find_breach(hostile_arguments)) is not None
            ]

        outcome = run_in_child(work)
        what = ", ".join(f"{call.name}({hostile_arguments})" for call, hostile_arguments in tries)
        failure = explain_outcome(outcome, what)
        if failure is None and outcome.value:
            return Failure("traceback", "\n".join(outcome.value))
        return failure


def _choose(call: Call, rng: random.Random) -> dict[str, str]:
    names = rng.sample(list(call.valid), min(len(call.valid), rng.choice([1, 1, 2])))
    return {name: rng.choice(list(HOSTILE)) for name in names}
