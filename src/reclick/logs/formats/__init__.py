"""Other formats of click logs: one module each, and their registry.

To add a format, write a module that ends with a `LogFormat` called FORMAT, and add a line below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from reclick.errors import SettingError

if TYPE_CHECKING:
    from reclick.logs.files.log_file import LogFile
    from reclick.logs.formats.base import LogFormat

# A format's name -> its module, which is imported when it is needed
FORMATS = {
    "ubi": "reclick.logs.formats.ubi",
    "metarank": "reclick.logs.formats.metarank",
    "ga4": "reclick.logs.formats.ga4",
    "snowplow": "reclick.logs.formats.snowplow",
    "long": "reclick.logs.formats.long",
    "clax": "reclick.logs.formats.clax",
    "yandex_relevance": "reclick.logs.formats.yandex_relevance",
    "yandex_personalized": "reclick.logs.formats.yandex_personalized",
    "tiangong": "reclick.logs.formats.tiangong",
    "sogou": "reclick.logs.formats.sogou",
    "trec_session": "reclick.logs.formats.trec_session",
    "kddcup2012": "reclick.logs.formats.kddcup2012",
}


def get_format(name: str) -> LogFormat:
    """A format by its name.

    >>> get_format("ubbi")
    Traceback (most recent call last):
    reclick.errors.SettingError: format: got 'ubbi', expected one of sessions, ubi, ...
    """
    key = name.lower()
    if key not in FORMATS:
        raise SettingError("format", name, f"one of {', '.join(['sessions', *FORMATS])}")
    log_format: LogFormat = import_module(FORMATS[key]).FORMAT
    return log_format


def list_formats() -> list[LogFormat]:
    """All formats."""
    return [get_format(name) for name in FORMATS]


def recognise_format(files: list[LogFile]) -> LogFormat | None:
    """The only format that recognises these files; None if there is none, or more than one."""
    matches = [each for each in list_formats() if each.recognises(files)]
    return matches[0] if len(matches) == 1 else None
