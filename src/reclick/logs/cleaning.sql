-- Clean a whole log: bots by what a user does in any 60 minutes, and reloads of a page.
-- DuckDB holds one narrow row per session; `batch` is what Python registers.

-- name: create_tables
CREATE TABLE page (
    "row" BIGINT, "user" VARCHAR, ms BIGINT, weight DOUBLE, clicks INTEGER, page_hash UBIGINT,
    text_hash UBIGINT
);
CREATE TABLE suspect ("user" VARCHAR, certain BOOLEAN);
CREATE TABLE bot ("user" VARCHAR);
CREATE TABLE bot_row ("row" BIGINT);
CREATE TABLE unsorted_reload ("row" BIGINT, opener BIGINT);
CREATE TABLE reload ("row" BIGINT, opener BIGINT);
CREATE TABLE reload_click (
    "row" BIGINT, ms BIGINT, clicks INTEGER[], dwell_seconds DOUBLE[], conversions DOUBLE[]
);
CREATE TABLE moved_click (
    "row" BIGINT, clicks INTEGER[], total BIGINT, dwell_seconds DOUBLE[], conversions DOUBLE[]
);

-- name: add_pages
-- The identity of a page as two hashes: of its values, and of its values as text. Pages are equal if
-- all 128 bits are equal.
INSERT INTO page
SELECT
    "row", "user", ms, weight, coalesce(len(clicks), 0),
    hash("user", query, ads[:$first], weight),
    CASE WHEN query <> '' AND len(ads) > 0 THEN
        hash('~' || "user", '~' || query, '~' || array_to_string(ads[:$first], chr(31)))
    END
FROM batch;

-- name: find_suspects
-- Any 60 minutes lie in two consecutive clock hours. A user over a limit in one clock hour is a bot.
-- A user over it only in two hours together is checked page by page; there are few such pages, since
-- each hour has no more than the limit.
INSERT INTO suspect
WITH busy AS (
    SELECT "user"
    FROM page
    GROUP BY "user"
    HAVING sum(weight) > $pages OR sum(weight * clicks) > $clicks
), hours AS (
    SELECT
        "user", ms // 3600000 AS hour, sum(weight) AS pages, sum(weight * clicks) AS clicks
    FROM page SEMI JOIN busy USING ("user")
    GROUP BY ALL
)
SELECT a."user", max(a.pages) > $pages OR max(a.clicks) > $clicks
FROM hours a LEFT JOIN hours b ON a."user" = b."user" AND a.hour + 1 = b.hour
GROUP BY a."user"
HAVING max(a.pages + coalesce(b.pages, 0)) > $pages
    OR max(a.clicks + coalesce(b.clicks, 0)) > $clicks;

-- name: find_bots
INSERT INTO bot
WITH activity AS (
    SELECT
        "user", sum(weight) OVER hour AS pages, sum(weight * clicks) OVER hour AS clicks
    FROM page SEMI JOIN (FROM suspect WHERE NOT certain) USING ("user")
    WINDOW hour AS (
        PARTITION BY "user" ORDER BY ms RANGE BETWEEN 3599999 PRECEDING AND CURRENT ROW
    )
)
SELECT "user" FROM suspect WHERE certain
UNION
SELECT "user" FROM activity WHERE pages > $pages OR clicks > $clicks;

-- name: find_bot_rows
INSERT INTO bot_row
SELECT "row" FROM page SEMI JOIN bot USING ("user") ORDER BY "row";

-- name: select_pages_by_hash
-- Sorted by DuckDB and read in order, not with a window function: the rows of a page that one user
-- loads very often may not fit in memory.
SELECT "row", ms, page_hash, text_hash
FROM page ANTI JOIN bot USING ("user")
WHERE text_hash IS NOT NULL
ORDER BY page_hash, text_hash, ms, "row";

-- name: add_unsorted_reloads
INSERT INTO unsorted_reload SELECT "row", opener FROM batch;

-- name: sort_reloads
INSERT INTO reload FROM unsorted_reload ORDER BY "row";

-- name: add_reload_clicks
INSERT INTO reload_click
SELECT "row", ms, clicks, dwell_seconds, conversions FROM batch WHERE len(clicks) > 0;

-- name: move_clicks
-- A position counts once, at its first click: no list is longer than a page, however long the chain
-- of reloads. The longest dwell time counts, and all conversions.
INSERT INTO moved_click
WITH single AS (
    SELECT
        opener, unnest(clicks) AS position, unnest(dwell_seconds) AS dwell_seconds,
        unnest(conversions) AS conversions,
        (((ms::HUGEINT << 40) + "row") << 20) + generate_subscripts(clicks, 1) AS click_order
    FROM reload_click JOIN reload USING ("row")
), once AS (
    SELECT
        opener, position, min(click_order) AS click_order, count(*) AS total,
        max(dwell_seconds) AS dwell_seconds, sum(conversions) AS conversions
    FROM single
    GROUP BY opener, position
)
SELECT
    opener, list(position ORDER BY click_order), sum(total),
    list(dwell_seconds ORDER BY click_order), list(conversions ORDER BY click_order)
FROM once
GROUP BY opener
ORDER BY opener;

-- name: select_moved_clicks
SELECT "row" - $start AS "row", clicks, total, dwell_seconds, conversions
FROM moved_click
WHERE "row" BETWEEN $start AND $last;

-- name: count_pages
SELECT count(*) FROM page;

-- name: count_bots
SELECT count(*) FROM bot;

-- name: count_bot_rows
SELECT count(*) FROM bot_row;

-- name: count_reloads
SELECT count(*) FROM reload;

-- name: count_moved_clicks
SELECT coalesce(sum(total), 0) FROM moved_click;

-- name: select_bot_rows
SELECT "row" - $start AS "row" FROM bot_row WHERE "row" BETWEEN $start AND $last ORDER BY "row";

-- name: select_reload_rows
SELECT "row" - $start AS "row" FROM reload WHERE "row" BETWEEN $start AND $last ORDER BY "row";
