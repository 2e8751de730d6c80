"""The parts of LuceClick, whose model class is in reclick.models.luceclick.

In reading order:
- parameters: hyperparameters, parameters, and the tables that they make up
- satisfaction: ρ as a distribution, and the uncertain outside option of a query
- e_step: blocks of sessions, and the kernel that sums up expected and observed choices
- m_step: the objective, and the step that raises it in closed form
- initial_values: where a fit starts
- grid: the two stages of a fit, and the search for hyperparameters
- incremental: past statistics, for updates
- posterior: how certain the estimates are
"""
