"""`python -m torture.findings`: reproduce the 22 findings of the campaign on version 0.1.0.

Each reproduction runs in separate processes with the sources of this checkout, and must do no harm.
`--beside CHECKOUT` also runs it with the sources of another checkout (and with its `.venv`), where
it must do harm: `git worktree add ../old fa6e825` is the version that was attacked. The exit code
is 1 if a finding is not as expected. Harm is a crash, a traceback, a hang, too much memory or time,
a lost file or a wrong answer; the words of messages do not matter. The numbers are those of
docs/explanation/security.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.damaged_arrow import write_code_outside
from tests.support.format_samples import write_sample
from torture.bombs import old_line_ends, one_line
from torture.children import Watch
from torture.folders import change_manifest, replace_file
from torture.inputs import ads_table, make_log

ROOT = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_name("reproductions.py")
ADDRESS_SPACE = 5 << 30  # bytes that a process may reserve
TIMEOUT = 300.0  # seconds of processor time
MOST_GROWTH = (
    8.0  # of the time if the input grows from n to 4n: linear time grows by 3, and n² by 15
)
LEAST_SECONDS = 0.3  # below which times are noise
ERROR = re.compile(r"^[^\w]*((?:\w+\.)*\w*(?:Error|Exception|Warning)\b)", re.MULTILINE)
ROW = {"query": "a", "ads": ["x", "y"], "clicks": [2]}
SIMULATE = ("simulate", "--sessions", "50", "--weeks", "2", "--queries", "5", "--to")
Symptoms = list[str]  # what went wrong; empty if nothing did


# ---- processes


class NothingShownError(Exception):
    """A reproduction that shows nothing, as it does not get as far as the finding."""


class Run(NamedTuple):
    """How a process ended."""

    code: int  # the exit code, or minus the signal
    output: str
    errors: str
    seconds: float  # of processor time
    is_hung: bool

    def find_crash(self) -> Symptoms:
        """The signal, the traceback or the hang that ended the process."""
        if self.is_hung:
            return [f"no end after {TIMEOUT:g} s"]
        if self.code < 0:
            return [signal.Signals(-self.code).name]
        if "Traceback (most recent call last)" in self.errors:
            return [f"traceback, {(ERROR.findall(self.errors) or ['?'])[-1]}"]
        return []


@dataclass(frozen=True)
class Checkout:
    """Sources of a version, the Python that runs them, and a folder for what they write."""

    package: Path
    python: str
    folder: Path

    def run(self, *words: object, **environment: str) -> Run:
        """Run Python with these arguments in the folder."""
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        variables = {
            **os.environ,
            "PYTHONPATH": str(self.package.parent),
            "PYTHONSAFEPATH": "1",
            "RECLICK_PROGRESS": "0",
            "TMPDIR": str(temporary),
            **environment,
        }
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [self.python, *map(str, words)],
                cwd=self.folder,
                env={name: value for name, value in variables.items() if value},
                stdout=output,
                stderr=errors,
            )
            resource.prlimit(process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            code, seconds, is_hung = _wait(process)
            return Run(code, _read_text(output), _read_text(errors), seconds, is_hung)

    def command(self, *words: object, **environment: str) -> Run:
        """Run a command line."""
        return self.run("-m", "reclick", *words, **environment)

    def control(self, *words: object) -> None:
        """Run a command line that must succeed, so that what follows shows something."""
        run = self.command(*words)
        if run.code:
            raise NothingShownError(f"{words[0]} fails: {run.errors[-300:]}")

    def reproduce(self, name: str, *arguments: object) -> Symptoms:
        """Run a function of the script, and return what went wrong."""
        run = self.run(SCRIPT, name, *arguments)
        if run.find_crash():
            return run.find_crash()
        if run.code:
            raise NothingShownError(f"{name} fails: {run.errors[-300:]}")
        symptoms: Symptoms = json.loads(run.output.splitlines()[-1])
        return symptoms

    def copy_package(self) -> Checkout:
        """The same with a copy of the package, which may be changed."""
        package = self.folder / "site" / "reclick"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(self.package, package, ignore=ignored)
        return Checkout(package, self.python, self.folder)


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, float, bool]:
    """Wait for a process, and kill it if it hangs."""
    watch, is_hung = Watch(process.pid, TIMEOUT), False
    while True:
        child, status, usage = os.wait4(process.pid, os.WNOHANG)
        if child:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime, is_hung
        if not is_hung and watch.is_hung():
            is_hung = True
            process.kill()
        time.sleep(0.02)


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _write_log(folder: Path) -> Path:
    """Write a small log as Parquet."""
    path = folder / "log.parquet"
    pq.write_table(make_log(), path)
    return path


def _write_rows(path: Path, *rows: bytes) -> Path:
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


def _fit(checkout: Checkout, model: str = "multiclick", *words: object) -> Path:
    """Fit a model to a small log."""
    log = _write_log(checkout.folder)
    checkout.control("fit", log, "--model", model, "--to", "model", *words)
    return checkout.folder / "model"


def _list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---- the findings


def count_codes_outside(checkout: Checkout) -> Symptoms:
    """Count a table with a code outside its dictionary."""
    return checkout.reproduce("count_codes_outside")


def count_changed_file(checkout: Checkout) -> Symptoms:
    """Count a Parquet file in which one code is outside of the dictionary."""
    n = 60_000
    columns: dict[str, object] = {"query": ["q"] * n, "ads": [["a"]] * n, "clicks": [[]] * n}
    path = write_code_outside(checkout.folder / "log.parquet", columns, "query")
    run = checkout.command("count", path, "--to", "counts")
    return run.find_crash() or ["counted"] * (run.code == 0)


def upgrade(checkout: Checkout) -> Symptoms:
    """Change a kernel that a kernel of another file calls, and call that one again."""
    copy, cache = checkout.copy_package(), str(checkout.folder / "cache")
    is_old = (copy.package / "compiled.py").exists()
    name = "reclick.compiled" if is_old else "reclick.runtime.jit"
    start = f"from {name} import {'compiled' if is_old else 'kernel'} as kernel\n"
    inner, outer = copy.package / "inner_kernel.py", copy.package / "outer_kernel.py"
    inner.write_text(f"{start}@kernel\ndef ask():\n    return 1\n")
    more = "from reclick.inner_kernel import ask as inner\n"
    outer.write_text(f"{start}{more}@kernel\ndef ask():\n    return inner()\n")
    program = "from reclick.outer_kernel import ask; print(ask())"
    answers = []
    for answer in (1, 1000):
        inner.write_text(inner.read_text().replace("return 1\n", f"return {answer}\n"))
        run = copy.run("-c", program, NUMBA_CACHE_DIR=cache, RECLICK_CACHE_DIR=cache)
        if run.find_crash():
            return run.find_crash()
        answers.append(int(run.output))
    return ["the old kernel ran"] * (answers != [1, 1000])


def check_without_cache(checkout: Checkout) -> Symptoms:
    """Check a log where neither the package nor the home folder can be written."""
    copy = checkout.copy_package()
    for folder in [copy.package, *(path for path in copy.package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()  # a file, so that not even root can write there
    log = _write_log(checkout.folder)
    unset = {"XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": "", "RECLICK_CACHE_DIR": ""}
    run = copy.command("check", log, HOME="/dev/null", **unset)
    return run.find_crash() or [f"exit code {run.code}"] * (run.code != 0)


def convert_beside_ads(checkout: Checkout) -> Symptoms:
    """Convert a log to a file beside which somebody has a table of ads."""
    log, theirs = _write_log(checkout.folder), checkout.folder / "s.ads.parquet"
    pq.write_table(ads_table(), theirs)
    before = theirs.read_bytes()
    checkout.control("convert", log, "--to", "another.parquet")
    checkout.command("convert", log, "--to", "s.parquet")
    return _find_loss(theirs, before)


def _find_loss(path: Path, before: bytes) -> Symptoms:
    """Whether a file is gone or changed."""
    if not path.exists():
        return [f"{path.name} is gone"]
    return [] if path.read_bytes() == before else [f"{path.name} is replaced"]


def split_over_input(checkout: Checkout) -> Symptoms:
    """Split a log into a folder where it is one of the parts."""
    log = _write_log(checkout.folder).rename(checkout.folder / "train.parquet")
    before = log.read_bytes()
    checkout.control("split", log, "--by", "part", "--to", "another")
    checkout.command("split", log, "--by", "part", "--to", ".")
    return _find_loss(log, before)


def predict_over_input(checkout: Checkout) -> Symptoms:
    """Write predictions to the log that they are for."""
    model, log = _fit(checkout), checkout.folder / "log.parquet"
    before = log.read_bytes()
    checkout.control("predict", model, log, "--to", "another.parquet")
    checkout.command("predict", model, log, "--to", log)
    return _find_loss(log, before)


def simulate_over_files(checkout: Checkout) -> Symptoms:
    """Simulate into a folder with a log and ads of others."""
    return _write_over(checkout, ("ads.parquet", "week1.parquet"), *SIMULATE)


def evaluate_over_files(checkout: Checkout) -> Symptoms:
    """Evaluate into a folder with a report and scores of others."""
    log, test = _write_log(checkout.folder), checkout.folder / "test.parquet"
    pq.write_table(make_log(1), test)
    words = ("--train", log, "--test", test, "--models", "dctr", "--resamples", "5", "--to")
    return _write_over(checkout, ("report.md", "scores.parquet"), "evaluate", *words)


def _write_over(checkout: Checkout, names: Sequence[str], *words: object) -> Symptoms:
    """Run a command that writes files with these names, where others wrote them."""
    checkout.control(*words, "another")
    for name in names:
        if not (checkout.folder / "another" / name).exists():
            raise NothingShownError(f"{words[0]} writes no {name}")
        (checkout.folder / name).write_bytes(b"theirs")
    run = checkout.command(*words, ".")
    losses = [_find_loss(checkout.folder / name, b"theirs") for name in names]
    return run.find_crash() or [loss for each in losses for loss in each]


def forge_pair(checkout: Checkout) -> Symptoms:
    """Load a model with an ad far outside the list of ads."""
    ads = checkout.folder / "ads.parquet"
    pq.write_table(ads_table(), ads)
    words = ("--set", "attractiveness_prior=words", "--ads", ads)
    return _forge_cell(checkout, "pairs", "ad", 1_000_000_000, *words)


def forge_length(checkout: Checkout) -> Symptoms:
    """Load a model that was fitted to a page of 2⁴⁰ ads."""
    return _forge_cell(checkout, "lengths", "ads", 2**40)


def forge_estimate(checkout: Checkout) -> Symptoms:
    """Load a model with attractiveness of 10¹⁸."""
    return _forge_cell(checkout, "", "theta_", 1e18)


def _forge_cell(
    checkout: Checkout, table: str, column: str, value: float, *words: object
) -> Symptoms:
    """Change the first value of a column in a table whose name has this end, and ask the model."""
    folder = _fit(checkout, "ubm", *words)
    checkout.control("export", folder, "--to", "judgments.qrels", "--min-support", "1")
    path = next(
        path
        for name, path in _list_tables(folder)
        if name.endswith(table) and column in pq.read_schema(path).names
    )
    content = pq.read_table(path)
    place = content.column_names.index(column)
    values = pa.array([value, *content[column].to_pylist()[1:]], content.schema.field(place).type)
    pq.write_table(content.set_column(place, column, values), path)
    replace_file(path, path.read_bytes())
    return checkout.reproduce("ask", folder)


def _list_tables(folder: Path) -> Iterator[tuple[str, Path]]:
    for name, entry in json.loads((folder / "manifest.json").read_bytes())["files"].items():
        yield name, folder / entry["file"]


def forge_attribute(checkout: Checkout) -> Symptoms:
    """Load a model whose method is replaced by a number."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["settings"]["values"]["click_prob"] = 1

    folder = _fit(checkout, "ubm")
    change_manifest(folder, change)
    return checkout.reproduce("ask", folder)


