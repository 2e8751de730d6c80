"""Put pages together again from counted instances: the clicks and impressions of one ad at one position for one user and query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from reclick.logs.assembly.dealt import Dealt
from reclick.logs.formats.base import WEIGHTED, Found
from reclick.logs.formats.helpers.padded_arrays import NO_ORDER

INSTANCES = pa.schema(
    [
        (name, pa.int64())
        for name in (
            "key",
            "click",
            "impression",
            "ad",
            "depth",
            "position",
            "query",
            "user",
            "place",
        )
    ]
)

MISSING = "row of a page with positions missing, set aside"
UNEQUAL = "row of a page whose positions were shown unequally often, set aside"
MIXED = "row of pages that cannot be told apart, set aside"
SPREAD = "page shown more than once, its clicks spread over the showings"
NO_WORDS = "ad whose title or description has no words"

# A page of one ad stands alone; of longer pages, the instances of one user, query and depth belong together.
ONCE = """
CREATE OR REPLACE TEMP TABLE once AS
SELECT "user", query, depth, CASE WHEN depth = 1 THEN ad ELSE -1 END AS alone, position, ad, sum(click)::BIGINT AS click,
    sum(impression)::BIGINT AS impression, min(place) AS place, count(*) AS instances
FROM instance GROUP BY ALL
"""

# The pages are known when every position was shown equally often, and at most one of them (the turning one) with more than one ad.
PAGES = """
CREATE OR REPLACE TEMP TABLE page AS
WITH filled AS (
    SELECT "user", query, depth, alone, position, count(*) AS ads, sum(impression)::BIGINT AS shown, sum(click) AS clicks, min(place) AS place,
        sum(instances) AS instances
    FROM once GROUP BY "user", query, depth, alone, position
), whole AS (
    SELECT "user", query, depth, alone, min(place) AS place, count(*) AS positions, min(shown) AS least, max(shown) AS shown,
        count(*) FILTER (clicks > 0) AS clicked,
        count(*) FILTER (ads > 1) AS turns, coalesce(min(position) FILTER (ads > 1), 1) AS turning, sum(instances)::BIGINT AS instances
    FROM filled GROUP BY "user", query, depth, alone
)
SELECT *, CASE WHEN positions < depth THEN 'missing' WHEN least < shown THEN 'unequal' WHEN turns > 1 THEN 'mixed' ELSE 'known' END AS fate FROM whole
"""

# Showings of a page lie in a row. First come those with a click at the turning position, ad after ad, then those without; the clicks at the other
# positions go on where the last ones ended, and round again: so a showing gets a second click only when each has one. Between two cuts all
# showings are alike, and make one session with their number as its weight.
SESSIONS = """
WITH arc AS (
    SELECT p.place, p.shown, p.turning, o.position, o.ad, o.click, o.impression,
        (sum(o.click) OVER turn - o.click)::BIGINT AS start,
        (sum(o.impression - o.click) OVER turn - o.impression + o.click
            + sum(o.click) FILTER (o.position = p.turning) OVER (PARTITION BY p.place))::BIGINT AS rest
    FROM page p JOIN once o USING ("user", query, depth, alone) WHERE p.fate = 'known' AND p.shown > 1
    WINDOW turn AS (PARTITION BY p.place ORDER BY o.position <> p.turning, o.position, o.place ROWS UNBOUNDED PRECEDING)
), cuts AS (
    SELECT DISTINCT place, shown, unnest([0, start % shown, (start + click) % shown, if(position = turning, rest % shown, 0)]) AS cut FROM arc
), spans AS (
    SELECT place, cut, lead(cut, 1, shown) OVER (PARTITION BY place ORDER BY cut) - cut AS weight FROM cuts
), several AS (
    SELECT place, cut, any_value(weight) AS weight, list(ad ORDER BY position) AS ads, list(position ORDER BY position) FILTER (
        if(position = turning, cut >= start AND cut < start + click, ((cut - start) % shown + shown) % shown < click)
    ) AS clicks
    FROM spans JOIN arc USING (place)
    WHERE position <> turning OR (cut >= start AND cut < start + click) OR (cut >= rest AND cut < rest + impression - click)
    GROUP BY place, cut
), single AS (
    SELECT p.place, 0 AS cut, 1 AS weight, list(o.ad ORDER BY o.position) AS ads, list(o.position ORDER BY o.position) FILTER (o.click > 0) AS clicks
    FROM page p JOIN once o USING ("user", query, depth, alone) WHERE p.fate = 'known' AND p.shown = 1 GROUP BY p.place
)
SELECT NULL::VARCHAR AS session_id, nullif(p."user", 0)::VARCHAR AS "user", NULL::TIMESTAMP_MS AS "timestamp", p.query::VARCHAR AS query,
    s.ads::VARCHAR[] AS ads, coalesce(s.clicks, [])::INTEGER[] AS clicks, s.weight::DOUBLE AS weight
