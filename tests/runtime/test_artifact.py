"""A folder of a model or of counts: whole or refused, whatever happened to it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reclick.data.counts import Counts
from reclick.engines import count
from reclick.errors import StoreError
from reclick.models import MultiClick, load
from reclick.runtime import artifact
from tests.support.enumeration import as_table, random_sessions

Tables = dict[str, pa.Table]


def tables(number: int) -> Tables:
    return {
        "one": pa.table({"x": [number, 2, 3]}),
        "two": pa.table({"text": ["a", "é", "👟"], "y": np.full(3, float(number))}),
    }


def write(folder: Path, number: int = 1, kind: str = "counts") -> None:
    artifact.write(folder, kind=kind, settings={"number": number}, tables=tables(number))


def number_in(folder: Path) -> int:
    """The number written, after a check that all parts are of one and the same write."""
    stored = artifact.read(folder, kind="counts")
    number = int(stored.settings["number"])
    assert stored.tables.keys() == tables(number).keys()
    assert all(stored.tables[name].equals(table) for name, table in tables(number).items())
    return number


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change_manifest(folder: Path, **values: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "stored")
    return tmp_path / "stored"


def test_what_was_written_is_read(folder: Path) -> None:
    assert number_in(folder) == 1
    assert artifact.get_kind(folder) == "counts"
    assert artifact.is_artifact(folder)
    assert artifact.is_artifact(str(folder))
    assert not artifact.is_artifact(folder.parent)
    assert not artifact.is_artifact(tables(1))


def test_a_folder_holds_a_manifest_and_parquet_only(folder: Path) -> None:
    assert {Path(name).suffix for name in names(folder)} == {".json", ".parquet"}
    for path in folder.iterdir():
        assert (
            path.read_bytes()[:4] == b"PAR1"
            if path.suffix == ".parquet"
            else json.loads(path.read_text())["format"] == 2
        )


def test_a_model_is_saved_without_pickle(tmp_path: Path) -> None:
    MultiClick().fit(as_table(random_sessions(np.random.default_rng(0), 50))).save(
        tmp_path / "model"
    )
    for path in (tmp_path / "model").iterdir():
        assert path.suffix in {".json", ".parquet"}
        assert not path.read_bytes().startswith(b"\x80")


def test_writing_twice_leaves_only_the_second(folder: Path) -> None:
    before = names(folder)
    write(folder, 2)
    assert number_in(folder) == 2
    assert len(names(folder)) == 3
    assert set(names(folder)) & set(before) == {"manifest.json"}


def test_the_same_content_is_written_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write(folder)
    write(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == before


DIGEST = hashlib.sha256(b"mine").hexdigest()[:16]
THEIRS = [
    "README.md",
    "my-notes.parquet",
    "notes.parquet",
    f"x-{DIGEST}.parquet",
    f"one-{'0' * 16}.parquet",
    ".notes.writing",
    ".scored.parquet.7.writing",
]


@pytest.mark.parametrize("name", THEIRS)
def test_files_of_others_in_the_folder_are_left_alone(folder: Path, name: str) -> None:
    (folder / name).write_text("mine")
    write(folder, 2)
    assert number_in(folder) == 2
    assert (folder / name).read_text() == "mine"
    assert len(names(folder)) == 4


@pytest.mark.parametrize(
    "name", [f"one-{DIGEST}.parquet", ".one.7.writing", ".manifest.json.7.writing", ".lock"]
)
def test_what_a_killed_write_left_is_removed(folder: Path, name: str) -> None:
    (folder / name).write_text("mine")
    write(folder, 2)
    assert number_in(folder) == 2
    assert len(names(folder)) == 3


def test_data_of_a_table_that_is_no_longer_written_is_removed(folder: Path) -> None:
    artifact.write(folder, kind="counts", settings={}, tables={"one": tables(1)["one"]})
    assert [Path(name).suffix for name in names(folder)] == [".json", ".parquet"]


# ---- refused to read


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere does not exist"):
        artifact.read(tmp_path / "nowhere")


def test_a_folder_without_a_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(
        StoreError,
        match=r"has no manifest\.json: it is not a Reclick folder, or it was half deleted\. "
        r"Give a folder that save\(\)",
    ):
        artifact.read(folder)


def test_a_folder_of_logs_is_named_as_what_it_looks_like(tmp_path: Path) -> None:
    for name in ("week1.parquet", "week2.parquet", "week3.csv", "ads.parquet", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(
        StoreError,
        match=r"It holds ads\.parquet, week1\.parquet, week2\.parquet and 1 more: "
        r"if that is a log, fit a model to it",
    ):
        artifact.read(tmp_path)


def test_a_folder_around_a_model_leads_to_the_model_inside(folder: Path) -> None:
    with pytest.raises(StoreError, match=re.escape(f"There is one inside: {folder}.")):
        artifact.read(folder.parent)


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").touch()
    with pytest.raises(
        StoreError,
        match=r"log\.parquet is a file, not the folder of a model or of counts\. "
        r"Give a folder that save\(\), `reclick fit",
    ):
        artifact.read(tmp_path / "log.parquet")


@pytest.mark.parametrize("place", [0, 1])
def test_a_half_deleted_folder_is_refused(folder: Path, place: int) -> None:
    sorted(folder.glob("*.parquet"))[place].unlink()
    with pytest.raises(
        StoreError, match=r"is incomplete: (one|two)-\w+\.parquet \((one|two)\) is missing"
    ):
        artifact.read(folder)


def test_an_altered_byte_anywhere_in_the_data_is_refused(folder: Path) -> None:
    for path in folder.glob("*.parquet"):
        whole = path.read_bytes()
        for at in range(0, len(whole), 97):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreError, match="was altered after it was saved"):
                artifact.read(folder)
        path.write_bytes(whole)
    assert number_in(folder) == 1


def test_a_truncated_or_longer_file_is_refused(folder: Path) -> None:
    path = next(folder.glob("*.parquet"))
    whole = path.read_bytes()
    for changed in (whole[:-1], b"", whole + b"\0"):
        path.write_bytes(changed)
        with pytest.raises(StoreError, match="was altered after it was saved"):
            artifact.read(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '"text"', '{"format": "one"}', '{"format": null}', "{}", "\xff"],
)
def test_a_broken_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match=r"manifest\.json .*altered"):
        artifact.read(folder)


def test_a_byte_altered_in_the_manifest_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    whole = path.read_bytes()
    for at, byte in enumerate(whole):
        if chr(byte).isspace():
            continue
        path.write_bytes(whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError):
            artifact.read(folder)
    path.write_bytes(whole)
    assert number_in(folder) == 1


@pytest.mark.parametrize("missing", ["kind", "settings", "files", "format"])
def test_a_manifest_that_lacks_a_part_is_refused(folder: Path, missing: str) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[missing]
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=missing):
        artifact.read(folder)


@pytest.mark.parametrize(
    "files", [[], None, {"one": {}}, {"one": {"file": 3}}, {"one": "x.parquet"}, {}]
)
def test_a_manifest_with_other_files_than_were_saved_is_refused(
    folder: Path, files: object
) -> None:
    change_manifest(folder, files=files)
    with pytest.raises(StoreError, match="altered"):
        artifact.read(folder)


def test_settings_changed_by_hand_are_refused(tmp_path: Path) -> None:
    MultiClick().fit(as_table(random_sessions(np.random.default_rng(0), 50))).save(
        tmp_path / "model"
    )
    text = (tmp_path / "model" / "manifest.json").read_text()
    assert '"strength": 10.0' in text
    (tmp_path / "model" / "manifest.json").write_text(
        text.replace('"strength": 10.0', '"strength": 11.0')
    )
    with pytest.raises(StoreError, match="altered"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("version", "advice"), [(3, "Upgrade"), (1, "It is of an earlier version")]
)
def test_another_format_is_refused_with_both_numbers(
    folder: Path, version: int, advice: str
) -> None:
    change_manifest(folder, format=version, unheard_of=[])
    with pytest.raises(
        StoreError, match=rf"has format {version}; this Reclick \(.*\) reads 2\. {advice}"
    ):
        artifact.read(folder)
    with pytest.raises(StoreError, match=f"has format {version}"):
        write(folder, 2)


@pytest.mark.parametrize(
    "name", ["../secret.parquet", "/etc/hostname", "inner/../../secret.parquet", "..", "."]
)
def test_a_manifest_that_names_a_file_outside_the_folder_is_refused(
    folder: Path, name: str
) -> None:
    pq.write_table(pa.table({"secret": [1]}), folder.parent / "secret.parquet")
    manifest = artifact._read_manifest(folder)
    manifest["files"]["one"]["file"] = name
    artifact._write_manifest(
        folder / "manifest.json", artifact._encode_manifest(manifest)
    )  # even by someone who knows how to seal it
    with pytest.raises(StoreError, match=r"outside the folder|is incomplete: \.\. "):
        artifact.read(folder)


def test_counts_are_not_loaded_as_a_model(tmp_path: Path) -> None:
    count(as_table(random_sessions(np.random.default_rng(0), 9))).save(tmp_path / "counts")
    with pytest.raises(StoreError, match="holds counts, expected a model"):
        load(tmp_path / "counts")


# ---- refused to write


@pytest.mark.parametrize("name", ["thesis.tex", *THEIRS])
def test_a_folder_with_other_files_is_not_written_to(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("years of work" if name == "thesis.tex" else "mine")
    with pytest.raises(StoreError, match="holds other files"):
        write(tmp_path)
    assert names(tmp_path) == [name]


def test_a_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is a file"):
        write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_one_kind_is_not_written_over_another(folder: Path) -> None:
    with pytest.raises(StoreError, match="holds counts; a model would overwrite it"):
        write(folder, 2, kind="model")
    assert number_in(folder) == 1


def test_an_empty_folder_and_folders_that_do_not_exist_yet_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    write(tmp_path / "a" / "b" / "c")
    assert number_in(tmp_path / "empty") == number_in(tmp_path / "a" / "b" / "c") == 1


# ---- a full disk


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def after(calls: int, action: Any) -> Any:
    """Let some calls through, then fail as on a full disk."""
    made = [0]

    def failing(*args: Any, **options: Any) -> Any:
        made[0] += 1
        return action(*args, **options) if made[0] <= calls else full_disk()

    return failing


FAILURES = [
    (pq, "write_table", 0),
    (pq, "write_table", 1),
    (os, "fsync", 0),
    (os, "fsync", 1),
    (os, "fsync", 2),
]
FAILURES += [
    (Path, "replace", 0),
    (Path, "replace", 1),
    (Path, "replace", 2),
    (artifact, "_create_file", 0),
    (artifact, "_create_file", 2),
]


@pytest.mark.parametrize(("where", "name", "calls"), FAILURES)
def test_a_full_disk_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, calls: int
) -> None:
    before = names(folder)
    with monkeypatch.context() as patched:
        patched.setattr(where, name, after(calls, getattr(where, name)))
        with pytest.raises(
            StoreError, match=r"cannot be written .*The disk is full: free some space"
        ):
            write(folder, 2)
    assert number_in(folder) == 1
    assert names(folder) == before
    write(folder, 3)
    assert number_in(folder) == 3


@pytest.mark.parametrize(("where", "name", "calls"), FAILURES)
def test_a_full_disk_at_the_first_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, calls: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(where, name, after(calls, getattr(where, name)))
        with pytest.raises(StoreError, match="The disk is full"):
            write(tmp_path / "new")
    assert not (tmp_path / "new").exists() or names(tmp_path / "new") == []
    write(tmp_path / "new")
    assert number_in(tmp_path / "new") == 1


def test_a_write_that_is_interrupted_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = names(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write(folder, 2)
    assert number_in(folder) == 1
    assert names(folder) == before


# ---- killed, and read meanwhile

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.runtime.test_artifact import write
print("ready", flush=True)
number = int(sys.argv[3])
while True:
    number += 1
    write(Path(sys.argv[1]), number)
"""


