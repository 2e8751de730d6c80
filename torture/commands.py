"""Commands that write, interrupted by a crash, a signal or a full disk; and foreign files.

Afterwards the folder must contain either its earlier contents or the output of the command, and
nothing else. Foreign files are files that Reclick did not write.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq

import reclick as rc
from reclick.runtime.outputs import LIST_FILE, complete_commit
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import Outcome, run_in_child
from torture.inputs import ads_table, bids_table, labels_table, make_log

State = dict[str, bytes]
OTHERS = {"notes.txt": b"mine", ".reclick-mine/notes.txt": b"mine too", "out.bak": b"a copy"}
INTERRUPTED = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class Command:
    """A command that runs on the inputs 1 and 2: its arguments, and which files are its output."""

    name: str
    words: tuple[str, ...]  # {x} stands for the input, {to} for the target folder
    repeats: bool = True  # whether the same input gives the same bytes
    updates: bool = False  # whether it changes existing files
    target: str = "{to}"
    files: tuple[str, ...] = field(default=())

    def line(self, x: str, to: Path) -> list[str]:
        """The arguments of the command line."""
        return [word.format(x=x, to=to) for word in self.words]


EXPORT = ("export", "model{x}", "--min-support", "1", "--to")
COMMANDS = [
    Command(
        "simulate",
        ("simulate", "--to", "{to}", "--sessions", "{x}0", "--weeks", "2", "--queries", "5"),
    ),
    Command("split", ("split", "{x}.parquet", "--by", "part", "--to", "{to}")),
    Command("convert", ("convert", "{x}.parquet", "--to", "{to}/out.parquet")),
    Command(
        "convert and clean",
        ("convert", "{x}.parquet", "--max-pages-per-hour", "50", "--to", "{to}/out.parquet"),
    ),
    Command("convert ubi", ("convert", "{x}.ndjson", "--format", "ubi", "--to", "{to}/u.parquet")),
    Command("predict", ("predict", "model", "{x}.parquet", "--to", "{to}/out.parquet")),
    Command("predict csv", ("predict", "model", "{x}.parquet", "--to", "{to}/out.csv")),
    Command("rank", ("rank", "model", "pairs{x}.parquet", "--to", "{to}/out.parquet")),
    Command("auction", ("auction", "model", "bids{x}.parquet", "--to", "{to}/out.parquet")),
    *(
        Command(f"export {kind}", (*EXPORT, "{to}/o." + kind))
        for kind in ("qrels", "letor", "csv", "json", "parquet")
    ),
    Command(
        "report",
        ("report", "model{x}", "test.parquet", "--resamples", "5", "--to", "{to}/r.html"),
        repeats=False,
    ),
    Command(
        "evaluate",
        (
            *("evaluate", "--train", "{x}.parquet", "--test", "test.parquet", "--models", "dctr"),
            *("--resamples", "5", "--to", "{to}"),
        ),
        repeats=False,
        files=("scores.parquet", "differences.parquet", "curves.parquet", "evaluation.json"),
    ),
    Command("count", ("count", "{x}.parquet", "--to", "{to}/counts"), target="{to}/counts"),
    Command(
        "fit",
        ("fit", "{x}.parquet", "--model", "dctr", "--to", "{to}/m"),
        repeats=False,
        target="{to}/m",
    ),
    Command(
        "update",
        ("fit", "{x}.parquet", "--update", "--to", "{to}/m"),
        repeats=False,
        updates=True,
        target="{to}/m",
    ),
]


def prepare_inputs(folder: Path) -> None:
    """Write the inputs 1 and 2 of all commands, and the models."""
    ubi = (
        '{{"query_id":"q{0}","user_query":"s","query_response_hit_ids":["a","b"]}}\n'
        '{{"action_name":"click","query_id":"q{0}","event_attributes":'
        '{{"object":{{"object_id":"a"}},"position":{{"ordinal":1}}}}}}\n'
    )
    for x in (1, 2):
        log = make_log(x, 60)
        pq.write_table(log, folder / f"{x}.parquet")
        pq.write_table(bids_table().slice(0, 20 * x), folder / f"bids{x}.parquet")
        pairs = labels_table().drop_columns("relevance").slice(0, 20 * x)
        pq.write_table(pairs, folder / f"pairs{x}.parquet")
        (folder / f"{x}.ndjson").write_text("".join(ubi.format(i) for i in range(5 * x)))
        rc.MultiClick().fit(log, ads=ads_table()).save(folder / f"model{x}")
    pq.write_table(make_log(3, 60), folder / "test.parquet")
    rc.MultiClick().fit(make_log(1, 60), ads=ads_table()).save(folder / "model")


def warm_up(folder: Path) -> None:
    """Import and compile what the commands use in this process, so that children start quickly."""
    import reclick.cli  # noqa: F401, an import that a signal interrupts may fail in Python itself
    from reclick.auction import rank_pages, run_auctions

    log, model = make_log(1, 60), rc.MultiClick().fit(make_log(1, 60), ads=ads_table())
    model.clone().fit(log).update(make_log(2, 20))
    rc.simulate(10, weeks=2, queries=5).save(folder / "simulation")
    rc.split(log, folder / "parts", by="part")
    rc.convert(folder / "parts" / "train.parquet", folder / "c.parquet")
    cleaning = rc.Cleaning(max_pages_per_hour=50)
    rc.convert(folder / "parts" / "train.parquet", folder / "c.parquet", cleaning=cleaning)
    for name in ("p.parquet", "p.csv"):
        rc.predict(model, log, folder / name)
    rank_pages(model, labels_table().drop_columns("relevance").slice(0, 20))
    run_auctions(model, bids_table().slice(0, 20))
    for kind in ("qrels", "letor", "csv", "json", "parquet"):
        rc.export(model, folder / f"o.{kind}", min_support=1)
    model.report(make_log(3, 60), resamples=5).to_html(folder / "r.html")
    rc.evaluate(["dctr"], make_log(3, 60), train=log, resamples=5).save(folder / "e")
    rc.count(log).save(folder / "counts")


def run_command(line: list[str], folder: Path, temporary: Path, *, keep_output: bool = True) -> int:
    """Run a command line in this process, in a folder, and return its exit code."""
    from reclick.__main__ import main

    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    os.environ["RECLICK_PROGRESS"] = "0"
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        place = temporary.parent / f"{name}.txt" if keep_output else Path(os.devnull)
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        setattr(sys, name, os.fdopen(number, "w", closefd=False))  # pytest has replaced it
    try:
        sys.argv = ["reclick", *line, "--quiet"]
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def read_state(folder: Path) -> State:
    """The files in a folder, without the hidden files of Reclick."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if not path.relative_to(folder).parts[0].startswith(".reclick-")
        or path.relative_to(folder).parts[0] == ".reclick-mine"
        if path.name not in {LIST_FILE, ".lock"}
    }


