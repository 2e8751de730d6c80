"""Sections of the report: each is a function of the report data, or None without content."""
