"""Noise: a share of the sessions, or of the users, clicks at random.

With ε the share of noise, P(clicks) = (1 − ε) P_model(clicks) + ε P_random(clicks). The model, ε
and the random clicks are estimated jointly by EM: a session is noise with probability
ε P_random / P; ε is the mean of these probabilities; and the model is fitted again, with every
session weighted by the probability that it is not noise. EM starts from the log-probabilities of
held-out sessions. There is noise only if the component significantly raises the likelihood of
held-out sessions, under fits to the rest, and that of the whole log.
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
from reclick.fitting.folds import MIN_SESSIONS, held_out_weight, is_significant_gain
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
MOST_ROUNDS = 40
HELD_OUT_ROUNDS = 4  # to evaluate a fold, with the share of noise of the whole log
FIRST_SHARE = 0.05
LEAST_SHARE, MOST_SHARE = 1e-6, 0.9
NEGLIGIBLE_SHARE = 1e-3
SHARE_TOLERANCE = 5e-4  # the rounds end when the share changes by less
EM_STEPS, EM_TOLERANCE = 500, 1e-8  # for the share, given the log-probabilities of one fit
LOG_SURE = 30.0  # limit of the log-odds that a session is noise, so that no weight is 0
LOG_IMPOSSIBLE = -700.0  # log-probability of a session that is impossible under the model
SIGNIFICANT = 3.0  # standard errors of the gain: a slightly wrong model gains less
NUMBER_STRENGTH = 20.0  # sessions: prior of the number of random clicks, from the whole log


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The component of random clicks."""

    share: float  # of the sessions
    user_share: float | None  # of the users, if noise is by user
    numbers: Float64  # [page length, m] P(m random clicks), of models with an order of clicks
    pooled: Float64  # [m] sessions, for other page lengths
    rate: float  # of each position, of models without an order

    def log_prob(self, lengths: Int64, clicks: Int64, *, ordered: bool) -> Float64:
        """Log P(these clicks | noise) from page lengths and numbers of clicks [session].

        It is that of the clicks in their order if `ordered`, else that of the click set.
        """
        if not ordered:
            unclicked = (lengths - clicks) * np.log1p(-self.rate)
            return np.asarray(clicks * np.log(self.rate) + unclicked)
        table = self._number_table(int(lengths.max(initial=0)))
        with np.errstate(divide="ignore"):
            number = np.log(table[lengths, clicks])
        return np.asarray(number + log_factorial(lengths - clicks) - log_factorial(lengths))

    def _number_table(self, longest: int) -> Float64:
        """P(m random clicks) for pages of up to `longest` ads [page length, m]."""
        n_known = len(self.numbers)
        if longest < n_known:
            return self.numbers
        table = np.zeros((longest + 1, longest + 1))
        table[:n_known, :n_known] = self.numbers
        for n in range(n_known, longest + 1):
            table[n, : n + 1] = number_distribution([self.pooled], n, NUMBER_STRENGTH)
        return table

    def posterior(
        self, model: ClickModel, sessions: SessionBatch, pages: PageDistribution
    ) -> Float64:
        """P(noise | clicks) of sessions [session], from pages that `add_to` returned."""
        if not isinstance(pages, MixturePages) or self.share == 0:
            return np.zeros(len(sessions))
        log_model, log_random = (model.score_clicks(sessions, each) for each in pages.components)
        return to_probability(log_random - log_model, self.share)

    def add_to(
        self,
        model: ClickModel,
        batch: SessionBatch,
        pages: Callable[[int, int], PageDistribution],
    ) -> Callable[[int, int], PageDistribution]:
        """Add a component of random clicks to the pages of a model, as the last component."""
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
        """Return the values as built-in types, for the manifest of a saved model."""
        value = asdict(self)
        return {name: np.asarray(each).tolist() for name, each in value.items()}

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> Self:
        """Restore what `to_value` returned; raises `StoreError` for other values."""
        numbers, pooled = (np.array(value[name], np.float64) for name in ("numbers", "pooled"))
        shares = [value["share"], value["rate"], value["user_share"] or 0.0]
        square = numbers.ndim == 2 and numbers.shape == (len(numbers),) * 2
        probabilities = np.concatenate([numbers.ravel(), shares])
        if (
            not square
            or not ((probabilities >= 0) & (probabilities <= 1)).all()
            or not (pooled >= 0).all()
        ):
            raise table_error("noise", "it has values that no fit has")
        return cls(value["share"], value["user_share"], numbers, pooled, value["rate"])


