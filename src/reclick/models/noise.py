"""Noise: a share of the sessions, or of the users, clicks at random.

With ε the share of noise, P(clicks) = (1 − ε) P_model(clicks) + ε P_random(clicks). EM: a session
is noise with probability ε P_random / P; the model is fitted again with sessions that count by how
likely they are not noise. On the sessions that it was fitted to a model is too sure of them, and
finds too little noise. So each session is judged by a fit to others: the log is cut in folds, and
those of a fold are judged by a fit to the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from reclick.clicks.chain import PROBABILITY_MARGIN, chain_pages, fill_independent_chain
from reclick.clicks.distribution import PageDistribution
from reclick.clicks.mixture import MixturePages
from reclick.clicks.noise import NoisePages, log_factorial
from reclick.data.batch import Float64, Int64, SessionBatch
from reclick.data.counts import Counts
from reclick.data.grouped_sessions import GroupedSessions
from reclick.data.hashing import content_hash, splitmix64
from reclick.data.outcomes import ClickOutcomes
from reclick.data.stored_tables import table_error
from reclick.engines import Log, as_grouped
from reclick.errors import LogError
from reclick.fitting.folds import held_out_weight
from reclick.logs import as_log
from reclick.models.batching import concatenate_chunks
from reclick.models.fixed_order import distribute_numbers, stop_probabilities
from reclick.runtime.progress import report_progress
from reclick.text.tokens import AdTokens

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

N_FOLDS = 3
MOST_ROUNDS = 10
FIRST_SHARE = 0.05
LEAST_SHARE, MOST_SHARE = 1e-6, 0.9
SHARE_TOLERANCE = 2e-3  # a round that changes the share by less is the last
EM_STEPS, EM_TOLERANCE = 500, 1e-8  # for the share, given what the fits say of each session
NUMBER_STRENGTH = 50.0  # sessions: how strongly the number of random clicks is held to the log's


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The component of random clicks."""

    share: float  # of the sessions
    user_share: float | None  # of the users, where users are noise
    numbers: Float64  # [page length, m] P(m random clicks), of models with an order of clicks
    pooled: Float64  # [m] sessions, for other page lengths
    rate: float  # of each position, of models without an order

    def log_prob(self, lengths: Int64, clicks: Int64, *, ordered: bool) -> Float64:
        """Log P(these clicks | noise) from page lengths and numbers of clicks [session].

        Of the clicks in their order, or of the set of clicks.
        """
        if not ordered:
            unclicked = (lengths - clicks) * np.log1p(-self.rate)
            return np.asarray(clicks * np.log(self.rate) + unclicked)
        with np.errstate(divide="ignore"):
            number = np.log(self.numbers[lengths, clicks])
        return np.asarray(number + log_factorial(lengths - clicks) - log_factorial(lengths))

    def add_to(
        self,
        model: ClickModel,
        batch: SessionBatch,
        pages: Callable[[int, int], PageDistribution],
    ) -> Callable[[int, int], PageDistribution]:
        """The pages of a model with a component of random clicks, the last one."""
        noise = self._random_pages(model, batch)

        def mixed(start: int, end: int) -> PageDistribution:
            weights = np.tile([1 - self.share, self.share], (end - start, 1))
            return MixturePages((pages(start, end), noise(start, end)), weights)

        return mixed

    def _random_pages(
        self, model: ClickModel, batch: SessionBatch
    ) -> Callable[[int, int], PageDistribution]:
        if not model.ordered:
            size = int(batch.page[-1])
            satisfaction = np.zeros(size) if model.satisfaction else None
            rates = (np.full(size, self.rate),)
            return chain_pages(batch, fill_independent_chain, rates, satisfaction=satisfaction)

        def pages(start: int, end: int) -> NoisePages:
            starts = batch.page[start : end + 1] - batch.page[start]
            lengths = np.diff(starts)
            stop, table = stop_probabilities(lengths, self.numbers, self.pooled, NUMBER_STRENGTH)
            return NoisePages.build(stop, starts, table)

        return pages

    def to_value(self) -> dict[str, Any]:
        """For the manifest of a saved model."""
        value = asdict(self)
        return {name: np.asarray(each).tolist() for name, each in value.items()}

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> Self:
        """What `to_value` returned; anything else is refused."""
        numbers, pooled = (np.array(value[name], np.float64) for name in ("numbers", "pooled"))
        shares = [value["share"], value["rate"], value["user_share"] or 0.0]
        square = numbers.ndim == 2 and numbers.shape == (len(numbers),) * 2
        known = np.concatenate([numbers.ravel(), shares])
        if not square or not ((known >= 0) & (known <= 1)).all() or not (pooled >= 0).all():
            raise table_error("noise", "it has values that no fit has")
        return cls(value["share"], value["user_share"], numbers, pooled, value["rate"])


