"""A task engine without processes: every task is pickled, run here, and its result pickled too."""

from __future__ import annotations

import pickle
from typing import Any

from reclick.engines.tasks import TaskEngine, run_quietly
from reclick.runtime.filesystem import Location


class InlineEngine(TaskEngine):
    """Runs tasks one after another, from the last to the first, and the first one twice."""

    def __init__(self, tasks: int = 3, buckets: int = 5, folder: Location | None = None) -> None:
        self.n_tasks, self.buckets, self.folder = tasks, buckets, folder
        self.sent: list[int] = []  # bytes of each task
        self.stages: list[str] = []

    def __repr__(self) -> str:
        return f"InlineEngine(tasks={self.n_tasks}, buckets={self.buckets})"

    def run(self, task: Any, n: int, what: str) -> list[Any]:
        stream = pickle.dumps(task)
        self.sent.append(len(stream))
        self.stages.append(what)
        results = {}
        for i in [0, *reversed(range(n))]:  # as after a lost task
            moved = pickle.loads(stream)  # noqa: S301
            results[i] = pickle.loads(pickle.dumps(run_quietly(moved, i)))  # noqa: S301
        for i in range(n):
            error = results[i][1]
            if error is not None:
                raise error
        return [results[i][0] for i in range(n)]
