"""Sections of the report: functions of the report data that return None without content."""
