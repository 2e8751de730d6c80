"""`PageDistribution`: the interface of all families of distributions over click sequences.

Each family computes `click_prob`, its marginals, in its own file: `choice.py`, `chain.py`,
`walk.py`, `scan.py`, `enumerated.py`, and `mixture.py` and `noise.py` for mixtures of them. Only
the kernel of the marginals of choices is elsewhere, in `set_probability.py`. A `PageDistribution`
has a batch of pages, one after another.
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np

from reclick.clicks.sequence_search import (
    SequenceRanks,
    TopSequences,
    check_rankable,
    rank_clicks,
    search_top_sequences,
)
from reclick.clicks.step import Clicks, StepTables, draw_clicks
from reclick.data.batch import Float64, Int64
from reclick.errors import CannotAnswerError

__all__ = ["Clicks", "PageDistribution", "SequenceRanks", "StepwisePages", "TopSequences"]


class PageDistribution(Protocol):
    """The click sequences of a batch of pages.

    Positions count from 1. Values of impressions are concatenated in page order: those of page s
    are at starts[s] … starts[s + 1] − 1. Clicks must be positions of their page; callers check it.
    """

    starts: Int64  # [page + 1] where each page starts among the impressions

    def __len__(self) -> int:
        """The number of pages."""
        ...

    def log_prob(self, clicks: Clicks) -> Float64:
        """Log-probability of exactly these clicks in this order [page]."""
        ...

    def log_set_prob(self, clicks: Clicks) -> Float64:
        """Log-probability that exactly these positions are clicked, in any order [page]."""
        ...

    def click_prob(self) -> Float64:
        """Probability that each position is clicked [impression]."""
        ...

    def next_click_prob(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """P(next click is here | clicks so far) [impression], and P(the session ends) [page]."""
        ...

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        ...

    def sample(self, rng: np.random.Generator) -> Clicks:
        """Draw one session for each page."""
        ...

    def top_sequences(self, length: int | None, top: int) -> TopSequences:
        """The most likely complete sequences of each page, of `length` clicks or of any number."""
        ...

    def ranks(self, clicks: Clicks, rows: Int64) -> SequenceRanks:
        """Rank the clicks of the pages `rows` among all sequences of their length [row]."""
        ...

    def select(self, rows: Int64) -> Self:
        """The pages `rows`, in this order; a page may be selected more than once."""
        ...


class StepwisePages(PageDistribution):
    """Base of the built-in families.

    It derives sampling, ranking and top sequences from next-click probabilities.
    """

    def step_tables(self) -> StepTables:
        """The parameters as the kernels of `step.py` read them."""
        raise NotImplementedError

    def follow(self, clicks: Clicks) -> tuple[Float64, Float64, Float64]:
        """The result of `next_click_prob`, and log P(the first clicks are these) [page]."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.starts) - 1

    def next_click_prob(self, clicks: Clicks) -> tuple[Float64, Float64]:
        """P(next click is here | clicks so far) [impression], and P(the session ends) [page]."""
        following, end, _ = self.follow(clicks)
        return following, end

    def satisfaction_prob(self) -> Float64:
        """Probability that the session ends because a clicked ad satisfied the user [page]."""
        raise CannotAnswerError(
            "These pages have no satisfaction: their model does not say whether a session ended "
            "because a clicked ad satisfied the user. MultiClick, LuceClick, DBN, SDBN and scan do."
        )

    def sample(self, rng: np.random.Generator) -> Clicks:
        """Draw one session for each page."""
        return draw_clicks(self.step_tables(), rng)

    def top_sequences(self, length: int | None, top: int) -> TopSequences:
        """The most likely complete sequences of each page, of `length` clicks or of any number."""
        return search_top_sequences(self.step_tables(), length, top)

    def ranks(self, clicks: Clicks, rows: Int64) -> SequenceRanks:
        """Rank the clicks of the pages `rows` among all sequences of their length [row]."""
        pages, row_clicks = self.select(rows), clicks.select(rows)
        check_rankable(np.diff(pages.starts), row_clicks.counts)
        return rank_clicks(pages.step_tables(), row_clicks, np.exp(pages.log_prob(row_clicks)))