def unpack_counts(checkout: Checkout) -> Symptoms:
    """Load counts with a table of some KB that takes 2 GB."""
    log, folder, rows = _write_log(checkout.folder), checkout.folder / "counts", 4_000
    checkout.control("count", log, "--to", folder)
    path = next(path for name, path in _list_tables(folder) if name.endswith("queries"))
    codes = pa.array([0] * rows, pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 500_000]))
    pq.write_table(pa.table({"query": texts}), path, store_schema=False, compression="zstd")
    replace_file(path, path.read_bytes(), rows=rows)
    return checkout.reproduce("load_counts", folder)


def convert_odd_byte(checkout: Checkout) -> Symptoms:
    """Convert JSON lines of which one has a byte that is no text in a field that is not read."""
    row = json.dumps(ROW).encode()
    log = _write_rows(checkout.folder / "log.jsonl", row, row[:-1] + b', "agent": "\xe9"}')
    run = checkout.command("convert", log, "--on-error", "drop", "--to", "out.parquet")
    return run.find_crash() or _find_other_rows(checkout.folder / "out.parquet", 2)


def count_beside_bad_line(checkout: Checkout) -> Symptoms:
    """Convert the same line beside a line that is bad."""
    row = json.dumps(ROW).encode()
    rows = (*[row] * 60, row[:-1] + b', "agent": "\xe9"}', b"broken")
    log = _write_rows(checkout.folder / "log.jsonl", *rows)
    run = checkout.command("convert", log, "--on-error", "drop", "--to", "out.parquet")
    return run.find_crash() or _find_other_rows(checkout.folder / "out.parquet", 61)


