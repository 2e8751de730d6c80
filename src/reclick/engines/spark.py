"""The engine for a Spark cluster. It uses the DataFrame API only, so that Spark Connect works too.

Spark runs the tasks of `engines.tasks`: a small DataFrame has a row per task, and `mapInArrow` runs
the task. Tasks read a log of files themselves; a log that is a DataFrame comes to them through
Spark. Tasks exchange files in a folder that all of them can reach.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from uuid import uuid4

import pyarrow as pa

from reclick.engines.base import Log
from reclick.engines.parts import LogPart
from reclick.engines.store import Store, pack, packed_size, unpack
from reclick.engines.tasks import (
    Task,
    TaskEngine,
    describe_python,
    raise_error,
    run_quietly,
    start_worker,
)
from reclick.errors import Argument, EngineError, SettingError, check_whole
from reclick.runtime.arguments import check_arguments
from reclick.runtime.extras import import_extra
from reclick.runtime.filesystem import Location, is_uri
from reclick.runtime.interrupts import keep_recording, raise_lost_interrupt
from reclick.runtime.parallel import parallel_map
from reclick.runtime.progress import report_progress

Result = TypeVar("Result")
LARGE_RESULT = 1 << 20  # bytes: a larger result is returned in a file
RESULT_SCHEMA = "task long, result binary"
DEFAULT_TASKS = 32  # if the session does not report its number of cores
TASKS_PER_CORE = 2
OLDEST = "4.0"
LOOPBACK = "127.0.0.1"
QUIET_SETTINGS = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
}
DEFAULT_PORTS = {"spark": 7077, "sc": 15002}  # of masters, by scheme
SESSION_VARIABLES = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")  # of spark-submit, of Connect
CONNECT_SECONDS = 10  # within which a master must answer
MOST_OBJECTS = 20_000  # that garbage collection may have to scan
MOST_LINES = 3  # of Spark's message that an error quotes
CAUSE = "Caused by: "
CANCELLED = "as part of cancellation of all jobs"


class SparkEngine(TaskEngine):
    """Counts, groups and fits in the tasks of a Spark session, with the answers of `LocalEngine`.

    `session` is a SparkSession, classic or Connect. `tasks` is the number of tasks that a log and
    the blocks of a fit are divided into: by default two per core if the session reports its cores,
    else 32. `buckets` is the number of buckets that the queries are merged in, by default as many
    as tasks. `folder` is a folder that the driver and all executors reach under the same path; a
    local master needs none.
    The executors must have the same versions of Python and Reclick as the driver, which the first
    task checks.
    """

    @check_arguments
    def __init__(
        self,
        session: Any,
        *,
        buckets: int | None = None,
        tasks: int | None = None,
        folder: Location | None = None,
    ) -> None:
        import_extra("pyspark", "reclick[spark]")
        if not hasattr(session, "range") or not hasattr(session, "createDataFrame"):
            raise SettingError("session", session, "a SparkSession")
        version = str(getattr(session, "version", OLDEST))
        if int(version.split(".", maxsplit=1)[0]) < int(OLDEST.split(".", maxsplit=1)[0]):
            raise EngineError(f"The session has Spark {version}: Reclick needs {OLDEST} or newer.")
        self.session = session
        master = _get_conf(session, "spark.master")
        if folder is None and not master.startswith("local"):
            raise SettingError(
                "folder",
                None,
                f"a folder that the driver and all executors of {master or 'the cluster'} reach "
                "under the same path, such as a mounted volume",
            )
        self.folder = folder
        self._cores = _count_cores(session, master)
        usual_tasks = TASKS_PER_CORE * self._cores if self._cores else DEFAULT_TASKS
        self.n_tasks = check_whole("tasks", usual_tasks if tasks is None else tasks, 1)
        self.buckets = check_whole("buckets", self.n_tasks if buckets is None else buckets, 1)
        self._is_checked = False

    def __repr__(self) -> str:
        return f"SparkEngine(tasks={self.n_tasks}, buckets={self.buckets})"

    def run(self, task: Task[Result], n: int, what: str) -> list[Result]:
        """Run tasks. Spark runs a lost task again.

        A round of a fit, which has no name, may be shorter than Spark takes to start its tasks: it
        starts one per core, which runs several of ours.
        """
        self.check_executors()
        if what:
            report_progress(what, 0, n)
        store = self.store
        partitions = n if what else min(n, self._cores or n)
        with _explain_spark_errors():
            frame = self.session.range(0, n, 1, partitions)
        results = self._collect(frame, functools.partial(_run_tasks, task, store), store)
        if what:
            report_progress(what, n, n)
        return [results[i] for i in range(n)]

    def run_parts(
        self,
        work: Callable[[LogPart, int], Result],
        log: Log,
        store: Store,
        what: str,
        *,
        with_rows: bool = False,
    ) -> list[Result]:
        """Return work(part, its number) for every part, or for every partition of a DataFrame."""
        frame = getattr(log, "frame", None)
        if frame is None:
            return super().run_parts(work, log, store, what, with_rows=with_rows)
        self.check_executors()
        report_progress(what, 0, None)
        reader = cast(Any, log).to_frame_reader()
        if not with_rows:
            frame = frame.select(*(f"`{name}`" for name in reader.args[0].column_names))
        function = functools.partial(_run_partition, work, reader, store)
        results = self._collect(frame, function, store)
        report_progress(what, len(results), len(results))
        # A partition is never skipped, but an empty frame has none.
        return [results[i] for i in sorted(results)]

    def _collect(self, frame: Any, function: Callable[[Any], Any], store: Store) -> dict[int, Any]:
        """Return the results of tasks by number; raise the error of the first task that has one."""
        with _explain_spark_errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark warns about versions of other libraries
            rows = frame.mapInArrow(function, RESULT_SCHEMA).collect()  # cheaper than toArrow()
        outcomes = parallel_map(functools.partial(_open_result, store), [row[1] for row in rows])
        results = dict(zip((row[0] for row in rows), outcomes, strict=True))
        return {number: raise_error(*results[number]) for number in sorted(results)}

    def check_executors(self) -> None:
        """Run a small task, once, that compares versions and looks for the folder."""
        if self._is_checked:
            return
        report_progress("executors checked", 0, None)  # this may wait for a busy cluster
        store = self.store
        store.put("check", ["here"])
        driver_python = describe_python()
        frame = self.session.range(0, self.n_tasks, 1, self.n_tasks)
        probe = _make_probe(str(store.folder), store if is_uri(store.folder) else None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                schema = "host string, python string, sees_folder string"
                rows = frame.mapInArrow(probe, schema).collect()
        except Exception as error:
            raise EngineError(
                "The executors cannot run Reclick's tasks: "
                f"{_shorten(error)} Give them the same Python environment as the driver "
                "(spark.pyspark.python, or an archive of it; see the how-to on Spark)."
            ) from error
        for host, executor_python, sees_folder in sorted({tuple(row) for row in rows}):
            if executor_python != driver_python:
                raise EngineError(
                    f"The executor {host} has {executor_python}, and the driver has "
                    f"{driver_python}. They must be the same: ship the driver's environment to the "
                    "executors."
                )
            if not sees_folder:
                raise EngineError(
                    f"The executor {host} does not see {store.folder}. Give as ",
                    Argument("folder", option="--shared-folder"),
                    " one that the driver and all executors reach under the same path.",
                )
        store.discard(["check"])
        self._is_checked = True


def open_session(master: str | None) -> Any:
    """Open a Spark session of this master, or get the session of spark-submit or a notebook.

    Without any of these it is refused, because Spark would start on this machine alone. For a
    master on this machine, the driver listens to this machine only. Executors run the Python
    interpreter of this process, by its path, unless PYSPARK_PYTHON names another.
    """
    builder: Any = import_extra("pyspark.sql", "reclick[spark]").SparkSession.builder
    if master is None:
        _require_session()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.appName("reclick")
    else:
        hosts = _require_master(master)
        if master.startswith("sc://"):
            builder = builder.remote(master)
        else:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            builder = builder.appName("reclick").master(master)
            settings = dict(QUIET_SETTINGS)
            if master.startswith("local") or (hosts and all(map(_is_this_machine, hosts))):
                os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
                settings |= LOCAL_SETTINGS
            for name, value in settings.items():
                builder = builder.config(name, value)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs errors that are raised anyway
    logging.getLogger().addFilter(_is_not_of_py4j)  # on Ctrl-C it uses the root logger
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise EngineError(
                f"Spark cannot be started: {_shorten(error)} It needs Java 17 or newer and, "
                "outside spark-submit, a master (",
                Argument("master", ...),
                ").",
            ) from error
    keep_recording()  # PySpark handles Ctrl-C itself, to cancel jobs
    return session


def _require_session() -> None:
    """Refuse to go on without a session of spark-submit, of a notebook or of SPARK_REMOTE."""
    if any(os.environ.get(name) for name in SESSION_VARIABLES):
        return
    session: Any = import_extra("pyspark.sql", "reclick[spark]").SparkSession
    try:
        session.active()
    except Exception as error:
        raise EngineError(
            "There is no Spark session to run in, and no cluster is named. Give its address as ",
            Argument("master", ...),
            " (local[*] for the cores of this machine), or start with spark-submit (see the "
            "how-to on Spark).",
        ) from error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return not record.getMessage().endswith("while sending command.")


def _require_master(master: str) -> list[str]:
    """Return the hosts of a master's URL. Raise if none answers: Spark would try for a minute."""
    scheme, _, rest = master.partition("://")
    if scheme not in DEFAULT_PORTS:
        return []
    hosts, reasons = [], []
    for address in re.split(r"[/;]", rest)[0].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        number = int(port) if port.isdecimal() else DEFAULT_PORTS[scheme]
        try:
            socket.create_connection((host.strip("[]"), number), CONNECT_SECONDS).close()
        except OSError as error:
            reasons.append(f"{host}:{number}: {error.strerror or error}")
        hosts.append(host.strip("[]"))
    if len(reasons) == len(hosts):
        raise EngineError(
            f"No Spark master answers at {master} ({'; '.join(reasons)}). Give the address that "
            "the master's page shows as ",
            Argument("master", ...),
            ", and check that it can be reached from here.",
        )
    return hosts


