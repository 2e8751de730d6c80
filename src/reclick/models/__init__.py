"""Every model by its name."""

from __future__ import annotations

from reclick.models.base import ClickModel, RankedSequence, load
from reclick.models.ctr import DCTR
from reclick.models.multiclick import MultiClick

MODELS: dict[str, type[ClickModel]] = {model.name: model for model in (MultiClick, DCTR)}

__all__ = ["DCTR", "MODELS", "ClickModel", "MultiClick", "RankedSequence", "load"]