def _find_other_rows(path: Path, expected: int) -> Symptoms:
    """Compare the rows of a Parquet file with their expected number."""
    rows = pq.read_metadata(path).num_rows if path.exists() else 0
    return [] if rows == expected else [f"{rows} of {expected} sessions"]


def convert_odd_time(checkout: Checkout) -> Symptoms:
    """Convert UBI queries of which one has a time out of range."""
    start = '{"query_id": "q%d", "user_query": "tea", "query_response_hit_ids": ["a"], '
    good = [f'{start % number}"timestamp": "2026-01-01T00:00:00Z"}}' for number in range(60)]
    bad = f'{start % 60}"timestamp": 1e30}}'
    path = checkout.folder / "ubi_queries.ndjson"
    log = _write_rows(path, *(row.encode() for row in [*good[:30], bad, *good[30:]]))
    words = ("--format", "ubi", "--on-error", "drop", "--to", "out.parquet")
    run = checkout.command("convert", log, *words)
    return run.find_crash() or _find_other_rows(checkout.folder / "out.parquet", 60)


def damage_cache(checkout: Checkout) -> Symptoms:
    """Check a log again after the files of the kernel cache were cut."""
    log, cache = _write_log(checkout.folder), checkout.folder / "cache"
    places = {"NUMBA_CACHE_DIR": str(cache), "RECLICK_CACHE_DIR": str(cache)}
    first = checkout.command("check", log, **places)
    files = [path for path in cache.rglob("*") if path.is_file()]
    if first.code or not files:
        raise NothingShownError(f"no kernels in {cache}: {first.errors}")
    symptoms: Symptoms = []
    for share, what in ((0.5, "half a file"), (0.0, "an empty file")):
        for path in files:
            os.truncate(path, int(path.stat().st_size * share))
        again = checkout.command("check", log, **places)
        if (again.code, again.output) != (0, first.output):
            symptoms += [f"{what}: exit code {again.code}", *again.find_crash()]
    return symptoms


