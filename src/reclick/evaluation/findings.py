"""What an evaluation says to the person who decides: which model to use, which ads to change."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.ragged import Float64, Int64
from reclick.models.base import ClickModel
from reclick.text.tokens import tokenise

# A model is recommended by its mean rank over these metrics; True where higher is better.
DECISIVE_METRICS = {
    "log_likelihood": True,
    "log_set_likelihood": True,
    "perplexity": False,
    "calibration_error": False,
    "first_click_accuracy": True,
    "roc_auc": True,
}
N_ADS, N_WORDS = 20, 10  # listed of each
MIN_IMPRESSIONS, MIN_CLICKS = 100, 20  # of a pair that is listed
MIN_WORD_ADS = 10  # ads that have a listed word
Z_SCORE = 1.959964  # of a 95 % interval
ESTIMATES = ("attractiveness", "satisfaction")


def recommend_model(scores: pa.Table, *, seen: Collection[str] = ()) -> str | None:
    """The model with the best mean rank over the decisive metrics; None without any score.

    A model without a value is last. Of models with the same mean rank, the first is recommended.
    Models that have `seen` the test log are only recommended if there are no others.
    """
    names = scores["model"].unique().to_pylist()
    total = dict.fromkeys([name for name in names if name not in seen] or names, 0.0)
    for metric, higher in DECISIVE_METRICS.items():
        rows = scores.filter(pc.equal(scores["metric"], metric)).to_pylist()
        values = {
            row["model"]: row["value"]
            for row in rows
            if row["model"] in total
            and (row["sessions"], row["volume"]) == ("all", "all")
            and row["value"] is not None
        }
        for model in total if values else ():
            total[model] += _rank(values, model, higher, len(total))
    return min(total, key=lambda model: total[model], default=None)


def _rank(values: dict[str, float], model: str, higher: bool, last: int) -> float:
    """How many models are better; half of those with the same value count."""
    if model not in values or math.isnan(values[model]):
        return float(last)
    sign, own = (-1 if higher else 1), values[model]
    others = [value for name, value in values.items() if name != model]
    return sum(0.5 if value == own else float(sign * value < sign * own) for value in others)


def collect_findings(model: ClickModel | None, ads: pa.Table | None) -> dict[str, Any]:
    """Misleading ads, hidden gems and effects of words by a fitted model, as JSON values."""
    if model is None:
        return {"misleading": [], "gems": [], "words": []}
    misleading, gems = find_contrasts(model, ads) if model.satisfaction else ([], [])
    return {"misleading": misleading, "gems": gems, "words": estimate_word_effects(model, ads)}


# ---- ads


def find_contrasts(
    model: ClickModel, ads: pa.Table | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pairs whose attractiveness and satisfaction disagree most: misleading ads, hidden gems.

    A misleading ad is among the more attractive half of the pairs shown often and among the less
    satisfying half; a hidden gem is the opposite. First are those whose ranks differ most.
    """
    table = model.relevance()
    often = pc.and_(
        pc.greater_equal(table["impressions"], MIN_IMPRESSIONS),
        pc.greater_equal(table["clicks"], MIN_CLICKS),
    )
    table = table.filter(often)
    if len(table) < 2:
        return [], []
    attractive, satisfying = (_relative_ranks(table[name].to_numpy()) for name in ESTIMATES)
    order = np.argsort(satisfying - attractive, kind="stable")
    misleading = order[(attractive[order] > 0.5) & (satisfying[order] < 0.5)][:N_ADS]
    gems = order[::-1][(attractive[order] < 0.5)[::-1] & (satisfying[order] > 0.5)[::-1]][:N_ADS]
    titles = {} if ads is None else {row["ad"]: row["title"] for row in ads.to_pylist()}
    return _list_ads(table, misleading, titles), _list_ads(table, gems, titles)


