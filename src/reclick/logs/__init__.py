"""Reading: sessions, ads and labels from files and tables, with every bad row found, counted and told."""

from reclick.logs.given import as_log, as_pairs, replace_clicks
from reclick.logs.sessions import SessionLog, read_sessions
from reclick.logs.summary import Example, ReadSummary
from reclick.logs.texts import read_ads, read_labels

__all__ = ["Example", "ReadSummary", "SessionLog", "as_log", "as_pairs", "read_ads", "read_labels", "read_sessions", "replace_clicks"]
