"""Compiled kernels that several models share."""
