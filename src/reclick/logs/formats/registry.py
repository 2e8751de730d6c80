"""The formats that are known: one file each, one line here."""

from reclick.logs.formats.base import Format
from reclick.logs.formats.clax import CLAX
from reclick.logs.formats.ga4 import GA4
from reclick.logs.formats.kddcup2012 import KDDCUP2012
from reclick.logs.formats.long import LONG
from reclick.logs.formats.metarank import METARANK
from reclick.logs.formats.snowplow import SNOWPLOW
from reclick.logs.formats.sogou import SOGOU
from reclick.logs.formats.tiangong import TIANGONG
from reclick.logs.formats.trec_session import TREC_SESSION
from reclick.logs.formats.ubi import UBI
from reclick.logs.formats.yandex_personalized import YANDEX_PERSONALIZED
from reclick.logs.formats.yandex_relevance import YANDEX_RELEVANCE

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        UBI,
        METARANK,
        GA4,
        SNOWPLOW,
        LONG,
        CLAX,
        YANDEX_RELEVANCE,
        YANDEX_PERSONALIZED,
        TIANGONG,
        SOGOU,
        TREC_SESSION,
        KDDCUP2012,
    )
}
