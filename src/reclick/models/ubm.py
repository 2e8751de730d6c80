"""UBM, the user browsing model: examination depends on the position and the closest click above."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.models.examination_model import ExaminationModel
from reclick.models.kernels.examination_em import browse_pages
from reclick.text.word_rates import TextIndex


class UBM(ExaminationModel):
    """P(click at r | clicks above) = θ(q, d) · γ(r', r), r' being the closest click above.

    r' is 0 where there is no click above. The prior mean of γ, `examination_prior`, is a number, or
    "overall": for γ(0, r) the click rate of position r relative to that of the first, in the
    history or else in the log, and below a click at r' as if the page began there, γ(0, r − r').
    Positions beyond those of the log have the examination of the last, as far below the click.

    >>> log = {"query": ["pizza"] * 4, "ads": [["a", "b"]] * 4, "clicks": [[1], [1, 2], [], [1, 2]]}
    >>> page = {"query": ["pizza"] * 2, "ads": [["a", "b"]] * 2}
    >>> UBM().fit(log).next_click_prob(page, [[], [1]]).round(3)
    array([[0.747, 0.075],
           [0.   , 0.683]])
    """

    name: ClassVar[str] = "ubm"
    assumes: ClassVar[str] = (
        "examination depends on the position and the distance to the click above; "
        "an examined ad is clicked if it attracts"
    )
    reference: ClassVar[str] = "Dupret, Piwowarski 2008"

    def _page_distribution(
        self, batch: SessionBatch, text: TextIndex | None
    ) -> Callable[[int, int], PageDistribution]:
        theta = self._pairs.lookup_or_words(self.theta_, batch, self._pairs.find(batch), text)
        return browse_pages(batch, theta, self.gamma_)