def convert_broken_xml(checkout: Checkout) -> Symptoms:
    """Convert 1,000 sessions in XML of which one has an ampersand."""
    text = write_sample("trec_session", checkout.folder).read_text(encoding="utf-8")
    session = text[text.index("<session") : text.index("</session>") + len("</session>")]
    sessions = [session.replace('num="17"', f'num="{number}"') for number in range(1_000)]
    sessions[10] = sessions[10].replace("Sheds", "Sheds & huts")
    log = _write_rows(checkout.folder / "log.xml", f"<root>{''.join(sessions)}</root>".encode())
    words = ("--format", "trec_session", "--on-error", "drop", "--to", "out.parquet")
    run = checkout.command("convert", log, *words)
    if run.code:
        return run.find_crash()  # an error is no silent loss
    return _find_other_rows(checkout.folder / "out.parquet", 999)


def lose_an_update(checkout: Checkout) -> Symptoms:
    """Save two updates of a model that were loaded at the same time."""
    return checkout.reproduce("lose_an_update")


def check_long_line(checkout: Checkout) -> Symptoms:
    """Check a JSON line of 16 and of 64 MB."""
    return _compare_times(checkout, one_line, 16 << 20)


def check_old_line_ends(checkout: Checkout) -> Symptoms:
    """Check CSV of 8 and of 32 MB that has no line feed."""
    return _compare_times(checkout, old_line_ends, 8 << 20)


