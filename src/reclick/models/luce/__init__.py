"""The parts of LuceClick, and the order in which to read them.

The docstring of `LuceClick` has the model. The appeal of a cell (a pair at a position) is θ of the
pair, times a factor of its class by impressions, times effects of the position for the query and
for the pair. Each weight is a product of factors with Gamma priors, which shrink the factors of
rare pairs and queries to what they share with others. θ is shrunk to what its ad does on other
queries. The component of a user, and whether a session ended by satisfaction or by choice, are not
observed: EM infers both. A later fit needs the past of these sessions: sums of their statistics.

1. reclick.fitting.factors: weights as products of factors, and the step that raises the
objective. 2. reclick.fitting.rates: ρ, and its variance. 3. parameters: all tables, their rows, and
their initial values. 4. e_step: one pass over the sessions. 5. fit: a pilot with one prior mean for
all pairs, whose clicks and exposure give the prior of each θ; then the final fit, and the state
that answers and updates need. 6. search: strengths and the number of components, chosen on held-out
sessions. Then reclick.models.luceclick: settings and answers.
"""