def _is_this_machine(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")


def _open_result(store: Store, content: bytes) -> Any:
    """Load the result of a task, from its row or from a file."""
    result = unpack(memoryview(bytearray(content)))  # a copy, as arrays must be writable
    if not isinstance(result, _InFile):
        return result
    try:
        return store.load(result.name)
    finally:
        store.discard([result.name])


class _InFile:
    """A result that is too large for a row."""

    def __init__(self, name: str) -> None:
        self.name = name


def _run_tasks(
    task: Task[Any], store: Store, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the task of every row, in an executor."""
    start_worker()
    for batch in batches:
        for i in batch.column(0).to_pylist():
            yield _as_row(i, run_quietly(task, i), store)
    _freeze_objects()


def _run_partition(
    work: Callable[[LogPart, int], Any],
    reader: Callable[[Iterator[pa.RecordBatch], str], LogPart],
    store: Store,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Work on a partition of a DataFrame, in an executor."""
    from pyspark import TaskContext

    start_worker()
    context: Any = TaskContext.get()
    i = int(context.partitionId())
    part = reader(batches, f"partition {i}")
    yield _as_row(i, run_quietly(functools.partial(work, part), i), store)
    _freeze_objects()


def _as_row(i: int, result: Any, store: Store) -> pa.RecordBatch:
    packed = pack(result)
    if packed_size(packed) > LARGE_RESULT:
        name = f"result-{i}-{uuid4().hex}"
        store.put_packed(name, [packed])
        packed = pack(_InFile(name))
    content = b"".join(packed)
    return pa.RecordBatch.from_arrays(
        [pa.array([i], pa.int64()), pa.array([content], pa.binary())], names=["task", "result"]
    )


def _freeze_objects() -> None:
    """Exempt the modules that a task has loaded from garbage collection.

    PySpark collects garbage after every task, which takes 20 to 40 ms with all of numba in memory.
    """
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.collect()
        gc.freeze()


def _make_probe(folder: str, remote: Store | None) -> Callable[[Any], Any]:
    """Make a function that runs on executors without Reclick, as Spark ships all of its code."""

    def probe(batches: Any) -> Any:
        import platform as here
        import socket
        from importlib.metadata import version
        from importlib.util import find_spec
        from pathlib import Path

        import pyarrow as arrow

        reclick = version("reclick") if find_spec("reclick") else "not installed"
        python = f"Python {here.python_version()} with Reclick {reclick}"
        for batch in batches:
            sees_folder = "" if remote is None and not (Path(folder) / "check").exists() else "yes"
            if remote is not None and reclick != "not installed":
                sees_folder = "yes" if remote.load("check") else ""
            n = len(batch)
            columns = [[socket.gethostname()] * n, [python] * n, [sees_folder] * n]
            yield arrow.RecordBatch.from_arrays(
                [arrow.array(column, arrow.string()) for column in columns],
                names=["host", "python", "sees_folder"],
            )

    return probe


def _get_conf(session: Any, name: str) -> str:
    try:
        return str(session.conf.get(name, "") or "")
    except Exception:  # Connect raises where the server does not give a setting
        return ""


def _count_cores(session: Any, master: str) -> int | None:
    """Return the number of cores, or None if the session does not report it."""
    local = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", master)
    if local:
        return os.cpu_count() or 1 if local[1] == "*" else int(local[1])
    if master == "local":
        return 1
    counts = [
        _get_conf(session, name) for name in ("spark.executor.instances", "spark.executor.cores")
    ]
    if not all(count.isdecimal() for count in counts):
        return None
    return int(counts[0]) * int(counts[1])


@contextmanager
def _explain_spark_errors() -> Iterator[None]:
    handled = sys.exception()  # an error that the caller is handling
    raise_lost_interrupt()
    try:
        yield
    except Exception as error:
        if _was_interrupted(error, handled):
            raise KeyboardInterrupt from error
        if type(error).__module__.split(".")[0] not in {"pyspark", "py4j", "grpc"}:
            raise
        raise EngineError(
            f"Spark could not run the tasks: {_shorten(error)} The logs of the executors have "
            "the rest."
        ) from error


def _was_interrupted(error: BaseException, handled: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: jobs were cancelled, or Java, which gets it too, was gone.

    PySpark may raise any error then, as its own clean-up does not expect Ctrl-C everywhere. A
    Ctrl-C that was `handled` before does not count.
    """
    if CANCELLED in str(error):
        return True
    while error.__context__ is not None and error.__context__ is not handled:
        error = error.__context__
        if isinstance(error, KeyboardInterrupt):
            return True
    return False


def _shorten(error: Exception) -> str:
    """Return the useful lines of Spark's message: a Python error, or the cause of a Java error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    error_lines = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*:", line)]
    python_errors = [line for line in error_lines if "pyspark" not in line.split(":")[0]]
    causes = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
    text = " ".join(python_errors[-1:] or causes[:1] or lines[:MOST_LINES])
    return text if text.endswith(".") else f"{text}."
