"""LuceClick in ten lines, and the order in which to read it.

A user of component t (mixing weight π_qt) on a page of query q has clicked k times, last at
position l (0: not yet). The last click satisfied with ρ of its pair: the session ends. Otherwise
the user chooses by Luce's rule among the free positions j, of weight a_j γ_t(l, j), and the
outside option, of weight ω_t(k) f_q, which ends the session. The appeal a_j of a cell, a pair at
a position, is θ of the pair, times a factor of its class by impressions, times effects of the
position for the query and for the pair. Each weight is a product of factors with Gamma priors,
which draw the seldom seen to what it shares with others; θ is drawn to what its ad does on other
queries. Hidden are the component, and whether an end was satisfaction or a choice: EM infers
both. What a later fit needs of these sessions is a past: sums of its statistics. Only ratios of
weights matter, so `theta_` has a scale of its own: P(click) = θ / (1 + θ) for an ad alone on a
page.

1. reclick.fitting.factors: weights as products of factors, and the step that raises the
objective. 2. reclick.fitting.rates: ρ, and how well it is known. 3. parameters: all tables, their
rows, and where they start. 4. e_step: one pass over sessions. 5. fit: a pilot with one prior mean
for all pairs, whose clicks and exposure give the prior of each θ; then the fit itself, and what it
leaves for answers and updates. 6. search: which strengths, and how many components, held-out
sessions ask for. Then reclick.models.luceclick: settings and answers.
"""
