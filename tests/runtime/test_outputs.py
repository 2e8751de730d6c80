"""Outputs: several files are one commit, files of others stay, and leftovers go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reclick.errors import StoreError, UsageError
from reclick.runtime.outputs import (
    COMMIT_FOLDER,
    LIST_FILE,
    check_targets,
    complete_commit,
    is_own_file,
    remove_leftovers,
    scratch_folder,
    stage_files,
    write_files,
)
from torture.children import run_in_child

NAMES = ("a.txt", "b.txt", "c.txt")


def write_set(folder: Path, text: str, names: tuple[str, ...] = NAMES) -> None:
    """Write a set of files; those of NAMES that are left out are removed."""
    with stage_files([folder / name for name in NAMES], where=folder) as staged:
        for path in staged:
            if path.name in names:
                path.write_text(f"{text} {path.name}")


def read_set(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name[0] != "."}


def expected(text: str, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    return {name: f"{text} {name}" for name in names}


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".reclick-"))


# ---- several files are one commit


def test_a_crash_at_any_step_leaves_the_old_set_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it is a step, and takes no time
    steps = run_in_child(lambda: write_set(tmp_path / "all", "new")).steps
    assert steps > 15
    found = set()
    for step in range(1, steps + 8):  # a second write takes some more
        folder = tmp_path / str(step)
        write_set(folder, "old")
        (folder / "mine.txt").write_text("mine")
        outcome = run_in_child(lambda: write_set(folder, "new", NAMES[1:]), crash_at=step)  # noqa: B023
        found.add(outcome.status)
        complete_commit(folder)  # as every reader and writer does first
        assert (folder / "mine.txt").read_text() == "mine"
        (folder / "mine.txt").unlink()
        assert read_set(folder) in (expected("old"), expected("new", NAMES[1:]))
        assert all(is_own_file(folder / name) for name in read_set(folder))
        write_set(folder, "again")
        assert read_set(folder) == expected("again")
        assert hidden(folder) == [LIST_FILE]
    assert found == {"crashed", "done"}


def test_a_reader_completes_what_a_killed_run_had_committed(tmp_path: Path) -> None:
    import reclick as rc

    log = {"query": ["q"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [], [2], [1]]}
    first = {**log, "part": ["history", "train", "train", "test"]}
    second = {**log, "part": ["train", "test", "test", "test"]}
    rc.split(first, tmp_path, by="part")
    for step in range(1, 200):
        outcome = run_in_child(lambda: rc.split(second, tmp_path, by="part"), crash_at=step)
        if outcome.status == "done":
            raise AssertionError("no step between the commit and its completion was hit")
        if (tmp_path / COMMIT_FOLDER).exists():
            break
    sizes = {
        name: rc.read_sessions(tmp_path / f"{name}.parquet").summary.kept
        for name in ("train", "test")
    }
    assert sizes == {"train": 1, "test": 3}
    assert not (tmp_path / "history.parquet").exists()
    assert not (tmp_path / COMMIT_FOLDER).exists()


def test_a_full_disk_before_anything_is_moved_takes_the_commit_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match=r"The disk is full.*is unchanged"):
            write_set(tmp_path, "new")
    assert read_set(tmp_path) == expected("old")
    assert hidden(tmp_path) == [LIST_FILE]


def test_writers_of_one_set_do_not_mix(tmp_path: Path) -> None:
    def write(text: str) -> None:
        for _ in range(10):
            write_set(tmp_path, text)

    writers = [threading.Thread(target=write, args=(text,)) for text in "xyz"]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len({text.split()[0] for text in read_set(tmp_path).values()}) == 1
    assert all(is_own_file(tmp_path / name) for name in NAMES)
    assert hidden(tmp_path) == [LIST_FILE]


def test_writers_of_different_files_all_stay_on_the_list(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for number in range(10):
            write_files(tmp_path, {name: partial(Path.write_text, data=str(number))})

    writers = [threading.Thread(target=write, args=(name,)) for name in NAMES]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert read_set(tmp_path) == dict.fromkeys(NAMES, "9")
    assert all(is_own_file(tmp_path / name) for name in NAMES)


def test_every_file_and_its_folder_are_synced_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_set(tmp_path, "new")
    assert [Path(path).name for path in synced[:3]] == list(NAMES)
    assert synced[-1] == str(tmp_path)


# ---- files of others


def test_what_reclick_wrote_is_replaced_and_what_others_wrote_is_not(tmp_path: Path) -> None:
    write_set(tmp_path, "old")
    write_set(tmp_path, "new")
    (tmp_path / "b.txt").write_text("new b.TXT")  # as long as before
    with pytest.raises(UsageError, match="did not write it, or it was changed") as caught:
        write_set(tmp_path, "newer")
    assert caught.value.render(lambda argument: f"--{argument.option}").endswith("with --force.")
    assert read_set(tmp_path) == {**expected("new"), "b.txt": "new b.TXT"}
    write_files(tmp_path, {"b.txt": lambda path: path.write_text("mine")}, overwrite=True)
    assert is_own_file(tmp_path / "b.txt")


def test_a_copy_of_what_reclick_wrote_is_known_by_its_content(tmp_path: Path) -> None:
    write_set(tmp_path, "old")
    os.utime(tmp_path / "a.txt", ns=(0, 0))
    assert is_own_file(tmp_path / "a.txt")
    write_set(tmp_path, "new")


def test_a_file_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        path.write_text("ours")
        (tmp_path / "a").write_text("theirs")

    with pytest.raises(UsageError, match="did not write it"):
        write_files(tmp_path, {"a": write})
    assert (tmp_path / "a").read_text() == "theirs"


def test_a_removed_part_that_others_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")  # empty, so that it may be replaced, but not ours
    write_set(tmp_path, "new", NAMES[1:])
    assert read_set(tmp_path) == {"a.txt": "", **expected("new", NAMES[1:])}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Path.mkdir, "is a folder"),
        (fifo, "is a device or a pipe"),
        (link_to_nothing, "did not write"),
    ],
)
def test_what_is_no_file_is_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "a")
    with pytest.raises((StoreError, UsageError), match=message):
        check_targets([tmp_path / "a"])
    assert os.path.lexists(tmp_path / "a")


@pytest.mark.parametrize(
    "content", ["", "[]", '{"files": 1}', '{"files": {"a.txt": 1}}', "[" * 10000]
)
def test_a_damaged_list_makes_every_file_somebody_elses(tmp_path: Path, content: str) -> None:
    write_set(tmp_path, "old")
    (tmp_path / LIST_FILE).write_text(content)
    with pytest.raises(UsageError):
        write_set(tmp_path, "new")
    assert read_set(tmp_path) == expected("old")


# ---- leftovers


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    def die(place: Path) -> None:
        with scratch_folder(place) as folder:
            (folder / "half").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    outcome = run_in_child(lambda: die(tmp_path))
    assert outcome.signal == signal.SIGKILL
    (left,) = hidden(tmp_path)
    others = [".reclick-backup", f".reclick-{'0' * 32}", f"x.reclick-{'0' * 32}"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("mine")
    with scratch_folder(tmp_path) as running:
        assert not (tmp_path / left).exists()
        with scratch_folder(tmp_path):
            assert running.is_dir()  # that of a run which is not over
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_crash_at_any_step_of_a_scratch_folder_leaves_nothing_for_long(tmp_path: Path) -> None:
    def work() -> None:
        with scratch_folder(tmp_path) as folder:
            (folder / "half").write_text("half")

    for step in range(1, 30):
        outcome = run_in_child(work, crash_at=step)
        with scratch_folder(tmp_path):
            assert len(hidden(tmp_path)) == 1
        if outcome.status == "done":
            return
    raise AssertionError


def test_a_run_that_removes_leftovers_before_any_step_of_another_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing = False

    def after_removal(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal removing
            if not removing:
                removing = True
                remove_leftovers(tmp_path)
                removing = False
            return function(*args, **options)

        return call

    write_set(tmp_path, "old")
    with monkeypatch.context() as patched:
        for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync"):
            patched.setattr(os, name, after_removal(getattr(os, name)))
        write_set(tmp_path, "new")
        with scratch_folder(tmp_path) as folder:
            assert folder.is_dir()
    assert read_set(tmp_path) == expected("new")
    assert hidden(tmp_path) == [LIST_FILE]


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_at_any_step_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """One Ctrl-C, before or after a step, also while a private folder is made or removed."""
    left = -1  # steps until the interrupt

    def interrupting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            due = left == 0
            if due and before:
                raise KeyboardInterrupt
            try:
                return function(*args, **options)
            finally:
                if due:
                    raise KeyboardInterrupt

        return call

    for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync"):
        monkeypatch.setattr(os, name, interrupting(getattr(os, name)))
    states = []
    for step in range(1, 100):
        write_set(tmp_path, "old")
        left = step
        try:
            write_set(tmp_path, "new")
        except KeyboardInterrupt:
            states.append(read_set(tmp_path))
            assert states[-1] in (expected("old"), expected("new"))
            assert set(hidden(tmp_path)) <= {LIST_FILE}, f"step {step}"
        else:
            break
    assert len(states) > 20
    assert expected("old") in states
    assert expected("new") in states


def test_a_link_in_place_of_the_list_or_the_lock_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("theirs")
    (tmp_path / LIST_FILE).symlink_to(target)
    write_set(tmp_path, "new")
    assert target.read_text() == "theirs"
    assert not (tmp_path / LIST_FILE).is_symlink()


GOOD_PLAN: dict[str, Any] = {"files": {"a.txt": {}}, "removed": [], "before": None}


def plant_commit(folder: Path, plan: str) -> Path:
    """A commit that a killed run left, with this plan."""
    commit = folder / COMMIT_FOLDER
    (commit / "content").mkdir(parents=True)
    (commit / "content" / "a.txt").write_text("planted")
    (commit / "lock").touch()
    (commit / "plan.json").write_text(plan)
    return commit


BAD_FILES: list[Any] = [["a.txt"], {"../x": {}}, {"a": 1}]
BAD_REMOVALS: list[Any] = [None, "b.txt", ["../b"], [[]]]


@pytest.mark.parametrize(
    "plan",
    [
        *("", "\x00\x00", "[]", "{}", "[" * 20_000, json.dumps({"files": {"a.txt": {}}})),
        *(json.dumps(GOOD_PLAN | {"files": files}) for files in BAD_FILES),
        *(json.dumps(GOOD_PLAN | {"removed": removed}) for removed in BAD_REMOVALS),
    ],
)
def test_a_commit_with_a_damaged_plan_moves_nothing(tmp_path: Path, plan: str) -> None:
    plant_commit(tmp_path, plan)
    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"plan\.json is damaged"):
        complete_commit(tmp_path)
    assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "b.txt").read_text() == "mine"


def test_a_planted_commit_removes_no_file_of_others(tmp_path: Path) -> None:
    plant_commit(tmp_path, json.dumps(GOOD_PLAN | {"removed": ["b.txt"]}))
    (tmp_path / "b.txt").write_text("mine")
    assert complete_commit(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "planted"
    assert (tmp_path / "b.txt").read_text() == "mine"


def test_nobody_waits_for_a_pipe_in_place_of_the_list_or_the_plan(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LIST_FILE)
    write_set(tmp_path, "new")
    assert read_set(tmp_path) == expected("new")
    commit = plant_commit(tmp_path, "")
    (commit / "plan.json").unlink()
    os.mkfifo(commit / "plan.json")
    with pytest.raises(StoreError, match=r"plan\.json"):
        complete_commit(tmp_path)


def test_no_place_for_temporary_files_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    with pytest.raises(StoreError, match="Set TMPDIR"), scratch_folder():
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_commit_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reclick.runtime.outputs.LOCK_TIMEOUT", 0.1)
    commit = plant_commit(tmp_path, json.dumps(GOOD_PLAN | {"removed": ["b.txt"]}))
    os.chown(commit, 12345, 12345)
    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(StoreError, match="as their owner"):
        write_set(tmp_path, "new")
    assert (tmp_path / "b.txt").read_text() == "mine"
    assert not (tmp_path / "a.txt").exists()


# ---- SIGTERM


ENDLESS = """
import sys, time
from reclick.logs import conversion
def wait(*args, **options):
    print("writing", flush=True)
    time.sleep(60)
conversion._write = wait
from reclick.__main__ import main
main()
"""


# What DuckDB does when a signal arrives during a statement.
SWALLOWING = ENDLESS.replace(
    "    time.sleep(60)",
    """
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("Query interrupted") from None
""",
)


# What Python makes of a signal while a class is created, here as options are parsed.
IMPORTING = """
import os, signal, sys
import reclick.cli
def load():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error
reclick.cli.app = load
from reclick.__main__ import main
main()
"""


def test_an_import_that_a_signal_interrupts_is_an_interrupt() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("script", [ENDLESS, SWALLOWING], ids=["python", "another library"])
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_termination_ends_like_an_interrupt(
    tmp_path: Path, how: signal.Signals, code: int, script: str
) -> None:
    (tmp_path / "log.csv").write_text("query,ads,clicks\nq,a b,1\n")
    words = ["convert", "log.csv", "--to", "out/s.parquet"]
    running = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "writing\n"
    time.sleep(0.05)
    running.send_signal(how)
    _, err = running.communicate(timeout=60)
    assert running.returncode == code
    assert "Interrupted. No file was left half-written" in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
