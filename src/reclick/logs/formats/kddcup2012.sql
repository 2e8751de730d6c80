-- Rebuild pages from counted instances: the clicks and impressions of one ad at one position for one
-- user and query.

-- name: create_tables
CREATE TABLE words (field VARCHAR, id BIGINT, words VARCHAR);
CREATE TABLE ad_text (ad BIGINT, title BIGINT, description BIGINT, url VARCHAR);

-- name: add_words
INSERT INTO words SELECT field, id, words FROM batch;

-- name: add_ad_texts
-- Of every ad, the text of its first instance.
INSERT INTO ad_text
SELECT DISTINCT ON (ad) ad, title, description, url
FROM batch
WHERE ad NOT IN (SELECT ad FROM ad_text)
ORDER BY ad, origin;

-- name: select_ad_texts
SELECT
    a.ad::VARCHAR AS ad, coalesce(t.words, '') AS title, coalesce(d.words, '') AS description, url
FROM ad_text a
LEFT JOIN words t ON t.field = 'title' AND t.id = a.title
LEFT JOIN words d ON d.field = 'description' AND d.id = a.description;

-- name: once
-- A page of one ad stands alone; of longer pages, the instances of one user, query and depth belong
-- together.
CREATE OR REPLACE TEMP TABLE once AS
SELECT
    "user", query, depth, CASE WHEN depth = 1 THEN ad ELSE -1 END AS alone, position, ad,
    sum(click)::BIGINT AS click, sum(impression)::BIGINT AS impression, min(origin) AS origin,
    count(*) AS instances
FROM instance
GROUP BY ALL;

-- name: pages
-- The pages are known when every position was shown equally often, and at most one of them (the
-- rotating one) with more than one ad.
CREATE OR REPLACE TEMP TABLE page AS
WITH filled AS (
    SELECT
        "user", query, depth, alone, position, count(*) AS ads, sum(impression)::BIGINT AS shown,
        sum(click) AS clicks, min(origin) AS origin, sum(instances) AS instances
    FROM once
    GROUP BY "user", query, depth, alone, position
), whole AS (
    SELECT
        "user", query, depth, alone, min(origin) AS origin, count(*) AS positions,
        min(shown) AS least_shown, max(shown) AS shown,
        count(*) FILTER (clicks > 0) AS clicked,
        count(*) FILTER (ads > 1) AS rotating_positions,
        coalesce(min(position) FILTER (ads > 1), 1) AS rotating,
        sum(instances)::BIGINT AS instances
    FROM filled
    GROUP BY "user", query, depth, alone
)
SELECT
    *,
    CASE
        WHEN positions < depth THEN 'missing'
        WHEN least_shown < shown THEN 'unequal'
        WHEN rotating_positions > 1 THEN 'mixed'
        ELSE 'known'
    END AS status
FROM whole;

-- name: sessions
-- The showings of a page lie in a row. First come those with a click at the rotating position, ad
-- after ad, then those without. The clicks at the other positions go on where the last ones ended,
-- and start again at the first showing: so a showing gets a second click only when each has one.
-- Between two cuts all showings are alike, and make one session with their number as its weight.
WITH arc AS (
    SELECT
        p.origin, p.shown, p.rotating, o.position, o.ad, o.click, o.impression,
        (sum(o.click) OVER turn - o.click)::BIGINT AS start,
        (
            sum(o.impression - o.click) OVER turn - o.impression + o.click
            + sum(o.click) FILTER (o.position = p.rotating) OVER (PARTITION BY p.origin)
        )::BIGINT AS rest
    FROM page p JOIN once o USING ("user", query, depth, alone)
    WHERE p.status = 'known' AND p.shown > 1
    WINDOW turn AS (
        PARTITION BY p.origin
        ORDER BY o.position <> p.rotating, o.position, o.origin
        ROWS UNBOUNDED PRECEDING
    )
), cuts AS (
    SELECT DISTINCT
        origin, shown,
        unnest(
            [0, start % shown, (start + click) % shown, if(position = rotating, rest % shown, 0)]
        ) AS cut
    FROM arc
), spans AS (
    SELECT origin, cut, lead(cut, 1, shown) OVER (PARTITION BY origin ORDER BY cut) - cut AS weight
    FROM cuts
), several AS (
    SELECT
        origin, cut, any_value(weight) AS weight, list(ad ORDER BY position) AS ads,
        list(position ORDER BY position) FILTER (
            if(
                position = rotating,
                cut >= start AND cut < start + click,
                ((cut - start) % shown + shown) % shown < click
            )
        ) AS clicks
    FROM spans JOIN arc USING (origin)
    WHERE position <> rotating
        OR (cut >= start AND cut < start + click)
        OR (cut >= rest AND cut < rest + impression - click)
    GROUP BY origin, cut
), single AS (
    SELECT
        p.origin, 0 AS cut, 1 AS weight, list(o.ad ORDER BY o.position) AS ads,
        list(o.position ORDER BY o.position) FILTER (o.click > 0) AS clicks
    FROM page p JOIN once o USING ("user", query, depth, alone)
    WHERE p.status = 'known' AND p.shown = 1
    GROUP BY p.origin
)
SELECT
    NULL::VARCHAR AS session_id, nullif(p."user", 0)::VARCHAR AS "user",
    NULL::TIMESTAMP_MS AS "timestamp", p.query::VARCHAR AS query, s.ads::VARCHAR[] AS ads,
    coalesce(s.clicks, [])::INTEGER[] AS clicks, s.weight::DOUBLE AS weight
FROM (FROM several UNION ALL BY NAME FROM single) s JOIN page p USING (origin)
ORDER BY origin, cut;

-- name: count_missing
SELECT sum(instances)::BIGINT FROM page WHERE status = 'missing';

-- name: count_unequal
SELECT sum(instances)::BIGINT FROM page WHERE status = 'unequal';

-- name: count_mixed
SELECT sum(instances)::BIGINT FROM page WHERE status = 'mixed';

-- name: count_spread
SELECT count(*)
FROM page
WHERE status = 'known' AND shown > 1 AND depth > 1 AND clicked + rotating_positions > 1
    AND clicked > 0;
