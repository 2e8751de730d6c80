"""Reading logs: sessions, ads and labels from files and tables of any format.

Every bad row is counted by its reason, with examples.
"""

from reclick.logs.cleaning import Cleaning
from reclick.logs.read import as_log, convert, read_sessions, with_clicks, with_text
from reclick.logs.read_summary import BadRow, ReadSummary
from reclick.logs.session_log import SessionLog
from reclick.logs.side_tables import (
    as_pairs,
    read_ads,
    read_bids,
    read_candidates,
    read_labels,
)

__all__ = [
    "BadRow",
    "Cleaning",
    "ReadSummary",
    "SessionLog",
    "as_log",
    "as_pairs",
    "convert",
    "read_ads",
    "read_bids",
    "read_candidates",
    "read_labels",
    "read_sessions",
    "with_clicks",
    "with_text",
]
