"""Ads without text have one word each, their id: NumPy computes what the kernels would."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import reclick as rc
from reclick.text.word_rates import CorpusWords, ShownAds, TokenLists, WordRates


def draw_counts(seed: int) -> rc.Counts:
    rng = np.random.default_rng(seed)
    pages = [[f"a{ad}" for ad in rng.permutation(7)[:3]] for _ in range(60)]
    clicks = [[1] if rng.random() < 0.2 else [] for _ in pages]
    queries = [f"q{query}" for query in rng.integers(0, 9, len(pages))]
    weight = rng.random(len(pages))
    return rc.count({"query": queries, "ads": pages, "clicks": clicks, "weight": weight})


@pytest.mark.parametrize("strength", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("known_corpus", [False, True])
def test_rates_of_single_words_are_those_of_the_kernels(
    strength: float, known_corpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = draw_counts(1)
    # A corpus of more ads, in another order: codes of words are not those of ads.
    corpus = CorpusWords.count(ShownAds.of(draw_counts(2)), None)[0] if known_corpus else None
    query = np.array([-1, 0, 1, 1, 2, 3, 3, 5], np.int32)
    ad = np.array([0, 1, 2, 2, 0, 1, 3, 0], np.int32)
    ads = pa.array(["a3", "a0", "new", "a5"], pa.large_string())

    def all_rates() -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
        words = WordRates(counts, None, min_query_sessions=3.0, strength=strength, corpus=corpus)
        assert 0 < words.is_frequent(counts.pair_query).sum() < len(counts.pair_query)
        tokens = words.encode_ads(ads, None)
        return [words.corpus.totals, words.pair_rates(), words.rates(query, ad, tokens)]

    single = all_rates()
    monkeypatch.setattr(TokenLists, "is_single", False)
    for ours, kernels in zip(single, all_rates(), strict=True):
        np.testing.assert_allclose(ours, kernels, rtol=1e-14, atol=0)
