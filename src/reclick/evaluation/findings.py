"""Findings of an evaluation for decisions: which model to use, and which ads to change."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.data.ragged import Bool, Float64, Int64
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
N_ADS, N_WORDS = 20, 10  # length of each list
MIN_IMPRESSIONS, MIN_CLICKS = 100, 20  # of listed pairs
MIN_WORD_ADS = 10  # ads with a listed word
Z_SCORE = 1.959964  # of a 95 % interval
ESTIMATES = ("attractiveness", "satisfaction")


def recommend_model(scores: pa.Table, *, in_sample_models: Collection[str] = ()) -> str | None:
    """The model with the best mean rank over the decisive metrics; None without any score.

    A model without a value has the last rank. Among models with the same mean rank, the first is
    recommended. Models fitted on the test log (`in_sample_models`) are recommended only if there
    are no others.
    """
    names = scores["model"].unique().to_pylist()
    total = dict.fromkeys([name for name in names if name not in in_sample_models] or names, 0.0)
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
    """The number of better models, plus half the number of those with the same value."""
    if model not in values or math.isnan(values[model]):
        return float(last)
    sign, value = (-1 if higher else 1), values[model]
    other_values = [other_value for name, other_value in values.items() if name != model]
    return sum(
        0.5 if other_value == value else float(sign * other_value < sign * value)
        for other_value in other_values
    )


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
    """Pairs whose attractiveness and satisfaction disagree: misleading ads, hidden gems.

    A misleading ad is more attractive and less satisfying than the mean of the pairs shown often,
    and both intervals exclude that mean; a hidden gem is the opposite. Pairs whose ranks differ
    most come first.
    """
    table = model.relevance()
    often = pc.and_(
        pc.greater_equal(table["impressions"], MIN_IMPRESSIONS),
        pc.greater_equal(table["clicks"], MIN_CLICKS),
    )
    table = table.filter(often)
    if len(table) < 2:
        return [], []
    attractive, unattractive = _beyond_mean(table, "attractiveness", "impressions")
    satisfying, unsatisfying = _beyond_mean(table, "satisfaction", "clicks")
    attractiveness, satisfaction = (_relative_ranks(table[name].to_numpy()) for name in ESTIMATES)
    order = np.argsort(satisfaction - attractiveness, kind="stable")
    misleading = order[(attractive & unsatisfying)[order]][:N_ADS]
    gems = order[::-1]
    gems = gems[(unattractive & satisfying)[gems]][:N_ADS]
    titles = {} if ads is None else {row["ad"]: row["title"] for row in ads.to_pylist()}
    return _list_ads(table, misleading, titles), _list_ads(table, gems, titles)


def _beyond_mean(table: pa.Table, name: str, weight: str) -> tuple[Bool, Bool]:
    """Whether the interval of each pair is above, and below, the weighted mean over all pairs."""
    value, low, high = (table[f"{name}{end}"].to_numpy() for end in ("", "_low", "_high"))
    mean = np.average(value, weights=table[weight].to_numpy())
    return low > mean, high < mean


def _list_ads(table: pa.Table, rows: Int64, titles: dict[str, str]) -> list[dict[str, Any]]:
    ends = [f"{name}_{end}" for name in ESTIMATES for end in ("low", "high")]
    columns = ["query", "ad", *ESTIMATES, *ends, "impressions", "clicks"]
    rows_of_ads = table.select(columns).take(pa.array(rows)).to_pylist()
    return [{**row, "title": titles.get(row["ad"]) or ""} for row in rows_of_ads]


def _relative_ranks(values: Float64) -> Float64:
    """The rank of each value, scaled to 0 … 1."""
    ranks: Int64 = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return ranks / max(len(values) - 1, 1)


# ---- words


def estimate_word_effects(model: ClickModel, ads: pa.Table | None) -> list[dict[str, Any]]:
    """The words with the largest and the smallest effect on attractiveness, over all queries.

    The effect of a word is Σ θ(q, d) / Σ mean θ of q over the impressions of the ads with the word:
    1.2 means 20 % more attractive than the average ad of the same queries. θ is that of the model,
    so that positions have no effect. The interval treats ads, not impressions, as independent.
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
    impressions_of_ad, observed, expected = (sums_of_ads[pairs[0]] for sums_of_ads in sums)
    effects = _estimate_effects(impressions_of_ad, observed, expected, pairs[1])
    effects = effects.append_column("word", text.vocabulary.take(effects["token"]))
    effects = effects.drop_columns(["token"]).sort_by([("effect", "descending")])
    if len(effects) > 2 * N_WORDS:
        last = effects.slice(len(effects) - N_WORDS)
        effects = pa.concat_tables([effects.slice(0, N_WORDS), last])
    rows: list[dict[str, Any]] = effects.to_pylist()
    return rows


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
    """A table of token, effect, low, high, impressions and ads, for words that enough ads have.

    The arguments have an element per word of each ad.
    """
    size = int(token.max(initial=-1)) + 1
    word_impressions = np.bincount(token, impressions, size)
    n_ads = np.bincount(token, impressions > 0, size)
    word_observed, word_expected = (
        np.bincount(token, observed, size),
        np.bincount(token, expected, size),
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = word_observed / word_expected
        residual = observed - effect[token] * expected
        error = np.sqrt(np.bincount(token, residual**2, size)) / word_observed  # of the logarithm
    has_support = (
        (n_ads >= MIN_WORD_ADS) & (word_impressions >= MIN_IMPRESSIONS) & (word_observed > 0)
    )
    word = np.flatnonzero(has_support)
    spread = np.exp(Z_SCORE * error[word])
    return pa.table(
        {
            "token": word,
            "effect": effect[word],
            "low": effect[word] / spread,
            "high": effect[word] * spread,
            "impressions": word_impressions[word],
            "ads": n_ads[word],
        }
    )
