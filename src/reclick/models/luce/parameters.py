"""What LuceClick fits: the options, the parameters, and the sums that a pass over the sessions leaves."""

from __future__ import annotations

from typing import NamedTuple

from reclick.data.batch import Float64


class Options(NamedTuple):
    """What is fitted, and how strongly each prior holds; None: common to all."""

    attractiveness_strength: float = 2.0
    satisfaction_strength: float | None = 5.0
    satisfaction_prior: float | str = "overall"  # the mean of ρ, or "overall": what the first stage of a fit finds
    query_strength: float | None = None  # the outside option of each query
    transition_strength: float = 2.0
    components: int = 1
    component_strength: float = 4.0  # how each kind of user differs
    mixing_strength: float | None = None  # the kinds of each query's users
    component_appeal_strength: float | None = None  # what each kind of user finds attractive
    position_effect_strength: float | None = None  # what positions are worth to each query and ad


class Parameters(NamedTuple):
    """What is learnt. Factors are those of `Levels`."""

    theta: Float64  # [pair]
    rho: Float64  # [pair] the centre of its logit's distribution
    eye: Float64  # [factor]
    out: Float64  # [factor]
    spread: Float64  # [query] or [1]
    share: Float64  # [query or 1, kind]
    rare: Float64  # [how often] prior mean of θ, as a multiple, of pairs shown so often
    seldom: Float64  # [how often] prior mean of f of queries asked so often
    taste: Float64  # [pair, kind] by what a kind's θ differs from that of all; or [1, 1]
    loose: Float64  # [pair] variance of the logit of ρ
    worth: Float64  # [factor] what positions are worth to a query and to an ad of it; or [0]
    ease: Float64  # [kind] by what a kind's odds of being satisfied differ from ρ's


class Found(NamedTuple):
    """What a pass adds up: how strongly each weight was pulled, and how often it was chosen."""

    log_likelihood: (
        float  # and what ρ being uncertain adds to it (reclick.models.luce.satisfaction)
    )
    pulled: Float64  # [spot, kind] if tastes differ, else [spot, 1]; spots are pairs if positions are worth the same to all
    satisfied: Float64  # [pair] expected number of clicks that satisfied, of those that left another ad to click
    doubt: Float64  # [pair] … and its variance, under ρ
    eye_pulled: Float64  # [kind, last, position]
    eye_chosen: Float64
    out_pulled: Float64  # [kind, clicks so far]
    out_chosen: Float64
    query_pulled: Float64  # [query] or [1]
    query_chosen: Float64
    kind_chosen: Float64  # [query or 1, kind]
    taste_chosen: Float64  # [pair, kind] or [1, 1]
    asked: Float64  # [pair, kind] expected number of clicks that left another ad to click, if kinds differ in being satisfied; or [1, 1]
    ease_chosen: Float64  # [kind] expected number of clicks that satisfied
    ease_pulled: Float64  # [kind] … and that would be expected to, whatever happened then; 0 if kinds do not differ in it
    known: Float64  # what is told of the pairs, where asked for: the columns of `Evidence`


class Evidence(NamedTuple):
    """What sessions tell of each pair: information on log θ, of each kind if tastes differ, by what it was compared with."""

    end: Float64  # [pair, kind or 1] choices between it and the end
    ads: Float64  # [pair, kind or 1] choices between it and other ads


class Memory(NamedTuple):
    """What earlier sessions said, as it is kept: of each weight how often it was chosen, and its exposure (the pull of a unit of it)."""

    chosen: Float64  # [pair]
    exposure: Float64  # [pair]
    followed: (
        Float64  # [pair] clicks that left another ad to click, each as many as it is worth if ς = 1
    )
    satisfied: Float64  # [pair] of these, the expected number that satisfied
    doubt: Float64  # [pair] … and its variance, with what such clicks would tell too much
    eye_chosen: Float64  # [kind, last, position]
    eye_exposure: Float64
    out_chosen: Float64  # [kind, clicks so far]
    out_exposure: Float64
    query_chosen: Float64  # [query] or [1]
    query_exposure: Float64
    kind_chosen: Float64  # [query or 1, kind]
    taste_chosen: Float64  # [pair, kind] or [1, 1]
    taste_exposure: Float64
    spot_chosen: Float64  # [spot] or [0]
    spot_exposure: Float64
    ease_chosen: Float64  # [kind]
    ease_exposure: Float64
    asked: Float64  # [kind] clicks that left another ad to click
    told: Evidence