class NoiseData(NamedTuple):
    """The sessions of a log, and which of them are noise together."""

    log: Log  # of which every pass has the same sessions
    weight: Float64  # [session]
    lengths: Int64  # [session] ads on the page
    clicks: Int64  # [session] number of clicks
    unit: Int64  # [session] its user, or itself
    held_out: Float64  # [fold, session] the part of the weight that each fold holds out
    by_user: bool

    @classmethod
    def of(cls, sessions: object, model: ClickModel) -> NoiseData:
        """The data of a log, as the setting `noise` says."""
        if model.noise == "user":
            return cls._of_users(sessions)
        grouped = as_grouped(sessions, engine=model._engine)
        block = grouped.whole
        first = content_hash(block.pair, block.page, block.click, block.clicks) % N_FOLDS
        parts = [held_out_weight(block.weight, first, fold, N_FOLDS) for fold in range(N_FOLDS)]
        return cls(
            GroupedLog(grouped),
            block.weight,
            np.diff(block.page),
            np.diff(block.clicks),
            np.arange(len(block)),
            np.stack(parts),
            by_user=False,
        )

    @classmethod
    def _of_users(cls, sessions: object) -> NoiseData:
        log = as_log(sessions)
        read = read_users(log)
        fold = (splitmix64(read.user.astype(np.uint64)) % np.uint64(N_FOLDS)).astype(np.int64)
        parts = np.stack([np.where(fold == each, read.weight, 0.0) for each in range(N_FOLDS)])
        return cls(log, read.weight, read.lengths, read.clicks, read.user, parts, by_user=True)

    def reweight(self, weight: Float64) -> WeightedLog:
        """The log with other weights [session]."""
        return WeightedLog(self.log, weight)

    @property
    def lengths_table(self) -> Float64:
        """Sessions by page length and number of clicks [length, m]."""
        return self.count_lengths(self.weight)

    def count_lengths(self, weight: Float64) -> Float64:
        """The same with other weights."""
        size = int(self.lengths.max(initial=1)) + 1
        cells = np.bincount(self.lengths * size + self.clicks, weight, size * size)
        return cells.reshape(size, size).astype(np.float64)


class UserSessions(NamedTuple):
    """Sessions of users."""

    user: Int64  # [session] a number; a session without a user is one of its own
    names: pa.Array  # [user] null where a session has none
    weight: Float64  # [session]
    lengths: Int64  # [session]
    clicks: Int64  # [session]


def read_users(log: Log) -> UserSessions:
    """The users of a log, from its column user."""
    names, weights, lengths, clicks = [], [], [], []
    for batch in log.batches(with_rows=True):
        if batch.rows is None or "user" not in batch.rows.schema.names:
            raise LogError(
                f"{log.name} has no column user, by which noise='user' finds users who click at "
                "random. Add one, or judge each session by itself: noise='session'."
            )
        names.append(batch.rows.column("user").cast(pa.string()))
        weights.append(np.ones(len(batch)) if batch.weight is None else batch.weight)
        lengths.append(np.diff(batch.page))
        clicks.append(np.diff(batch.clicks))
    encoded = pa.chunked_array(names).combine_chunks().dictionary_encode()
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    alone = code < 0
    code[alone] = len(encoded.dictionary) + np.arange(alone.sum())
    users = pa.concat_arrays([encoded.dictionary, pa.nulls(int(alone.sum()), pa.string())])
    return UserSessions(code, users, *map(np.concatenate, (weights, lengths, clicks)))


class GroupedLog:
    """Grouped sessions as a log of weighted sessions."""

    name = "grouped sessions"

    def __init__(self, grouped: GroupedSessions) -> None:
        self._grouped = grouped

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """All sessions as one batch."""
        counts, block = self._grouped.counts, self._grouped.whole
        yield SessionBatch(
            queries=counts.queries.cast(pa.string()),
            ads=counts.ads.cast(pa.string()),
            query=block.query.copy(),
            ad=counts.pair_ad[block.pair],
            page=block.page,
            click=block.click,
            clicks=block.clicks,
            weight=block.weight,
            outcomes=self._outcomes(),
        )

    def _outcomes(self) -> ClickOutcomes | None:
        """The outcomes of last clicks; those of the others are no longer known."""
        block = self._grouped.whole
        if block.outcome is None:
            return None
        outcome = np.zeros(len(block.click), np.int8)
        clicked = np.diff(block.clicks) > 0
        outcome[block.clicks[1:][clicked] - 1] = block.outcome[clicked]
        return ClickOutcomes(outcome, None, None)

    def require_rows(self) -> None:
        """There are some."""


class WeightedLog:
    """A log whose sessions have other weights."""

    def __init__(self, log: Log, weight: Float64) -> None:
        self._log, self._weight = log, weight

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._log.name

    def batches(self, *, with_rows: bool = False) -> Iterator[SessionBatch]:
        """The batches of the log, with the weights."""
        first = 0
        for batch in self._log.batches(with_rows=with_rows):
            weight = self._weight[first : first + len(batch)].copy()
            first += len(batch)
            yield replace(batch, weight=weight)

    def require_rows(self) -> None:
        """As the log does."""
        self._log.require_rows()


