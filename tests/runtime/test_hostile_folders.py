"""Folders of models and counts that were forged, with the right hashes: refused, never a crash."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reclick as rc
from reclick.runtime import artifact
from tests.support.service import TEXTS, fit, small_log
from torture.children import run_in_child
from torture.folders import replace_file

BAD_NUMBERS = (-1, 2**31 - 1, 10**6, float("nan"), float("inf"), -1e9, 1e18, 0)
BAD_VALUES: tuple[Any, ...] = (
    None,
    "x",
    [],
    [[1.0]],
    -5,
    1e300,
    {"a": 1},
    [10.0] * 3,
    [[[0.1] * 2] * 2] * 2,
)
Forged = tuple[str, dict[str, Any], dict[str, pa.Table]]
ANSWERED, REFUSED, NONSENSE, OTHER_ERROR = 10, 11, 12, 13


class Forger:
    """Changes one thing of a stored model at random."""

    def __init__(self, stored: artifact.Artifact, seed: int) -> None:
        self.stored = stored
        self.rng = random.Random(seed)  # noqa: S311

    def forge(self) -> Forged | None:
        """What was changed, the settings and the tables; None where nothing could be."""
        settings = json.loads(json.dumps(self.stored.settings))
        tables = dict(self.stored.tables)
        kinds: list[Callable[[dict[str, Any], dict[str, pa.Table]], str | None]] = [
            *[self.change_cell] * 4,
            self.drop_column,
            self.drop_table,
            self.drop_rows,
            *[self.change_value] * 2,
        ]
        what = self.rng.choice(kinds)(settings, tables)
        return None if what is None else (what, settings, tables)

    def change_cell(self, _: dict[str, Any], tables: dict[str, pa.Table]) -> str | None:
        name = self.rng.choice([each for each in tables if tables[each].num_rows])
        column = self.rng.choice(tables[name].column_names)
        index = tables[name].column_names.index(column)
        values = tables[name][column].to_pylist()
        row, bad = self.rng.randrange(len(values)), self.rng.choice(BAD_NUMBERS)
        whole = int(bad) if np.isfinite(bad) and abs(bad) < 2**31 else 10**8
        if isinstance(values[row], list):
            values[row] = [whole] * 3
        elif isinstance(values[row], str):
            values[row] = ""
        else:
            values[row] = float(bad) if isinstance(values[row], float) else whole
        kind = tables[name].schema.field(column).type
        try:
            tables[name] = tables[name].set_column(index, column, pa.array(values, kind))
        except (pa.ArrowException, OverflowError, TypeError):
            return None
        return f"{name}.{column}[{row}] = {values[row]}"

    def drop_column(self, _: dict[str, Any], tables: dict[str, pa.Table]) -> str:
        name = self.rng.choice(list(tables))
        column = self.rng.choice(tables[name].column_names)
        tables[name] = tables[name].drop_columns([column])
        return f"no {name}.{column}"

    def drop_table(self, _: dict[str, Any], tables: dict[str, pa.Table]) -> str:
        name = self.rng.choice(list(tables))
        del tables[name]
        return f"no {name}"

    def drop_rows(self, _: dict[str, Any], tables: dict[str, pa.Table]) -> str:
        name = self.rng.choice(list(tables))
        left = max(0, tables[name].num_rows - self.rng.choice([1, 2, 100]))
        tables[name] = tables[name].slice(0, left)
        return f"{left} rows of {name}"

    def change_value(self, settings: dict[str, Any], _: dict[str, pa.Table]) -> str | None:
        if not settings["values"]:
            return None
        name = self.rng.choice(list(settings["values"]))
        settings["values"][name] = self.rng.choice(BAD_VALUES)
        return f"{name} = {settings['values'][name]}"


def answer(folder: Path) -> int:
    """Load a folder and ask the model everything; what came of it."""
    try:
        model = rc.load(folder)
    except rc.ReclickError:
        return REFUSED
    pages = {"query": ["tea", "new"], "ads": [["ad0", "ad1", "never"], ["ad2", "ad3", "ad4"]]}
    try:
        probability = model.click_prob(pages)
        model.relevance()
        model.log_prob(small_log(1, 50))
    except rc.ReclickError:
        return REFUSED
    return ANSWERED if ((probability >= -1e-9) & (probability <= 1 + 1e-9)).all() else NONSENSE


def answer_in_child(folder: Path, forged: Forged) -> int:
    """The same in a child process: its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = OTHER_ERROR
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            artifact.write(folder, kind="model", settings=forged[1], tables=forged[2])
            code = answer(folder)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", ["luceclick", "ubm", "dbn", "multiclick", "thcm"])