class NoiseData(NamedTuple):
    """The sessions of a log, and the users whose sessions are all noise, or none of them."""

    log: Log  # every pass has the same sessions in the same order
    weight: Float64  # [session]
    lengths: Int64  # [session] ads on the page
    clicks: Int64  # [session] number of clicks
    user: Int64 | None  # [session] number of the user; None if sessions are noise one by one
    logs: tuple[LogRecord, ...]  # the records of the log

    @classmethod
    def of(cls, sessions: object, model: ClickModel) -> NoiseData:
        """Read the data of a log, by user or by session, according to the setting `noise`."""
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
        """The weight that each fold holds out [fold, session]; one fold has all of a user."""
        if self.user is None:
            hashes = splitmix64(np.arange(len(self.weight), dtype=np.uint64))
            first = (hashes % np.uint64(N_FOLDS)).astype(np.int64)
            parts = [held_out_weight(self.weight, first, fold, N_FOLDS) for fold in range(N_FOLDS)]
        else:
            user_fold = splitmix64(self.user.astype(np.uint64)) % np.uint64(N_FOLDS)
            parts = [np.where(user_fold == fold, self.weight, 0.0) for fold in range(N_FOLDS)]
        return np.stack(parts)

    def collect(self, model: ClickModel, weight: Float64) -> Counts | GroupedSessions:
        """Collect the data that the model is fitted to, with these weights [session]."""
        result = model._collect(WeightedLog(self.log, weight))
        if isinstance(result, Counts):
            return replace(result, logs=self.logs)
        grouped: GroupedSessions = result
        return replace(grouped, counts=replace(grouped.counts, logs=self.logs))

    def count_lengths(self, weight: Float64) -> Float64:
        """Sessions by page length and number of clicks [length, m], with weights [session]."""
        size = int(self.lengths.max(initial=1)) + 1
        cells = np.bincount(self.lengths * size + self.clicks, weight, size * size)
        return cells.reshape(size, size).astype(np.float64)

    def gather_evidence(self, part: Float64, log_model: Float64) -> Evidence:
        """The evidence of the sessions with a positive weight in `part` [session]."""
        session = np.flatnonzero(part > 0)
        unit, weight = np.arange(len(session)), part[session]
        if self.user is not None:
            _, unit = np.unique(self.user[session], return_inverse=True)
            weight = np.ones(int(unit.max(initial=-1)) + 1)
        return Evidence(session, unit, weight, log_model[session], len(part))


class Evidence(NamedTuple):
    """Sessions of a log, and the units that are noise or not: sessions, or users."""

    session: Int64  # [entry] of the log
    unit: Int64  # [entry]
    weight: Float64  # [unit]
    log_model: Float64  # [entry]
    n_sessions: int  # of the log

    def sum_by_unit(self, values: Float64) -> Float64:
        """Sums over the sessions of each unit, from values [entry], which are clipped."""
        bounded = np.clip(np.nan_to_num(values, neginf=-700, posinf=700), -700, 700)
        return np.bincount(self.unit, bounded, len(self.weight)).astype(np.float64)

    def log_ratio(self, log_random: Float64) -> Float64:
        """Log P_random / P_model of each unit, from log P_random [session]."""
        return self.sum_by_unit(log_random[self.session] - self.log_model)

    def spread(self, noise: Float64) -> Float64:
        """P(noise) of each session from that of its unit [session]; 0 without evidence."""
        probability = np.zeros(self.n_sessions)
        probability[self.session] = noise[self.unit]
        return probability


