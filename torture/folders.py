"""Forged folders of models, counts and evaluations: refused, or their answers are probabilities."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import reclick as rc
from reclick.data.counts import Counts
from reclick.errors import ReclickError
from reclick.runtime import artifact
from torture.campaign import Campaign, Failure, explain_outcome
from torture.children import run_in_child
from torture.inputs import add_outcomes, ads_table, make_log
from torture.mutations import VALUES, mutate_bytes, mutate_table

NUMBERS = (-1, 0, 2**31 - 1, 2**40, 10**6, float("nan"), float("inf"), -1e9, 1e18, 1e300, 0.5)
ADS = ["ad0", "ad1"]
CHANCES = ("attractiveness", "satisfaction", "relevance")
# Fits with tables and values that a default fit does not have.
OTHER_FITS: dict[str, dict[str, Any]] = {
    "luceclick": {"components": 2, "redundancy": 1.0, "noise": "user"},
    "multiclick": {"redundancy": 1.0, "noise": "session"},
    "pbm": {"components": 2, "noise": "user"},
    "ubm": {"components": 2, "attractiveness_prior": "words"},
    "dcm": {"initiation": "query", "noise": "session"},
    "dbn": {"initiation": "one", "continuation": "query", "satisfaction_prior": "auto"},
    "scan": {"noise": "user"},
    "crf": {"noise": "session"},
}
PAGES = {"query": ["query 1", "new"], "ads": [["ad0", "ad1", "never"], ["ad2", "ad3", "ad4"]]}


class ForgedFolders(Campaign):
    """One part of a saved model or of saved counts is changed, and the hashes are corrected."""

    name = "forged folders"
    share = 3.0

    def prepare(self, folder: Path) -> None:
        """Save a model of every type, some with settings and outcomes besides, and counts."""
        self.folder = folder
        log = make_log()
        fits: list[tuple[str, str, pa.Table, dict[str, Any]]]
        long_pages = [name for name in rc.MODELS if rc.MODELS[name].max_page_ads != 2]  # not TCM
        fits = [(name, name, log, {}) for name in long_pages]
        log_with_outcomes = add_outcomes(log)
        fits += [
            (f"{name} with {', '.join(settings)}", name, log_with_outcomes, settings)
            for name, settings in OTHER_FITS.items()
            if name in rc.MODELS
        ]
        for title, name, sessions, settings in fits:
            fast_settings = {"tune": "off"} if name == "luceclick" else {}
            model = rc.MODELS[name](**fast_settings, **settings)
            model.fit(sessions, ads=ads_table()).save(folder / title)
            assert answer(folder / title) == "answered", title  # and compiles
        rc.count(log_with_outcomes).save(folder / "counts")
        self.names = [*(title for title, *_ in fits), "counts"]

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Forge a folder, load it, and call every method that answers."""
        name = rng.choice(self.names)
        target = folder / name
        shutil.copytree(self.folder / name, target)
        what = rng.choice(
            [forge_tables] * 4
            + [forge_settings] * 2
            + [forge_numbers] * 2
            + [forge_bytes, forge_manifest, forge_links]
        )(target, rng)
        outcome = run_in_child(lambda: answer(target))
        failure = explain_outcome(outcome, f"{name}: {what}")
        if failure is None and outcome.value == "nonsense":
            return Failure("wrong answer", f"{name}: {what}: no probabilities")
        return failure


def answer(folder: Path) -> str:
    """Load a folder and call every method of the model that answers."""
    if artifact.get_kind(folder) == "counts":
        counts = Counts.load(folder)
        good = np.isfinite(counts.clicks).all() and (counts.clicks >= 0).all()
        (counts + counts).total  # noqa: B018, all of it is read
        rc.describe(counts)
        return "answered" if good else "nonsense"
    model = rc.load(folder)
    parts = [model.click_prob(PAGES).ravel()]
    for ask in (
        lambda: take_pages(model.click_prob(make_log()), make_log()),
        lambda: np.exp(model.log_prob(make_log())),
        lambda: list_chances(model.relevance()),
        lambda: [sequence.probability for sequence in model.rank_sequences("query 1", ADS, top=3)],
    ):
        with contextlib.suppress(ReclickError):
            parts.append(np.asarray(ask(), float))
    with contextlib.suppress(ReclickError):
        model.sample(PAGES, rng=1)
    values = np.concatenate(parts)
    return "answered" if ((values >= -1e-9) & (values <= 1 + 1e-9)).all() else "nonsense"


