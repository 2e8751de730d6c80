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
from reclick.data.hashing import splitmix64
from reclick.data.log_record import LogRecord
from reclick.data.outcomes import ClickOutcomes
from reclick.data.stored_tables import table_error
from reclick.engines import Log, RecordedLog, as_grouped
from reclick.errors import LogError
from reclick.fitting.folds import held_out_weight, is_significant_gain
from reclick.logs import as_log
from reclick.models.batching import map_chunks
from reclick.models.fixed_order import (
    distribute_numbers,
    number_distribution,
    stop_probabilities,
)
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
SIGNIFICANT = 3.0  # standard errors of the gain: a model that is a little wrong has none
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
        table = self._number_table(int(lengths.max(initial=0)))
        with np.errstate(divide="ignore"):
            number = np.log(table[lengths, clicks])
        return np.asarray(number + log_factorial(lengths - clicks) - log_factorial(lengths))

    def _number_table(self, longest: int) -> Float64:
        """P(m random clicks) for pages of up to so many ads [page length, m]."""
        known = len(self.numbers)
        if longest < known:
            return self.numbers
        table = np.zeros((longest + 1, longest + 1))
        table[:known, :known] = self.numbers
        for n in range(known, longest + 1):
            table[n, : n + 1] = number_distribution([self.pooled], n, NUMBER_STRENGTH)
        return table

    def posterior(
        self, model: ClickModel, sessions: SessionBatch, pages: PageDistribution
    ) -> Float64:
        """P(noise | clicks) of sessions [session], from pages that `add_to` has made."""
        if not isinstance(pages, MixturePages) or self.share == 0:
            return np.zeros(len(sessions))
        clean, random = (model.score_clicks(sessions, each) for each in pages.components)
        return to_probability(random - clean, self.share)

    def add_to(
        self,
        model: ClickModel,
        batch: SessionBatch,
        pages: Callable[[int, int], PageDistribution],
    ) -> Callable[[int, int], PageDistribution]:
        """The pages of a model with a component of random clicks, the last one."""
        if self.share == 0:
            return pages
        noise = self._random_pages(model, batch)

        def mix_pages(start: int, end: int) -> PageDistribution:
            weights = np.tile([1 - self.share, self.share], (end - start, 1))
            return MixturePages((pages(start, end), noise(start, end)), weights)

        return mix_pages

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
    user: Int64 | None  # [session] a number; None where each session is judged by itself
    logs: tuple[LogRecord, ...]  # what the log is known by

    @classmethod
    def of(cls, sessions: object, model: ClickModel) -> NoiseData:
        """The data of a log, as the setting `noise` says."""
        if model.noise == "user":
            return read_users(as_log(sessions)).data
        grouped = as_grouped(sessions, engine=model._engine)
        block = grouped.whole
        return cls(
            GroupedLog(grouped),
            block.weight,
            np.diff(block.page),
            np.diff(block.clicks),
            None,
            grouped.counts.logs,
        )

    def fold_weights(self) -> Float64:
        """The part of the weight that each fold holds out [fold, session]; a user is in one."""
        if self.user is None:
            drawn = splitmix64(np.arange(len(self.weight), dtype=np.uint64))
            first = (drawn % np.uint64(N_FOLDS)).astype(np.int64)
            parts = [held_out_weight(self.weight, first, fold, N_FOLDS) for fold in range(N_FOLDS)]
        else:
            drawn = splitmix64(self.user.astype(np.uint64)) % np.uint64(N_FOLDS)
            parts = [np.where(drawn == fold, self.weight, 0.0) for fold in range(N_FOLDS)]
        return np.stack(parts)

    def collect(self, model: ClickModel, weight: Float64) -> Counts | GroupedSessions:
        """What the model is fitted to, from sessions with other weights [session]."""
        found = model._collect(WeightedLog(self.log, weight))
        if isinstance(found, Counts):
            return replace(found, logs=self.logs)
        grouped: GroupedSessions = found
        return replace(grouped, counts=replace(grouped.counts, logs=self.logs))

    def count_lengths(self, weight: Float64) -> Float64:
        """Sessions by page length and number of clicks [length, m], with weights [session]."""
        size = int(self.lengths.max(initial=1)) + 1
        cells = np.bincount(self.lengths * size + self.clicks, weight, size * size)
        return cells.reshape(size, size).astype(np.float64)

    def gather_evidence(self, held_out: Float64, log_model: Float64) -> Evidence:
        """The evidence of sessions [fold, session], each in the folds that hold it out."""
        fold, session = np.nonzero(held_out > 0)
        part, log_model = held_out[fold, session], log_model[fold, session]
        if self.user is None:
            unit, weight = np.arange(len(session)), part
        else:
            _, unit = np.unique(self.user[session], return_inverse=True)
            weight = np.ones(int(unit.max(initial=-1)) + 1)
        return Evidence(session, unit, part, weight, log_model, len(self.weight))


