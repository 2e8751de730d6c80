"""Why an ad is as attractive as a model says: its evidence, its prior, and its words.

Everything is an answer of the model itself. The words count by what the model would say of the same
ad, never shown before, without them.
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

NEW_QUERY = "\0a query never seen"  # no log has these: a NUL is not in its text
NEW_AD = "\0an ad never shown"


class WordEffect(NamedTuple):
    """A word, and the factor by which it changes the attractiveness of the ad."""

    word: str
    factor: float


class PriorLevel(NamedTuple):
    """What the model says from a part of what it knows."""

    level: str
    attractiveness: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The attractiveness of a pair, and what made it so."""

    query: str
    ad: str
    attractiveness: float
    low: float  # of an interval that holds 90 % of the posterior
    high: float
    impressions: float  # of the pair in the training log
    clicks: float
    known_query: bool
    known_ad: bool
    levels: tuple[PriorLevel, ...]  # from what is known of all ads to what is known of this pair
    words: tuple[WordEffect, ...]  # the strongest first


def explain(model: ClickModel, query: str, ad: str, text: TextIndex | None) -> Explanation:
    """Explain the attractiveness of a pair. `text` is the model's index, with new ads in it."""
    tokens = _find_tokens(ad, text)
    kinds = _list_variants(tokens)
    index = _add_variants(text, kinds)
    asked = [(query, ad), (NEW_QUERY, ad), *((query, name) for name in kinds)]
    table = model.relevance(
        pa.table({"query": [q for q, _ in asked], "ad": [a for _, a in asked]}), text=index
    )
    values = dict(zip(asked, table["attractiveness"].to_pylist(), strict=True))
    pair = {name: table[name][0].as_py() for name in table.column_names}
    known_query, known_ad = _are_known(model, query, ad)
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
    """The words of an ad; none where there is no text of it."""
    if text is None:
        return []
    row = int(text.rows(pa.array([ad]))[0])
    return [] if row < 0 else text.text.words(row)


def _list_variants(tokens: list[str]) -> dict[str, list[str]]:
    """Ads never shown: with all the words, with none, and without each of them."""
    variants = {NEW_AD: tokens, f"{NEW_AD} without text": []}
    for word in dict.fromkeys(tokens):
        variants[f"{NEW_AD} without {word!r}"] = [each for each in tokens if each != word]
    return variants


def _add_variants(text: TextIndex | None, variants: dict[str, list[str]]) -> TextIndex | None:
    if text is None:
        return None
    vocabulary = list(dict.fromkeys(word for words in variants.values() for word in words))
    code = {word: i for i, word in enumerate(vocabulary)}
    tokens = [code[word] for words in variants.values() for word in words]
    offsets = starts_from_sizes(np.array([len(words) for words in variants.values()]))
    added = AdTokens(
        pa.array(list(variants), pa.string()),
        pa.array(vocabulary, pa.string()),
        offsets,
        np.array(tokens, np.int32),
    )
    return text.with_text(added)


def _are_known(model: ClickModel, query: str, ad: str) -> tuple[bool, bool]:
    pairs = model._pairs
    return pairs.query_code(query) >= 0, bool(pairs.has_ads(pa.array([ad]))[0].as_py())
