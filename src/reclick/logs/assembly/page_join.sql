-- Join one partition of pages, ads shown and clicks. The `origin` of a row is one number: its file,
-- and its row number in that file.

-- name: first_pages
-- A page is a record of its own; of several, the first of those with ads that hold the most clicked
-- ads. Or it is the ads shown one by one, in the order of their positions. An ad shown again at its
-- position counts once.
CREATE OR REPLACE TEMP TABLE page AS
WITH first_record AS (
    SELECT
        key, coalesce(min(origin) FILTER (len(ads) > 0), min(origin)) AS origin, count(*) AS times
    FROM pages
    GROUP BY key
), clicked AS (
    SELECT p.key, p.origin, count(*) AS clicks
    FROM pages p
        JOIN first_record f ON p.key = f.key AND f.times > 1
        JOIN (SELECT DISTINCT key, ad FROM clicks) c ON p.key = c.key
    WHERE list_contains(p.ads, c.ad)
    GROUP BY p.key, p.origin
), best_record AS (
    SELECT key, arg_min(origin, (-clicks, origin)) AS origin FROM clicked GROUP BY key
), whole AS (
    SELECT p.*, f.times, p.origin <> f.origin AS is_later
    FROM first_record f
        LEFT JOIN best_record b ON f.key = b.key
        JOIN pages p ON p.origin = coalesce(b.origin, f.origin)
), needed AS (
    SELECT *
    FROM shown s
    WHERE NOT EXISTS (SELECT 1 FROM whole w WHERE w.key = s.key AND len(w.ads) > 0)
), once AS (
    SELECT
        key, ad, position, min(origin) AS origin, arg_min(query, origin) AS query,
        min("time") AS "time", arg_min("user", origin) AS "user", count(*) AS times
    FROM needed
    GROUP BY key, ad, position
), built AS (
    SELECT
        key, arg_min(query, origin) AS query, list(ad ORDER BY position, origin) AS ads,
        list(position ORDER BY position, origin) AS positions, min("time") AS "time",
        arg_min("user", origin) AS "user", min(origin) AS origin, sum(times - 1) AS repeats,
        count(position) > count(DISTINCT position) AS mixed
    FROM once
    GROUP BY key
)
SELECT
    key,
    coalesce(nullif(w.query, ''), nullif(b.query, '')) AS query,
    coalesce(b.ads, w.ads) AS ads,
    b.positions,
    coalesce(w."time", b."time") AS "time",
    coalesce(w."user", b."user") AS "user",
    coalesce(w.origin, b.origin) AS origin,
    coalesce(w.times - 1, 0) AS page_repeats,
    coalesce(w.is_later, false) AS is_later,
    coalesce(b.repeats, 0) AS shown_repeats,
    coalesce(b.mixed, false) AS mixed
FROM whole w FULL JOIN built b USING (key);

-- name: clicks_on_pages
-- A click has an ad, a position, or both. The ad decides; the position matters when the ad stands
-- there or there is no ad. Clicks recorded at the same time are one click.
CREATE OR REPLACE TEMP TABLE page_click AS
WITH once AS (
    SELECT
        key, ad, position, "time", min(origin) AS origin, count(*) AS times,
        max(dwell_seconds) AS dwell_seconds, max(conversions) AS conversions
    FROM clicks
    GROUP BY key, ad, position, "time", CASE WHEN "time" IS NULL THEN origin END
), on_page AS (
    SELECT
        c.*, p.key IS NOT NULL AS has_page, p.ads, p.positions IS NULL AS whole,
        CASE
            WHEN p.positions IS NULL THEN c.position - $first + 1
            ELSE list_position(p.positions, c.position)
        END AS slot
    FROM once c LEFT JOIN page p ON c.key = p.key
)
SELECT
    key, ad, position, "time", origin, times, has_page, whole, dwell_seconds, conversions,
    CASE
        WHEN ad IS NULL THEN CASE WHEN slot BETWEEN 1 AND len(ads) THEN slot END
        WHEN slot BETWEEN 1 AND len(ads) AND ads[slot] = ad THEN slot
        ELSE nullif(list_position(ads, ad), 0)
    END AS slot
FROM on_page;

