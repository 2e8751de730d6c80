"""Why an ad is as attractive as a model predicts: its evidence, its prior, and its words.

All figures are predictions of the model. The effect of a word comes from two predictions for a new
ad, one with the words of this ad, and one without that word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from reclick.data.ragged import starts_from_sizes
from reclick.text.tokens import AdTokens
from reclick.text.word_rates import TextIndex

if TYPE_CHECKING:
    from reclick.models.base import ClickModel

NEW_QUERY = "\0a query never seen"  # not in any log: the text of a log has no NUL
NEW_AD = "\0an ad never shown"


class WordEffect(NamedTuple):
    """A word, and the factor by which it changes the attractiveness of the ad."""

    word: str
    factor: float


class PriorLevel(NamedTuple):
    """The attractiveness that the model predicts from a part of its information."""

    level: str
    attractiveness: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The attractiveness of a pair, and the reasons for it."""

    query: str
    ad: str
    attractiveness: float
    low: float  # of the interval with 90 % of the posterior
    high: float
    impressions: float  # of the pair in the training log
    clicks: float
    known_query: bool
    known_ad: bool
    levels: tuple[PriorLevel, ...]  # from the prior of any ad to the estimate of this pair
    words: tuple[WordEffect, ...]  # the strongest first


def explain(model: ClickModel, query: str, ad: str, text: TextIndex | None) -> Explanation:
    """Explain the attractiveness of a pair. `text` is the model's index, with new ads in it."""
    tokens = _find_tokens(ad, text)
    variants = _list_variants(tokens)
    index = _add_variants(text, variants)
    pairs = [(query, ad), (NEW_QUERY, ad), *((query, name) for name in variants)]
    table = model.relevance(
        pa.table({"query": [q for q, _ in pairs], "ad": [a for _, a in pairs]}), text=index
    )
    values = dict(zip(pairs, table["attractiveness"].to_pylist(), strict=True))
    pair = {name: table[name][0].as_py() for name in table.column_names}
    known_query, known_ad = _is_known(model, query, ad)
    from_words = values[query, NEW_AD]
    return Explanation(
        query=query,
        ad=ad,
        attractiveness=pair["attractiveness"],
        low=pair["attractiveness_low"],
        high=pair["attractiveness_high"],
        impressions=pair["impressions"],
        clicks=pair["clicks"],
        known_query=known_query,
        known_ad=known_ad,
        levels=(
            PriorLevel("any ad", values[query, f"{NEW_AD} without text"]),
            PriorLevel("any ad with these words", from_words),
            PriorLevel("this ad, whatever the query", values[NEW_QUERY, ad]),
            PriorLevel("this ad for this query", pair["attractiveness"]),
        ),
        words=tuple(
            sorted(
                (
                    WordEffect(word, from_words / values[query, f"{NEW_AD} without {word!r}"])
                    for word in dict.fromkeys(tokens)
                ),
                key=lambda effect: -abs(np.log(max(effect.factor, 1e-12))),
            )
        ),
    )


def _find_tokens(ad: str, text: TextIndex | None) -> list[str]:
    """Return the words of an ad; an empty list if it has no text."""
    if text is None:
        return []
    row = int(text.rows(pa.array([ad]))[0])
    return [] if row < 0 else text.text.words(row)


def _list_variants(tokens: list[str]) -> dict[str, list[str]]:
    """The words of new ads by name: with all words, without text, and without each of the words."""
    variants = {NEW_AD: tokens, f"{NEW_AD} without text": []}
    for word in dict.fromkeys(tokens):
        variants[f"{NEW_AD} without {word!r}"] = [token for token in tokens if token != word]
    return variants


def _add_variants(text: TextIndex | None, variants: dict[str, list[str]]) -> TextIndex | None:
    if text is None:
        return None
    vocabulary = list(dict.fromkeys(word for words in variants.values() for word in words))
    code = {word: i for i, word in enumerate(vocabulary)}
    tokens = [code[word] for words in variants.values() for word in words]
    offsets = starts_from_sizes(np.array([len(words) for words in variants.values()]))
    new_text = AdTokens(
        pa.array(list(variants), pa.string()),
        pa.array(vocabulary, pa.string()),
        offsets,
        np.array(tokens, np.int32),
    )
    return text.with_text(new_text)


def _is_known(model: ClickModel, query: str, ad: str) -> tuple[bool, bool]:
    pairs = model._pairs
    return pairs.query_code(query) >= 0, bool(pairs.has_ads(pa.array([ad]))[0].as_py())
