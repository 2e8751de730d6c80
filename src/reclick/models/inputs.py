"""What a model takes besides sessions: the text of ads, and the clicks so far."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.logs import SessionLog, as_log, read_ads, with_clicks
from reclick.text.tokens import AdTokens, tokenise
from reclick.text.word_rates import TextIndex


def input_text(sessions: object, ads: object) -> AdTokens | None:
    """The tokens of an ads table, or of the one that the log was read with."""
    table = (
        read_ads(ads)
        if ads is not None
        else sessions.ads
        if isinstance(sessions, SessionLog)
        else None
    )
    return None if table is None else tokenise(table)


def merge_text(old: AdTokens | None, new: AdTokens | None) -> AdTokens | None:
    """The text of all ads; of an ad that both have, the newer one."""
    if old is None or new is None:
        return new or old
    return TextIndex(new).with_text(old).text


def open_pages(pages: object, clicks: Sequence[Sequence[int]] | None) -> SessionLog:
    """The pages with these clicks so far, one list per page; None keeps their own, if any."""
    log = as_log(pages, clicks_required=False)
    return log if clicks is None else with_clicks(log, clicks)
