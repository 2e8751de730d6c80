"""Reproductions of findings that need Python, with the sources of any version of Reclick.

`python -P torture/reproductions.py NAME ARGUMENT …` calls the function NAME and prints what went
wrong as a list in JSON. `torture.findings` runs it in a separate process, which may crash. The
functions use only what version 0.1.0 had.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import runpy
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

rc: Any = import_module("reclick")  # of any version

LOG: dict[str, list[Any]] = {
    "query": ["tea", "tea", "milk", "milk", "tea", "tea"],
    "ads": [["a", "b"], ["b", "a"], ["a", "c"], ["c", "a"], ["a", "b"], ["b", "c"]],
    "clicks": [[1, 2], [2], [], [1], [2, 1], [1]],
    "part": ["history", "history", "train", "train", "test", "test"],
}
PAGES = {"query": ["query 1", "new"], "ads": [["ad0", "ad1", "never"], ["ad2", "ad3", "ad4"]]}
MOST_MEMORY = 1 << 30  # bytes
MOST_STEPS = 60  # of a command on the file system


def take(n: int) -> dict[str, Any]:
    """The first sessions of the log."""
    return {name: column[:n] for name, column in LOG.items()}


def find_error(call: Callable[[], object]) -> list[str]:
    """The type of the error that a call raises, unless it is a ReclickError."""
    try:
        call()
    except rc.ReclickError:
        return []
    except Exception as error:
        return [type(error).__name__]
    return []


def find_error_of_any(calls: dict[str, Callable[[], object]]) -> list[str]:
    """The errors of all calls, each with its title."""
    return [f"{title}: {error}" for title, call in calls.items() for error in find_error(call)]


def is_refused(call: Callable[[], object]) -> bool:
    """Whether a call raises a ReclickError."""
    try:
        call()
    except rc.ReclickError:
        return True
    return False


def accept(calls: dict[str, Callable[[], object]]) -> list[str]:
    """The calls that are accepted, although they have no meaning."""
    return [f"{title} is accepted" for title, call in calls.items() if not is_refused(call)]


def run_command(*words: str) -> int:
    """Run a command line in this process, and return its exit code."""
    sys.argv = ["reclick", *words]
    try:
        runpy.run_module("reclick", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


# ---- logs


def count_codes_outside() -> list[str]:
    """Count a table with a code far outside its dictionary."""
    codes = pa.array([0, 1, 900_000_000], pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    table = pa.table({"query": texts, "ads": [["x"], ["x"], ["x"]], "clicks": [[1], [], [1]]})
    return accept({"a code outside its dictionary": lambda: rc.count(table)})


def measure_memory(*words: str) -> list[str]:
    """Run a command, and compare its peak memory with the limit."""
    run_command(*words)
    return find_large_peak()


def find_large_peak() -> list[str]:
    """The peak memory of this process, if it is above the limit."""
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) << 10
    return [f"{peak >> 20:,} MB"] if peak > MOST_MEMORY else []


def fit_large_weights() -> list[str]:
    """Fit models to weights that are too large to add up exactly."""
    symptoms: set[str] = set()
    for name in ("multiclick", "dctr", "bbm"):
        for weight in (1e16, 1e20, 1e300, 1.7e308):
            log = {**LOG, "weight": [weight, weight, 1.0, 1.0, weight, 1.0]}
            symptoms.update(f"{name}: {each}" for each in _find_nonsense(name, log))
    return sorted(symptoms)


def _find_nonsense(name: str, log: dict[str, Any]) -> list[str]:
    values: list[float] = []

    def work() -> None:
        model = rc.MODELS[name]().fit(log)
        relevance = model.relevance().to_pydict()
        values.extend(relevance["attractiveness"])
        values.extend(model.log_prob(take(4)))

    error = find_error(work)
    return error or ["not finite"] * (not all(map(math.isfinite, values)))


def call_with_hostile_arguments() -> list[str]:
    """Call functions with arguments of wrong types."""
    model = rc.MODELS["ubm"]().fit(LOG)
    counts = rc.count(LOG)
    return find_error_of_any(
        {
            "max_ads=None": lambda: rc.read_sessions(LOG, max_ads=None),
            'max_ads="5"': lambda: rc.count(rc.read_sessions(LOG, max_ads="5")),
            'columns=["a"]': lambda: rc.read_sessions(LOG, columns=["a"]),
            "format=[]": lambda: rc.read_sessions("log.jsonl", format=[]),
            "a click None": lambda: model.next_click_prob(take(1), [None]),
            "rng=-1": lambda: model.sample(take(1), rng=-1),
            "load(None)": lambda: rc.load(None),
            "counts + 5": lambda: counts + 5,
            'judgments("x")': lambda: rc.judgments("x"),
            'predict("x")': lambda: rc.predict("x", LOG, "out.parquet"),
        }
    )


def load_odd_manifests() -> list[str]:
    """Load folders whose manifest is no manifest."""
    calls: dict[str, Callable[[], object]] = {}
    texts = {"nested": "[" * 100_000, "infinite": '{"format": 1e999}'}
    for title, text in texts.items():
        Path(title).mkdir()
        (Path(title) / "manifest.json").write_text(text)
        calls[title] = lambda title=title: rc.load(title)  # type: ignore[misc]
    return find_error_of_any(calls)


def fit_long_pages() -> list[str]:
    """Fit THCM to pages of 500 ads, with a click hundreds of positions further up."""
    ads = [f"a{number}" for number in range(500)]
    pages = {"query": ["q"] * 3, "ads": [ads] * 3, "clicks": [[500, 1], [250], []]}
    log = rc.read_sessions(pages, max_ads=500)
    return find_error(lambda: rc.MODELS["thcm"](max_iterations=2).fit(log).click_prob(log))


def misread() -> list[str]:
    """Read what has no meaning: no path, a file twice, letters as ads, odd numbers in CSV."""
    row = '{"query": "q", "ads": ["x", "y"], "clicks": [1]}\n'
    Path("log.jsonl").write_text(row * 3)
    start = "query,ads,clicks,weight\n"
    Path("click.csv").write_text(f"{start}q,x|y,0x2,1\n")
    Path("weight.csv").write_text(f"{start}q,x|y,1,1_000\n")
    model = rc.MODELS["ubm"]().fit(LOG)
    symptoms = accept(
        {
            'the path ""': lambda: rc.read_sessions(""),
            'ads="ab"': lambda: model.rank_sequences("tea", "ab"),
            "the click 0x2": lambda: rc.count(rc.read_sessions("click.csv")),
            "the weight 1_000": lambda: rc.count(rc.read_sessions("weight.csv")),
        }
    )
    with contextlib.suppress(rc.ReclickError):
        if rc.count(rc.read_sessions(["log.jsonl", "log.jsonl"])).total != 3:
            symptoms.append("a file listed twice is counted twice")
    return symptoms


# ---- models and counts


def ask(folder: str) -> list[str]:
    """Load a model and ask it: it must be refused, or answer with probabilities."""
    values: list[float] = []

    def work() -> None:
        model = rc.load(folder)
        values.extend(model.click_prob(PAGES).ravel())
        values.extend(model.relevance()["attractiveness"].to_pylist())
        values.extend(map(math.exp, model.log_prob("log.parquet")))

    error = find_error(work)
    good = all(-1e-9 <= value <= 1 + 1e-9 for value in values)
    return error or ["answers that are no probabilities"] * (not good)


def load_counts(folder: str) -> list[str]:
    """Load counts, and compare the peak memory with the limit."""
    return find_error(lambda: rc.Counts.load(folder)) or find_large_peak()


def lose_an_update() -> list[str]:
    """Load a model twice, and save an update of each."""
    rc.MODELS["multiclick"]().fit(take(2)).save("m")
    first, second = rc.load("m"), rc.load("m")
    first.update(take(3)).save("m")
    if is_refused(lambda: second.update(take(4)).save("m")):
        return []
    impressions = sum(rc.load("m").relevance()["impressions"].to_pylist())
    return [] if impressions == 18 else ["the first update is lost"]


def follow_links() -> list[str]:
    """Save counts to a folder in which the names of unfinished files are links out of it."""
    counts, folder = rc.count(LOG), Path("c")
    counts.save(folder)
    lock, outside, theirs = folder / ".lock", Path("outside"), Path("theirs")
    lock.symlink_to(outside.absolute())
    is_refused(lambda: counts.save(folder))
    lock.unlink(missing_ok=True)
    theirs.write_text("theirs")
    (folder / f".manifest.json.{os.getpid()}.writing").symlink_to(theirs.absolute())
    is_refused(lambda: counts.save(folder))
    symptoms = ["a file was made outside"] * outside.exists()
    return symptoms + ["a file outside was replaced"] * (theirs.read_text() != "theirs")


def read_while_replaced() -> list[str]:
    """Load counts that are replaced, and are there again at the second try."""
    states = [Path("here"), Path("other"), Path("aside")]
    rc.count(LOG).save(states[0])
    rc.count(take(2)).save(states[1])
    swaps: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        name = Path(str(arguments[0])).name if event == "open" else ""
        is_due = name.endswith(".parquet") if not swaps else name == "manifest.json"
        if is_due and len(swaps) < 2:
            swaps.append(name)
            for source, target in ((0, 2), (1, 0), (2, 1)):
                states[source].rename(states[target])

    sys.addaudithook(watch)
    try:
        total = rc.Counts.load(states[0]).total
    except Exception as error:
        return [type(error).__name__] * (len(swaps) == 2)
    return [] if (total, len(swaps)) == (6, 2) else [f"{total} sessions"]


# ---- files


def find_unsynced() -> list[str]:
    """Write outputs, and name the files and folders that were not synced to disk."""
    synced: set[int] = set()
    sync = os.fsync

    def note(fd: Any) -> None:
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    os.fsync = note
    model = rc.MODELS["multiclick"]().fit(LOG)
    pa.parquet.write_table(pa.table(LOG), "log.parquet")
    writers: dict[str, Callable[[Path], object]] = {
        "convert": lambda folder: rc.convert("log.parquet", folder / "out.parquet"),
        "predict": lambda folder: rc.predict(model, "log.parquet", folder / "out.parquet"),
        "export": lambda folder: rc.export(model, folder / "o", format="qrels", min_support=1),
        "split": lambda folder: rc.split("log.parquet", folder, by="part"),
        "save": model.save,
    }
    for name, write in writers.items():
        Path(name).mkdir()
        write(Path(name))
    return [
        f"{name}: {what}"
        for name in writers
        for what, places in (("files", Path(name).iterdir()), ("the folder", [Path(name)]))
        if not _inodes(places) <= synced
    ]


def _inodes(places: Iterable[Path]) -> set[int]:
    return {path.stat().st_ino for path in places if not path.name.startswith(".")}


def send_at_rename(number: str, place: str, *words: str) -> list[str]:
    """Run a command that gets a signal before it moves a file to a folder."""
    _call_at_rename(Path(place), 1, lambda: os.kill(os.getpid(), int(number)))
    sys.exit(run_command(*words))


def _call_at_rename(place: Path, step: int, call: Callable[[], object]) -> None:
    """Call a function before the step-th time that something is moved to a folder."""
    steps = iter(range(1, MOST_STEPS))
    for name in ("rename", "replace"):
        move = getattr(os, name)

        def move_or_call(source: Any, target: Any, *, move: Any = move, **more: Any) -> None:
            is_there = place.absolute() in Path(os.fsdecode(target)).absolute().parents
            if is_there and next(steps) == step:
                call()
            move(source, target, **more)

        setattr(os, name, move_or_call)


def mix_parts() -> list[str]:
    """Split a log into a folder with the parts of another log, and end before each move."""
    logs = [{**LOG, "part": sorted(LOG["part"], reverse=reverse)} for reverse in (False, True)]
    logs[1] = {name: column[:5] for name, column in logs[1].items()}
    rc.split(logs[1], "new", by="part")
    for step in range(1, MOST_STEPS):
        folder = Path(f"step {step}")
        rc.split(logs[0], folder, by="part")
        old = _read_parts(folder)
        child = os.fork()
        if child == 0:
            _call_at_rename(folder, step, lambda: os._exit(1))
            rc.split(logs[1], folder, by="part")
            os._exit(0)
        is_done = os.waitpid(child, 0)[1] == 0
        if _read_parts(folder) not in (old, _read_parts(Path("new"))):
            return [f"old and new parts after a kill at move {step}"]
        if is_done:
            return [] if step > 1 else ["no move of a file was seen"]
    return ["there is no end"]


def _read_parts(folder: Path) -> dict[str, bytes]:
    """The contents of all parts. Reclick opens them first, as it may complete a commit then."""
    for path in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(rc.ReclickError):
            rc.read_sessions(path)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


if __name__ == "__main__":
    symptoms: list[str] = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(f"\n{json.dumps(symptoms)}\n")