class Evidence(NamedTuple):
    """Held-out sessions, and the units that are noise or not: sessions, or users."""

    session: Int64  # [entry] of the log
    unit: Int64  # [entry]
    part: Float64  # [entry] weight of the session
    weight: Float64  # [unit]
    log_model: Float64  # [entry]
    n_sessions: int  # of the log

    def log_ratio(self, log_random: Float64) -> Float64:
        """Log P_random / P_model of each unit, from log P_random [session]."""
        ratio = log_random[self.session] - self.log_model
        bounded = np.clip(np.nan_to_num(ratio, neginf=-700, posinf=700), -700, 700)
        return np.bincount(self.unit, bounded, len(self.weight)).astype(np.float64)

    def spread(self, noise: Float64) -> Float64:
        """P(noise) of each session from that of its units; 0 of one that no fold has [session]."""
        judged = np.bincount(self.session, self.part * noise[self.unit], self.n_sessions)
        total = np.bincount(self.session, self.part, self.n_sessions)
        return np.asarray(judged / np.maximum(total, 1e-300))


def to_probability(log_ratio: Float64, share: float) -> Float64:
    """P(noise) from log P_random / P_model and the share of noise."""
    odds = np.nan_to_num(log_ratio, nan=0.0, neginf=-700, posinf=700)
    odds = np.clip(odds + np.log(share) - np.log1p(-share), -700, 700)
    return np.asarray(1 / (1 + np.exp(-odds)))


class UserLog(NamedTuple):
    """The sessions of a log with their users, and the users' names."""

    data: NoiseData
    user: Int64  # [session]
    names: pa.Array  # [user]


def read_users(log: Log) -> UserLog:
    """The sessions of a log with their users, from its column user.

    A session without a user is one of its own, whose name is null.
    """
    names, weights, lengths, clicks = [], [], [], []
    recorded = RecordedLog(log)
    for batch in recorded.batches(with_rows=True):
        if batch.rows is None or "user" not in batch.rows.schema.names:
            raise LogError(
                f"{log.name} has no column user, by which noise='user' finds users who click at "
                "random. Add one, or judge each session by itself: noise='session'."
            )
        names.append(batch.rows.column("user").cast(pa.string()))
        weights.append(np.ones(len(batch)) if batch.weight is None else batch.weight)
        lengths.append(np.diff(batch.page))
        clicks.append(np.diff(batch.clicks))
    log.require_rows()
    encoded = pa.chunked_array(names).combine_chunks().dictionary_encode()
    user = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    alone = user < 0
    user[alone] = len(encoded.dictionary) + np.arange(alone.sum())
    known = pa.concat_arrays([encoded.dictionary, pa.nulls(int(alone.sum()), pa.string())])
    weight, ads, clicked = (np.concatenate(each) for each in (weights, lengths, clicks))
    return UserLog(NoiseData(log, weight, ads, clicked, user, (recorded.record,)), user, known)


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


class NoiseEstimate(NamedTuple):
    """The component of random clicks, and what held-out sessions say of it."""

    noise: Noise
    clean: Float64  # [session] P(not noise)
    is_asked_for: bool  # whether held-out sessions, or users, significantly gain by it


def fit_with_noise(
    model: ClickModel, sessions: object, history: Counts | None, text: AdTokens | None
) -> Counts | GroupedSessions:
    """Fit a model and its component of random clicks; return what it was fitted to.

    Rounds of: fit to the rest of each fold, judge its sessions, estimate the share of noise. The
    final fit is to all sessions, which count by how likely they are not noise. Where held-out
    sessions do not significantly gain by it, there is no noise.
    """
    data = NoiseData.of(sessions, model)
    held_out = data.fold_weights()
    clean = np.ones(len(data.weight))
    log_model = _score_folds(model, data, held_out, clean, history, text)
    found = estimate_noise(data, held_out, log_model, ordered=model.ordered)
    if found.is_asked_for:  # before any session counts less: later fits know what was held out
        for step in range(MOST_ROUNDS):
            report_progress("rounds", step, MOST_ROUNDS)
            clean, last = found.clean, found.noise.share
            log_model = _score_folds(model, data, held_out, clean, history, text)
            found = estimate_noise(data, held_out, log_model, ordered=model.ordered)
            if abs(found.noise.share - last) < SHARE_TOLERANCE:
                break
        noise, clean = found.noise, found.clean
    else:
        noise = replace(found.noise, share=0.0, user_share=None)
    collected = data.collect(model, data.weight * clean)
    model._fit(collected, history, text)
    model.noise_ = noise
    return collected


def collect_clean(model: ClickModel, sessions: object) -> Counts | GroupedSessions:
    """What a fitted model is updated with: sessions that count by how likely they are no noise."""
    data = NoiseData.of(sessions, model)
    return data.collect(model, data.weight * (1 - _judge_sessions(model, data)))


