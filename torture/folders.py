"""Forged folders of models, counts and evaluations: refused, or they answer with probabilities."""

from __future__ import annotations

import json
import os
import random
import shutil
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
from torture.inputs import ads_table, own_log
from torture.mutations import VALUES, mutate_bytes, mutate_table

NUMBERS = (-1, 0, 2**31 - 1, 2**40, 10**6, float("nan"), float("inf"), -1e9, 1e18, 1e300, 0.5)
PAGES = {"query": ["query 1", "new"], "ads": [["ad0", "ad1", "never"], ["ad2", "ad3", "ad4"]]}


class ForgedFolders(Campaign):
    """One thing of a saved model or of saved counts is changed, and the hashes are made right."""

    name = "forged folders"
    share = 3.0

    def prepare(self, folder: Path) -> None:
        """Save a model of every type, and counts."""
        self.folder = folder
        log = own_log()
        for name in rc.MODELS:
            fixed = {"tune": "off"} if name == "luceclick" else {}
            settings = {key: fixed[key] for key in fixed if key in rc.MODELS[name].settings}
            rc.MODELS[name](**settings).fit(log, ads=ads_table()).save(folder / name)
            answer(folder / name)  # compiles
        rc.count(log).save(folder / "counts")

    def attempt(self, rng: random.Random, folder: Path) -> Failure | None:
        """Forge a folder, load it, and ask everything."""
        name = rng.choice([*rc.MODELS, "counts"])
        target = folder / name
        shutil.copytree(self.folder / name, target)
        what = rng.choice(
            [forge_tables] * 4 + [forge_settings] * 3 + [forge_manifest, forge_links]
        )(target, rng)
        outcome = run_in_child(lambda: answer(target))
        failure = explain_outcome(outcome, f"{name}: {what}")
        if failure is None and outcome.value == "nonsense":
            return Failure("wrong answer", f"{name}: {what}: no probabilities")
        return failure


def answer(folder: Path) -> str:
    """Load a folder and ask the model everything."""
    if artifact.get_kind(folder) == "counts":
        counts = Counts.load(folder)
        good = np.isfinite(counts.clicks).all() and (counts.clicks >= 0).all()
        (counts + counts).total  # noqa: B018, all of it is read
        rc.describe(counts)
        return "answered" if good else "nonsense"
    model = rc.load(folder)
    probability = model.click_prob(PAGES)
    parts = [probability.ravel()]
    try:
        model.relevance()
        parts.append(np.exp(model.log_prob(own_log(1, 30))))
        model.rank_sequences("query 1", ["ad0", "ad1"], top=3)
        model.sample(PAGES, rng=1)
    except ReclickError:
        pass
    values = np.concatenate(parts)
    return "answered" if ((values >= -1e-9) & (values <= 1 + 1e-9)).all() else "nonsense"


def _write_again(folder: Path, settings: Any, tables: dict[str, pa.Table]) -> None:
    kind = artifact.get_kind(folder)
    artifact.write(folder, kind=kind, settings=settings, tables=tables)


def forge_tables(folder: Path, rng: random.Random) -> str:
    """Change a table: a cell, a column, rows, or the table itself."""
    stored = artifact.read(folder)
    tables = dict(stored.tables)
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
        _write_again(folder, stored.settings, tables)
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
    for each in (kind, pa.float64(), None):
        try:
            return table.set_column(index, name, pa.array(values, each)), f".{name}[{row}] = {bad}"
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            continue
    return table, ""


def forge_settings(folder: Path, rng: random.Random) -> str:
    """Change a setting, or a value that was learnt."""
    stored = artifact.read(folder)
    settings = json.loads(json.dumps(stored.settings))
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
        _write_again(folder, settings, dict(stored.tables))
    except (ValueError, OverflowError, UnicodeError):
        return "nothing"
    return f"{part}.{key} = {str(value)[:80]}"


def forge_manifest(folder: Path, rng: random.Random) -> str:
    """Damage the manifest, whose hash is made right where it is still JSON."""
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
        other = ["../x", "/etc/passwd", "manifest.json", "a/b", "."]
        entry[field] = rng.choice([*VALUES, *other])
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
    """Put a link, a pipe, a folder or an empty file in place of a file."""
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
            path = rng.choice(sorted(each for each in target.rglob("*") if each.is_file()))
            path.write_bytes(mutate_bytes(path.read_bytes(), rng))
            what = str(path.relative_to(target))
        outcome = run_in_child(lambda: evaluate(target))
        return explain_outcome(outcome, what)


def evaluate(folder: Path) -> list[float | None]:
    """Compare two models, with a cache in a folder."""
    models = {"DCTR": rc.DCTR(), "PBM": rc.PBM(max_iterations=3)}
    result = rc.evaluate(
        models, own_log(2, 60), train=own_log(1, 60), folder=folder, resamples=20, progress=False
    )
    result.save(folder)
    return [row["value"] for row in result.scores.to_pylist()]
