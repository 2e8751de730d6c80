"""PBM, the position-based model: examination depends on the position alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.chain import chain_pages
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.ragged import Float64
from reclick.models.examination_model import ExaminationModel
from reclick.models.kernels.independent_clicks import independent_clicks
from reclick.text.word_rates import TextIndex


class PBM(ExaminationModel):
    """P(click) = θ(q, d) · γ(position), each position independently.

    The prior mean of γ, `examination_prior`, is a number, or "overall": the click rate of the
    position relative to that of the first, in the history or else in the log. A position beyond
    those of the log has the examination of the last.

    >>> pages = [["a", "b"]] * 4 + [["b", "a"]] * 4
    >>> clicks = [[1], [1], [1, 2], [], [1], [], [2], [1, 2]]
    >>> model = PBM().fit({"query": ["pizza"] * 8, "ads": pages, "clicks": clicks})
    >>> model.click_prob({"query": ["pizza"], "ads": [["a", "b"]]}).round(3)
    array([[0.712, 0.321]])
    """

    name: ClassVar[str] = "pbm"
    assumes: ClassVar[str] = (
        "examination depends on the position alone; an examined ad is clicked if it attracts"
    )
    reference: ClassVar[str] = (
        "Craswell, Zoeter, Taylor, Ramsey 2008; Richardson, Dominowska, Ragno 2007"
    )
    browsing: ClassVar[bool] = False

    def examination_by_position(self) -> Float64:
        """γ, the examination probability of each position of the training log [position]."""
        self.check_fitted()
        return self.gamma_

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_words(self.theta_, batch, self._pairs.find(batch), text)
        position = np.arange(len(theta)) - np.repeat(batch.page[:-1], np.diff(batch.page))
        return chain_pages(
            batch,
            independent_clicks,
            (theta * self.gamma_[np.minimum(position, len(self.gamma_) - 1)],),
        )
