"""The parts of LuceClick, the model in reclick.models.luceclick.

In reading order:
- parameters: the options, the parameters, and the sums of a pass
- levels: weights that are products of factors, from what is common to what is each one's own
- spots: what a position is worth to a query and to an ad of it
- satisfaction: what is believed of each ρ, a distribution, and how easily each kind of users is satisfied
- readiness: what is not known of how readily a query's users stop
- kernels: one pass over the sessions, and the steps in closed form: the compiled loops
- passes: a pass over all sessions, in blocks side by side (the E step)
- problem: sessions, priors and memory: the objective
- counted: what counting says, where a fit starts
- steps: the step that climbs it, and the leap ahead (the M step)
- climbing: the loop of steps and leaps
- choice: the two stages of a fit, and what the training log decides
- memory: what is kept of old sessions for an update
- curvature: what is known of ads that are unknown together
- beliefs: how sure the model is of what it learnt
- kinds: what is answered of pages whose users are of several kinds
- text: what the words of an ad say
"""
