"""Functions that answer requests with a hosted model, independent of HTTP."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.auction import best_page, run_auction
from reclick.clicks.distribution import PageDistribution
from reclick.data.batch import SessionBatch
from reclick.data.schema import PAGE_COLUMNS, PAIR_COLUMNS, find_columns, is_list
from reclick.errors import UsageError
from reclick.evaluation.monitoring import MonitorLimits, monitor
from reclick.logs import read_ads, read_sessions
from reclick.predictor import FEW_ROWS, Predictions, Predictor, encode_pages
from reclick.rankings import compare_rankings
from reclick.service.hosting import HostedModel
from reclick.service.protection import ServiceLimits
from reclick.service.schemas import (
    AdText,
    AuctionRequest,
    CompareRequest,
    ExplainRequest,
    LimitsBody,
    MonitorRequest,
    PageBody,
    PredictRequest,
    RankRequest,
    RelevanceRequest,
)
from reclick.text.word_rates import TextIndex

PAGES = pa.schema(
    [("query", pa.string()), ("ads", pa.list_(pa.string())), ("clicks", pa.list_(pa.int64()))]
)
FIRST_PART = 160_000  # pages × ads² of the first part
QUICK_PART = 0.1  # seconds: after a faster part, the next part is larger
CountPages = Callable[[str, int, int, int], None]
Answer = TypeVar("Answer")


class LimitError(UsageError):
    """A request exceeds a limit of the service."""


def check_pages(pages: int, longest: int, limits: ServiceLimits) -> None:
    """Raise if there are too many pages, or if a page is too long."""
    if pages > limits.pages:
        raise LimitError(f"pages: got {pages:,}, at most {limits.pages:,} per request.")
    if longest > limits.ads:
        raise LimitError(f"ads: got a page of {longest:,}, at most {limits.ads:,} per page.")


def check_batch(pages: pa.RecordBatch, limits: ServiceLimits) -> None:
    """Raise if a batch has too many pages, or a page that is too long."""
    column = pages.column(find_columns(pages.schema.names, PAGE_COLUMNS, {}, "the batch")["ads"])
    lengths = pc.list_value_length(column) if is_list(column.type) else pa.array([0])
    check_pages(pages.num_rows, pc.max(lengths).as_py() or 0, limits)


def check_text(text: list[AdText], limits: ServiceLimits) -> pa.Table | None:
    """Return the text of new ads as an ads table; None if there is none."""
    if not text:
        return None
    if len(text) > limits.pages:
        raise LimitError(f"text: got {len(text):,} ads, at most {limits.pages:,} per request.")
    rows = [ad.model_dump() for ad in text]
    longest = max(sum(map(len, row.values())) for row in rows)
    if longest > limits.text_characters:
        raise LimitError(
            f"text: got an ad of {longest:,} characters, at most {limits.text_characters:,}."
        )
    return read_ads(pa.Table.from_pylist(rows))


def to_batch(pages: list[PageBody]) -> pa.RecordBatch:
    """Convert pages to an Arrow batch."""
    columns = zip(_columns(pages), PAGES.types, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], schema=PAGES)


def _columns(pages: list[PageBody]) -> tuple[list[str], list[list[str]], list[list[int]]]:
    queries, ads = [page.query for page in pages], [page.ads for page in pages]
    return queries, ads, [page.clicks for page in pages]


def predict_batch(
    hosted: HostedModel, pages: pa.RecordBatch, top: int, count: CountPages
) -> pa.RecordBatch:
    """Add all predictions to pages."""
    predictor = _predictor(hosted, top)
    sessions = predictor.validate(pages)
    parts = list(_predict_parts(hosted, sessions, None, predictor.predict_chunk, count))
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def list_queries(pages: pa.RecordBatch, count: int) -> list[str]:
    """Return the first queries of a batch of pages or pairs."""
    names = find_columns(pages.schema.names, PAIR_COLUMNS[:1], {}, "the batch")
    return [str(query) for query in pages.column(names["query"]).slice(0, count).to_pylist()]


def predict(
    hosted: HostedModel, request: PredictRequest, limits: ServiceLimits, count: CountPages
) -> dict[str, Any]:
    """Predict clicks, next click, most likely sequences and satisfaction of each page."""
    pages = request.pages
    check_pages(len(pages), max(len(page.ads) for page in pages), limits)
    predictor = _predictor(hosted, request.top)
    sessions = None
    if len(pages) <= FEW_ROWS:
        sessions = encode_pages(*_columns(pages), predictor.max_ads)
    if sessions is None:
        sessions = predictor.validate(to_batch(pages))
    text = check_text(request.text, limits)
    index = None if text is None else hosted.model._index_text(text)
    parts = _predict_parts(hosted, sessions, index, predictor.predict_pages, count)
    return {"pages": [page for part in parts for page in _page_predictions(part)]}


def predict_together(
    hosted: HostedModel, requests: list[PredictRequest], limits: ServiceLimits, count: CountPages
) -> list[dict[str, Any]] | None:
    """Predict for several requests without text and with the same `top`, by one call.

    Return None if a page may be bad: then requests must be answered one by one.
    """
    pages = [page for request in requests for page in request.pages]
    predictor = _predictor(hosted, requests[0].top)
    sessions = encode_pages(*_columns(pages), min(predictor.max_ads, limits.ads))
    if sessions is None or max(len(request.pages) for request in requests) > limits.pages:
        return None
    parts = _predict_parts(hosted, sessions, None, predictor.predict_pages, count)
    predictions = iter([page for part in parts for page in _page_predictions(part)])
    return [{"pages": [next(predictions) for _ in request.pages]} for request in requests]


def _predictor(hosted: HostedModel, top: int) -> Predictor:
    return hosted.predictor(top=top, next_click=True, satisfaction=hosted.model.satisfaction)


def _predict_parts(
    hosted: HostedModel,
    sessions: SessionBatch,
    text: TextIndex | None,
    predict: Callable[[SessionBatch, PageDistribution], Answer],
    count: CountPages,
) -> Iterator[Answer]:
    """Yield predictions part by part; before each part, the model checks the time limit."""
    query, ad = hosted.model.find_known(sessions)
    count(hosted.name, len(sessions), int((~query).sum()), int((~ad).sum()))
    end, size = 0, _first_part(sessions)
    while end < len(sessions):
        start_time = time.monotonic()
        start, end = end, min(end + size, len(sessions))
        part = sessions if end - start == len(sessions) else sessions.slice(start, end)
        yield from hosted.model.map_batch(part, predict, text=text, threads=1)
        if time.monotonic() - start_time < QUICK_PART:
            size *= 4


def _first_part(sessions: SessionBatch) -> int:
    """Return the number of pages in the first part: fewer if the pages are long."""
    longest = int((sessions.page[1:] - sessions.page[:-1]).max())
    return max(FEW_ROWS, FIRST_PART // (longest * longest))


def _page_predictions(predictions: Predictions) -> Iterator[dict[str, Any]]:
    """Yield the predictions of each page as plain values."""
    starts, clicks, following = (
        np.asarray(column).tolist()
        for column in (predictions.starts, predictions.click_prob, predictions.next_click_prob)
    )
    expected, end = (
        np.asarray(column).tolist()
        for column in (predictions.expected_clicks, predictions.end_prob)
    )
    pages, satisfaction_prob = len(expected), predictions.satisfaction_prob
    satisfaction = (
        [None] * pages if satisfaction_prob is None else np.asarray(satisfaction_prob).tolist()
    )
    best = predictions.sequences
    sequences = [[]] * pages if best is None else list(map(_rank, *(x.tolist() for x in best)))
    for page in range(pages):
        rows = slice(starts[page], starts[page + 1])
        yield {
            "click_prob": clicks[rows],
            "expected_clicks": expected[page],
            "next_click_prob": following[rows],
            "end_prob": end[page],
            "sequences": sequences[page],
            "satisfaction_prob": satisfaction[page],
        }


def _rank(
    sequences: list[list[int]], lengths: list[int], probabilities: list[float]
) -> list[dict[str, Any]]:
    """Return the most likely sequences of a page; a length of −1 means none."""
    return [
        {"clicks": clicks[:length], "probability": probability}
        for clicks, length, probability in zip(sequences, lengths, probabilities, strict=True)
        if length >= 0
    ]


def relevance(
    hosted: HostedModel, request: RelevanceRequest, limits: ServiceLimits, _: CountPages
) -> dict[str, Any]:
    """Estimate attractiveness, satisfaction and relevance, with intervals."""
    if (request.query is None) == (not request.pairs):
        raise UsageError("Give either pairs, or a query for all its ads.")
    check_pairs(len(request.pairs), limits)
    if request.query is None:
        pairs = [(pair.query, pair.ad) for pair in request.pairs]
    else:
        ads = known_ads(hosted, request.query, limits.pages)
        pairs = [(request.query, ad) for ad in ads]
    if not pairs:
        return {"pairs": []}
    pair_table = pa.table({"query": [query for query, _ in pairs], "ad": [ad for _, ad in pairs]})
    text = check_text(request.text, limits)
    return {"pairs": _estimate(hosted, pair_table, text, request.level).to_pylist()}


def relevance_batch(
    hosted: HostedModel, pairs: pa.RecordBatch, level: float, limits: ServiceLimits
) -> pa.RecordBatch:
    """The same for a batch of pairs."""
    check_pairs(pairs.num_rows, limits)
    if not pairs.num_rows:
        raise UsageError("The Arrow stream has no row: give at least one pair.")
    table = _estimate(hosted, pa.Table.from_batches([pairs]), None, level)
    return pa.concat_batches(table.to_batches())


def check_pairs(pairs: int, limits: ServiceLimits) -> None:
    """Refuse too many pairs."""
    if pairs > limits.pages:
        raise LimitError(f"pairs: got {pairs:,}, at most {limits.pages:,} per request.")


def _estimate(
    hosted: HostedModel, pairs: pa.Table, text: pa.Table | None, level: float
) -> pa.Table:
    table = hosted.model.relevance(pairs, text=text, level=level)
    words = _words_of(hosted, table["ad"].combine_chunks())
    return table.append_column("words", pa.array(words, pa.string()))


def _words_of(hosted: HostedModel, ads: pa.Array) -> list[str | None]:
    """Return the words of each ad in the model; None if it has no text of the ad."""
    index = hosted.model._index_text(None)
    if index is None:
        return [None] * len(ads)
    return [None if row < 0 else " ".join(index.text.words(row)) for row in index.rows(ads)]


def known_ads(hosted: HostedModel, query: str, most: int | None = None) -> list[str]:
    """Return the ads shown for a query, at most `most`, those with most impressions first."""
    model = hosted.model._gather_queries(pa.array([query]))
    counts, code = model.training_counts, model._pairs.query_code(query)
    if code < 0:
        return []
    start, end = np.searchsorted(counts.pair_query, [code, code + 1])
    order = np.argsort(-counts.impressions[start:end], kind="stable")[:most]
    return [str(counts.ads[int(ad)].as_py()) for ad in counts.pair_ad[start:end][order]]


def explain(
    hosted: HostedModel, request: ExplainRequest, limits: ServiceLimits, _: CountPages
) -> dict[str, Any]:
    """Explain an attractiveness by its evidence, its prior and the words of the ad."""
    explanation = hosted.model.explain(
        request.query, request.ad, text=check_text(request.text, limits)
    )
    return {
        **{name: getattr(explanation, name) for name in explanation.__dataclass_fields__},
        "levels": [level._asdict() for level in explanation.levels],
        "words": [word._asdict() for word in explanation.words],
    }


def rank(
    hosted: HostedModel, request: RankRequest, limits: ServiceLimits, _: CountPages
) -> dict[str, Any]:
    """Find the best page of some candidates."""
    _check_candidates(len(request.ads), limits)
    objective: Any = request.objective
    if request.objective == "value":
        objective = {"value": request.value}
    elif request.value:
        raise UsageError('value: give it with objective "value" only.')
    best = best_page(
        hosted.model,
        request.query,
        request.ads,
        slots=request.slots,
        objective=objective,
        text=check_text(request.text, limits),
    )
    return {
        "query": request.query,
        "ads": list(best.ads),
        "expected_clicks": best.expected_clicks.tolist(),
        "value": float(best.value),
        "exact": bool(best.exact),
    }


def auction(
    hosted: HostedModel, request: AuctionRequest, limits: ServiceLimits, _: CountPages
) -> dict[str, Any]:
    """Run an auction: the page and the prices for some bids."""
    _check_candidates(len(request.bids), limits)
    result = run_auction(
        hosted.model,
        request.query,
        request.bids,
        slots=request.slots,
        mechanism=request.mechanism,
        reserve=request.reserve,
        satisfaction_weight=request.satisfaction_weight,
        text=check_text(request.text, limits),
    )
    slots = zip(
        result.slate,
        result.price_per_click.tolist(),
        result.expected_clicks.tolist(),
        result.reasons,
        strict=True,
    )
    return {
        "query": request.query,
        "mechanism": result.mechanism,
        "slots": [
            {
                "ad": ad,
                "price_per_click": price,
                "expected_clicks": clicks,
                "why": str(reason),
                "because": reason.because,
                "at_reserve": reason.reserve,
                "satisfaction": reason.satisfaction,
                "displaced": [loss._asdict() for loss in reason.displaced],
            }
            for ad, price, clicks, reason in slots
        ],
        "revenue": result.revenue,
        "welfare": result.welfare,
        "satisfaction": None if math.isnan(result.satisfaction) else result.satisfaction,
        "exact": result.exact,
        "excluded": result.excluded,
    }


def _check_candidates(candidates: int, limits: ServiceLimits) -> None:
    if candidates > limits.candidates:
        raise LimitError(f"ads: got {candidates:,} candidates, at most {limits.candidates:,}.")


def compare(
    hosted: HostedModel, request: CompareRequest, limits: ServiceLimits, _: CountPages
) -> dict[str, Any]:
    """Compare a new ranking with the old one."""
    for pages in (request.old, request.new):
        check_pages(len(pages), max(len(page.ads) for page in pages), limits)
    comparison = compare_rankings(
        hosted.model,
        pa.Table.from_batches([to_batch(request.old)]),
        pa.Table.from_batches([to_batch(request.new)]),
        text=check_text(request.text, limits),
        level=request.level,
    )
    estimates = {
        "expected clicks": comparison.clicks,
        "satisfied sessions": comparison.satisfaction,
    }
    return {
        "comparisons": [
            {
                "quantity": quantity,
                "old": estimate.old.value,
                "new": estimate.new.value,
                "change": estimate.difference.value,
                "low": estimate.difference.low,
                "high": estimate.difference.high,
            }
            for quantity, estimate in estimates.items()
            if estimate is not None
        ],
        "covers": comparison.covers,
    }


def monitor_day(
    hosted: HostedModel, request: MonitorRequest, limits: ServiceLimits, count: CountPages
) -> dict[str, Any]:
    """Compare the clicks of a day with the model."""
    check_pages(len(request.pages), max(len(page.ads) for page in request.pages), limits)
    text = check_text(request.text, limits)
    return _monitor(hosted, to_batch(request.pages), text, request.limits, limits)


def monitor_batch(
    hosted: HostedModel, sessions: pa.RecordBatch, allowed: LimitsBody, limits: ServiceLimits
) -> dict[str, Any]:
    """The same for a batch."""
    check_batch(sessions, limits)
    return _monitor(hosted, sessions, None, allowed, limits)


def _monitor(
    hosted: HostedModel,
    sessions: pa.RecordBatch,
    text: pa.Table | None,
    allowed: LimitsBody,
    limits: ServiceLimits,
) -> dict[str, Any]:
    day = read_sessions(pa.Table.from_batches([sessions]), ads=text, max_ads=limits.ads)
    names = LimitsBody.model_fields
    broken_above = MonitorLimits(**{name: getattr(allowed, name) for name in names})
    return monitor(hosted.model, day, limits=broken_above).to_dict()
