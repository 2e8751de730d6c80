"""A pair index that answers about one batch with values of its own, such as posterior draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reclick.data.batch import SessionBatch
from reclick.data.pair_index import ImpressionLookup
from reclick.data.ragged import Float64, Int32, Int64
from reclick.models.text_pair_index import TextPairIndex
from reclick.text.word_rates import TextIndex


class PairValues(NamedTuple):
    """Attractiveness and satisfaction, as a model uses them; None where there is none."""

    attractiveness: Float64 | None
    satisfaction: Float64 | None


class ImpressionValues(TextPairIndex):
    """The index of a model, with other values in place of its parameters.

    Wherever the model looks up its parameters `fitted` [pair] for the impressions of a batch, it
    gets the `values` of these impressions. `used` says whether it did.
    """

    def __init__(self, pairs: TextPairIndex, fitted: PairValues, values: PairValues) -> None:
        vars(self).update(vars(pairs))  # it shares everything with the index of the model
        self.used = False
        self._fitted, self._values = fitted, values

    def lookup_or_words(
        self,
        values: Float64,
        batch: SessionBatch,
        found: ImpressionLookup,
        text: TextIndex | None,
    ) -> Float64:
        """The attractiveness of the impressions."""
        own = self._values.attractiveness
        if own is None or values is not self._fitted.attractiveness:
            return super().lookup_or_words(values, batch, found, text)
        self.used = True
        return own.copy()

    def take_or(self, values: Float64, row: Int32 | Int64, default: float | Float64) -> Float64:
        """The values of the impressions, where the parameters of pairs are looked up."""
        for fitted, own in zip(self._fitted, self._values, strict=True):
            if fitted is not None and own is not None and values is fitted:
                self.used = True
                return np.array(own)
        return super().take_or(values, row, default)