def check_many_members(checkout: Checkout) -> Symptoms:
    """Check an archive of 500 and of 2,000 members."""
    return _compare_times(checkout, _write_archive, 500 << 10, "--format", "trec_session")


def _write_archive(folder: Path, size: int) -> Path:
    """Write a zip of one member per KB of a size."""
    sample, path = write_sample("trec_session", folder).read_bytes(), folder / "log.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(size >> 10):
            archive.writestr(f"{number}.xml", sample)
    return path


def _compare_times(
    checkout: Checkout, make: Callable[[Path, int], Path], size: int, *words: object
) -> Symptoms:
    """Compare the times of files of a size and of four times that size."""
    seconds = []
    for each in (1 << 15, size, 4 * size):
        run = checkout.command("check", make(checkout.folder, each), *words)
        if run.find_crash():
            return run.find_crash()
        seconds.append(run.seconds)
    shorter, longer = seconds[1] - seconds[0], seconds[2] - seconds[1]
    if longer < MOST_GROWTH * max(shorter, LEAST_SECONDS):
        return []
    return [f"{seconds[1]:.1f} s for a quarter, {seconds[2]:.1f} s for all"]


def check_fat_row(checkout: Checkout) -> Symptoms:
    """Check a small Parquet file with a row of 300 MB."""
    path = checkout.folder / "fat.parquet"
    table = pa.table({"query": ["x" * (300 << 20)], "ads": [["a"]], "clicks": [[1]]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    return checkout.reproduce("measure_memory", "check", path)


def fit_huge_pages(checkout: Checkout) -> Symptoms:
    """Fit UBM to six pages of 10,000 ads."""
    row = {**ROW, "ads": [f"a{number}" for number in range(10_000)], "clicks": [1, 9_999]}
    log = _write_rows(checkout.folder / "log.jsonl", *[json.dumps(row).encode()] * 6)
    words = ("fit", log, "--model", "ubm", "--max-ads", "10000", "--to", "model")
    return checkout.reproduce("measure_memory", *words)


def check_damaged_footer(checkout: Checkout) -> Symptoms:
    """Check a Parquet file whose footer has a wrong level for a column."""
    path = checkout.folder / "log.parquet"
    pq.write_table(pa.table({name: [value] * 4 for name, value in ROW.items()}), path)
    content, mark = path.read_bytes(), b"\x25\x02\x18\x05query"
    if content.count(mark) != 1:
        raise NothingShownError("the footer is not as expected")
    path.write_bytes(content.replace(mark, b"\x25\x00" + mark[2:]))
    return checkout.command("check", path).find_crash()


def kill_and_run_again(checkout: Checkout) -> Symptoms:
    """Kill a conversion before its output is moved, and run it again."""
    return _compare_leftovers(checkout, signal.SIGKILL, is_repeated=True)


def terminate(checkout: Checkout) -> Symptoms:
    """Terminate a conversion before its output is moved."""
    return _compare_leftovers(checkout, signal.SIGTERM, is_repeated=False)


def _compare_leftovers(checkout: Checkout, number: int, *, is_repeated: bool) -> Symptoms:
    """Compare the files after a conversion that got a signal with those of one that did not."""
    log = _write_log(checkout.folder)
    words = ("convert", log, "--to")
    for name in ("good", "ended"):
        (checkout.folder / name).mkdir()
    checkout.control(*words, "good/out.parquet")
    expected = _list_files(checkout.folder / "good") if is_repeated else []
    expected += _list_files(checkout.folder / "tmp")
    run = checkout.run(SCRIPT, "send_at_rename", number, "ended", *words, "ended/out.parquet")
    if run.code not in (-number, 128 + number):
        raise NothingShownError(f"the signal did not end the command: exit code {run.code}")
    if is_repeated:
        checkout.control(*words, "ended/out.parquet")
    files = [name for place in ("ended", "tmp") for name in _list_files(checkout.folder / place)]
    leftovers = set(files) - set(expected)
    return [f"{len(leftovers)} left over"] if leftovers else []


def mix_parts(checkout: Checkout) -> Symptoms:
    """End a split before each move of a file."""
    return checkout.reproduce("mix_parts")


def fit_large_weights(checkout: Checkout) -> Symptoms:
    """Fit models to weights of 10¹⁶ and more."""
    return checkout.reproduce("fit_large_weights")


def find_unsynced(checkout: Checkout) -> Symptoms:
    """Write all kinds of output, and look what is synced."""
    return checkout.reproduce("find_unsynced")


def follow_links(checkout: Checkout) -> Symptoms:
    """Save counts to a folder with links."""
    return checkout.reproduce("follow_links")


def read_while_replaced(checkout: Checkout) -> Symptoms:
    """Load counts that are replaced twice meanwhile."""
    return checkout.reproduce("read_while_replaced")


def call_with_hostile_arguments(checkout: Checkout) -> Symptoms:
    """Call functions with arguments of wrong types."""
    return checkout.reproduce("call_with_hostile_arguments")


def load_odd_manifests(checkout: Checkout) -> Symptoms:
    """Load folders whose manifest is no manifest."""
    return checkout.reproduce("load_odd_manifests")


def fit_long_pages(checkout: Checkout) -> Symptoms:
    """Fit THCM to pages of 500 ads."""
    return checkout.reproduce("fit_long_pages")


def check_odd_name(checkout: Checkout) -> Symptoms:
    """Check a file whose name is no text."""
    path = _write_log(checkout.folder).rename(checkout.folder / "caf\udce9.parquet")
    return checkout.command("check", path).find_crash()


def check_nameless_member(checkout: Checkout) -> Symptoms:
    """Check an archive with a member that has no name."""
    path = checkout.folder / "log.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"{}")
        archive.infolist()[0].filename = ""
    return checkout.command("check", path).find_crash()


def list_models_to_full_disk(checkout: Checkout) -> Symptoms:
    """List the models, with an output that takes nothing."""
    program = (
        "import os, runpy, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
        "sys.argv = ['reclick', 'models']; runpy.run_module('reclick', run_name='__main__')"
    )
    return checkout.run("-c", program).find_crash()


def misread(checkout: Checkout) -> Symptoms:
    """Read what has no meaning."""
    return checkout.reproduce("misread")


def fit_nothing(checkout: Checkout) -> Symptoms:
    """Fit a model to the path "" in a folder with a log."""
    shutil.rmtree(_fit(checkout, "dctr"))  # the folder then has only the log
    run = checkout.command("fit", "", "--model", "dctr", "--to", "another")
    return run.find_crash() or ["the current folder is fitted to"] * (run.code == 0)


FindSymptoms = Callable[[Checkout], Symptoms]


class Reproduction(NamedTuple):
    """One way to reproduce a finding."""

    finding: int
    what: str
    find_symptoms: FindSymptoms


REPRODUCTIONS = [
    Reproduction(*each)
    for each in (
        (1, "a code outside the dictionary of a table", count_codes_outside),
        (1, "a code outside the dictionary of a file", count_changed_file),
        (2, "an upgrade, with kernels in the cache", upgrade),
        (3, "no folder can be written", check_without_cache),
        (4, "convert beside NAME.ads.parquet", convert_beside_ads),
        (5, "split over its input", split_over_input),
        (5, "predict over its input", predict_over_input),
        (5, "simulate over files of others", simulate_over_files),
        (5, "evaluate over files of others", evaluate_over_files),
        (6, "a forged model: an ad of 10⁹", forge_pair),
        (6, "a forged model: a page of 2⁴⁰ ads", forge_length),
        (6, "a forged model: attractiveness of 10¹⁸", forge_estimate),
        (6, "a forged model: a number as a method", forge_attribute),
        (6, "forged counts that unpack to 2 GB", unpack_counts),
        (7, "a bad byte that is not read", convert_odd_byte),
        (7, "a bad byte that is not read, and a bad line", count_beside_bad_line),
        (8, "a time out of range", convert_odd_time),
        (9, "a damaged kernel cache", damage_cache),
        (10, "a broken XML record", convert_broken_xml),
        (11, "two updates of a model at once", lose_an_update),
        (12, "a line without end", check_long_line),
        (12, "CSV that ends lines with CR", check_old_line_ends),
        (12, "an archive of many members", check_many_members),
        (13, "a row of 300 MB", check_fat_row),
        (13, "pages of 10,000 ads", fit_huge_pages),
        (14, "a damaged Parquet footer", check_damaged_footer),
        (15, "leftovers of a killed run, after the next", kill_and_run_again),
        (15, "leftovers of a terminated run", terminate),
        (16, "a split that ends halfway", mix_parts),
        (17, "weights without limit", fit_large_weights),
        (18, "outputs that are not synced", find_unsynced),
        (19, "links in a folder of counts", follow_links),
        (20, "a folder that is replaced twice", read_while_replaced),
        (21, "arguments of wrong types", call_with_hostile_arguments),
        (21, "manifests that are none", load_odd_manifests),
        (21, "THCM on pages of 500 ads", fit_long_pages),
        (21, "a file whose name is no text", check_odd_name),
        (21, "a member without a name", check_nameless_member),
        (21, "an output that takes nothing", list_models_to_full_disk),
        (22, "silent misreadings", misread),
        (22, 'the path ""', fit_nothing),
    )
]


# ---- the table


class Verdict(NamedTuple):
    """What came of a reproduction with the sources of one version."""

    symptoms: Symptoms
    reason: str = ""  # why nothing was shown

    def format(self, *, is_expected: bool) -> str:
        """A cell of the table."""
        if self.reason:
            return f"NOTHING SHOWN: {self.reason}"
        text = f"broken: {'; '.join(self.symptoms)}" if self.symptoms else "held"
        word = text.partition(":")[0]
        return text if is_expected else text.replace(word, word.upper(), 1)


def judge(reproduction: Reproduction, package: Path, python: str) -> Verdict:
    """Reproduce a finding with the sources of a package, in a new folder."""
    with tempfile.TemporaryDirectory(prefix="finding-") as name:
        try:
            return Verdict(reproduction.find_symptoms(Checkout(package, python, Path(name))))
        except NothingShownError as error:
            return Verdict([], str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Reproduce the findings, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m torture.findings", description=__doc__)
    parser.add_argument("--beside", metavar="CHECKOUT", type=Path, help="another checkout")
    parser.add_argument("--finding", metavar="N", type=int, action="append", help="only this one")
    options = parser.parse_args(arguments)
    versions = [(ROOT / "src" / "reclick", sys.executable)]
    if options.beside is not None:
        checkout = options.beside.resolve()
        python = checkout / ".venv" / "bin" / "python"
        versions.append(
            (checkout / "src" / "reclick", str(python) if python.exists() else sys.executable)
        )
    chosen = [
        each for each in REPRODUCTIONS if not options.finding or each.finding in options.finding
    ]
    if not chosen:
        parser.error("there are no such findings")
    print(f"{'':<4}{'finding':<46}{'here':<10}{'there' if options.beside else ''}".rstrip())
    n_unexpected = 0
    with ThreadPoolExecutor(len(versions)) as pool:
        for reproduction in chosen:
            jobs = [pool.submit(judge, reproduction, *version) for version in versions]
            verdicts = [job.result() for job in jobs]
            # Harm is expected of the other version alone.
            are_expected = [
                not verdict.reason and bool(verdict.symptoms) == is_other
                for is_other, verdict in enumerate(verdicts)
            ]
            cells = [
                verdict.format(is_expected=is_expected)
                for verdict, is_expected in zip(verdicts, are_expected, strict=True)
            ]
            row = f"{reproduction.finding:<4}{reproduction.what:<46}{cells[0]:<10}"
            print(row + "".join(cells[1:]), flush=True)
            n_unexpected += are_expected.count(False)
    if n_unexpected:
        print(f"{n_unexpected} not as expected (in capitals): broken here, or not broken there.")
    return 1 if n_unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
