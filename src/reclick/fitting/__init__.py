"""Fitting shared by models: EM, priors, posteriors, factors."""