class WritingCampaign(Campaign):
    """Attempts to break commands that write."""

    commands: list[Command] = COMMANDS
    # Shared by the campaigns of a process, because it takes long to prepare.
    _shared_state: ClassVar[dict[str, Any]] = {}

    def prepare(self, folder: Path) -> None:
        """Write the inputs, and run every command on input 1 and on input 2."""
        if self._shared_state and self.commands is COMMANDS:
            vars(self).update(self._shared_state)
            return
        self.folder = folder
        prepare_inputs(folder)
        warm_up(folder / "warm")
        self.old: dict[str, Path] = {}
        self.new: dict[str, State] = {}
        self.steps: dict[str, int] = {}
        for command in self.commands:
            old = folder / f"before {command.name}"
            if command.updates:
                rc.MultiClick().fit(make_log(1, 60)).save(old / "m")
            else:
                self._run(command, "1", old)
            write_foreign_files(old)
            new = folder / f"after {command.name}"
            shutil.copytree(old, new, symlinks=True)
            outcome = self._run(command, "2", new)
            if outcome.status != "done" or outcome.value != 0:
                raise RuntimeError(f"{command.name}: {outcome} {self._errors(folder)}")
            self.old[command.name] = old
            self.new[command.name] = read_state(new)
            self.steps[command.name] = outcome.steps
        if self.commands is COMMANDS:
            WritingCampaign._shared_state = dict(vars(self))

    def _errors(self, folder: Path) -> str:
        with contextlib.suppress(OSError):
            return (folder / "stderr.txt").read_text(errors="replace")[-1500:]
        return ""

    def _run(self, command: Command, x: str, to: Path, **how: Any) -> Outcome:
        to.mkdir(exist_ok=True, parents=True)
        temporary = to.parent / f"tmp {to.name}"
        line = command.line(x, to)
        return run_in_child(
            lambda: run_command(line, self.folder, temporary), handle_term=True, **how
        )

    def _start(self, command: Command, folder: Path) -> Path:
        target = folder / "target"
        shutil.copytree(self.old[command.name], target, symlinks=True)
        return target

    def _judge(self, command: Command, target: Path, outcome: Outcome, what: str) -> Failure | None:
        """Compare the folder with the old and the new state, and run the command again."""
        failure = explain_outcome(outcome, what)
        if failure is not None:
            return Failure(failure.kind, failure.message + self._errors(target.parent))
        complete_commit(target)
        old, now, new = (
            read_state(self.old[command.name]),
            read_state(target),
            self.new[command.name],
        )
        state = classify(command, old, now, new)
        if state not in {"old", "new"}:
            return Failure("mixed state", f"{what}: {state}")
        if command.target != "{to}" and (target / command.target.format(to=target)).exists():
            place = Path(command.target.format(to=target))
            load_outcome = run_in_child(lambda: _load(place))
            if load_outcome.status != "done":
                return Failure("lost state", f"{what}: {load_outcome.message}")
        if command.updates:
            return None
        second_outcome = self._run(command, "2", target)
        if second_outcome.status != "done" or second_outcome.value != 0:
            errors = self._errors(target.parent)
            return Failure("lost state", f"{what}: cannot be repeated: {second_outcome} {errors}")
        if classify(command, old, read_state(target), new) != "new":
            return Failure("lost state", f"{what}: repeated, and still not the new state")
        return find_leftovers(target, what)