def to_probability(log_ratio: Float64, share: float) -> Float64:
    """P(noise) from log P_random / P_model and the share of noise."""
    odds = np.nan_to_num(log_ratio, nan=0.0, neginf=-700, posinf=700)
    odds = np.clip(odds + np.log(share) - np.log1p(-share), -LOG_SURE, LOG_SURE)
    return np.asarray(1 / (1 + np.exp(-odds)))


def log_mixture_gain(log_ratio: Float64, share: float) -> Float64:
    """Log P / P_model from log P_random / P_model and the share of noise."""
    return np.asarray(np.logaddexp(np.log1p(-share), np.log(share) + log_ratio))


class UserLog(NamedTuple):
    """The sessions of a log with their users, and the users' names."""

    data: NoiseData
    user: Int64  # [session]
    names: pa.Array  # [user]


def read_users(log: Log) -> UserLog:
    """Read the sessions of a log with their users, from the column user.

    Each session without a user gets a user of its own, whose name is null.
    """
    names, weights, lengths, clicks = [], [], [], []
    recorded_log = RecordedLog(log)
    for batch in recorded_log.batches(with_rows=True):
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
    codes = pa.chunked_array(names).combine_chunks().dictionary_encode()
    user = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    no_user = user < 0
    user[no_user] = len(codes.dictionary) + np.arange(no_user.sum())
    user_names = pa.concat_arrays([codes.dictionary, pa.nulls(int(no_user.sum()), pa.string())])
    weight, n_ads, n_clicks = (np.concatenate(each) for each in (weights, lengths, clicks))
    return UserLog(
        NoiseData(log, weight, n_ads, n_clicks, user, (recorded_log.record,)), user, user_names
    )


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
        """The outcomes of last clicks; grouped sessions do not have those of earlier clicks."""
        block = self._grouped.whole
        if block.outcome is None:
            return None
        outcome = np.zeros(len(block.click), np.int8)
        has_click = np.diff(block.clicks) > 0
        outcome[block.clicks[1:][has_click] - 1] = block.outcome[has_click]
        return ClickOutcomes(outcome, None, None)

    def require_rows(self) -> None:
        """Do nothing: grouped sessions have rows."""


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
        """Check that the log has rows."""
        self._log.require_rows()


class NoiseEstimate(NamedTuple):
    """The component of random clicks, and how likely each session is not part of it."""

    noise: Noise
    clean: Float64  # [session] P(not noise)
    log_prob: Float64  # [unit] log-probability of its clicks


class HeldOut(NamedTuple):
    """Held-out sessions, and the log-probability of all sessions under a fit to the rest."""

    held_out: Float64  # [session] weight
    log_model: Float64  # [session] log-probability, without noise


