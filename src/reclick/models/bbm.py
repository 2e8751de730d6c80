"""BBM, the Bayesian browsing model: UBM with the whole posterior of the attractiveness."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import Float64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.models.examination_model import ExaminationModel
from reclick.models.kernels.examination_em import browse_pages
from reclick.models.kernels.examination_posterior import posteriors
from reclick.text.word_rates import TextIndex


class BBM(ExaminationModel):
    """UBM's P(click | clicks above) = θ(q, d) · γ(r', r), with θ the mean of its posterior given γ.

    γ is UBM's. The posterior of θ is exact, not a Beta: an ad that was shown far down without a
    click stays uncertain. With `attractiveness_strength` 0 its prior is flat, as in the paper.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [1, 2]]}
    >>> table = BBM().fit(log).relevance({"query": ["pizza"], "ad": ["b"]})
    >>> [round(table[f"attractiveness{end}"][0].as_py(), 3) for end in ("_low", "", "_high")]
    [0.371, 0.7, 0.952]
    """

    name: ClassVar[str] = "bbm"
    assumes: ClassVar[str] = (
        "as UBM; attractiveness is a distribution, of which predictions take the mean"
    )
    reference: ClassVar[str] = "Liu, Guo, Faloutsos 2009"

    def _estimate(self, sessions: GroupedSessions, means: Float64, history: Counts) -> None:
        super()._estimate(sessions, means, history)
        rows, gamma = np.arange(len(means)), self.gamma_.ravel()
        inferred = posteriors(self._cells, rows, means, self.attractiveness_strength, gamma)
        self.theta_ = inferred[:, 0].copy()

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_words(self.theta_, batch, self._pairs.find(batch), text)
        return browse_pages(batch, theta, self.gamma_)
