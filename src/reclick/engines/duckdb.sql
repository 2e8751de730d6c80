-- Counts and grouped sessions in SQL. The view `session` is the log: session (its number in the
-- log), query, ads, clicks (positions from 1, each once), weight, outcomes (of each click, 0 if it
-- is unknown; null if the log has none). Tables are sorted, so that the rowid of a query, an ad, a
-- click sequence or a pair is its code in the canonical order. Each statement does only one of
-- joining, grouping and sorting, so it needs little memory before it spills.

-- name: query
CREATE TABLE query AS
SELECT query AS text FROM session WHERE weight > 0 GROUP BY query ORDER BY query;

-- name: ad
CREATE TABLE ad AS
SELECT text FROM (SELECT unnest(ads) AS text FROM session WHERE weight > 0)
GROUP BY text ORDER BY text;

-- name: sequence
CREATE TABLE sequence AS
SELECT clicks FROM session WHERE weight > 0 GROUP BY clicks ORDER BY clicks;

-- name: length
CREATE TABLE length AS
SELECT len(ads) AS ads, len(clicks) AS clicks, sum(weight) AS sessions
FROM session WHERE weight > 0 GROUP BY ALL;

-- name: page
CREATE TABLE page AS
SELECT session, query.rowid::INTEGER AS query, ads, clicks, weight, outcomes[:-2] AS earlier,
    coalesce(outcomes[-1], 0)::TINYINT AS outcome
FROM session JOIN query ON query.text = session.query;

-- name: visit_total
CREATE TABLE visit_total AS
SELECT query, clicks, sum(weight) AS sessions FROM page WHERE weight > 0 GROUP BY query, clicks;

-- name: visit
CREATE TABLE visit AS
SELECT query, sequence.rowid::INTEGER AS sequence, sessions
FROM visit_total JOIN sequence USING (clicks) ORDER BY query, sequence.rowid;
DROP TABLE visit_total;

-- name: pair_outcome
CREATE TABLE pair_outcome AS
WITH last AS (
    SELECT query, ads[clicks[-1]] AS text, outcome, sum(weight) AS weight
    FROM page WHERE weight > 0 AND outcome > 0 GROUP BY ALL
)
SELECT query, ad.rowid::INTEGER AS ad, outcome, weight FROM last JOIN ad USING (text);

-- name: visit_outcome
CREATE TABLE visit_outcome AS
WITH last AS (
    SELECT query, clicks, outcome, sum(weight) AS weight
    FROM page WHERE weight > 0 AND outcome > 0 GROUP BY ALL
)
SELECT query, sequence.rowid::INTEGER AS sequence, outcome, weight
FROM last JOIN sequence USING (clicks);

-- name: earlier_outcome
CREATE TABLE earlier_outcome AS
SELECT outcome, sum(weight) AS weight FROM (SELECT unnest(earlier) AS outcome, weight FROM page)
WHERE outcome > 0 GROUP BY outcome;

-- name: impression
CREATE TABLE impression AS
WITH each AS (
    SELECT query, unnest(ads) AS text, unnest(range(1, len(ads) + 1)) AS position, clicks, weight
    FROM page WHERE weight > 0
), coded AS (
    SELECT query, ad.rowid::INTEGER AS ad, position, clicks, weight FROM each JOIN ad USING (text)
)
SELECT query, ad, weight,
    if(list_contains(clicks, position), weight, 0) AS clicks,
    if(clicks[-1] = position, weight, 0) AS last_clicks
FROM coded;

-- name: pair_total
CREATE TABLE pair_total AS
SELECT query, ad, sum(weight) AS impressions, sum(clicks) AS clicks,
    coalesce(sum(last_clicks), 0) AS last_clicks
FROM impression GROUP BY query, ad;
DROP TABLE impression;

-- name: pair
CREATE TABLE pair AS FROM pair_total ORDER BY query, ad;
DROP TABLE pair_total;

-- name: distinct_total
CREATE TABLE distinct_total AS
SELECT query, ads, clicks, outcome, sum(weight) AS weight, min(session) AS first
FROM page GROUP BY query, ads, clicks, outcome HAVING sum(weight) > 0;
DROP TABLE page;

-- name: distinct_session
CREATE TABLE distinct_session AS FROM distinct_total ORDER BY query, first;
DROP TABLE distinct_total;

-- name: session_impression
CREATE TABLE session_impression AS
WITH each AS (
    SELECT rowid AS session, query, unnest(ads) AS text, unnest(range(len(ads))) AS position
    FROM distinct_session
)
SELECT session, position, query, ad.rowid::INTEGER AS ad FROM each JOIN ad USING (text);

-- name: session_pair_unordered
CREATE TABLE session_pair_unordered AS
SELECT session, position, pair.rowid::INTEGER AS pair
FROM session_impression JOIN pair USING (query, ad);
DROP TABLE session_impression;

-- name: session_pair
CREATE TABLE session_pair AS
SELECT pair FROM session_pair_unordered ORDER BY session, position;
DROP TABLE session_pair_unordered;
