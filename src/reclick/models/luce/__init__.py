"""LuceClick in short, and the order in which to read its files.

A user of component t (mixing weight π_qt) on a page of query q has clicked k times, the last time
at position l (0: no click yet). With probability ρ of its pair, the last click satisfied the user,
and the session ends. Otherwise the user chooses by Luce's rule among the free positions j, of
weight a_j γ_t(l, j), and the outside option, of weight ω_t(k) f_q, which ends the session. The
appeal a_j of a cell (a pair at a position) is θ of the pair, times a factor of its class by
impressions, times effects of the position for the query and for the pair. Each weight is a product
of factors with Gamma priors, which shrink the factors of rare pairs and queries to what they share
with others. θ is shrunk to what its ad does on other queries. The component, and whether a session
ended by satisfaction or by choice, are not observed: EM infers both. A later fit needs the past of
these sessions: sums of their statistics. Only ratios of weights matter, so `theta_` has its own
scale: P(click) = θ / (1 + θ) for an ad alone on a page.

1. reclick.fitting.factors: weights as products of factors, and the step that raises the
objective. 2. reclick.fitting.rates: ρ, and its variance. 3. parameters: all tables, their rows, and
their initial values. 4. e_step: one pass over the sessions. 5. fit: a pilot with one prior mean for
all pairs, whose clicks and exposure give the prior of each θ; then the final fit, and the state
that answers and updates need. 6. search: strengths and the number of components, chosen on held-out
sessions. Then reclick.models.luceclick: settings and answers.
"""