def _load(folder: Path) -> None:
    from reclick.runtime import artifact

    if artifact.is_artifact(folder):
        artifact.read(folder)


def classify(command: Command, old: State, now: State, new: State) -> str:
    """Return "old" or "new" if the state is one of them, else what is wrong."""
    for name, content in OTHERS.items():
        if now.get(name) != content:
            return f"{name}, a foreign file, was changed"
    names = sorted((old.keys() | new.keys() | now.keys()) - OTHERS.keys())
    is_store = command.target != "{to}"
    if is_store:  # a manifest and the files that it lists: loading is checked elsewhere
        manifest = next(name for name in names if name.endswith("manifest.json"))
        return "old" if now.get(manifest) == old.get(manifest) else "new"
    if command.files:
        names = [name for name in names if name in command.files]
    names_that_differ = [name for name in names if old.get(name) != new.get(name)]
    if all(now.get(name) == old.get(name) for name in names):
        return "old"
    if command.repeats and all(now.get(name) == new.get(name) for name in names):
        return "new"
    old_names = [name for name in names_that_differ if now.get(name) == old.get(name)]
    if not command.repeats and not old_names:
        return "new"
    mixed_names = [name for name in names if now.get(name) not in (old.get(name), new.get(name))]
    return f"of {names}: old {old_names}, neither old nor new {mixed_names}"


def find_leftovers(target: Path, what: str) -> Failure | None:
    """A failure if there are files that only a running command may have."""
    places = [target, target.parent / f"tmp {target.name}"]
    leftovers = [
        str(path)
        for place in places
        if place.exists()
        for path in place.rglob("*")
        if path.name.startswith((".reclick-", "reclick-")) or path.name.endswith(".writing")
        if path.name not in {LIST_FILE, ".reclick-mine"}
    ]
    return Failure("leftovers", f"{what}: {leftovers}") if leftovers else None


def write_foreign_files(folder: Path) -> None:
    """Write foreign files to a folder."""
    for name, content in OTHERS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class CrashesAtSteps(WritingCampaign):
    """The process ends before a step on the file system, as in a power cut."""

    name = "crash at a step"
    share = 4.0

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Crash one command at one step."""
        command = rng.choice(self.commands)
        step = rng.randint(1, self.steps[command.name] + 2)
        target = self._start(command, folder)
        outcome = self._run(command, "2", target, crash_at=step)
        return self._judge(command, target, outcome, f"{command.name}, step {step}")


class Kills(WritingCampaign):
    """A signal at any time: KILL, INT or TERM."""

    name = "killed at any time"
    share = 3.0

    def prepare(self, folder: Path) -> None:
        """Prepare as for other commands, and measure how long every command takes."""
        super().prepare(folder)
        self.seconds = {}
        for command in self.commands:
            if not command.updates:
                target = self.folder / f"after {command.name}"
                self.seconds[command.name] = self._run(command, "2", target).seconds

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Kill one command."""
        command = rng.choice(self.commands)
        signal_number = rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        delay = rng.random() * self.seconds.get(command.name, 0.3) * 1.1
        target = self._start(command, folder)
        outcome = self._run(command, "2", target, kill=(delay, signal_number))
        what = f"{command.name}, {signal_number.name} after {delay:.3f} s"
        if outcome.status == "interrupted":
            outcome = Outcome("done", INTERRUPTED[signal_number])  # before the command had started
        if outcome.status == "done" and outcome.value not in (0, INTERRUPTED.get(signal_number)):
            message = f"{what}: exit code {outcome.value} {self._errors(folder)}"
            return Failure("exit code", message)
        if outcome.status == "done" and signal_number != signal.SIGKILL:
            failure = find_leftovers(target, what)
            if failure is not None:
                return failure
        return self._judge(command, target, outcome, what)


