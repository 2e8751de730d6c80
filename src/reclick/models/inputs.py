"""What a caller may give a model beside sessions: the text of ads, also newer text, and the clicks so far."""

from __future__ import annotations

from collections.abc import Sequence

from reclick.logs import SessionLog, as_log, read_ads, replace_clicks
from reclick.text.tokens import AdTokens, tokenise
from reclick.text.word_rates import TextIndex


def text_given(sessions: object, ads: object) -> AdTokens | None:
    """The text of an ads table, or of the one the log was read with."""
    table = (
        read_ads(ads)
        if ads is not None
        else sessions.ads
        if isinstance(sessions, SessionLog)
        else None
    )
    return None if table is None else tokenise(table)


def newer_text(old: AdTokens | None, new: AdTokens | None) -> AdTokens | None:
    """The text of all ads; where both have an ad, the newer text of it."""
    if old is None or new is None:
        return new or old
    return TextIndex(new).with_text(old).text


def with_clicks(pages: object, clicks: Sequence[Sequence[int]] | None) -> SessionLog:
    """The pages with these clicks so far, one list a page; with their own when None, and none where they have no clicks column."""
    log = as_log(pages, clicks_required=False)
    return log if clicks is None else replace_clicks(log, clicks)
