"""The SQL of cleaning a whole log: bots by what a user does in any 60 minutes, and pages that were seen again."""

from __future__ import annotations

TABLES = """
CREATE TABLE page ("row" BIGINT, "user" VARCHAR, ms BIGINT, weight DOUBLE, clicks INTEGER, look UBIGINT, text UBIGINT);
CREATE TABLE suspect ("user" VARCHAR, sure BOOLEAN);
CREATE TABLE bot ("user" VARCHAR);
CREATE TABLE bot_row ("row" BIGINT);
CREATE TABLE chained ("row" BIGINT, opener BIGINT);
CREATE TABLE again ("row" BIGINT, opener BIGINT);
CREATE TABLE moved ("row" BIGINT, ms BIGINT, clicks INTEGER[]);
CREATE TABLE more ("row" BIGINT, clicks INTEGER[], many BIGINT);
"""

# What a page is, in two hashes: of its values, and of the same written as text. Pages are one page seen again when all 128 bits are the same.
ADD_PAGES = """
INSERT INTO page
SELECT "row", "user", ms, weight, coalesce(len(clicks), 0), hash("user", query, ads[:$first], weight),
    CASE WHEN query <> '' AND len(ads) > 0 THEN hash('~' || "user", '~' || query, '~' || array_to_string(ads[:$first], chr(31))) END
FROM given
"""

# Any 60 minutes lie in two clock hours that follow each other. Who is over a limit in one clock hour is a bot. Who is over it only in two together
# is looked at page by page; there are few such pages, since each hour has no more than the limit.
FIND_SUSPECTS = """
INSERT INTO suspect
WITH busy AS (
    SELECT "user" FROM page GROUP BY "user" HAVING sum(weight) > $pages OR sum(weight * clicks) > $clicks
), hours AS (
    SELECT "user", ms // 3600000 AS hour, sum(weight) AS pages, sum(weight * clicks) AS clicks FROM page SEMI JOIN busy USING ("user") GROUP BY ALL
)
SELECT a."user", max(a.pages) > $pages OR max(a.clicks) > $clicks
FROM hours a LEFT JOIN hours b ON a."user" = b."user" AND a.hour + 1 = b.hour GROUP BY a."user"
HAVING max(a.pages + coalesce(b.pages, 0)) > $pages OR max(a.clicks + coalesce(b.clicks, 0)) > $clicks
"""
FIND_BOTS = """
INSERT INTO bot
WITH doing AS (
    SELECT "user", sum(weight) OVER hour AS pages, sum(weight * clicks) OVER hour AS clicks
    FROM page SEMI JOIN (FROM suspect WHERE NOT sure) USING ("user")
    WINDOW hour AS (PARTITION BY "user" ORDER BY ms RANGE BETWEEN 3599999 PRECEDING AND CURRENT ROW)
)
SELECT "user" FROM suspect WHERE sure UNION SELECT "user" FROM doing WHERE pages > $pages OR clicks > $clicks
"""
FIND_BOT_ROWS = (
    'INSERT INTO bot_row SELECT "row" FROM page SEMI JOIN bot USING ("user") ORDER BY "row"'
)

# Sorted by DuckDB and read in order, rather than in a window: a user may have seen one page more often than fits in memory.
BY_LOOK = """
SELECT "row", ms, look, text FROM page ANTI JOIN bot USING ("user") WHERE text IS NOT NULL ORDER BY look, text, ms, "row"
"""
ADD_CHAINED = 'INSERT INTO chained SELECT "row", opener FROM given'
ADD_AGAIN = 'INSERT INTO again FROM chained ORDER BY "row"'
ADD_MOVED = 'INSERT INTO moved SELECT "row", ms, clicks FROM given WHERE len(clicks) > 0'
# A position once, at its first click: no list is longer than a page, however long the chain.
ADD_MORE = """
INSERT INTO more
WITH each AS (
    SELECT opener, unnest(clicks) AS position, (((ms::HUGEINT << 40) + "row") << 20) + generate_subscripts(clicks, 1) AS place
    FROM moved JOIN again USING ("row")
), once AS (
    SELECT opener, position, min(place) AS place, count(*) AS many FROM each GROUP BY opener, position
)
SELECT opener, list(position ORDER BY place), sum(many) FROM once GROUP BY opener ORDER BY opener
"""
