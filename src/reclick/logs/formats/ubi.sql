-- How long users stayed away after their clicks: until their next search or click, in one partition
-- of these events by user (`key`).

-- name: dwell_times
WITH moment AS (
    SELECT DISTINCT key, "time" FROM event
), following AS (
    SELECT key, "time", lead("time") OVER (PARTITION BY key ORDER BY "time") AS later FROM moment
), known AS (
    SELECT e.*, epoch(f.later) - epoch(e."time") AS seconds
    FROM event e JOIN following f USING (key, "time")
    WHERE e.page_key IS NOT NULL
)
SELECT
    page_key AS key, ad, position, "time", file, number,
    CASE WHEN seconds <= $longest THEN seconds END AS dwell_seconds
FROM known
ORDER BY file, number;
