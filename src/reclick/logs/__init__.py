"""Reading: sessions, ads and labels from files and tables of any format, with every bad row found, counted and told."""

from reclick.logs.cleaning import Cleaning
from reclick.logs.from_events import sessions_from_events
from reclick.logs.given import as_log, as_pairs, replace_clicks
from reclick.logs.reading import convert, read_sessions
from reclick.logs.sessions import SessionLog
from reclick.logs.summary import Example, ReadSummary
from reclick.logs.texts import read_ads, read_labels

__all__ = [
    "Cleaning",
    "Example",
    "ReadSummary",
    "SessionLog",
    "as_log",
    "as_pairs",
    "convert",
    "read_ads",
    "read_labels",
    "read_sessions",
    "replace_clicks",
    "sessions_from_events",
]
