"""An engine of tasks in this process, one after another: for fits of one bucket at a time."""

from __future__ import annotations

from typing import TypeVar

from reclick.engines.tasks import Task, TaskEngine
from reclick.runtime.filesystem import Location
from reclick.runtime.progress import report_progress

Result = TypeVar("Result")
PARTS = 8  # that a log is read in, so that one at a time is in memory


class SerialEngine(TaskEngine):
    """Runs tasks in this process, with all its threads; what they leave are files, as elsewhere."""

    def __init__(self, folder: Location | None = None) -> None:
        self.n_tasks = self.buckets = PARTS
        self.folder = folder

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Run tasks, one after another."""
        results = []
        for i in range(n):
            results.append(task(i))
            if what:
                report_progress(what, i + 1, n)
        return results