def test_a_forged_model_is_refused_or_answers_with_probabilities(tmp_path: Path, name: str) -> None:
    fit(name).save(tmp_path / "m")
    assert answer(tmp_path / "m") == ANSWERED
    forger = Forger(artifact.read(tmp_path / "m"), seed=7)
    found: dict[int, list[str]] = {}
    for number in range(40):
        forged = forger.forge()
        if forged is not None:
            code = answer_in_child(tmp_path / f"forged{number}", forged)
            found.setdefault(code, []).append(forged[0])
    assert set(found) <= {ANSWERED, REFUSED}, found
    assert len(found[REFUSED]) > 10


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_a_prior_mean_that_is_no_probability_is_refused(tmp_path: Path, value: float) -> None:
    fit("bbm").save(tmp_path / "m")
    stored = artifact.read(tmp_path / "m")
    settings = json.loads(json.dumps(stored.settings))
    assert 0 < settings["values"]["prior_mean_"] < 1
    settings["values"]["prior_mean_"] = value
    artifact.write(tmp_path / "m", kind="model", settings=settings, tables=dict(stored.tables))
    with pytest.raises(rc.StoreError, match="expected a probability"):
        rc.load(tmp_path / "m")


def write_forged(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Save a model, and save it again with other settings."""
    fit(name).save(folder)
    stored = artifact.read(folder)
    settings = json.loads(json.dumps(stored.settings))
    change(settings)
    artifact.write(folder, kind="model", settings=settings, tables=dict(stored.tables))


@pytest.mark.parametrize("name", ["click_prob", "_pairs", "__class__", "fit"])
def test_a_value_that_no_fit_has_is_refused(tmp_path: Path, name: str) -> None:
    """Finding 6: `values` set any attribute, so that `click_prob` was a number."""

    def change(settings: dict[str, Any]) -> None:
        settings["values"][name] = 1

    write_forged(tmp_path / "m", "ubm", change)
    with pytest.raises(rc.StoreError, match=f"has a value '{name}', which UBM does not have"):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize("value", [1e18, -0.5, 1.1])
def test_an_examination_probability_that_is_none_is_refused(tmp_path: Path, value: float) -> None:
    """Of a position that the page of the check need not have."""

    def change(settings: dict[str, Any]) -> None:
        settings["values"]["gamma_"][-1] = value

    write_forged(tmp_path / "m", "pbm", change)
    with pytest.raises(rc.StoreError, match=r"gamma_ = .*, expected a probability"):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("model", "name", "value", "message"),
    [
        ("pbm", "mixing_", [0.5, 0.5], "as many shifts as mixing weights"),
        ("pbm", "shifts_", [0.0, 0.0], "as many shifts as mixing weights"),
        ("pbm", "mixing_", [0.9], "expected mixing weights that add up to 1"),
        ("luceclick", "mixing_prior_", [2.0**40], "mixing_prior_ = .*, expected a probability"),
        ("luceclick", "mixing_prior_", [0.5], "expected mixing weights that add up to 1"),
        ("luceclick", "mixing_prior_", [[1.0]], "expected mixing weights that add up to 1"),
        ("luceclick", "mixing_prior_", [0.5, 0.5], "mixing_prior_ is damaged: it needs 1 weights"),
    ],
)
def test_mixing_weights_that_are_not_those_of_the_components_are_refused(
    tmp_path: Path, model: str, name: str, value: list[Any], message: str
) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["values"][name] = value

    write_forged(tmp_path / "m", model, change)
    with pytest.raises(rc.StoreError, match=message):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize("value", [-1e9, 0.0, 5e-324, 1e308])
def test_a_factor_of_weights_that_is_not_positive_is_refused(tmp_path: Path, value: float) -> None:
    def change(settings: dict[str, Any]) -> None:
        settings["values"]["typical_outside_"] = value

    write_forged(tmp_path / "m", "luceclick", change)
    with pytest.raises(rc.StoreError, match=r"typical_outside_ = .*, expected a positive number"):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["eta", "gamma", "satisfaction"])
@pytest.mark.parametrize("value", [1e18, -0.5, float("nan")])
def test_a_prior_of_multiclick_that_is_no_probability_is_refused(
    tmp_path: Path, name: str, value: float
) -> None:
    def change(settings: dict[str, Any]) -> None:
        values = np.array(settings["values"]["common"][name])
        values.flat[-1] = value
        settings["values"]["common"][name] = values.tolist()

    write_forged(tmp_path / "m", "multiclick", change)
    with pytest.raises(
        rc.StoreError, match=rf"{name} = .*, expected probabilities|not JSON|finite"
    ):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("scan", "rho_", 1e300),
        ("dbn", "theta_", -0.1),
        ("ubm", "exposure_", -1.0),
        ("crf", "theta_", 1e300),
    ],
)
def test_a_parameter_of_any_pair_has_its_range(
    tmp_path: Path, name: str, column: str, value: float
) -> None:
    fit(name).save(tmp_path / "m")
    stored = artifact.read(tmp_path / "m")
    tables = dict(stored.tables)
    values = tables["pairs"][column].to_numpy().copy()
    values[-1] = value
    index = tables["pairs"].column_names.index(column)
    tables["pairs"] = tables["pairs"].set_column(index, column, pa.array(values))
    artifact.write(tmp_path / "m", kind="model", settings=stored.settings, tables=tables)
    with pytest.raises(rc.StoreError, match=f"{column} has a value of"):
        rc.load(tmp_path / "m")


@pytest.mark.parametrize("value", [2.0**31, -1.0])
def test_more_satisfied_clicks_than_last_clicks_are_refused(tmp_path: Path, value: float) -> None:
    log = {"query": ["tea", "tea"], "ads": [["a", "b"]] * 2, "clicks": [[1, 2], [2]]}
    model = rc.MultiClick().fit({**log, "dwell_seconds": [[3.0, 40.0], [2.0]]})
    model.save(tmp_path / "m")
    stored = artifact.read(tmp_path / "m")
    satisfied = stored.tables["satisfied"]["clicks"].to_numpy().copy()
    satisfied[-1] = value
    tables = {**stored.tables, "satisfied": pa.table({"clicks": satisfied})}
    artifact.write(tmp_path / "m", kind="model", settings=stored.settings, tables=tables)
    with pytest.raises(rc.StoreError, match="The table satisfied is damaged: clicks has"):
        rc.load(tmp_path / "m")


def forge_file(folder: Path, table: str, write: Callable[[Path], None], **entry: Any) -> None:
    """Write a Parquet file of a folder again, and make its hash right."""
    manifest = json.loads((folder / artifact.MANIFEST).read_bytes())
    path = folder / manifest["files"][table]["file"]
    write(path)
    replace_file(path, path.read_bytes(), **entry)


def repeat_text(length: int, rows: int) -> Callable[[Path], None]:
    """One long text in every row, written once."""

    def write(path: Path) -> None:
        codes = pa.array(np.zeros(rows, np.int32))
        texts = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * length]))
        pq.write_table(pa.table({"query": texts}), path, store_schema=False)

    return write


def test_a_small_file_of_gigabytes_of_text_is_refused_unread(tmp_path: Path) -> None:
    """Finding 6: 99 KB unpacked to 3 GB; this takes 10 GB."""
    rc.count(small_log()).save(tmp_path / "c")
    forge_file(tmp_path / "c", "queries", repeat_text(500_000, 20_000), rows=20_000)
    outcome = run_in_child(lambda: rc.Counts.load(tmp_path / "c"))
    assert outcome.status == "refused"
    assert "far more than a file of its size holds" in outcome.message
    assert outcome.peak < 200 << 20


def test_a_small_file_of_a_billion_numbers_is_refused_unread(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        with pq.ParquetWriter(path, pa.schema([("ad", pa.int32())])) as writer:
            zeros = pa.table({"ad": np.zeros(1 << 20, np.int32)})
            for _ in range(128):
                writer.write_table(zeros)

    rc.count(small_log()).save(tmp_path / "c")
    forge_file(tmp_path / "c", "pairs", write, rows=128 << 20)
    outcome = run_in_child(lambda: rc.Counts.load(tmp_path / "c"))
    assert outcome.status == "refused"
    assert "far more than a file of its size holds" in outcome.message
    assert outcome.peak < 200 << 20


def test_a_long_text_among_many_is_no_bomb(tmp_path: Path) -> None:
    """If all of them were as long as the longest it would take gigabytes."""
    queries = [f"{number:05d} " for number in range(20_000)]
    queries[7] += "x" * 50_000
    log = {"query": queries, "ads": [["a"]] * 20_000, "clicks": [[1]] * 20_000}
    counts = rc.count(log)
    counts.save(tmp_path / "c")
    assert rc.Counts.load(tmp_path / "c") == counts


def test_other_rows_than_the_manifest_says_are_refused(tmp_path: Path) -> None:
    rc.count(small_log()).save(tmp_path / "c")
    forge_file(tmp_path / "c", "queries", lambda path: None, rows=7)
    with pytest.raises(rc.StoreError, match="rows, and the manifest says 7"):
        rc.Counts.load(tmp_path / "c")


@pytest.mark.parametrize("key", ["[]", '{"a":1}'])
def test_a_manifest_that_would_take_gigabytes_is_refused(tmp_path: Path, key: str) -> None:
    rc.count(small_log()).save(tmp_path / "c")
    path = tmp_path / "c" / artifact.MANIFEST
    path.write_text('{"format": 2, "x": [' + f"{key}," * 10_000_000 + "0]}")
    outcome = run_in_child(lambda: rc.Counts.load(tmp_path / "c"))
    assert outcome.status == "refused"
    assert "too large" in outcome.message
    assert outcome.peak < 300 << 20


@pytest.mark.parametrize("folders", [5, "x", [[]], [1], None])
def test_folders_of_a_manifest_are_names(tmp_path: Path, folders: Any) -> None:
    rc.count(small_log()).save(tmp_path / "c")
    path = tmp_path / "c" / artifact.MANIFEST
    manifest = json.loads(path.read_bytes())
    manifest.pop("sha256")
    path.write_bytes(artifact._encode_manifest(manifest | {"folders": folders}))
    with pytest.raises(rc.StoreError, match="wrong types"):
        rc.count(small_log()).save(tmp_path / "c")


def forge_counts(change: Callable[[dict[str, pa.Table]], None], folder: Path) -> None:
    counts = rc.count(small_log())
    counts.save(folder)
    stored = artifact.read(folder)
    tables = dict(stored.tables)
    change(tables)
    artifact.write(folder, kind="counts", settings=stored.settings, tables=tables)


def set_first(table: str, column: str, value: float) -> Callable[[dict[str, pa.Table]], None]:
    def change(tables: dict[str, pa.Table]) -> None:
        values = tables[table][column].to_numpy().copy()
        values[0] = value
        index = tables[table].column_names.index(column)
        tables[table] = tables[table].set_column(index, column, pa.array(values))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (set_first("pairs", "ad", 10**9), "pairs is damaged: ad"),
        (set_first("pairs", "query", -1), "pairs is damaged: query"),
        (set_first("pairs", "impressions", float("nan")), "not finite"),
        (set_first("pairs", "clicks", 1e12), "no log has these counts"),
        (set_first("visits", "sequence", 10**6), "visits is damaged"),
        (set_first("lengths", "ads", 2**40), "lengths is damaged"),
        (lambda tables: tables.pop("visits"), "visits is missing"),
    ],
)
def test_forged_counts_say_what_is_wrong(
    tmp_path: Path, change: Callable[[dict[str, pa.Table]], None], says: str
) -> None:
    forge_counts(change, tmp_path / "counts")
    with pytest.raises(rc.StoreError, match=says):
        rc.Counts.load(tmp_path / "counts")


def test_codes_outside_the_dictionary_are_refused() -> None:
    codes = pa.array([0, 1, 900_000_000], pa.int32())
    bad = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    table = pa.table({"query": bad, "ads": [["x"]] * 3, "clicks": [[1], [], [1]]})
    with pytest.raises(rc.LogError, match="outside its dictionary"):
        rc.count(table)
    inner = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), bad)
    with pytest.raises(rc.LogError, match="outside its dictionary"):
        rc.count(pa.table({"query": ["q"] * 3, "ads": inner, "clicks": [[1], [], [1]]}))


def test_weights_that_do_not_add_exactly_are_bad_rows() -> None:
    log = {"query": ["q"] * 2, "ads": [["a"]] * 2, "clicks": [[1], []], "weight": [1.0, 1e17]}
    with pytest.raises(rc.BadRowsError, match="bad weight"):
        rc.count(log)


@pytest.fixture
def two_days(tmp_path: Path) -> Path:
    rc.MultiClick().fit(small_log(1)).save(tmp_path / "m")
    return tmp_path / "m"


def test_an_update_of_somebody_else_is_not_lost(two_days: Path) -> None:
    mine, theirs = rc.load(two_days), rc.load(two_days)
    theirs.update(small_log(2)).save(two_days)
    with pytest.raises(rc.StoreError, match="changed since it was loaded"):
        mine.update(small_log(3)).save(two_days)
    assert rc.load(two_days).training_counts == theirs.training_counts
    mine.save(two_days, overwrite=True)
    assert rc.load(two_days).training_counts == mine.training_counts
    mine.update(small_log(4)).save(two_days)  # what it saved itself is no change


def test_updating_holds_the_folder_and_saves_only_when_all_went_well(two_days: Path) -> None:
    before = artifact.fingerprint(two_days)
    with pytest.raises(rc.SeenLogError), rc.updating(two_days) as model:
        model.update(small_log(1))
    assert artifact.fingerprint(two_days) == before
    with rc.updating(two_days) as model:
        model.update(small_log(2))
    assert rc.load(two_days).training_counts.total == 800


def test_the_text_of_a_model_is_checked_too(tmp_path: Path) -> None:
    rc.UBM().fit(small_log(), ads=pa.table(TEXTS)).save(tmp_path / "m")
    stored = artifact.read(tmp_path / "m")
    tables = dict(stored.tables)
    tokens = tables["text_ads"]["tokens"].to_pylist()
    tokens[0] = [10**6]
    kind = tables["text_ads"].schema.field("tokens").type
    tables["text_ads"] = tables["text_ads"].set_column(1, "tokens", pa.array(tokens, kind))
    artifact.write(tmp_path / "m", kind="model", settings=stored.settings, tables=tables)
    with pytest.raises(rc.StoreError, match="tokens"):
        rc.load(tmp_path / "m")


def test_a_state_that_is_back_after_another_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 20: a file was missing while another state was there, and it was taken for damage."""
    counts = rc.count(small_log())
    counts.save(tmp_path / "c")
    read = artifact._read_table
    missed: list[object] = []

    def miss_once(*arguments: Any) -> pa.Table:
        if not missed:
            missed.append(arguments)
            raise FileNotFoundError("a file of the other state")
        return read(*arguments)

    monkeypatch.setattr(artifact, "_read_table", miss_once)
    assert rc.Counts.load(tmp_path / "c") == counts
    assert missed


def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings 20 and 21: FileNotFoundError and PermissionError came through."""
    rc.count(small_log()).save(tmp_path / "c")
    for error in (FileNotFoundError(2, "no such file"), PermissionError(13, "not allowed")):
        for function in ("_read_table", "_parse_manifest"):

            def fail(*_: object, error: OSError = error) -> None:
                raise error

            with monkeypatch.context() as patched:
                patched.setattr(artifact, function, fail)
                with pytest.raises(rc.StoreError, match=f"cannot be read.*{error.strerror}"):
                    rc.Counts.load(tmp_path / "c")


@pytest.mark.parametrize("name", ["manifest.json", "pairs"])
def test_a_link_in_place_of_an_unfinished_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Finding 19: its name was known, and what the link leads to was overwritten."""
    counts, folder, theirs = rc.count(small_log()), tmp_path / "c", tmp_path / "theirs"
    counts.save(folder)
    theirs.write_text("theirs")
    (folder / f".{name}.{os.getpid()}.writing").symlink_to(theirs)
    counts.save(folder)
    assert not (folder / artifact.MANIFEST).is_symlink()
    monkeypatch.setattr(artifact, "token_hex", lambda _: "ab" * 8)  # as if it were guessed
    (folder / f".{name}.{'ab' * 8}.writing").symlink_to(theirs)
    with pytest.raises(rc.StoreError, match="cannot be written"):
        counts.save(folder)
    assert theirs.read_text() == "theirs"
    assert rc.Counts.load(folder) == counts


def test_the_files_of_a_model_and_their_folder_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 18: the folder was not, so that after a power cut a file may have no name."""
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink())
    )
    rc.DCTR().fit(small_log()).save(tmp_path / "m")
    manifest = next(path for path in synced if path.name.startswith(".manifest.json"))
    at = synced.index(manifest)
    assert synced[at - 1] == synced[at + 1] == tmp_path / "m"  # before the commit and after it
    tables = json.loads((tmp_path / "m" / artifact.MANIFEST).read_bytes())["files"]
    assert len(synced[: at - 1]) == len(tables)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Finding 19: an empty file was made where the link leads to."""
    rc.count(small_log()).save(tmp_path / "c")
    (tmp_path / "c" / ".lock").symlink_to(tmp_path / "outside")
    with pytest.raises(rc.StoreError, match="cannot be written"):
        rc.count(small_log()).save(tmp_path / "c")
    assert not (tmp_path / "outside").exists()
