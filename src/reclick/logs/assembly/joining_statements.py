"""The SQL that joins one bucket of pages, ads shown and clicks. A row's `place` is a number: its file, and its number in it."""

from __future__ import annotations

# A page is a record of its own, the first that has ads; or the ads shown one by one, in the order of their positions. An ad shown again at its
# position counts once.
FIRST_PAGES = """
CREATE OR REPLACE TEMP TABLE page AS
WITH kept AS (
    SELECT coalesce(min(place) FILTER (len(ads) > 0), min(place)) AS place, count(*) AS times FROM pages GROUP BY key
), whole AS (
    SELECT p.*, kept.times FROM pages p JOIN kept ON p.place = kept.place
), needed AS (
    SELECT * FROM shown s WHERE NOT EXISTS (SELECT 1 FROM whole w WHERE w.key = s.key AND len(w.ads) > 0)
), once AS (
    SELECT key, ad, position, min(place) AS place, arg_min(query, place) AS query, min("time") AS "time", arg_min("user", place) AS "user",
        count(*) AS times
    FROM needed GROUP BY key, ad, position
), built AS (
    SELECT key, arg_min(query, place) AS query, list(ad ORDER BY position, place) AS ads, list(position ORDER BY position, place) AS positions,
        min("time") AS "time", arg_min("user", place) AS "user", min(place) AS place, sum(times - 1) AS again,
        count(position) > count(DISTINCT position) AS mixed
    FROM once GROUP BY key
)
SELECT key, coalesce(nullif(w.query, ''), nullif(b.query, '')) AS query, coalesce(b.ads, w.ads) AS ads, b.positions,
    coalesce(w."time", b."time") AS "time", coalesce(w."user", b."user") AS "user", coalesce(w.place, b.place) AS place,
    coalesce(w.times - 1, 0) AS again, coalesce(b.again, 0) AS shown_again, coalesce(b.mixed, false) AS mixed
FROM whole w FULL JOIN built b USING (key)
"""

# A click names its ad, its position, or both. The ad decides; the position tells where, when the ad stands there or no ad is named. A click
# recorded twice, at the very same time, is one click.
PLACED_CLICKS = """
CREATE OR REPLACE TEMP TABLE placed AS
WITH once AS (
    SELECT key, ad, position, "time", min(place) AS place, count(*) AS times FROM clicks
    GROUP BY key, ad, position, "time", CASE WHEN "time" IS NULL THEN place END
), named AS (
    SELECT c.*, p.key IS NOT NULL AS known, p.ads, p.positions IS NULL AS whole,
        CASE WHEN p.positions IS NULL THEN c.position - $first + 1 ELSE list_position(p.positions, c.position) END AS slot
    FROM once c LEFT JOIN page p ON c.key = p.key
)
SELECT key, ad, position, "time", place, times, known, whole,
    CASE WHEN ad IS NULL THEN CASE WHEN slot BETWEEN 1 AND len(ads) THEN slot END
        WHEN slot BETWEEN 1 AND len(ads) AND ads[slot] = ad THEN slot
        ELSE nullif(list_position(ads, ad), 0) END AS slot
FROM named
"""

JOINED = """
WITH made AS (SELECT key, list(slot::INTEGER ORDER BY "time" NULLS LAST, place) AS clicks FROM placed WHERE slot IS NOT NULL GROUP BY key)
SELECT p.key AS session_id, p."user", p."time", p.query, p.ads, coalesce(m.clicks, []::INTEGER[]) AS clicks
FROM page p LEFT JOIN made m ON p.key = m.key WHERE len(p.ads) > 0 AND p.query IS NOT NULL AND NOT p.mixed ORDER BY p.place
"""

LOST_CLICKS = "SELECT place, key, ad, position, count(*) OVER () AS many FROM placed WHERE slot IS NULL AND known = $known ORDER BY place LIMIT 3"
NO_ADS = "SELECT place, key, count(*) OVER () AS many FROM page WHERE ads IS NULL OR len(ads) = 0 ORDER BY place LIMIT 3"
TWO_PAGES = (
    "SELECT place, key, count(*) OVER () AS many FROM page WHERE mixed ORDER BY place LIMIT 3"
)
NO_QUERY = "SELECT place, key, count(*) OVER () AS many FROM page WHERE query IS NULL AND len(ads) > 0 ORDER BY place LIMIT 3"
AGAIN = "SELECT sum(again)::BIGINT, sum(shown_again)::BIGINT, (SELECT sum(times - 1)::BIGINT FROM placed) FROM page"

# Clicks whose position is not where their ad stands: the position counts from the other number, or has nothing to do with the page.
ASTRAY = """
SELECT count(*) FILTER (slot = position + $first), count(*) FILTER (slot <> position + $first)
FROM placed WHERE whole AND ad IS NOT NULL AND slot IS NOT NULL AND position IS NOT NULL AND slot <> position - $first + 1
"""

# What tells whether positions count from 0 or from 1: where the ads stand on their pages, and a position 0 of no ad.
FIRST_POSITION = """
SELECT count(*) FILTER (p.ads[c.position + 1] = c.ad OR (c.position = 0 AND c.ad IS NULL)), count(*) FILTER (p.ads[c.position] = c.ad)
FROM (SELECT key, ad, position FROM clicks UNION ALL SELECT key, ad, position FROM shown) c JOIN pages p ON p.key = c.key WHERE c.position >= 0
"""
