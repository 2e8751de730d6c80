"""The verbs of a click model, once for all models."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from reclick import sequences, store
from reclick.batch import Float64, SessionBatch
from reclick.counts import Progress
from reclick.errors import CannotAnswerError, NotFittedError, SettingError, StoreError
from reclick.logs import SessionLog, as_log, replace_clicks
from reclick.sequences import Pages

Answer = TypeVar("Answer")
PART = 16_384  # sessions answered at once by one thread


class RankedSequence(NamedTuple):
    """A click sequence and its probability."""

    clicks: tuple[int, ...]
    probability: float


class ClickModel(ABC):
    """What every click model answers. A model says how it is fitted and what its pages' parameters are; the verbs are here.

    `pages` and `sessions` are a log from `read_sessions`, or anything it reads: a path, a table, or a dict of columns. Answers come in the log's
    order.
    """

    name: ClassVar[str]
    assumes: ClassVar[str]
    reference: ClassVar[str]

    # fitting

    @abstractmethod
    def fit(self, sessions: object, *, history: object = None, ads: object = None, progress: Progress | None = None) -> Self:
        """Learn from sessions."""

    def update(
        self, sessions: object = None, *, forget: object = None, decay: float = 1.0, ads: object = None, progress: Progress | None = None
    ) -> Self:
        """Continue from the last fit with new sessions, where the model can."""
        raise CannotAnswerError(f"{type(self).__name__} cannot be updated: fit it again on all the sessions.")

    @abstractmethod
    def relevance(self, pairs: object = None, *, text: object = None, level: float = 0.9) -> pa.Table:
        """Attractiveness, satisfaction and their product for each (query, ad), with credible intervals."""

    @abstractmethod
    def _context(self, log: SessionLog) -> Any:
        """What is needed once for a log, such as the text of its ads; `_prepare` gets it with every batch."""

    @abstractmethod
    def _prepare(self, batch: SessionBatch, context: Any) -> Callable[[int, int], Pages]:
        """Look up a batch's queries and ads once; the result gives the parameters of the pages start … end − 1."""

    @abstractmethod
    def _to_tables(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """What `save` writes beside the settings: plain values and tables."""

    @abstractmethod
    def _from_tables(self, values: dict[str, Any], tables: dict[str, pa.Table]) -> Self:
        """Take back what `_to_tables` gave."""

    # probabilities

    def log_prob(self, sessions: object) -> Float64:
        """Log-probability of each session's clicks in their order [session]."""
        return _joined(self.answers(sessions, lambda part, pages: sequences.log_probs(pages, part.click, part.clicks), clicks=True))

    def log_set_prob(self, sessions: object) -> Float64:
        """Log-probability that exactly the clicked positions are clicked, in whatever order [session]."""
        return _joined(self.answers(sessions, lambda part, pages: sequences.log_set_probs(pages, part.click, part.clicks), clicks=True))

    def click_prob(self, pages: object) -> Float64:
        """Probability that each position is clicked [session, position], nan beyond the page."""
        return stacked(self.answers(pages, lambda part, parameters: padded(part, sequences.click_probs(parameters))))

    def expected_clicks(self, pages: object) -> Float64:
        """Expected number of clicks on each page [session]."""
        return np.asarray(np.nansum(self.click_prob(pages), axis=1))

    def next_click_prob(self, pages: object, clicks: Sequence[Sequence[int]] | None = None) -> Float64:
        """Probability that each position is clicked next, given the clicks so far [session, position].

        The clicks so far are `clicks`, one list a page, or else the log's own. What is missing to 1 is the probability that the session ends.
        """
        log = with_clicks(pages, clicks)
        return stacked(self.answers(log, lambda part, parameters: padded(part, sequences.next_click_probs(parameters, part.click, part.clicks)[0])))

    def rank_sequences(
        self, query: str, ads: Sequence[str], *, length: int | None = None, top: int = 10, text: object = None
    ) -> list[RankedSequence]:
        """The most likely click sequences of a page, of a given number of clicks or of any, best first.

        `text` is an ads table for ads that the model has not seen.
        """
        if length is not None and not 0 <= length <= len(ads):
            raise SettingError(f"length: got {length}, expected 0 to {len(ads)}, the number of ads on the page.")
        page = as_log({"query": [query], "ads": [list(ads)]}, ads=text, clicks_required=False)
        asked = np.array([sequences.ANY_LENGTH if length is None else length])
        ((places, lengths, probabilities),) = self.answers(page, lambda _, pages: sequences.top_sequences_of_pages(pages, asked, top))
        listed = zip(places[0], lengths[0], probabilities[0], strict=True)
        return [RankedSequence(tuple(clicks[:many].tolist()), float(chance)) for clicks, many, chance in listed if chance > 0]

    def sample(self, pages: object, rng: np.random.Generator | int) -> pa.Array:
        """Draw a click sequence for each page: a list of positions a row."""
        generator = np.random.default_rng(rng)
        draws = list(self.answers(pages, lambda _, parameters: sequences.samples(parameters, generator), threads=1))
        clicks = [click for click, _ in draws]
        sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(starts) for _, starts in draws)])
        return pa.ListArray.from_arrays(np.cumsum(sizes).astype(np.int32), np.concatenate([np.zeros(0, np.int32), *clicks]))

    # settings, printing, saving

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings given to the constructor."""
        return {name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; a fitted model forgets what it learnt with the old ones, and is to be fitted again."""
        before = self.get_params()
        changed = type(self)(**{**before, **_known(settings, before)})
        if changed.get_params() != before:
            vars(self).clear()
            vars(self).update(vars(changed))
        return self

    def clone(self) -> Self:
        """A new model with the same settings, not fitted."""
        return type(self)(**self.get_params())

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder; a reader sees the old model or the new one, never half."""
        self._check_fitted()
        values, tables = self._to_tables()
        store.write(folder, kind="model", settings={"model": self.name, "settings": self.get_params(), "values": values}, tables=tables)

    @property
    def fitted(self) -> bool:
        """Whether the model has learnt anything."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({settings}){self._learnt() if self.fitted else ''}"

    def _learnt(self) -> str:
        return ""

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise NotFittedError(f"{type(self).__name__} is not fitted yet. Call fit(sessions) first, or rc.load(folder).")

    # streaming

    def answers(
        self,
        pages: object,
        answer: Callable[[SessionBatch, Pages], Answer],
        *,
        clicks: bool = False,
        with_rows: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Answer]:
        """An answer of your own for each part of the log, in order, from its sessions and their pages' parameters; the verbs are made of this.

        Parts are answered side by side: kernels do not hold each other up.
        """
        self._check_fitted()
        log = as_log(pages, clicks_required=clicks)
        context = self._context(log)
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            for batch in log.batches(with_rows=with_rows, progress=progress):
                parts = [(start, min(start + PART, len(batch))) for start in range(0, len(batch), PART)]
                yield from pool.map(partial(_answer_part, batch, self._prepare(batch, context), answer), parts)


