"""The prior of attractiveness from what is known of ads: by hand, by integration, in models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reclick.data.ragged import Float64
from reclick.fitting.attractiveness_prior import (
    AdRecord,
    Choices,
    Strengths,
    _evidence_of_probabilities,
    _evidence_of_weights,
    _prior_given,
    fit_ad_prior,
    fit_prior,
)
from reclick.models import LuceClick, load
from reclick.text.word_rates import TokenLists
from tests.support.ad_market import market
from tests.support.luce_world import PLAIN


def record(clicks: list[float], exposure: list[float], ad: list[int]) -> AdRecord:
    return AdRecord(np.array(clicks), np.array(exposure), np.array(ad, np.int32), max(ad) + 1)


def draw_record(
    rng: np.random.Generator, ads: int, queries: int, pair: float, ad: float, exposure: float
) -> tuple[AdRecord, Float64]:
    """Clicks of pairs whose ads, and within them pairs, differ by these strengths; and the ads."""
    mean = rng.gamma(ad, 0.3 / ad, ads)
    number = np.repeat(np.arange(ads, dtype=np.int32), queries)
    theta, rivals = rng.gamma(pair, mean[number] / pair), rng.uniform(0.5, 2.0, ads * queries)
    choices = rng.poisson(rng.gamma(1.0, exposure, ads * queries))
    clicks = rng.binomial(choices, theta / (rivals + theta)).astype(np.float64)
    shown = choices / (rivals + theta)
    return AdRecord(clicks, shown, number, ads, Choices(choices.astype(np.float64), rivals)), mean


# ---- by hand


def test_means_and_strengths_by_hand() -> None:
    # Three clicks of 10 on the other queries, and words that say .2 with a strength of 2 clicks.
    prior = _prior_given(np.array([3.0]), np.array([10.0]), np.array([0.2]), Strengths(5.0, 2.0))
    assert prior.mean[0] == pytest.approx((3 + 2) / (10 + 2 / 0.2))
    assert prior.strength[0] == pytest.approx(1 / (1 / 5 + 1 / (3 + 2)))
    nothing = _prior_given(np.zeros(1), np.zeros(1), np.array([0.2]), Strengths(5.0, 2.0))
    assert nothing.mean[0] == pytest.approx(0.2)
    assert nothing.strength[0] == pytest.approx(1 / (1 / 5 + 1 / 2))


def test_other_queries_of_the_ad_are_counted_and_a_pair_is_worth_a_limited_number_of_clicks() -> (
    None
):
    seen = record([2, 3, 4, 5], [10, 10, 10, 10], [0, 0, 0, 1])
    clicks, exposure = seen.elsewhere()
    assert clicks.tolist() == [7, 6, 5, 0]
    assert exposure.tolist() == [20, 20, 20, 0]
    less = seen.discount(np.array([0.2, 0.4]), pair_strength=4.0)
    np.testing.assert_allclose(less.exposure, [10 * 4 / 6] * 3 + [10 * 4 / 8])
    np.testing.assert_allclose(less.clicks / less.exposure, seen.clicks / seen.exposure)


def test_a_pairs_own_clicks_are_not_in_its_own_prior_mean() -> None:
    # With the strengths as they are, more clicks of pair 0 move the others' means and not its own.
    rng = np.random.default_rng(1)
    seen, _ = draw_record(rng, 200, 4, 5.0, 2.0, 20.0)
    more = seen._replace(clicks=seen.clicks + 50.0 * (np.arange(800) == 0))
    rates = np.full(200, 0.3)
    one, two = (
        _prior_given(*each.discount(rates, 5.0).elsewhere(), rates[each.ad], Strengths(5.0, 2.0))
        for each in (seen, more)
    )
    assert two.mean[0] == pytest.approx(one.mean[0], rel=1e-12)
    assert (two.mean[1:4] > one.mean[1:4]).all()
    np.testing.assert_allclose(two.mean[4:], one.mean[4:], rtol=1e-12)
    fitted = fit_prior(seen, rates)
    again = fit_prior(more, rates)  # the strengths move a little too
    assert again.pairs.mean[0] == pytest.approx(fitted.pairs.mean[0], rel=0.1)
    assert again.ads.mean[0] > 1.1 * fitted.ads.mean[0]


def test_without_ads_that_recur_the_prior_is_that_of_pairs_alone() -> None:
    seen, _ = draw_record(np.random.default_rng(2), 500, 1, 5.0, 2.0, 20.0)
    ads, flat = (fit_ad_prior(seen, None, 0, use_ads=use) for use in (True, False))
    np.testing.assert_array_equal(ads.pairs.mean, flat.pairs.mean)
    np.testing.assert_array_equal(ads.pairs.strength, flat.pairs.strength)
    np.testing.assert_allclose(ads.pairs.mean, seen.rate, rtol=1e-12)
    assert "no ad is on more than one query" in ads.report


# ---- evidence


def test_the_evidence_of_probabilities_is_the_integral_over_them() -> None:
    n, x, mean, s = 3.0, 12.0, 0.23, 4.0
    found = _evidence_of_probabilities(*(np.array([value]) for value in (n, x, mean, s)))
    theta = (np.arange(200_000) + 0.5) / 200_000
    prior = theta ** (s - 1) * (1 - theta) ** (s * (1 - mean) / mean - 1)
    likelihood = theta**n * (1 - theta) ** (x - n)
    assert found == pytest.approx(np.log((prior * likelihood).sum() / prior.sum()), abs=1e-5)


@pytest.mark.parametrize(
    ("n", "choices", "rivals", "s", "within"),
    [(0, 1, 3, 1, 0.003), (1, 1, 3, 1, 0.003), (2, 10, 5, 3, 0.002), (0, 8, 4, 0.5, 0.02)],
)
def test_the_evidence_of_weights_is_nearly_the_integral_over_them(
    n: float, choices: float, rivals: float, s: float, within: float
) -> None:
    mean, theta = 0.9, np.exp(np.linspace(-40, 5, 20_001))  # steps of one size in log θ
    prior = theta**s * np.exp(-theta * s / mean)
    likelihood = theta**n / (rivals + theta) ** choices
    values = n, choices, rivals, mean, s
    found = _evidence_of_weights(*(np.array([float(value)]) for value in values))
    assert found == pytest.approx(np.log((prior * likelihood).sum() / prior.sum()), abs=within)


def test_single_choices_do_not_speak_for_a_strong_prior() -> None:
    # Of pairs that were in one to three choices each: Poisson clicks would scatter more than these.
    rng, pairs = np.random.default_rng(0), 20_000
    theta, rivals = rng.gamma(1.0, 1.0, pairs), np.full(pairs, 3.0)
    choices = rng.integers(1, 4, pairs)
    clicks = rng.binomial(choices, theta / (rivals + theta)).astype(np.float64)
    found = Choices(choices.astype(np.float64), rivals)
    seen = AdRecord(
        clicks, choices / (rivals + 1.0), np.arange(pairs, dtype=np.int32), pairs, found
    )
    prior = fit_prior(seen, np.ones(pairs), use_ads=False)
    assert prior.pairs.strength[0] == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize(("pair", "ad"), [(3.0, 2.0), (20.0, 2.0), (2.0, 20.0)])
@pytest.mark.parametrize("queries", [2, 5])
def test_strengths_are_recovered(pair: float, ad: float, queries: int) -> None:
    found, errors = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        seen, mean = draw_record(rng, 5_000 // queries, queries, pair, ad, 100.0)
        prior = fit_prior(seen, np.full(seen.n_ads, seen.rate))
        found.append(prior.strengths)
        flat = np.log(seen.rate / mean[seen.ad])
        errors.append(np.std(np.log(prior.pairs.mean / mean[seen.ad])) / np.std(flat))
    assert np.exp(np.mean(np.log(found), axis=0)) == pytest.approx([pair, ad], rel=0.4)
    assert np.mean(errors) < 1.0


def test_strengths_of_probabilities_are_recovered() -> None:
    rng, ads, queries = np.random.default_rng(4), 800, 5
    mean = rng.beta(3.0, 9.0, ads)  # a strength of 3 clicks
    number = np.repeat(np.arange(ads, dtype=np.int32), queries)
    theta = rng.beta(5.0, 5.0 * (1 - mean[number]) / mean[number])
    shown = rng.integers(5, 100, len(number)).astype(np.float64)
    seen = AdRecord(rng.binomial(shown.astype(int), theta).astype(np.float64), shown, number, ads)
    prior = fit_prior(seen, np.full(ads, seen.rate))
    assert list(prior.strengths) == pytest.approx([5.0, 3.0], rel=0.4)
    assert ((prior.pairs.mean > 0) & (prior.pairs.mean < 1)).all()
    assert np.corrcoef(prior.pairs.mean, mean[number])[0, 1] > 0.7


def test_the_order_of_pairs_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    seen, _ = draw_record(rng, 300, 3, 4.0, 3.0, 20.0)
    order = rng.permutation(len(seen.ad))
    assert seen.choices is not None
    choices, number = seen.choices.take(order), seen.ad[order]
    other = AdRecord(seen.clicks[order], seen.exposure[order], number, seen.n_ads, choices)
    rates = np.full(300, seen.rate)
    one, two = fit_prior(seen, rates), fit_prior(other, rates)
    np.testing.assert_allclose(two.pairs.mean, one.pairs.mean[order], rtol=1e-6)


# ---- words


def lists(words: list[list[int]]) -> TokenLists:
    starts = np.concatenate([[0], np.cumsum([len(each) for each in words])])
    flat = np.array([word for each in words for word in each], np.int32)
    return TokenLists(starts, flat, np.ones(len(flat), np.int32))


def test_words_are_used_where_they_add_evidence_and_the_report_says_why_not() -> None:
    rng, ads = np.random.default_rng(6), 400
    number, shown = np.arange(ads, dtype=np.int32), np.full(ads, 30.0)
    good = rng.random(ads) < 0.5
    tokens = lists([[int(each), 2 + i] for i, each in enumerate(good)])
    told, untold = (
        AdRecord(rng.poisson(shown * rate).astype(np.float64), shown, number, ads)
        for rate in (np.where(good, 0.5, 0.1), np.full(ads, 0.3))
    )
    with_words = fit_ad_prior(told, tokens, 2 + ads)
    assert with_words.model is not None
    assert "not used" not in with_words.report
    assert np.median(with_words.pairs.mean[good] / with_words.pairs.mean[~good].mean()) > 3
    new = with_words.unseen(np.array([-1, -1], np.int32), lists([[1, -1], [0, -1]]))
    assert new.mean == pytest.approx([0.5, 0.1], rel=0.25)
    without = fit_ad_prior(untold, tokens, 2 + ads)
    assert without.model is None
    assert "so they are not used" in without.report
    assert "no text" in fit_ad_prior(untold, None, 0).report


# ---- through LuceClick


def test_a_known_ad_on_a_new_query_and_new_ads_get_a_sensible_answer(tmp_path: Path) -> None:
    log, text, odds = market(1)
    model = LuceClick(tune="off").fit(log, ads=text)
    assert "not used" not in model.prior_report_
    known = model.relevance({"query": ["never"] * 60, "ad": text["ad"]})
    found = np.log(known["attractiveness"].to_numpy())
    assert np.corrcoef(found, np.log(odds / (1 + odds)))[0, 1] > 0.9
    new = {
        "ad": ["new0", "new5", "new"],
        "title": ["offer number70", "offer number71", "offer number72"],
        "display_url": ["www.shop0.com", "www.shop5.com", "www.elsewhere.com"],
    }
    asked = {"query": ["q0"] * 3, "ad": new["ad"]}
    table = model.relevance(asked, text=new)
    worst, best, stranger = table["attractiveness"].to_pylist()
    truth = [float(np.mean(odds[k::6] / (1 + odds[k::6]))) for k in (0, 5)]
    assert truth[0] < worst < 0.5 * stranger
    assert 1.2 * stranger < best == pytest.approx(truth[1], rel=0.2)
    width = known["attractiveness_high"].to_numpy() - known["attractiveness_low"].to_numpy()
    of_new = table["attractiveness_high"].to_numpy() - table["attractiveness_low"].to_numpy()
    assert np.median(width) < of_new[2]
    prediction = model.click_prob({"query": ["q0"] * 3, "ads": [[ad] for ad in new["ad"]]})
    assert np.isfinite(prediction).all()
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").relevance(asked, text=new) == table


def test_a_pair_that_was_seldom_shown_is_drawn_to_what_its_ad_does_elsewhere() -> None:
    log, _, odds = market(2)
    log = pa.concat_tables(
        [log, pa.table({"query": ["rare"] * 60, "ads": [[f"ad{i}"] for i in range(60)],
                        "clicks": pa.array([[]] * 60, pa.list_(pa.int64()))})]
    )  # fmt: skip
    auto, overall = (
        LuceClick(tune="off", attractiveness_prior=prior).fit(log) for prior in ("auto", "overall")
    )
    assert "60 of 60 ads are on more than one query" in auto.prior_report_
    assert "no text" in auto.prior_report_
    asked = {"query": ["rare"] * 60, "ad": [f"ad{i}" for i in range(60)]}
    order = [
        np.corrcoef(model.relevance(asked)["attractiveness"].to_numpy(), np.log(odds))[0, 1]
        for model in (auto, overall)
    ]
    assert order[0] > 0.8 > 0.3 > abs(order[1])


def test_the_order_of_rows_does_not_matter_in_a_fit_with_text() -> None:
    log, text, _ = market(3, 2_000)
    order = np.random.default_rng(1).permutation(len(log))
    ads = pa.table(text)
    one = LuceClick(tune="off").fit(log, ads=ads)
    two = LuceClick(tune="off").fit(
        log.take(pa.array(order)), ads=ads.take(pa.array(range(60))[::-1])
    )
    assert one.prior_report_ == two.prior_report_
    np.testing.assert_allclose(one.log_prob(log), two.log_prob(log), rtol=1e-6)


def test_words_without_text_are_no_trap() -> None:
    log, _, _ = market(4)
    probe, _, _ = market(4, 3_000)
    words, overall = (
        LuceClick(**PLAIN, attractiveness_prior=prior).fit(log) for prior in ("words", "overall")
    )
    scores = [model.log_prob(probe).mean() for model in (words, overall)]
    assert scores[0] == pytest.approx(scores[1], abs=0.005)


def test_words_are_not_blamed_for_where_their_ads_stood() -> None:
    # Words are equally good; "low" ads are mostly second, where few users look.
    rng, count = np.random.default_rng(14), 12_000
    low = rng.random(count) < 0.85
    ads = [
        [f"h{i % 9}", f"l{i % 7}"] if below else [f"l{i % 7}", f"h{i % 9}"]
        for i, below in enumerate(low)
    ]
    clicks = [[1] if u < 0.35 else [2] if u < 0.42 else [] for u in rng.random(count)]
    text = {"ad": [f"h{i}" for i in range(9)] + [f"l{i}" for i in range(7)] + ["new-h", "new-l"]}
    text["title"] = [("high" if "h" in ad else "low") + f" {ad[-1]}" for ad in text["ad"]]
    log = pa.table({"query": ["q"] * count, "ads": ads, "clicks": clicks})
    asked = {"query": ["q", "q"], "ad": ["new-h", "new-l"]}
    for prior in ("auto", "words"):
        model = LuceClick(**PLAIN, attractiveness_prior=prior).fit(log, ads=text)
        ours = model.relevance(asked, text=text)["attractiveness"].to_numpy()
        assert ours[0] / ours[1] == pytest.approx(1, abs=0.15)