class FullDisks(WritingCampaign):
    """No space for the output of a command: in the file system, or by a limit on file sizes."""

    name = "full disk"
    share = 2.0

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Run a command with little space."""
        command = rng.choice(self.commands)
        if rng.random() < 0.5:
            limit = int(2 ** rng.uniform(0, 15))
            target = self._start(command, folder)
            outcome = self._run_limited(command, target, limit)
            return self._check(command, target, outcome, f"{command.name}, files of {limit} bytes")
        with small_disk(folder / "disk", rng.choice([64, 128, 160, 192, 224, 256, 320])) as disk:
            if disk is None:
                return None
            target = disk / "target"
            try:
                shutil.copytree(self.old[command.name], target, symlinks=True)
            except (OSError, shutil.Error):
                return None  # not even the old state fits
            outcome = self._run(command, "2", target)
            return self._check(command, target, outcome, f"{command.name}, full disk")

    def _run_limited(self, command: Command, target: Path, limit: int) -> Outcome:
        temporary, line = target.parent / "tmp target", command.line("2", target)

        def work() -> int:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            # The output to the terminal must not be limited: usually it is not a file.
            return run_command(line, self.folder, temporary, keep_output=False)

        return run_in_child(work, handle_term=True)

    def _check(self, command: Command, target: Path, outcome: Outcome, what: str) -> Failure | None:
        failure = explain_outcome(outcome, what)
        if failure is not None:
            return Failure(failure.kind, failure.message + self._errors(target.parent))
        if outcome.status == "done" and outcome.value not in (0, 2):
            return Failure("exit code", f"{what}: exit code {outcome.value}")
        old, now = read_state(self.old[command.name]), read_state(target)
        state = classify(command, old, now, self.new[command.name])
        expected = "new" if outcome.value == 0 else "old"
        if state != expected and not (command.updates and state in {"old", "new"}):
            errors = self._errors(target.parent)
            return Failure("lost state", f"{what}: {state} after exit {outcome.value}: {errors}")
        return find_leftovers(target, what)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path | None]:
    """A file system of this size; None if this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    try:
        completed_process = subprocess.run(command, check=False, capture_output=True)
    except OSError:
        yield None
        return
    if completed_process.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)  # noqa: S607


class FilesOfOthers(WritingCampaign):
    """Targets that are foreign files or inputs of the command: they must not be replaced."""

    name = "files of others"
    share = 2.0

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Run a command whose target is a foreign file or its own input."""
        commands = [command for command in self.commands if command.target == "{to}"]
        command = rng.choice(commands)
        target = folder / "target"
        names = sorted(set(self.new[command.name]) - set(OTHERS))
        if command.files:
            names = list(command.files)
        name = rng.choice(names)
        write_foreign_files(target)
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = rng.choice(list(FOREIGN))
        force = kind in {"source", "hard link", "link"} and rng.random() < 0.5
        source = self._source(command, folder)
        FOREIGN[kind](path, source)
        before = _snapshot(folder)
        words = [word.replace("{x}.parquet", str(source)) for word in command.words]
        command_with_target = Command(command.name, (*words, *["--force"] * force))
        outcome = self._run(command_with_target, "2", target)
        what = f"{command.name}: {kind} at {name}{', --force' if force else ''}"
        failure = explain_outcome(outcome, what)
        if failure is not None:
            return failure
        is_read = kind in {"source", "hard link", "link"} and str(source) in words
        if outcome.value == 0 and (not force or is_read):
            return Failure("file of others", f"{what}: not refused")
        if outcome.value != 0 and _snapshot(folder) != before:
            return Failure("file of others", f"{what}: refused, but a file changed")
        return None

    def _source(self, command: Command, folder: Path) -> Path:
        source = folder / "source.parquet"
        shutil.copy(self.folder / "2.parquet", source)
        return source


def _snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (
            path.read_bytes() if path.is_file() else b"",
            path.lstat().st_ino,
        )
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] in {"target", "source.parquet"}
    }


def _write_foreign_file(path: Path, source: Path) -> None:
    path.write_bytes(b"theirs")


def _copy_source(path: Path, source: Path) -> None:
    source.rename(path)
    source.symlink_to(path)


def _hard_link(path: Path, source: Path) -> None:
    os.link(source, path)


def _link(path: Path, source: Path) -> None:
    path.symlink_to(source)


def _dangling_link(path: Path, source: Path) -> None:
    path.symlink_to("nowhere")


def _make_folder(path: Path, source: Path) -> None:
    path.mkdir()
    (path / "theirs.txt").write_bytes(b"theirs")


FOREIGN: dict[str, Callable[[Path, Path], None]] = {
    "file": _write_foreign_file,
    "source": _copy_source,
    "hard link": _hard_link,
    "link": _link,
    "dangling link": _dangling_link,
    "folder": _make_folder,
}
