"""Options that several commands share, and functions that read logs, counts and models."""

from __future__ import annotations

import atexit
import json
import sys
import zlib
from contextlib import ExitStack, suppress
from shutil import copyfileobj
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer

from reclick.cli.console import print_note, progress_bars
from reclick.runtime.interrupts import was_interrupted

if TYPE_CHECKING:
    import pyarrow as pa

    from reclick.data.counts import Counts
    from reclick.data.grouped_sessions import GroupedSessions
    from reclick.engines import Engine
    from reclick.logs import SessionLog
    from reclick.models import ClickModel

STDIN = "-"
HEAD_BYTES = 1 << 16  # of standard input, which determine its type
GZIP_START = b"\x1f\x8b"


def complete_format(incomplete: str) -> list[str]:
    """Return the formats whose names begin with a text, for completion in the shell."""
    from reclick.logs.formats import FORMATS

    return [name for name in ("sessions", *FORMATS) if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Complete the last name of a comma-separated list of models, for the shell."""
    from reclick.models.registry import BUILT_IN

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in BUILT_IN if name.startswith(last)]


Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG",
        help="Files, globs or folders: sessions as Parquet, CSV or JSON lines, or another format. "
        "- is standard input.",
    ),
]
Ads = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A table with the text of the ads: ad, title, description, display_url.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="OURS=THEIRS",
        help="Map a column that has another name, e.g. query=search_term.",
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        metavar="raise|drop", help="Bad rows: stop with an error, or drop and count them."
    ),
]
MaxAds = Annotated[int, typer.Option(help="Pages with more ads are bad rows.")]
QuickReturn = Annotated[
    float,
    typer.Option(
        "--quick-return-seconds",
        help="A click with fewer dwell_seconds is a quick return: evidence against satisfaction.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="The format of the log, one of `reclick formats`. Default: detected automatically.",
        autocompletion=complete_format,
    ),
]


Force = Annotated[
    bool,
    typer.Option("--force", help="Overwrite files that Reclick did not write."),
]


EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|pool|spark",
        help="Where to run: in this process, in several processes on this machine, or on Spark.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="With --engine pool: number of processes. Default: one per core.")
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="With --engine spark: spark://host:7077, yarn, local[4], or sc://host for Spark "
        "Connect. Default: the one of spark-submit.",
    ),
]
SharedFolder = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="With --engine spark: a folder that this process and all executors can access.",
    ),
]


Tasks = Annotated[
    int | None,
    typer.Option(help="With --engine spark: number of tasks. Default: about two per core."),
]


class EngineOptions(NamedTuple):
    """The options that choose the engine."""

    engine: str = "local"
    workers: int | None = None
    master: str | None = None
    shared_folder: str | None = None
    tasks: int | None = None

    def open(self) -> Engine | None:
        """Open the engine; None is the default engine."""
        from reclick.errors import UsageError, check_choice

        check_choice("engine", self.engine, ("local", "pool", "spark"))
        if self.workers is not None and self.engine != "pool":
            raise UsageError("--workers is for --engine pool.")
        if self.engine != "spark" and (self.master or self.shared_folder or self.tasks):
            raise UsageError("--master, --shared-folder and --tasks are for --engine spark.")
        if self.engine == "pool":
            from reclick.engines.pool import PoolEngine

            return PoolEngine(self.workers)
        if self.engine == "spark":
            return self._open_spark()
        return None

    def _open_spark(self) -> Engine:
        """Open an engine with a Spark session, which ends with this process."""
        from reclick.engines.spark import SparkEngine, open_session
        from reclick.errors import UsageError

        if self.master and not self.master.startswith("local") and not self.shared_folder:
            raise UsageError(
                f"--master {self.master} needs --shared-folder: a folder that this process and "
                "all executors can access under the same path, such as a mounted volume."
            )
        print_note("Starting Spark")
        session = open_session(self.master)
        if self.master:
            atexit.register(_stop_spark, session, self.master)
        return SparkEngine(session, tasks=self.tasks, folder=self.shared_folder)


def _stop_spark(session: Any, master: str) -> None:
    """Stop a session where its threads may keep the process alive, or Java prints a stack trace.

    Threads of Spark Connect may keep it alive. After Ctrl-C, Java prints a stack trace in most runs
    if the process ends before Spark's tasks, and seldom if Spark is stopped.
    """
    if master.startswith("sc://") or was_interrupted():
        session.stop()


class ReadOptions(NamedTuple):
    """The options that say how to read a log."""

    columns: list[str] | None = None
    on_error: str = "raise"
    max_ads: int = 100
    format: str | None = None
    quick_return_seconds: float = 10.0
    engine: Engine | None = None


class LoadedLog(NamedTuple):
    """The data that a model is fitted to, and the text of ads of the log."""

    data: Counts | GroupedSessions | SessionLog
    ads: pa.Table | None = None
    log: SessionLog | None = None  # if the fit reads it, so that its summary is known after that


_stdin_folders = ExitStack()  # temporary folders, which are removed when the process ends
atexit.register(_stdin_folders.close)


def with_stdin(paths: list[str]) -> list[str]:
    """Replace the path - by a temporary file with the content of standard input.

    The first bytes determine the type of the file.
    """
    from reclick.errors import UsageError

    if paths.count(STDIN) > 1:
        raise UsageError("- is standard input, which can be read only once. Give it once.")
    return [_spool_stdin() if path == STDIN else path for path in paths]


def _spool_stdin() -> str:
    from reclick.errors import LogError
    from reclick.runtime.outputs import scratch_folder

    stream = sys.stdin.buffer
    head = stream.read(HEAD_BYTES)
    if not head:
        raise LogError("- is standard input, and it is empty. Was something piped into it?")
    path = _stdin_folders.enter_context(scratch_folder()) / f"stdin{guess_suffix(head)}"
    with path.open("wb") as file:
        file.write(head)
        copyfileobj(stream, file)
    return str(path)


def guess_suffix(head: bytes) -> str:
    r"""Guess the ending of a file name from the first bytes of the file.

    >>> guess_suffix(b"PAR1..."), guess_suffix(b' {"query": 1}'), guess_suffix(b"query\tads")
    ('.parquet', '.jsonl', '.tsv')
    """
    from reclick.runtime.parquet_layout import PARQUET_MAGIC

    if head.startswith(GZIP_START):
        with suppress(zlib.error):  # damaged gzip raises an error when it is read
            head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        return f"{guess_suffix(head.removeprefix(GZIP_START))}.gz"
    if head.startswith(PARQUET_MAGIC):
        return ".parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if start in {b"{", b"["}:
        return ".jsonl" if start == b"{" else ".json"
    first_line = head.split(b"\n", 1)[0]
    return ".tsv" if b"\t" in first_line else ".csv"


def open_log(
    paths: list[str],
    options: ReadOptions,
    ads: str | None = None,
    *,
    clicks_required: bool = True,
) -> SessionLog:
    """Open a log; print which format it was recognised as."""
    from reclick.logs import read_sessions

    refuse_models(paths)
    with progress_bars() as progress:
        log = read_sessions(
            with_stdin(paths),
            ads=ads,
            format=options.format,
            columns=parse_assignments("--column", options.columns),
            on_error=on_error_choice(options.on_error),
            max_ads=options.max_ads,
            quick_return_seconds=options.quick_return_seconds,
            clicks_required=clicks_required,
            progress=progress,
        )
    report_format(log, options.format)
    return log


def count_logs(paths: list[str], options: ReadOptions) -> LoadedLog:
    """Count logs, and add up their counts and those of folders."""
    from reclick.engines import as_counts
    from reclick.runtime import artifact

    refuse_models(paths)
    folders = [path for path in paths if artifact.is_artifact(path)]
    logs = [path for path in paths if path not in folders]
    counts, ads = [as_counts(folder) for folder in folders], None
    if logs:
        log = open_log(logs, options)
        with progress_bars() as progress:
            counts.append(as_counts(log, engine=options.engine, progress=progress))
        report_summary(log)
        ads = log.ads
    return LoadedLog(sum(counts[1:], start=counts[0]), ads)


def read_results(pairs: list[str], visits: list[str]) -> Counts:
    """Read counts from two results of `reclick sql`, each in Parquet or CSV files."""
    from reclick.data.counts import Counts

    return Counts.from_tables(_read_result(pairs), _read_result(visits))


def _read_result(paths: list[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    from reclick.data.arrow_checks import check_batch_codes
    from reclick.data.result_tables import TEXT_RESULT
    from reclick.errors import LogError
    from reclick.logs.files.source import find_files
    from reclick.runtime.filesystem import arrow_input, as_path

    texts = dict.fromkeys(TEXT_RESULT, pa.string())
    texts |= {name.upper(): kind for name, kind in texts.items()}
    options = pa.csv.ConvertOptions(column_types=texts, strings_can_be_null=False)
    tables = []
    for file in find_files(list(paths)):
        is_parquet = as_path(file).suffix.lower() in {".parquet", ".pq"}
        try:
            source = arrow_input(file)
            table = (
                pq.ParquetFile(source).read()
                if is_parquet
                else pa.csv.read_csv(source, convert_options=options)
            )
            for batch in table.to_batches():
                check_batch_codes(batch, str(file))
            tables.append(table)
        except pa.ArrowException as error:
            raise LogError(f"{file} cannot be read as a result of `reclick sql`: {error}") from None
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise LogError(f"The files are not of one result of `reclick sql`: {error}") from None


def group_logs(paths: list[str], options: ReadOptions) -> LoadedLog:
    """Group the sessions of logs."""
    from reclick.engines import as_grouped
    from reclick.runtime import artifact

    refuse_models(paths)
    for path in filter(artifact.is_artifact, paths):
        return LoadedLog(as_grouped(path))  # which raises an error with the reason
    log = open_log(paths, options)
    with progress_bars() as progress:
        sessions = as_grouped(log, engine=options.engine, progress=progress)
    report_summary(log)
    return LoadedLog(sessions, log.ads)


def keep_log(paths: list[str], options: ReadOptions) -> LoadedLog:
    """Open a log for a model that is fitted to the log itself, as it needs more columns."""
    log = open_log(paths, options)
    return LoadedLog(log, log.ads, log)


def refuse_models(paths: list[str]) -> None:
    """Raise if a path is the folder of a model: its name was given in the place of a log."""
    from reclick.errors import UsageError
    from reclick.runtime import artifact

    for path in filter(artifact.is_artifact, paths):
        if artifact.get_kind(path) == "model":
            raise UsageError(
                f"{path} is a model, not a log. Give the log, such as logs/week2.parquet; what a "
                f"model holds is shown by: reclick show {path}"
            )


def read_ads_table(ads: str | None, on_error: str) -> pa.Table | None:
    """Read the text of the ads; before logs are counted, so that a bad row is reported early."""
    from reclick.logs import read_ads

    return None if ads is None else read_ads(ads, on_error=on_error_choice(on_error))


def on_error_choice(text: str) -> Literal["raise", "drop"]:
    """Return the text of --on-error; the library raises an error if it is not a choice."""
    return cast(Literal["raise", "drop"], text)


def parse_assignments(option: str, texts: list[str] | None) -> dict[str, str]:
    """Parse the NAME=VALUE texts of an option."""
    from reclick.errors import SettingError

    for text in texts or []:
        if "=" not in text:
            raise SettingError(option, text, "NAME=VALUE")
    return dict(text.split("=", 1) for text in texts or [])


def parse_value(text: str) -> Any:
    """Parse a number, true, false or null; any other text is returned unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def new_model(name: str, settings: list[str] | None, *, option: str = "--model") -> ClickModel:
    """Make a model from its name and settings, without fitting it."""
    from reclick.errors import SettingError, UsageError
    from reclick.models import MODELS

    also = "" if option == "--model" else ", or the folder of a model"
    model = MODELS.find(name, argument=option, also=also)
    assignments = parse_assignments("--set", settings)
    try:
        return model(**{key: parse_value(text) for key, text in assignments.items()})
    except SettingError as error:
        raise UsageError(f"--set {error}") from error


def report_format(log: SessionLog, requested: str | None) -> None:
    """Print which format a log was recognised as, unless it was requested."""
    if requested is not None or log.provenance is None:
        return
    if log.provenance.format not in {None, "sessions"}:
        print_note(
            f"{log.name}: read as {log.provenance.format}. If it is something else, "
            "give its format with --format."
        )


def report_summary(log: SessionLog) -> None:
    """Print the warnings about a log, and its dropped rows and notes."""
    report_warnings(log)
    report_dropped(log)


def report_dropped(log: SessionLog) -> None:
    """Print the dropped rows of a log and its notes."""
    if log.summary.dropped or log.summary.notes:
        print_note(str(log.summary))


def report_warnings(log: SessionLog) -> None:
    """Print a warning if a log has no clicks, and one if its lists of ads look unlike lists."""
    error = log.no_clicks_error()
    if error is not None:
        message = error.render(lambda argument: f"--{argument.name} {' '.join(argument.value)}")
        print_note(f"warning: {message}")
    report_single_ads(log)


def report_single_ads(log: SessionLog) -> None:
    """Print a warning if a log that was read has one ad on every page, which looks like a list."""
    error = log.single_ads_error()
    if error is not None:
        print_note(f"warning: {error}")
