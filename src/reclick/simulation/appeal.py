"""How ads look: every word has an effect, every brand a pull.

    look(d) = MEAN · mean of the effects of d's words + BEST · the best of them + pull of the brand, less the mean of this over all ads

A word has one effect everywhere, and in each topic some words have another of their own. The best word counts beside the mean (one good promise
is enough), so that no mean over words gives the look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reclick.simulation.phrases import TOPIC_NAMES, brands
from reclick.text.tokens import AdTokens, tokenise

if TYPE_CHECKING:
    from reclick.data.batch import Float64, Int64

EFFECT, PULL, TRUST = (
    0.5,
    1.5,
    0.5,
)  # standard deviations of the words' effects, and of the brands' pull and trust
OWN_EFFECT = 0.3  # of the words have an effect of their own in a topic
MEAN, BEST = 10.0, 3.0


@dataclass(frozen=True, slots=True)
class Looks:
    """What draws users to an ad, and what they may expect of its brand."""

    look: Float64  # [ad]
    trust: Float64  # [ad] in the brand: how good its landing pages are
    words: pa.Table  # topic, word, effect, everywhere
    brands: pa.Table  # brand, topic, pull, trust


def make_looks(
    ads: pa.Table, topic: Int64, brand: Int64, known: int, rng: np.random.Generator
) -> Looks:
    """Draw the effects of words and brands, and add them up for each ad; brand is a number among all brands, the first of which are known."""
    tokens = _words_only(ads)
    everywhere = rng.normal(0.0, EFFECT, len(tokens.vocabulary))
    own = rng.random((len(TOPIC_NAMES), len(everywhere))) < OWN_EFFECT
    effects = np.where(own, rng.normal(0.0, EFFECT, own.shape), everywhere)  # [topic, word]
    pull, trust = rng.normal(0.0, PULL, len(brands())), rng.normal(0.0, TRUST, len(brands()))
    pull[:known] = np.abs(pull[:known])  # users ask for them by name
    look = _sum_up(tokens, effects, topic) + pull[brand]
    return Looks(
        look - look.mean(),
        trust[brand],
        _word_table(tokens, effects, everywhere, topic),
        _brand_table(pull, trust),
    )


def _words_only(ads: pa.Table) -> AdTokens:
    """The tokens of title and description: a display URL has its brand's pull, and no effect as a word."""
    at = ads.schema.get_field_index("display_url")
    return tokenise(ads.set_column(at, "display_url", pa.array([""] * len(ads))))


def _sum_up(tokens: AdTokens, effects: Float64, topic: Int64) -> Float64:
    sizes = np.diff(tokens.offsets)  # never 0: a title names the topic
    effect = effects[np.repeat(topic, sizes), tokens.token]
    mean = np.add.reduceat(effect, tokens.offsets[:-1]) / sizes
    return np.asarray(MEAN * mean + BEST * np.maximum.reduceat(effect, tokens.offsets[:-1]))


def _word_table(tokens: AdTokens, effects: Float64, everywhere: Float64, topic: Int64) -> pa.Table:
    """The words that the ads of each topic use."""
    used = np.zeros(effects.shape, np.bool_)
    used[np.repeat(topic, np.diff(tokens.offsets)), tokens.token] = True
    rows, codes = np.nonzero(used)
    names = pa.array(TOPIC_NAMES[rows], pa.string())
    words = tokens.vocabulary.take(pa.array(codes))
    return pa.table(
        {
            "topic": names,
            "word": words,
            "effect": effects[rows, codes],
            "everywhere": everywhere[codes],
        }
    )


def _brand_table(pull: Float64, trust: Float64) -> pa.Table:
    topic = TOPIC_NAMES[np.arange(len(pull)) % len(TOPIC_NAMES)]
    return pa.table(
        {
            "brand": pa.array(brands(), pa.string()),
            "topic": pa.array(topic, pa.string()),
            "pull": pull,
            "trust": trust,
        }
    )
