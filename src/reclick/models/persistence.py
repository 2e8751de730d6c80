"""Saved models: loading one by its folder, and the counts and text among its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from reclick.data.counts import Counts
from reclick.errors import StoreError
from reclick.models.registry import MODELS
from reclick.runtime import artifact
from reclick.runtime.filesystem import Location
from reclick.text.tokens import AdTokens

if TYPE_CHECKING:
    from reclick.models.base import ClickModel


def load(folder: Location) -> ClickModel:
    """Load a saved model; it answers as before, to the last bit."""
    stored = artifact.read(folder, kind="model")
    name = str(stored.settings.get("model"))
    if name not in MODELS:
        raise StoreError(
            f"{folder} holds the model {name!r}, which this Reclick does not know. If it is one "
            f"of your own, call rc.register first. Known: {', '.join(MODELS)}."
        )
    model = MODELS[name](**stored.settings["settings"])
    return model._from_tables(stored.settings["values"], stored.tables)


def counts_to_tables(counts: Counts, text: AdTokens | None) -> dict[str, pa.Table]:
    """The counts and the text as tables, for `counts_from_tables`."""
    tables = {f"counts_{name}": table for name, table in counts.to_tables().items()}
    return (
        tables
        if text is None
        else tables | {f"text_{name}": table for name, table in text.to_tables().items()}
    )


def counts_from_tables(tables: dict[str, pa.Table]) -> tuple[Counts, AdTokens | None]:
    """The counts and the text among a model's tables."""
    counts = {
        name.removeprefix("counts_"): table
        for name, table in tables.items()
        if name.startswith("counts_")
    }
    text = {
        name.removeprefix("text_"): table
        for name, table in tables.items()
        if name.startswith("text_")
    }
    return Counts.from_tables(counts), AdTokens.from_tables(text) if text else None