def fit_with_noise(
    model: ClickModel, sessions: object, history: Counts | None, text: AdTokens | None
) -> Counts | GroupedSessions:
    """Fit a model and its component of random clicks; return what it was fitted to.

    Rounds of: fit to the rest of each fold, judge its sessions, estimate the share of noise. The
    final fit is to all sessions, which count by how likely they are not noise.
    """
    data = NoiseData.of(sessions, model)
    clean, share = np.ones(len(data.weight)), 0.0
    for step in range(MOST_ROUNDS):
        report_progress("rounds", step, MOST_ROUNDS)
        log_model = np.zeros((N_FOLDS, len(data.weight)))
        for fold in range(N_FOLDS):
            rest = (data.weight - data.held_out[fold]) * clean
            log_model[fold] = _judge(model, data, rest, history, text)
        noise, clean = estimate_noise(data, log_model, model.ordered)
        if abs(noise.share - share) < SHARE_TOLERANCE:
            break
        share = noise.share
    collected: Counts | GroupedSessions = model._collect(data.reweight(data.weight * clean))
    model._fit(collected, history, text)
    model.noise_ = noise
    return collected


def _judge(
    model: ClickModel,
    data: NoiseData,
    weight: Float64,
    history: Counts | None,
    text: AdTokens | None,
) -> Float64:
    """Log-probability of every session under a fit with these weights [session]."""
    judge = model.clone()
    judge._engine = model._engine
    judge._fit(judge._collect(data.reweight(weight)), history, text)
    return score_sessions(judge, data.log)


def score_sessions(model: ClickModel, log: Log) -> Float64:
    """Log-probability of the clicks of every session, in their order if the model has one."""
    return np.concatenate(
        [concatenate_chunks(model.map_batch(batch, model.score_clicks)) for batch in log.batches()]
    )


def estimate_noise(data: NoiseData, log_model: Float64, ordered: bool) -> tuple[Noise, Float64]:
    """The noise component by EM, and P(not noise) of each session.

    `log_model` [fold, session] is the log-probability of each session under the fit of each fold.
    """
    table = data.lengths_table
    noise = _first_noise(table)
    units = int(data.unit.max(initial=0)) + 1
    size = np.bincount(data.unit, data.weight, units)
    share = FIRST_SHARE
    posterior = np.zeros_like(log_model)
    for _ in range(EM_STEPS):
        log_noise = noise.log_prob(data.lengths, data.clicks, ordered=ordered)
        posterior = _posterior(data, log_noise - log_model, share, units)
        weight = (data.held_out * posterior).sum(axis=0)  # [session] of noise
        found = float(weight.sum() / data.weight.sum())
        last, share = share, found
        if data.by_user:
            of_user = np.bincount(data.unit, weight, units) / np.maximum(size, 1e-300)
            share = float(of_user[size > 0].mean())
        share = min(max(share, LEAST_SHARE), MOST_SHARE)
        noise = _learn_clicks(data, table, weight)
        if abs(share - last) < EM_TOLERANCE:
            break
    total = np.maximum(data.held_out.sum(axis=0), 1e-300)
    clean = 1 - (data.held_out * posterior).sum(axis=0) / total
    found = float(((1 - clean) * data.weight).sum() / data.weight.sum())
    user_share = share if data.by_user else None
    bounded = min(max(found, LEAST_SHARE), MOST_SHARE)
    return replace(noise, share=bounded, user_share=user_share), clean


def _posterior(data: NoiseData, log_ratio: Float64, share: float, units: int) -> Float64:
    """P(noise) of each session [fold, session]; of sessions of a user, from all of hers.

    `log_ratio` is log P_random / P_model. A user is in one fold.
    """
    evidence = np.nan_to_num(log_ratio, neginf=-1e9, posinf=1e9)
    if data.by_user:
        own = np.where(data.held_out > 0, evidence, 0.0).sum(axis=0)
        evidence = np.broadcast_to(np.bincount(data.unit, own, units)[data.unit], evidence.shape)
    odds = np.clip(evidence + np.log(share) - np.log1p(-share), -700, 700)
    return np.asarray(1 / (1 + np.exp(-odds)))


def _first_noise(table: Float64) -> Noise:
    return _to_noise([table])


def _learn_clicks(data: NoiseData, table: Float64, weight: Float64) -> Noise:
    """How many random clicks there are, from sessions that are noise with these weights."""
    return _to_noise([table, data.count_lengths(weight)])


def _to_noise(layers: list[Float64]) -> Noise:
    numbers, pooled = distribute_numbers(layers, NUMBER_STRENGTH)
    lengths, clicks = np.indices(layers[0].shape)
    rate = 0.5
    for layer in layers:  # each has the one before as its prior
        shown = float((layer * lengths).sum())
        rate = (float((layer * clicks).sum()) + NUMBER_STRENGTH * rate) / (shown + NUMBER_STRENGTH)
    rate = min(max(rate, PROBABILITY_MARGIN), 1 - PROBABILITY_MARGIN)
    return Noise(0.0, None, numbers, pooled, rate)
