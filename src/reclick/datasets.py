"""Example data: a simulated market, which is made once and cached in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reclick.errors import ReclickError
from reclick.runtime.arguments import check_arguments
from reclick.runtime.jit import cache_folder
from reclick.runtime.outputs import scratch_folder
from reclick.simulation import Simulation, Truth, simulate

logger = logging.getLogger("reclick")
FOLDER = "datasets"  # in the user's cache folder
UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


@check_arguments
def market(
    sessions: int = 20_000, *, weeks: int = 3, queries: int = 500, seed: int = 0
) -> Simulation:
    """Return a small simulated market: weeks of sessions, ads with text, labels, bids and truth.

    It is the result of `simulate` with these arguments. The first call writes it to the user's
    cache folder (`RECLICK_CACHE_DIR`), under a key of the arguments and the code of the simulation;
    later calls read it from there, and return the same tables.

    >>> import reclick as rc
    >>> data = rc.datasets.market(sessions=500, queries=20)
    >>> [len(week) for week in data.weeks], data.ads.column_names
    ([500, 500, 500], ['ad', 'title', 'description', 'display_url'])
    """
    arguments = {"sessions": sessions, "weeks": weeks, "queries": queries, "seed": seed}
    folder = _dataset_folder("market", arguments)
    cached_simulation = None if folder is None else _load_from_cache(folder)
    if cached_simulation is not None:
        return cached_simulation
    simulation = simulate(sessions, weeks=weeks, queries=queries, seed=seed)
    if folder is None:
        return simulation
    _write_to_cache(simulation, folder)
    # Read it back, so that the first call returns the same as later calls.
    return _load_from_cache(folder) or simulation


def _load_from_cache(folder: Path) -> Simulation | None:
    """Load a simulation from the cache; None if it is not there or damaged."""
    if not folder.is_dir():
        return None
    try:
        return load_simulation(folder)
    except UNREADABLE as error:
        logger.warning("%s is damaged (%s); it is made again.", folder, error)
        shutil.rmtree(folder, ignore_errors=True)
        return None


def load_simulation(folder: Path) -> Simulation:
    """Read the files of `Simulation.save`."""
    facts = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    users, settings = _with_tuples(facts.pop("users")), _with_tuples(facts)
    tables = {
        name: pq.read_table(folder / f"truth{suffix}.parquet")
        for name, suffix in {
            "pairs": "",
            "words": "_words",
            "brands": "_brands",
            "queries": "_queries",
            "sessions": "_sessions",
        }.items()
    }
    weeks = range(1, settings["weeks"] + 1)
    return Simulation(
        weeks=[pq.read_table(folder / f"week{number}.parquet") for number in weeks],
        ads=pq.read_table(folder / "ads.parquet"),
        labels=pq.read_table(folder / "labels.parquet"),
        bids=pq.read_table(folder / "bids.parquet"),
        truth=Truth(**tables, users=users, settings=settings),
    )


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Replace lists in JSON values by tuples, as in `simulate`."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }


def _dataset_folder(name: str, arguments: dict[str, int]) -> Path | None:
    """Return the cache folder of a data set; None if there is no cache folder."""
    kernels = cache_folder()
    if kernels is None:
        return None
    content = json.dumps(arguments).encode() + _simulation_source()
    key = hashlib.sha256(content).hexdigest()[:16]
    return kernels.parent / FOLDER / f"{name}-{key}"


def _simulation_source() -> bytes:
    """Return the code that makes the data, as another version makes other data."""
    files = sorted((Path(__file__).parent / "simulation").rglob("*.py"))
    return b"".join(file.read_bytes() for file in files)


def _write_to_cache(simulation: Simulation, folder: Path) -> None:
    """Write a simulation to the cache atomically; if that fails, log a warning."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder.parent) as temporary:
            simulation.save(temporary / folder.name)
            if not folder.exists():
                (temporary / folder.name).rename(folder)
    except (OSError, ReclickError) as error:
        logger.warning("%s cannot be kept (%s); it is made again next time.", folder, error)