FROM (FROM several UNION ALL BY NAME FROM single) s JOIN page p USING (place) ORDER BY place, cut
"""

NOTES = {
    MISSING: "SELECT sum(instances)::BIGINT FROM page WHERE fate = 'missing'",
    UNEQUAL: "SELECT sum(instances)::BIGINT FROM page WHERE fate = 'unequal'",
    MIXED: "SELECT sum(instances)::BIGINT FROM page WHERE fate = 'mixed'",
    SPREAD: "SELECT count(*) FROM page WHERE fate = 'known' AND shown > 1 AND depth > 1 AND clicked + turns > 1 AND clicked > 0",
}

# Of every ad, the text of its first instance.
FIRST = """
INSERT INTO named SELECT DISTINCT ON (ad) ad, title, description, url FROM given WHERE ad NOT IN (SELECT ad FROM named) ORDER BY ad, place
"""
TEXTS = """
SELECT n.ad::VARCHAR AS ad, coalesce(t.words, '') AS title, coalesce(d.words, '') AS description, url
FROM named n LEFT JOIN words t ON t.field = 'title' AND t.id = n.title LEFT JOIN words d ON d.field = 'description' AND d.id = n.description
"""


class Instances(Dealt):
    """Instances, and the words of titles and descriptions, on disk until the pages are put together."""

    def __init__(self, folder: Path, many: int) -> None:
        """`folder` is for the buckets, which are this many."""
        super().__init__(folder, INSTANCES, many)
        self.engine.execute("CREATE TABLE words (field VARCHAR, id BIGINT, words VARCHAR)")
        self.engine.execute(
            "CREATE TABLE named (ad BIGINT, title BIGINT, description BIGINT, url VARCHAR)"
        )

    def add_words(self, table: pa.Table) -> None:
        """Add the words of titles or descriptions: field, id, words."""
        self._put("INSERT INTO words SELECT field, id, words FROM given", table)

    def name_ads(self, table: pa.Table) -> None:
        """Remember which title, description and address the ads have: ad, title, description, url, place."""
        self._put(FIRST, table)

    def sessions(self, found: Found) -> Iterator[pa.RecordBatch]:
        """The sessions whose pages are known, with their weights."""
        for bucket in self.buckets():
            self.engine.register("instance", bucket)
            self.engine.execute(ONCE)
            self.engine.execute(PAGES)
            self.tell(NOTES, found)
            for batch in self.engine.sql(SESSIONS).to_arrow_reader(50_000):
                several = pc.greater(pc.list_value_length(batch["clicks"]), 1)
                found.note(NO_ORDER, int(pc.sum(several).as_py() or 0))
                yield pa.RecordBatch.from_arrays(
                    [batch[field.name].cast(field.type) for field in WEIGHTED], schema=WEIGHTED
                )

    def tell_texts(self, found: Found) -> None:
        """Tell the text of every ad."""
        for batch in self.engine.sql(TEXTS).to_arrow_reader(50_000):
            for ad, title, description, url in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                found.text(ad, title, description, url)
                found.note(NO_WORDS, not (title and description))

    def _put(self, statement: str, given: pa.Table) -> None:
        self.engine.register("given", given)
        self.engine.execute(statement)
        self.engine.unregister("given")