def _answer_part(
    batch: SessionBatch, parameters: Callable[[int, int], Pages], answer: Callable[[SessionBatch, Pages], Answer], part: tuple[int, int]
) -> Answer:
    return answer(batch.slice(*part), parameters(*part))


def load(folder: str | Path) -> ClickModel:
    """Load a model that was saved; it answers the same, to the last bit."""
    from reclick.models import MODELS

    stored = store.read(folder, kind="model")
    name = stored.settings.get("model")
    if name not in MODELS:
        raise StoreError(f"{folder} holds the model {name!r}, which this Reclick does not know. Known: {', '.join(MODELS)}.")
    model = MODELS[name](**stored.settings["settings"])
    return model._from_tables(stored.settings["values"], stored.tables)


def _known(settings: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in names:
            raise SettingError(f"{name!r} is not a setting. Settings: {', '.join(names)}.")
    return settings


def with_clicks(pages: object, clicks: Sequence[Sequence[int]] | None) -> SessionLog:
    """The pages with these clicks so far, one list a page; with their own when None."""
    return as_log(pages) if clicks is None else replace_clicks(as_log(pages, clicks_required=False), clicks)


def padded(part: SessionBatch, values: Float64) -> Float64:
    """Values of impressions laid end to end, as [session, position] with nan beyond the page."""
    sizes = np.diff(part.page)
    out = np.full((len(part), int(sizes.max(initial=0))), np.nan)
    out[np.arange(out.shape[1]) < sizes[:, None]] = values
    return out


def _joined(parts: Iterator[Float64]) -> Float64:
    return np.concatenate([np.zeros(0), *parts])


def stacked(parts: Iterator[Float64]) -> Float64:
    """Parts of different widths as one array, nan beyond."""
    arrays = list(parts)
    width = max((part.shape[1] for part in arrays), default=0)
    filled = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan) for part in arrays]
    return np.concatenate(filled) if filled else np.zeros((0, 0))