-- name: conversions_of_clicks
-- A conversion belongs to the last click on its ad, before it or at the same time.
CREATE OR REPLACE TEMP TABLE page_conversion AS
WITH once AS (
    SELECT DISTINCT key, ad, position, "time" FROM conversions
), on_page AS (
    SELECT
        c.key, c."time",
        CASE
            WHEN c.ad IS NOT NULL THEN nullif(list_position(p.ads, c.ad), 0)
            WHEN p.positions IS NULL THEN c.position - $first + 1
            ELSE list_position(p.positions, c.position)
        END AS slot
    FROM once c LEFT JOIN page p ON c.key = p.key
), timed AS (
    SELECT key, slot, "time", min(origin) AS origin
    FROM page_click
    WHERE slot IS NOT NULL AND "time" IS NOT NULL
    GROUP BY key, slot, "time"
)
SELECT k.origin
FROM on_page c ASOF LEFT JOIN timed k
    ON c.key = k.key AND c.slot = k.slot AND c."time" >= k."time";

-- name: sessions
WITH converted AS (
    SELECT origin, count(*)::DOUBLE AS conversions FROM page_conversion GROUP BY origin
), clicked AS (
    SELECT
        key, list(slot::INTEGER ORDER BY "time" NULLS LAST, origin) AS clicks,
        list(k.dwell_seconds ORDER BY "time" NULLS LAST, origin) AS dwell_seconds,
        list(
            coalesce(k.conversions, c.conversions, $no_conversion)
            ORDER BY "time" NULLS LAST, origin
        ) AS conversions
    FROM page_click k LEFT JOIN converted c USING (origin)
    WHERE slot IS NOT NULL
    GROUP BY key
)
SELECT
    p.key AS session_id, p."user", p."time", p.query, p.ads,
    coalesce(c.clicks, []::INTEGER[]) AS clicks,
    coalesce(c.dwell_seconds, []::DOUBLE[]) AS dwell_seconds,
    coalesce(c.conversions, []::DOUBLE[]) AS conversions
FROM page p LEFT JOIN clicked c ON p.key = c.key
WHERE len(p.ads) > 0 AND p.query IS NOT NULL AND NOT p.mixed
ORDER BY p.origin;

-- name: unplaced_clicks
SELECT origin, key, ad, position, count(*) OVER () AS total
FROM page_click
WHERE slot IS NULL AND has_page = $has_page
ORDER BY origin
LIMIT 3;

-- name: pages_without_ads
SELECT origin, key, count(*) OVER () AS total
FROM page
WHERE ads IS NULL OR len(ads) = 0
ORDER BY origin
LIMIT 3;

-- name: pages_without_query
SELECT origin, key, count(*) OVER () AS total
FROM page
WHERE query IS NULL AND len(ads) > 0
ORDER BY origin
LIMIT 3;

-- name: mixed_pages
SELECT origin, key, count(*) OVER () AS total
FROM page
WHERE mixed
ORDER BY origin
LIMIT 3;

-- name: count_other_conversions
SELECT count(*) FROM page_conversion WHERE origin IS NULL;

-- name: count_repeats
SELECT
    sum(page_repeats) FILTER (NOT is_later)::BIGINT,
    sum(page_repeats) FILTER (is_later)::BIGINT,
    sum(shown_repeats)::BIGINT,
    (SELECT sum(times - 1)::BIGINT FROM page_click)
FROM page;

-- name: count_wrong_positions
-- Clicks whose position is not where their ad stands: the position counts from the other number, or
-- is unrelated to the page.
SELECT
    count(*) FILTER (slot = position + $first),
    count(*) FILTER (slot <> position + $first)
FROM page_click
WHERE whole AND ad IS NOT NULL AND slot IS NOT NULL AND position IS NOT NULL
    AND slot <> position - $first + 1;

-- name: count_first_positions
-- Whether positions count from 0 or from 1: where the ads stand on their pages, and a position 0
-- without an ad.
SELECT
    count(*) FILTER (p.ads[c.position + 1] = c.ad OR (c.position = 0 AND c.ad IS NULL)),
    count(*) FILTER (p.ads[c.position] = c.ad)
FROM (
    SELECT key, ad, position FROM clicks UNION ALL SELECT key, ad, position FROM shown
) c JOIN pages p ON p.key = c.key
WHERE c.position >= 0;