def take_pages(probability: np.ndarray, log: pa.Table) -> np.ndarray:
    """The probabilities of positions that exist on the pages."""
    lengths = [len(page) for page in log["ads"].to_pylist()]
    return np.concatenate([row[:n] for row, n in zip(probability, lengths, strict=True)])


def list_chances(relevance: pa.Table) -> np.ndarray:
    """The columns of what `relevance()` returns that are probabilities."""
    names = [name for name in relevance.column_names if name.startswith(CHANCES)]
    columns = [relevance[name].to_numpy() for name in names]
    return np.concatenate([column for column in columns if not np.isnan(column).all()])  # has none


def _write_again(folder: Path, settings: Any, tables: dict[str, pa.Table]) -> None:
    kind = artifact.get_kind(folder)
    artifact.write(folder, kind=kind, settings=settings, tables=tables)


def forge_tables(folder: Path, rng: random.Random) -> str:
    """Change a table: a cell, a column, rows, or the table itself."""
    content = artifact.read(folder)
    tables = dict(content.tables)
    name = rng.choice(list(tables))
    table, how = tables[name], rng.randrange(6)
    what = f"{name}, way {how}"
    if how == 0:
        del tables[name]
    elif how == 1:
        tables[name] = mutate_table(table, rng)
    elif how == 2:
        tables[name] = table.slice(0, max(0, table.num_rows - rng.choice([1, 2, 100])))
    elif how == 3:
        tables[name] = pa.concat_tables([table] * rng.choice([2, 3]))
    elif table.num_rows and table.num_columns:
        tables[name], cell = _change_cell(table, rng)
        what = f"{name}{cell}"
    try:
        _write_again(folder, content.settings, tables)
    except (pa.ArrowException, OverflowError, ValueError, IndexError, UnicodeError):
        return "nothing"
    return what


def _change_cell(table: pa.Table, rng: random.Random) -> tuple[pa.Table, str]:
    index = rng.randrange(table.num_columns)
    name, kind = table.column_names[index], table.schema.field(index).type
    values = table.column(index).to_pylist()
    row, bad = rng.randrange(len(values)), rng.choice(NUMBERS)
    if isinstance(values[row], list):
        values[row] = [bad] * rng.choice([0, 1, 3])
    elif isinstance(values[row], str):
        values[row] = rng.choice(["", "x" * 3000, "\0", "ad0"])
    else:
        values[row] = bad
    for new_type in (kind, pa.float64(), None):
        try:
            return table.set_column(
                index, name, pa.array(values, new_type)
            ), f".{name}[{row}] = {bad}"
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
    return table, ""


def forge_settings(folder: Path, rng: random.Random) -> str:
    """Change a setting, or a value that was learnt."""
    content = artifact.read(folder)
    settings = json.loads(json.dumps(content.settings))
    part = rng.choice([key for key in settings if isinstance(settings[key], dict)] or [None])
    values = settings if part is None or rng.random() < 0.2 else settings[part]
    if not values:
        return "nothing"
    key = rng.choice([*values, "click_prob", "__class__"])
    value = rng.choice([*VALUES, *NUMBERS, [[[0.1] * 2] * 2] * 2, 2**40])
    if rng.random() < 0.1:
        values.pop(key, None)
    else:
        values[key] = value
    try:
        _write_again(folder, settings, dict(content.tables))
    except (ValueError, OverflowError, UnicodeError):
        return "nothing"
    return f"{part}.{key} = {str(value)[:80]}"


def forge_numbers(folder: Path, rng: random.Random) -> str:
    """Change a number among the values that were learnt, or the length of a list of them."""
    content = artifact.read(folder)
    settings = json.loads(json.dumps(content.settings))
    place: Any = settings.get("values", settings)
    path = []
    while isinstance(place, dict | list) and place:
        parent = place
        key = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        path.append(key)
        place = parent[key]
        if isinstance(place, list) and rng.random() < 0.15:
            break
    if not path:
        return "nothing"
    if isinstance(place, list):
        parent[key] = rng.choice([place[:-1], place + place[-1:], place * 2, [place], []])
    else:
        parent[key] = rng.choice(NUMBERS)
    try:
        _write_again(folder, settings, dict(content.tables))
    except (ValueError, OverflowError, UnicodeError):
        return "nothing"
    return f"{path} = {str(parent[key])[:80]}"


