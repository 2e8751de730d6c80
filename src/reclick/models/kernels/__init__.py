"""Fits and kernels that several models share."""
