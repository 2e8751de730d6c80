"""A saved model: the counts and the text among its tables, and the model loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from reclick.data.counts import Counts
from reclick.errors import StoreError
from reclick.runtime import artifact
from reclick.text.tokens import AdTokens

if TYPE_CHECKING:
    from reclick.models.base import ClickModel


def load(folder: str | Path) -> ClickModel:
    """Load a model that was saved; it answers the same, to the last bit."""
    from reclick.models import MODELS

    stored = artifact.read(folder, kind="model")
    name = stored.settings.get("model")
    if name not in MODELS:
        raise StoreError(
            f"{folder} holds the model {name!r}, which this Reclick does not know. Known: {', '.join(MODELS)}."
        )
    model = MODELS[name](**stored.settings["settings"])
    return model._from_tables(stored.settings["values"], stored.tables)


def tables_of_counts(counts: Counts, text: AdTokens | None) -> dict[str, pa.Table]:
    """The counts and the text as tables, which `saved_counts` takes back."""
    tables = {f"counts_{name}": table for name, table in counts.to_tables().items()}
    return (
        tables
        if text is None
        else tables | {f"text_{name}": table for name, table in text.to_tables().items()}
    )


def saved_counts(tables: dict[str, pa.Table]) -> tuple[Counts, AdTokens | None]:
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