def kill_a_writer(folder: Path, number: int, seconds: float) -> None:
    command = [
        sys.executable,
        "-c",
        WRITER,
        str(folder),
        str(Path(__file__).parents[2]),
        str(number),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(seconds)
        os.kill(writer.pid, signal.SIGKILL)


def test_a_killed_writer_leaves_a_whole_folder(folder: Path) -> None:
    rng = np.random.default_rng(1)
    number = 1
    for _ in range(3):
        kill_a_writer(folder, number, 0.03 + 0.1 * rng.random())
        found = number_in(folder)
        assert found >= number
        number = found
    write(folder, number + 1)
    assert number_in(folder) == number + 1
    assert len(names(folder)) == 3  # whatever the killed left is gone


def test_a_first_write_that_was_killed_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        monkeypatch.context() as patched
    ):  # killed between the data and the manifest: nobody is left to clean up
        patched.setattr(artifact, "_write_manifest", full_disk)
        patched.setattr(artifact, "_remove_unnamed", lambda *_: None)
        with pytest.raises(StoreError):
            write(tmp_path / "new")
    assert len(names(tmp_path / "new")) == 2
    (tmp_path / "new" / ".lock").touch()
    artifact.check_target(tmp_path / "new", "counts")
    write(tmp_path / "new", 2)
    assert number_in(tmp_path / "new") == 2
    assert len(names(tmp_path / "new")) == 3


