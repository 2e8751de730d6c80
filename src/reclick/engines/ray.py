"""The engine for a Ray cluster: Ray runs the tasks of `engines.tasks`."""

from __future__ import annotations

from typing import Any, TypeVar

from reclick.engines.tasks import (
    Task,
    TaskEngine,
    describe_python,
    raise_error,
    run_quietly,
    start_worker,
)
from reclick.errors import EngineError, SettingError, check_whole
from reclick.runtime.extras import import_extra
from reclick.runtime.filesystem import Location
from reclick.runtime.progress import report_progress

Result = TypeVar("Result")
RETRIES = 3  # of a task whose process dies
TASKS_PER_CORE = 2


class RayEngine(TaskEngine):
    """Counts, groups and fits in the tasks of a Ray cluster, with the answers of `LocalEngine`.

    Ray is used as `ray.init` has set it up; if it is not set up, it is started on this machine.
    `tasks` is the number of tasks that a log and the blocks of a fit are divided into, by default
    two per core of the cluster; `buckets` is the number of buckets that the queries are merged in,
    by default as many. `folder` is a folder that all hosts reach under the same path; a single host
    needs none.
    """

    def __init__(
        self,
        *,
        tasks: int | None = None,
        buckets: int | None = None,
        folder: Location | None = None,
    ) -> None:
        self._ray: Any = import_extra("ray", "ray")
        if not self._ray.is_initialized():
            self._ray.init(include_dashboard=False, log_to_driver=False)
        hosts = [node for node in self._ray.nodes() if node["Alive"]]
        if folder is None and len(hosts) > 1:
            expected = f"a folder that all {len(hosts)} hosts reach under the same path"
            raise SettingError("folder", None, expected)
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.folder = folder
        self.n_tasks = check_whole("tasks", TASKS_PER_CORE * cores if tasks is None else tasks, 1)
        self.buckets = check_whole("buckets", self.n_tasks if buckets is None else buckets, 1)

    def __repr__(self) -> str:
        return f"RayEngine(tasks={self.n_tasks}, buckets={self.buckets})"

    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Run tasks. Ray runs a task again if its process died."""
        remote = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_run_task)
        shared, driver = self._ray.put(task), describe_python()
        numbers = {remote.remote(shared, i, driver): i for i in range(n)}
        references, results = list(numbers), {}
        try:
            while references:
                ready, references = self._ray.wait(references)
                for reference in ready:
                    results[numbers[reference]] = self._ray.get(reference)
                if what:
                    report_progress(what, len(results), n)
        except self._ray.exceptions.RayError as error:
            last = str(error).strip().splitlines()[-1]
            raise EngineError(f"Ray could not run the tasks: {last}") from error
        finally:
            for reference in references:
                self._ray.cancel(reference)
        return [raise_error(*results[i]) for i in range(n)]


def _run_task(task: Task[Result], i: int, driver: str) -> Any:
    """Run a task in a process of Ray, if its Python and Reclick have the versions of the driver."""
    start_worker()
    if describe_python() != driver:
        error = f"A host of Ray has {describe_python()}, and the driver has {driver}."
        return None, EngineError(f"{error} They must be the same.")
    return run_quietly(task, i)
