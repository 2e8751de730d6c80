"""Reading: sessions, ads and labels from files and tables of any format, with every bad row found, counted and told."""

from reclick.logs.cleaning import Cleaning
from reclick.logs.coerce import as_log, as_pairs, replace_clicks
from reclick.logs.events import sessions_from_events
from reclick.logs.read import convert, read_sessions
from reclick.logs.session_log import SessionLog
from reclick.logs.side_tables import read_ads, read_labels
from reclick.logs.summary import Example, ReadSummary

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
