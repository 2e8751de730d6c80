"""The parts of LuceClick, and the order in which to read them.

The docstring of `LuceClick` has the model. The appeal of a cell (a pair at a position) is θ, times
a factor of the pair's class by impressions, times effects of the position. Each weight is a product
of factors with Gamma priors, which shrink the factors of rare pairs and queries to what they share
with others. θ is shrunk to what its ad does on other queries. Users belong to the components of a
mixture, each with its own γ and ω. The component of a user, and whether a session ended by
satisfaction or by choice, are not observed: EM infers both. An update needs only the past: sums of
the statistics of earlier sessions.

1. reclick.fitting.parameter_tables: what all kinds of parameters have, and the M-step over them. 2.
reclick.fitting.factors: weights as products of factors, and the step that raises the objective;
transitions: the factors of γ and ω. 3. reclick.fitting.rates: ρ, and its variance; mixture: mixing
weights; outcomes: conversions and quick returns. 4. parameters: all tables, their rows, and their
initial values. 5. e_step: one pass over the sessions. 6. fit: a pilot with one prior mean for all
pairs, whose clicks and exposure give the prior of each θ (reclick.fitting.attractiveness_prior);
then the final fit, and the state that answers and updates need, whose information gives intervals
(posterior). 7. search: strengths, the prior mean of ρ and the number of components, chosen on
held-out sessions. Then reclick.models.luceclick: settings and answers.
"""