class NoiseFit(NamedTuple):
    """Fits of a model to weighted sessions of a log."""

    model: ClickModel
    data: NoiseData
    history: Counts | None
    text: AdTokens | None

    def score(self, weight: Float64) -> Float64:
        """Log-probability of every session under a fit to these weights [session]."""
        model = self.model.clone()
        model._engine = self.model._engine
        model._fit(self.data.collect(model, weight), self.history, self.text)
        return np.maximum(score_sessions(model, self.data.log), LOG_IMPOSSIBLE)

    def estimate(self) -> NoiseEstimate | None:
        """Estimate the component of random clicks; None if there is no noise."""
        weight = self.data.weight
        if weight.sum() < MIN_SESSIONS:
            return None
        folds = [HeldOut(each, self.score(weight - each)) for each in self.data.fold_weights()]
        result = self.maximise(folds)
        return result if self.is_significant(result, folds) else None

    def maximise(self, folds: list[HeldOut]) -> NoiseEstimate:
        """Estimate the component of random clicks by EM; every round fits the model again.

        EM starts from the log-probabilities of held-out sessions under fits to the other folds. A
        fit to all sessions also explains the random ones, if it has little other data of a pair,
        and EM that starts there may never find them.
        """
        weight, ordered = self.data.weight, self.model.ordered
        total = np.sum([fold.held_out * fold.log_model for fold in folds], axis=0)
        result = estimate_noise(self.data, total / np.maximum(weight, 1e-300), ordered=ordered)
        for step in range(MOST_ROUNDS):
            report_progress("rounds", step, MOST_ROUNDS)
            if result.noise.share < NEGLIGIBLE_SHARE:
                break
            last = result.noise.share
            result = estimate_noise(self.data, self.score(weight * result.clean), ordered=ordered)
            if abs(result.noise.share - last) < SHARE_TOLERANCE:
                break
        return result

    def is_significant(self, estimate: NoiseEstimate, folds: list[HeldOut]) -> bool:
        """Whether the component significantly helps both the log and held-out parts of it.

        A gain of held-out sessions alone is no evidence of noise: if a fit is overconfident about
        rare pairs, any component that makes it less certain helps them.
        """
        if estimate.noise.share < NEGLIGIBLE_SHARE:
            return False
        without = self.data.gather_evidence(self.data.weight, self.score(self.data.weight))
        before = without.sum_by_unit(without.log_model)
        if not is_significant_gain(before, estimate.log_prob, without.weight, SIGNIFICANT):
            return False
        gains = [self._measure_gain(estimate.noise, fold) for fold in folds]
        gain, weight = (np.concatenate(each) for each in zip(*gains, strict=True))
        return is_significant_gain(np.zeros(len(gain)), gain, weight, SIGNIFICANT)

    def _measure_gain(self, noise: Noise, fold: HeldOut) -> tuple[Float64, Float64]:
        """The gain of held-out units by the component, and their weights [unit].

        The fits know nothing of the held-out units except the share of noise and its numbers of
        clicks.
        """
        data, rest = self.data, self.data.weight - fold.held_out
        share = noise.share if noise.user_share is None else noise.user_share
        random = noise.log_prob(data.lengths, data.clicks, ordered=self.model.ordered)
        log_model = fold.log_model
        for _ in range(HELD_OUT_ROUNDS):
            evidence = data.gather_evidence(rest, log_model)
            posterior = evidence.spread(to_probability(evidence.log_ratio(random), share))
            log_model = self.score(rest * (1 - posterior))
        evidence = data.gather_evidence(fold.held_out, log_model)
        mixture_gain = log_mixture_gain(evidence.log_ratio(random), share)
        refit_gain = evidence.sum_by_unit((log_model - fold.log_model)[evidence.session])
        return mixture_gain + refit_gain, evidence.weight


def fit_with_noise(
    model: ClickModel, sessions: object, history: Counts | None, text: AdTokens | None
) -> Counts | GroupedSessions:
    """Fit a model and its component of random clicks; return the data of the final fit.

    In the final fit every session is weighted by the probability that it is not noise.
    """
    data = NoiseData.of(sessions, model)
    estimate = NoiseFit(model, data, history, text).estimate()
    noise, clean = no_noise(data) if estimate is None else (estimate.noise, estimate.clean)
    collection = data.collect(model, data.weight * clean)
    model._fit(collection, history, text)
    model.noise_ = noise
    return collection


def no_noise(data: NoiseData) -> tuple[Noise, Float64]:
    """A component of random clicks without any session, and P(not noise) = 1 [session]."""
    return _to_noise([data.count_lengths(data.weight)]), np.ones(len(data.weight))


def collect_clean(model: ClickModel, sessions: object) -> Counts | GroupedSessions:
    """Collect the data of an update of a fitted model, with sessions weighted by P(not noise)."""
    data = NoiseData.of(sessions, model)
    return data.collect(model, data.weight * (1 - _judge_sessions(model, data)))