def forge_bytes(folder: Path, rng: random.Random) -> str:
    """Damage a Parquet file, most often its footer, and correct its hash."""
    path = rng.choice(sorted(folder.glob("*.parquet")))
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    if rng.random() < 0.5 and 0 < footer < len(content) - 8:
        content = content[:footer] + mutate_bytes(content[footer:-8], rng) + content[-8:]
    else:
        content = mutate_bytes(content, rng)
    replace_file(path, content)
    return f"bytes of {path.name}"


def replace_file(path: Path, content: bytes, **entry: Any) -> None:
    """Replace a file of a folder, and correct its hash; `entry` is for the manifest too."""

    def correct(manifest: dict[str, Any]) -> None:
        digest = hashlib.sha256(content).hexdigest()
        for each in manifest["files"].values():
            if each["file"] == path.name:
                each.update({"bytes": len(content), "sha256": digest} | entry)

    path.write_bytes(content)
    change_manifest(path.parent, correct)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest of a folder, and correct its hash."""
    path = folder / artifact.MANIFEST
    manifest = json.loads(path.read_bytes())
    manifest.pop("sha256")
    change(manifest)
    path.write_bytes(artifact._encode_manifest(manifest))


def forge_manifest(folder: Path, rng: random.Random) -> str:
    """Damage the manifest, and correct its hash if it is still JSON."""
    path = folder / artifact.MANIFEST
    if rng.random() < 0.3:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
        return "bytes of the manifest"
    manifest = json.loads(path.read_bytes())
    manifest.pop("sha256")
    key = rng.choice(list(manifest))
    if key == "files" and rng.random() < 0.7:
        entry = rng.choice(list(manifest["files"].values()))
        field = rng.choice(list(entry))
        bad_names = ["../x", "/etc/passwd", "manifest.json", "a/b", "."]
        entry[field] = rng.choice([*VALUES, *bad_names])
        what = f"{field} = {str(entry[field])[:60]}"
    else:
        manifest[key] = rng.choice([*VALUES, *NUMBERS])
        what = f"{key} = {str(manifest[key])[:60]}"
    try:
        path.write_bytes(artifact._encode_manifest(manifest))
    except (ValueError, UnicodeError):
        return "nothing"
    return f"manifest: {what}"


def forge_links(folder: Path, rng: random.Random) -> str:
    """Replace a file by a link, a pipe, a folder or an empty file."""
    path = rng.choice(sorted(folder.iterdir()))
    path.unlink()
    how = rng.choice(["link", "endless", "loop", "pipe", "folder", "empty", "missing"])
    if how == "link":
        path.symlink_to("/etc/passwd")
    elif how == "endless":
        path.symlink_to("/dev/zero")
    elif how == "loop":
        path.symlink_to(path.name)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "empty":
        path.touch()
    return f"{how} in place of {path.name}"


class ForgedEvaluations(Campaign):
    """The cache of an evaluation is damaged, and the evaluation runs again."""

    name = "forged evaluations"
    share = 1.0

    def prepare(self, folder: Path) -> None:
        """Evaluate two models, with a cache."""
        self.folder = folder
        evaluate(folder / "cache")
        self.expected = evaluate(folder / "cache")

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Damage a file or an artifact of the cache."""
        target = folder / "cache"
        shutil.copytree(self.folder / "cache", target)
        if rng.random() < 0.5:
            artifacts = [path.parent for path in target.rglob(artifact.MANIFEST)]
            what = rng.choice([forge_tables, forge_settings, forge_manifest, forge_links])(
                rng.choice(sorted(artifacts)), rng
            )
        else:
            path = rng.choice(sorted(path for path in target.rglob("*") if path.is_file()))
            path.write_bytes(mutate_bytes(path.read_bytes(), rng))
            what = str(path.relative_to(target))
        outcome = run_in_child(lambda: evaluate(target))
        return explain_outcome(outcome, what)


def evaluate(folder: Path) -> list[float | None]:
    """Compare two models, with a cache in a folder."""
    models = {"DCTR": rc.DCTR(), "PBM": rc.PBM(max_iterations=3)}
    result = rc.evaluate(
        models, make_log(2, 60), train=make_log(1, 60), folder=folder, resamples=20, progress=False
    )
    result.save(folder)
    return [row["value"] for row in result.scores.to_pylist()]
