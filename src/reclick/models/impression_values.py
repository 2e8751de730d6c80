"""A pair index that returns other values for one batch, such as posterior draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.batch import SessionBatch
from reclick.data.pair_index import ImpressionLookup
from reclick.data.ragged import Float64, Int32, Int64
from reclick.models.text_pair_index import TextPairIndex
from reclick.text.word_rates import TextIndex


class PairValues(NamedTuple):
    """Attractiveness and satisfaction, as a model uses them; None if it has none."""

    attractiveness: Float64 | None
    satisfaction: Float64 | None


class ImpressionValues(TextPairIndex):
    """The index of a model, with other values in place of its parameters.

    When the model looks up its parameters `fitted` [pair] for the impressions of a batch, it gets
    the `values` of these impressions instead. `used` is whether that has happened.
    """

    def __init__(self, pairs: TextPairIndex, fitted: PairValues, values: PairValues) -> None:
        vars(self).update(vars(pairs))  # share everything with the index of the model
        self.used = False
        self._fitted, self._values = fitted, values

    def lookup_or_words(
        self,
        values: Float64,
        batch: SessionBatch,
        lookup: ImpressionLookup,
        text: TextIndex | None,
    ) -> Float64:
        """Return the attractiveness of the impressions."""
        attractiveness = self._values.attractiveness
        if attractiveness is None or values is not self._fitted.attractiveness:
            return super().lookup_or_words(values, batch, lookup, text)
        self.used = True
        return attractiveness.copy()

    def take_or(self, values: Float64, row: Int32 | Int64, default: float | Float64) -> Float64:
        """Return the values of the impressions, if `values` are fitted parameters of the model."""
        for fitted, replacement in zip(self._fitted, self._values, strict=True):
            if fitted is not None and replacement is not None and values is fitted:
                self.used = True
                return np.array(replacement)
        return super().take_or(values, row, default)