def noise_prob(model: ClickModel, log: Log) -> Float64:
    """P(noise) of each session, or of its user given all sessions of the user [session]."""
    if model.noise == "user":
        return _judge_sessions(model, read_users(log).data)
    batches = [(np.diff(batch.page), np.diff(batch.clicks)) for batch in log.batches()]
    lengths, clicks = (np.concatenate(each) for each in zip(*batches, strict=True))
    return _judge_sessions(model, NoiseData(log, np.ones(len(lengths)), lengths, clicks, None, ()))


def judge_users(model: ClickModel, log: Log) -> pa.Table:
    """P(noise) of each user of a log: columns user, sessions and noise_prob."""
    users = read_users(log)
    probability = np.zeros(len(users.names))
    probability[users.user] = _judge_sessions(model, users.data)
    sessions = np.bincount(users.user, minlength=len(probability))
    return pa.table({"user": users.names, "sessions": sessions, "noise_prob": probability})


def _judge_sessions(model: ClickModel, data: NoiseData) -> Float64:
    """P(noise) of each session under a fitted model."""
    noise = model.noise_
    if noise is None or noise.share == 0:
        return np.zeros(len(data.weight))
    random = noise.log_prob(data.lengths, data.clicks, ordered=model.ordered)
    share = noise.share if noise.user_share is None else noise.user_share
    evidence = data.gather_evidence(np.ones(len(data.weight)), score_sessions(model, data.log))
    return evidence.spread(to_probability(evidence.log_ratio(random), share))


def score_sessions(model: ClickModel, log: Log) -> Float64:
    """Log-probability of the clicks of every session under the model without noise [session].

    It is that of the clicks in their order for an ordered model, else that of the click set.
    """
    parts = [np.zeros(0)]
    for batch in log.batches():
        pages = model._page_distribution(batch, model._index_text(None))
        parts += map_chunks(batch, pages, model.score_clicks)
    return np.concatenate(parts)


def estimate_noise(data: NoiseData, log_model: Float64, *, ordered: bool) -> NoiseEstimate:
    """Estimate the component of random clicks, given log-probabilities of sessions [session]."""
    table = data.count_lengths(data.weight)
    noise, share = _to_noise([table]), FIRST_SHARE
    evidence = data.gather_evidence(data.weight, log_model)
    for _ in range(EM_STEPS):
        random = noise.log_prob(data.lengths, data.clicks, ordered=ordered)
        posterior = to_probability(evidence.log_ratio(random), share)
        last, share = share, float(np.average(posterior, weights=evidence.weight))
        share = min(max(share, LEAST_SHARE), MOST_SHARE)
        session_posterior = evidence.spread(posterior)
        noise = _to_noise([table, data.count_lengths(data.weight * session_posterior)])
        if abs(share - last) < EM_TOLERANCE:
            break
    session_share = float(session_posterior @ data.weight / data.weight.sum())
    session_share = min(max(session_share, LEAST_SHARE), MOST_SHARE)
    result = replace(noise, share=session_share, user_share=None if data.user is None else share)
    ratio = evidence.log_ratio(noise.log_prob(data.lengths, data.clicks, ordered=ordered))
    log_prob = evidence.sum_by_unit(evidence.log_model) + log_mixture_gain(ratio, share)
    return NoiseEstimate(result, 1 - session_posterior, log_prob)


def _to_noise(layers: list[Float64]) -> Noise:
    """Estimate random clicks from sessions by page length and number of clicks [length, m].

    The prior of each layer of sessions is the layer before it.
    """
    numbers, pooled = distribute_numbers(layers, NUMBER_STRENGTH)
    lengths, clicks = np.indices(layers[0].shape)
    rate = 0.5
    for layer in layers:
        impressions = float((layer * lengths).sum())
        successes = float((layer * clicks).sum()) + NUMBER_STRENGTH * rate
        rate = successes / (impressions + NUMBER_STRENGTH)
    rate = min(max(rate, PROBABILITY_MARGIN), 1 - PROBABILITY_MARGIN)
    return Noise(0.0, None, numbers, pooled, rate)
