"""Ads: which of them compete for which query, their text, and its appeal.

Every topic has its advertisers, and an advertiser has one text. An ad is this text with a theme in
the title: the modifier or the detail that it is written for, or none. So the same ads, and the
same words, recur in many queries. The candidates of a query are ads of different advertisers:
general ads of its topic, and ads written for its modifier and for its detail if it has them. The
first candidate is an established advertiser, whose general ad exists from the start; if a query
names a brand, it is the ad of that brand.

    text_appeal(d) = MEAN_WEIGHT · mean effect of d's words + BEST_WEIGHT · the largest of them
                     + pull of the brand, minus the mean of this over the ads of the topic

A word has one effect everywhere, and some words have another effect in a topic. Because the best
word counts in addition to the mean (one good promise is enough), text appeal is no mean over words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.simulation.queries import draw_first_weeks
from reclick.simulation.vocabulary import (
    CALLS_TO_ACTION,
    OPENINGS,
    TOPIC_NAMES,
    brand_names,
    brand_of_topic,
    brands_per_topic,
    draw_two_phrases,
    phrases,
    take_phrases,
    topic_nouns,
    trade_phrases,
)
from reclick.text.tokens import AdTokens, tokenise

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int32, Int64
    from reclick.simulation.queries import Queries
    from reclick.simulation.vocabulary import Texts

ADVERTISERS_PER_CANDIDATE = 2  # advertisers of a topic, per candidate of a query
NEW_ADS = 0.08  # proportion of the ads that is new in each week after the first
# Standard deviations of the effects of words, and of the pull of brands and the trust in them.
EFFECT_STD, PULL_STD, TRUST_STD = 0.5, 0.9, 0.5
PULL_TRUST = 0.7  # correlation of the pull of a brand and the trust in it
TOPIC_EFFECTS = 0.1  # proportion of the words that have another effect in a topic
MEAN_WEIGHT, BEST_WEIGHT = 9.5, 2.0


@dataclass(frozen=True, slots=True)
class AdPool:
    """The ads before their text is written, and the candidates of each query."""

    topic: Int64  # [ad]
    modifier: Int64  # [ad] that it is written for, −1 for none
    detail: Int64  # [ad] that it is written for, −1 for none
    advertiser: Int64  # [ad] number among the advertisers of the topic
    week: Int64  # [ad] the first in which it exists, from 0
    candidates: Int32  # [query, candidate] ads


@dataclass(frozen=True, slots=True)
class AdAppeal:
    """The appeal of the text of each ad, and the quality of the landing pages of its brand."""

    text_appeal: Float64  # [ad]
    trust: Float64  # [ad] quality of the landing pages of the brand
    words: pa.Table  # topic, word, effect, everywhere
    brands: pa.Table  # brand, topic, pull, trust


def count_established(n_candidates: int) -> int:
    """The number of advertisers per topic that exist from the start; queries can name them."""
    return max(1, min(n_candidates // 3, brands_per_topic()))


def make_ad_pool(
    queries: Queries, n_candidates: int, weeks: int, rng: np.random.Generator
) -> AdPool:
    """Draw the candidates of every query; only ads that are candidates exist."""
    first_group, n_advertisers = _first_groups(), ADVERTISERS_PER_CANDIDATE * n_candidates
    numbers = _draw_candidates(queries, first_group, n_candidates, n_advertisers, rng)
    is_candidate = np.bincount(numbers.reshape(-1), minlength=first_group[-1] * n_advertisers) > 0
    group, advertiser = np.divmod(np.flatnonzero(is_candidate), n_advertisers)
    topic = np.searchsorted(first_group, group, side="right") - 1
    theme = group - first_group[topic]
    is_established = (theme == 0) & (advertiser < count_established(n_candidates))
    week = np.where(is_established, 0, draw_first_weeks(len(group), weeks, NEW_ADS, rng))
    ad_index = np.cumsum(is_candidate, dtype=np.int32) - 1
    return AdPool(topic, *_split_themes(topic, theme), advertiser, week, ad_index[numbers])


def _first_groups() -> Int64:
    """The first group of each topic. A topic has a group without theme, and one per theme."""
    sizes = [
        1 + len(modifiers) + len(details)
        for modifiers, details in zip(
            trade_phrases("modifiers"), trade_phrases("details"), strict=True
        )
    ]
    return np.cumsum([0, *sizes])


def _draw_candidates(
    queries: Queries,
    first_group: Int64,
    n_candidates: int,
    n_advertisers: int,
    rng: np.random.Generator,
) -> Int64:
    """Draw candidates, as numbers group · n_advertisers + advertiser, one ad per advertiser.

    A third of the ads is for the modifier, a third for the detail; the rest has no theme.
    """
    shape = len(queries), n_candidates
    modifiers = np.array([*map(len, trade_phrases("modifiers"))])[queries.topic]
    theme = np.zeros(shape, np.int64)
    theme[:, 1::3] = np.where(queries.modifier >= 0, 1 + queries.modifier, 0)[:, None]
    theme[:, 2::3] = np.where(queries.detail >= 0, 1 + modifiers + queries.detail, 0)[:, None]
    any_established = rng.integers(0, count_established(n_candidates), len(queries))
    first = np.where(queries.brand >= 0, queries.brand, any_established)
    other_advertisers = np.broadcast_to(
        np.arange(1, n_advertisers), (len(queries), n_advertisers - 1)
    )
    after_first = rng.permuted(other_advertisers, axis=1)[:, : n_candidates - 1]
    advertiser = np.concatenate([first[:, None], first[:, None] + after_first], axis=1)
    group = first_group[queries.topic][:, None] + theme
    numbers: Int64 = group * n_advertisers + advertiser % n_advertisers
    return numbers


def _split_themes(topic: Int64, theme: Int64) -> tuple[Int64, Int64]:
    """The modifier and the detail of each theme, −1 for none."""
    modifiers = np.array([*map(len, trade_phrases("modifiers"))])[topic]
    modifier = np.where((theme > 0) & (theme <= modifiers), theme - 1, -1)
    detail = np.where(theme > modifiers, theme - modifiers - 1, -1)
    return modifier, detail


def write_ads(pool: AdPool, rng: np.random.Generator) -> pa.Table:
    """Write the text of each ad: the advertiser's text, with the theme of the ad in the title.

    The title names the topic, with the modifier or the detail that the ad is written for.
    """
    n_advertisers = 1 + int(pool.advertiser.max())
    topic = np.repeat(np.arange(len(TOPIC_NAMES)), n_advertisers)  # [advertiser]
    count = len(topic)
    advertiser = pool.topic * n_advertisers + pool.advertiser  # [ad]
    offer, promise = draw_two_phrases(trade_phrases("offers"), topic, rng)
    noun, other_noun = draw_two_phrases(topic_nouns(), topic, rng)
    body = _draw_phrases(OPENINGS, count, rng) + " " + noun + " & " + other_noun
    description = _join_sentences([body, promise, _draw_phrases(CALLS_TO_ACTION, count, rng)])
    slug = np.array([name.replace(" ", "-") for name in TOPIC_NAMES], object)[topic]
    number = np.tile(np.arange(n_advertisers), len(TOPIC_NAMES))  # within the topic
    brand = brand_of_topic(topic, number % brands_per_topic())
    url = brand + ".example" + np.where(rng.random(count) < 0.5, "/" + slug, "")
    subject_first, offer = (rng.random(count) < 0.5)[advertiser], offer[advertiser]
    subject = _subjects(pool)
    title = np.where(subject_first, subject + " - " + offer, offer + " " + subject)
    title = np.array([text.title() for text in title], object)
    columns = {
        "title": title,
        "description": description[advertiser],
        "display_url": url[advertiser],
    }
    return pa.table(
        {
            "ad": make_ids("ad", 7, 0, len(pool.topic)),
            **{name: pa.array(texts, pa.string()) for name, texts in columns.items()},
        }
    )


def make_ids(prefix: str, digits: int, start: int, end: int) -> pa.StringArray:
    """Ids: the prefix with the numbers start + 1 … end, padded to `digits` digits.

    >>> make_ids("ad", 3, 0, 2).to_pylist()
    ['ad001', 'ad002']
    """
    number = pa.array(np.arange(start + 1, end + 1)).cast(pa.string())
    return pc.binary_join_element_wise(prefix, pc.utf8_lpad(number, digits, "0"), "")


def _subjects(pool: AdPool) -> Texts:
    modifier = take_phrases(trade_phrases("modifiers"), pool.topic, pool.modifier)
    detail = take_phrases(trade_phrases("details"), pool.topic, pool.detail)
    before = modifier + np.where(pool.modifier >= 0, " ", "")
    after = np.where(pool.detail >= 0, " ", "") + detail
    subjects: Texts = before + TOPIC_NAMES[pool.topic] + after
    return subjects


def _draw_phrases(words: str, count: int, rng: np.random.Generator) -> Texts:
    choices = np.array(phrases(words), object)
    return choices[rng.integers(0, len(choices), count)]


def _join_sentences(sentences: list[Texts]) -> Texts:
    return np.array(
        [
            " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in ad)
            for ad in zip(*sentences, strict=True)
        ],
        object,
    )


def draw_ad_appeal(ads: pa.Table, topic: Int64, brand: Int64, rng: np.random.Generator) -> AdAppeal:
    """Draw the effects of words and brands, and add them up for each ad.

    `brand` is an index into all brands.
    """
    tokens = _tokenise_text(ads)
    everywhere = rng.normal(0.0, EFFECT_STD, len(tokens.vocabulary))
    differs = rng.random((len(TOPIC_NAMES), len(everywhere))) < TOPIC_EFFECTS
    effects = np.where(differs, rng.normal(0.0, EFFECT_STD, differs.shape), everywhere)
    n_brands = len(brand_names())
    pull = _sort_by_topic(rng.normal(0.0, PULL_STD, n_brands))
    own_trust = math.sqrt(1.0 - PULL_TRUST**2) * rng.standard_normal(n_brands)
    trust = TRUST_STD * (PULL_TRUST * pull / PULL_STD + own_trust)
    text_appeal = _add_effects(tokens, effects, topic) + pull[brand]
    mean = np.bincount(topic, text_appeal) / np.maximum(np.bincount(topic), 1)  # [topic]
    return AdAppeal(
        text_appeal - mean[topic],
        trust[brand],
        _word_table(tokens, effects, everywhere, topic),
        _brand_table(pull, trust),
    )


def _sort_by_topic(pull: Float64) -> Float64:
    """Sort the pulls of brands, so that the brands that queries name are the strongest."""
    n_topics = len(TOPIC_NAMES)
    whole = len(pull) // n_topics * n_topics
    table = np.sort(pull[:whole].reshape(-1, n_topics), axis=0)[::-1]
    return np.concatenate([table.reshape(-1), pull[whole:]])


def _tokenise_text(ads: pa.Table) -> AdTokens:
    """The tokens of title and description; the display URL has the effect of its brand instead."""
    column = ads.schema.get_field_index("display_url")
    return tokenise(ads.set_column(column, "display_url", pa.array([""] * len(ads))))


def _add_effects(tokens: AdTokens, effects: Float64, topic: Int64) -> Float64:
    sizes = np.diff(tokens.offsets)  # never 0: a title names the topic
    effect = effects[np.repeat(topic, sizes), tokens.token]
    mean = np.add.reduceat(effect, tokens.offsets[:-1]) / sizes
    best = np.maximum.reduceat(effect, tokens.offsets[:-1])
    return np.asarray(MEAN_WEIGHT * mean + BEST_WEIGHT * best)


def _word_table(tokens: AdTokens, effects: Float64, everywhere: Float64, topic: Int64) -> pa.Table:
    """The words that the ads of each topic use; effects are [topic, word]."""
    is_used = np.zeros(effects.shape, np.bool_)
    is_used[np.repeat(topic, np.diff(tokens.offsets)), tokens.token] = True
    topics, words = np.nonzero(is_used)
    return pa.table(
        {
            "topic": pa.array(TOPIC_NAMES[topics], pa.string()),
            "word": tokens.vocabulary.take(pa.array(words)),
            "effect": effects[topics, words],
            "everywhere": everywhere[words],
        }
    )


def _brand_table(pull: Float64, trust: Float64) -> pa.Table:
    topic = TOPIC_NAMES[np.arange(len(pull)) % len(TOPIC_NAMES)]
    return pa.table(
        {
            "brand": pa.array(brand_names(), pa.string()),
            "topic": pa.array(topic, pa.string()),
            "pull": pull,
            "trust": trust,
        }
    )