def _list_ads(table: pa.Table, rows: Int64, titles: dict[str, str]) -> list[dict[str, Any]]:
    ends = [f"{name}_{end}" for name in ESTIMATES for end in ("low", "high")]
    columns = ["query", "ad", *ESTIMATES, *ends, "impressions", "clicks"]
    listed = table.select(columns).take(pa.array(rows)).to_pylist()
    return [{**row, "title": titles.get(row["ad"]) or ""} for row in listed]


def _relative_ranks(values: Float64) -> Float64:
    """The rank of each value among all, from 0 to 1."""
    ranks: Int64 = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks / max(len(values) - 1, 1)


# ---- words


def estimate_word_effects(model: ClickModel, ads: pa.Table | None) -> list[dict[str, Any]]:
    """The words with the largest and the smallest effect on attractiveness, over all queries.

    The effect of a word is Σ θ(q, d) / Σ mean θ of q over the impressions of the ads with the word:
    1.2 is 20 % more attractive than the average ad of the same queries. θ is the model's, so that
    positions do not count. The interval treats ads, not impressions, as independent.
    """
    if ads is None:
        return []
    column = ads.schema.get_field_index("display_url")
    no_urls = pa.array([""] * len(ads))  # a display URL is a brand, not a word
    text = tokenise(ads.set_column(column, "display_url", no_urls))
    table = model.relevance()
    table = table.filter(pc.greater(table["impressions"], 0))
    row_of_ad = {ad: row for row, ad in enumerate(text.ads.to_pylist())}
    ad = np.array([row_of_ad.get(name, -1) for name in table["ad"].to_pylist()], np.int64)
    impressions, observed, expected = _expected_attractiveness(table)
    sums = [
        np.bincount(ad[ad >= 0], values[ad >= 0], len(text.ads))
        for values in (impressions, observed, expected)
    ]
    sizes = np.diff(text.offsets)
    pairs = np.unique(np.stack([np.repeat(np.arange(len(sizes)), sizes), text.token]), axis=1)
    shown, observed, expected = (each[pairs[0]] for each in sums)
    effects = _estimate_effects(shown, observed, expected, pairs[1])
    effects = effects.append_column("word", text.vocabulary.take(effects["token"]))
    effects = effects.drop_columns(["token"]).sort_by([("effect", "descending")])
    if len(effects) > 2 * N_WORDS:
        last = effects.slice(len(effects) - N_WORDS)
        effects = pa.concat_tables([effects.slice(0, N_WORDS), last])
    listed: list[dict[str, Any]] = effects.to_pylist()
    return listed


def _expected_attractiveness(table: pa.Table) -> tuple[Float64, Float64, Float64]:
    """Impressions, times attractiveness, and times the mean attractiveness of the query [pair]."""
    query = table["query"].combine_chunks().dictionary_encode()
    code, size = query.indices.to_numpy(), len(query.dictionary)
    impressions, theta = (table[name].to_numpy() for name in ("impressions", "attractiveness"))
    observed = impressions * theta
    mean = np.bincount(code, observed, size) / np.bincount(code, impressions, size)
    return impressions, observed, impressions * mean[code]


def _estimate_effects(
    impressions: Float64, observed: Float64, expected: Float64, token: Int64
) -> pa.Table:
    """token, effect, low, high, impressions, ads: of the words that enough ads have.

    The arguments have an element per ad and word of the ad.
    """
    size = int(token.max(initial=-1)) + 1
    shown = np.bincount(token, impressions, size)
    n_ads = np.bincount(token, impressions > 0, size)
    total, wanted = np.bincount(token, observed, size), np.bincount(token, expected, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = total / wanted
        residual = observed - effect[token] * expected
        error = np.sqrt(np.bincount(token, residual**2, size)) / total  # of the logarithm
    known = (n_ads >= MIN_WORD_ADS) & (shown >= MIN_IMPRESSIONS) & (total > 0)
    word = np.flatnonzero(known)
    spread = np.exp(Z_SCORE * error[word])
    return pa.table(
        {
            "token": word,
            "effect": effect[word],
            "low": effect[word] / spread,
            "high": effect[word] * spread,
            "impressions": shown[word],
            "ads": n_ads[word],
        }
    )
