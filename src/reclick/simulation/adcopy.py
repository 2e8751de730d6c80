"""What ads say: a title that names the topic, with the modifier or the detail it is written for, a description, and the brand's URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reclick.simulation.phrases import TOPIC_NAMES, nouns, of_kind, phrases, pick_two, take
from reclick.simulation.vocabulary import CALLS, LINKS

if TYPE_CHECKING:
    from reclick.data.batch import Int64
    from reclick.simulation.phrases import Texts


def write_ads(
    topic: Int64, modifier: Int64, detail: Int64, brand: Texts, rng: np.random.Generator
) -> pa.Table:
    """Write the copy of each ad; modifier and detail are numbers into the lists of the topic's kind, −1 for none."""
    count = len(topic)
    offer, promise = pick_two(of_kind("offers"), topic, rng)
    noun, other = pick_two(nouns(), topic, rng)
    head = _heads(topic, modifier, detail)
    title = np.where(rng.random(count) < 0.5, head + " - " + offer, offer + " " + head)
    body = _pick(LINKS, count, rng) + " " + noun + " & " + other
    description = _sentences([body, promise, _pick(CALLS, count, rng)])
    slug = np.array([name.replace(" ", "-") for name in TOPIC_NAMES], object)[topic]
    url = brand + ".example" + np.where(rng.random(count) < 0.5, "/" + slug, "")
    columns = {"title": _capitals(title), "description": description, "display_url": url}
    return pa.table(
        {
            "ad": ids("ad", 7, 0, count),
            **{name: pa.array(texts, pa.string()) for name, texts in columns.items()},
        }
    )


def ids(prefix: str, digits: int, start: int, end: int) -> pa.StringArray:
    """Names with a number of so many digits, for things start … end − 1, numbered from 1.

    >>> ids("ad", 3, 0, 2).to_pylist()
    ['ad001', 'ad002']
    """
    number = pa.array(np.arange(start + 1, end + 1)).cast(pa.string())
    return pc.binary_join_element_wise(prefix, pc.utf8_lpad(number, digits, "0"), "")


def _heads(topic: Int64, modifier: Int64, detail: Int64) -> Texts:
    before = take(of_kind("modifiers"), topic, modifier) + np.where(modifier >= 0, " ", "")
    after = np.where(detail >= 0, " ", "") + take(of_kind("details"), topic, detail)
    heads: Texts = before + TOPIC_NAMES[topic] + after
    return heads


def _pick(words: str, count: int, rng: np.random.Generator) -> Texts:
    found = np.array(phrases(words), object)
    return found[rng.integers(0, len(found), count)]


def _capitals(texts: Texts) -> Texts:
    return np.array([text.title() for text in texts], object)


def _sentences(parts: list[Texts]) -> Texts:
    return np.array(
        [
            " ".join(f"{part[0].upper()}{part[1:]}." for part in ad)
            for ad in zip(*parts, strict=True)
        ],
        object,
    )