def noise_prob(model: ClickModel, log: Log) -> Float64:
    """P(noise) of each session of a log; of a user's from all of hers in it [session]."""
    if model.noise == "user":
        return _judge_sessions(model, read_users(log).data)
    batches = [(np.diff(batch.page), np.diff(batch.clicks)) for batch in log.batches()]
    lengths, clicks = (np.concatenate(each) for each in zip(*batches, strict=True))
    return _judge_sessions(model, NoiseData(log, np.ones(len(lengths)), lengths, clicks, None, ()))


def judge_users(model: ClickModel, log: Log) -> pa.Table:
    """P(noise) of each user of a log: columns user, sessions and noise_prob."""
    read = read_users(log)
    found = np.zeros(len(read.names))
    found[read.user] = _judge_sessions(model, read.data)
    sessions = np.bincount(read.user, minlength=len(found))
    return pa.table({"user": read.names, "sessions": sessions, "noise_prob": found})


def _judge_sessions(model: ClickModel, data: NoiseData) -> Float64:
    """P(noise) of each session under a fitted model."""
    noise = model.noise_
    if noise is None or noise.share == 0:
        return np.zeros(len(data.weight))
    random = noise.log_prob(data.lengths, data.clicks, ordered=model.ordered)
    share = noise.share if noise.user_share is None else noise.user_share
    every = np.ones((1, len(data.weight)))
    evidence = data.gather_evidence(every, score_sessions(model, data.log)[None])
    return evidence.spread(to_probability(evidence.log_ratio(random), share))


def _score_folds(
    model: ClickModel,
    data: NoiseData,
    held_out: Float64,
    clean: Float64,
    history: Counts | None,
    text: AdTokens | None,
) -> Float64:
    """Log-probability of every session under a fit to the rest of each fold [fold, session]."""
    out = np.zeros(held_out.shape)
    for fold, weight in enumerate(held_out):
        judge = model.clone()
        judge._engine = model._engine
        judge._fit(data.collect(judge, (data.weight - weight) * clean), history, text)
        out[fold] = score_sessions(judge, data.log)
    return out


def score_sessions(model: ClickModel, log: Log) -> Float64:
    """Log-probability of the clicks of every session under the model without noise [session].

    In their order, if the model has one.
    """
    parts = [np.zeros(0)]
    for batch in log.batches():
        pages = model._page_distribution(batch, model._index_text(None))
        parts += map_chunks(batch, pages, model.score_clicks)
    return np.concatenate(parts)


def estimate_noise(
    data: NoiseData, held_out: Float64, log_model: Float64, *, ordered: bool
) -> NoiseEstimate:
    """The component of random clicks by EM, given the log-probabilities of held-out sessions.

    `held_out` and `log_model` are [fold, session]: weights, and the fit to the rest of the fold.
    """
    table = data.count_lengths(data.weight)
    noise, share = _to_noise([table]), FIRST_SHARE
    evidence = data.gather_evidence(held_out, log_model)
    for _ in range(EM_STEPS):
        random = noise.log_prob(data.lengths, data.clicks, ordered=ordered)
        posterior = to_probability(evidence.log_ratio(random), share)
        last, share = share, float(np.average(posterior, weights=evidence.weight))
        share = min(max(share, LEAST_SHARE), MOST_SHARE)
        judged = evidence.spread(posterior)
        noise = _to_noise([table, data.count_lengths(data.weight * judged)])
        if abs(share - last) < EM_TOLERANCE:
            break
    of_sessions = float(judged @ data.weight / data.weight.sum())
    of_sessions = min(max(of_sessions, LEAST_SHARE), MOST_SHARE)
    ratio = evidence.log_ratio(noise.log_prob(data.lengths, data.clicks, ordered=ordered))
    gain = np.logaddexp(np.log1p(-share), np.log(share) + ratio)
    asked = is_significant_gain(np.zeros(len(gain)), gain, evidence.weight, SIGNIFICANT)
    found = replace(noise, share=of_sessions, user_share=None if data.user is None else share)
    return NoiseEstimate(found, 1 - judged, asked)


def _to_noise(layers: list[Float64]) -> Noise:
    """How random clicks are, from sessions by page length and number of clicks [length, m].

    Each layer of sessions has the one before as its prior.
    """
    numbers, pooled = distribute_numbers(layers, NUMBER_STRENGTH)
    lengths, clicks = np.indices(layers[0].shape)
    rate = 0.5
    for layer in layers:
        shown = float((layer * lengths).sum())
        rate = (float((layer * clicks).sum()) + NUMBER_STRENGTH * rate) / (shown + NUMBER_STRENGTH)
    rate = min(max(rate, PROBABILITY_MARGIN), 1 - PROBABILITY_MARGIN)
    return Noise(0.0, None, numbers, pooled, rate)
