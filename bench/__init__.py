"""Benchmarks of speed, memory and accuracy; each prints a table with its limits."""
