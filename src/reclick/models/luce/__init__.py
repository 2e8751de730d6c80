"""LuceClick: its parameters, E-step, M-step, fits, search, posterior and state."""