# ---- two writers


def test_writes_that_overlap_take_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about_to_replace, go_on, replace = (
        threading.Event(),
        threading.Event(),
        artifact._write_manifest,
    )

    def wait_once(path: Path, data: bytes) -> None:
        if (
            not about_to_replace.is_set()
        ):  # the first writer stops between its data and its manifest
            about_to_replace.set()
            assert go_on.wait(5)
        replace(path, data)

    monkeypatch.setattr(artifact, "_write_manifest", wait_once)
    writers = [threading.Thread(target=write, args=(folder, number)) for number in (2, 3)]
    writers[0].start()
    assert about_to_replace.wait(5)
    writers[1].start()
    writers[1].join(0.3)
    assert number_in(folder) == 1
    go_on.set()
    for writer in writers:
        writer.join()
    assert number_in(folder) == 3
    assert len(names(folder)) == 3


HOLDER = """
import sys, time
from reclick.runtime import artifact
with artifact.lock_folder(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_held_by_another_process_is_refused_until_that_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "LOCK_TIMEOUT", 0.2)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(
            StoreError, match=r"another process is writing to it, still after 0\.2 seconds"
        ):
            write(folder, 2)
        assert number_in(folder) == 1  # readers are not held up
        holder.kill()
    write(folder, 2)
    assert number_in(folder) == 2
    assert len(names(folder)) == 3


def test_a_folder_that_is_held_can_be_written_by_its_holder(folder: Path) -> None:
    with artifact.lock_folder(folder), artifact.lock_folder(str(folder)):
        write(folder, 2)
        write(folder, 3)
        assert ".lock" in names(folder)
    assert number_in(folder) == 3
    assert ".lock" not in names(folder)


def test_many_processes_that_add_lose_nothing(folder: Path) -> None:
    adding = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from reclick.runtime import artifact; "
        "from tests.runtime.test_artifact import number_in, write\n"
        "folder, artifact.LOCK_TIMEOUT = Path(sys.argv[1]), 100\n"
        "for _ in range(10):\n"
        "    with artifact.lock_folder(folder): write(folder, number_in(folder) + 1)\n"
    )
    command = [sys.executable, "-c", adding, str(folder), str(Path(__file__).parents[2])]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(300) for process in running] == [0, 0, 0]
    assert number_in(folder) == 31


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_to_with_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", no_locks)
    write(folder, 2)
    assert number_in(folder) == 2
    assert "has no file locks" in caplog.text


def test_a_system_without_locks_is_written_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    write(folder, 2)
    assert number_in(folder) == 2


def test_a_reader_sees_the_old_or_the_new_never_half(folder: Path) -> None:
    stop, failures = threading.Event(), list[BaseException]()

    def keep_writing() -> None:
        number = 1
        while not stop.wait(0.002):  # without a pause a reader may lose the race 20 times in a row
            number += 1
            write(folder, number)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen, reads, deadline = set[int](), 0, time.monotonic() + 30
    try:
        while reads < 60 or (len(seen) < 3 and time.monotonic() < deadline):
            seen.add(number_in(folder))
            reads += 1
    except StoreError as error:
        failures.append(error)
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert len(seen) >= 3


def test_counts_and_models_are_stored_this_way(tmp_path: Path) -> None:
    counts = count(as_table(random_sessions(np.random.default_rng(0), 30)))
    counts.save(tmp_path / "counts")
    MultiClick().fit(counts).save(tmp_path / "model")
    assert (artifact.get_kind(tmp_path / "counts"), artifact.get_kind(tmp_path / "model")) == (
        "counts",
        "model",
    )
    next((tmp_path / "model").glob("counts_pairs*")).unlink()
    with pytest.raises(StoreError, match="incomplete"):
        load(tmp_path / "model")
    assert Counts.load(tmp_path / "counts") == counts
