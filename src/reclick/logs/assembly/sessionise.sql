-- Find the pages in one partition of list views, clicks and searches that name no page, and what
-- happened after the clicks.
-- Texts are numbers here, from 0; -1 is null. The `origin` of a row is one number: its file, and its
-- row number in that file. Kinds: 0 is a list view, 1 a click, 2 a search, 3 a conversion. A journey
-- is all that a user does, in one or more visits.

-- name: once
CREATE OR REPLACE TEMP TABLE once AS
SELECT
    kind, journey, visit, list, term, page, ad, position, "time", index_in_event,
    any_value("user") AS "user", min(origin) AS origin, count(*) AS times
FROM event
GROUP BY kind, journey, visit, list, term, page, ad, position, "time", index_in_event;

-- name: showings
-- The query is the term of the view, else that of the last search at the same address, else the
-- list. Views of one list and query at one time are one showing; all showings of a list for a query
-- are a series.
CREATE OR REPLACE TEMP TABLE showing AS
WITH seen AS (
    SELECT visit, list, term, page, "time", count(*) AS ads, count(position) AS with_position
    FROM once
    WHERE kind = 0
    GROUP BY visit, list, term, page, "time"
), search AS (
    SELECT visit, page, "time", arg_min(term, origin) AS term
    FROM once
    WHERE kind = 2 AND term >= 0
    GROUP BY visit, page, "time"
), with_query AS (
    SELECT
        v.*,
        if(v.term >= 0, v.term, coalesce(s.term, -1)) AS search_term,
        if(search_term >= 0, search_term, v.list) AS query
    FROM seen v
    ASOF LEFT JOIN search s ON v.visit = s.visit AND v.page = s.page AND v."time" >= s."time"
)
SELECT
    *,
    dense_rank() OVER (ORDER BY visit, list, query) AS series,
    dense_rank() OVER (ORDER BY visit, list, query, "time") AS showing,
    sum(with_position) OVER same < sum(ads) OVER same AS lacks_positions
FROM with_query
WINDOW same AS (PARTITION BY visit, list, query, "time");

-- name: slots
-- Where an ad without an index was shown, all ads of the showing are in the order of the event.
CREATE OR REPLACE TEMP TABLE slotted AS
SELECT
    s.series, s.showing, s.visit, s.list, s.query, s.search_term, s."time", o."user", o.ad,
    o.origin, o.position AS slot, false AS lacks_positions
FROM once o JOIN showing s USING (visit, list, term, page, "time")
WHERE o.kind = 0 AND NOT s.lacks_positions
UNION ALL
SELECT
    s.series, s.showing, s.visit, s.list, s.query, s.search_term, s."time", o."user", o.ad,
    o.origin, row_number() OVER (PARTITION BY s.showing ORDER BY o.origin, o.index_in_event), true
FROM once o JOIN showing s USING (visit, list, term, page, "time")
WHERE o.kind = 0 AND s.lacks_positions;

-- name: pages
-- An index that comes for the n-th time starts the n-th page of its series. Until then, showings add
-- to the page before them, as in a list that loads while the user scrolls.
CREATE OR REPLACE TEMP TABLE page AS
WITH repeated AS (
    SELECT series FROM showing GROUP BY series HAVING min(showing) < max(showing)
), counted AS (
    SELECT
        series, showing, dense_rank() OVER (PARTITION BY series, slot ORDER BY showing) AS times
    FROM slotted SEMI JOIN repeated USING (series)
), highest AS (
    SELECT series, showing, max(times) AS times FROM counted GROUP BY series, showing
), nth AS (
    SELECT showing, max(times) OVER (PARTITION BY series ORDER BY showing) AS sheet FROM highest
), sheets AS (
    SELECT DISTINCT s.visit, s.series, s.showing, s."time", coalesce(n.sheet, 1) AS sheet
    FROM showing s LEFT JOIN nth n USING (showing)
)
SELECT
    showing, visit, "time", dense_rank() OVER (PARTITION BY visit ORDER BY series, sheet) AS page
FROM sheets;

-- name: clicks
-- A click is on the last page before it that shows its ad in its list (in any list, when it names
-- none), else on the last page of the visit.
CREATE OR REPLACE TEMP TABLE clicked AS
WITH click AS (
    SELECT * FROM once WHERE kind = 1
), shown AS (
    SELECT s.visit, s.ad, s.list, s."time", p.page
    FROM slotted s SEMI JOIN click USING (visit, ad) JOIN page p USING (showing)
), listed AS (
    FROM shown UNION ALL SELECT visit, ad, -1, "time", page FROM shown WHERE list >= 0
), first AS (
    SELECT visit, ad, list, "time", min(page) AS page FROM listed GROUP BY visit, ad, list, "time"
), last AS (
    SELECT visit, "time", max(page) AS page FROM page GROUP BY visit, "time"
)
SELECT
    c.journey, c.visit, c.ad, c.position, c.list, c."time", c.origin, c.index_in_event,
    coalesce(f.page, l.page) AS page
FROM click c
ASOF LEFT JOIN first f
    ON c.visit = f.visit AND c.ad = f.ad AND c.list = f.list AND c."time" >= f."time"
ASOF LEFT JOIN last l ON c.visit = l.visit AND c."time" >= l."time";

-- name: outcomes
-- The dwell time of a click ends with the next view of its list, click in it, or search, if that
-- comes soon. A conversion belongs to the last click on its ad, before it or at the same time.
CREATE OR REPLACE TEMP TABLE outcome AS
WITH conversion AS (
    SELECT DISTINCT journey, ad, "time" FROM once WHERE kind = 3
), first_click AS (
    SELECT journey, ad, "time", min((origin, index_in_event)) AS click
    FROM clicked
    GROUP BY journey, ad, "time"
), matched AS (
    SELECT k.click
    FROM conversion c ASOF LEFT JOIN first_click k
        ON c.journey = k.journey AND c.ad = k.ad AND c."time" >= k."time"
), of_click AS (
    SELECT click, count(*)::DOUBLE AS conversions FROM matched GROUP BY click
), in_list AS (
    SELECT DISTINCT journey, list, "time" FROM once WHERE kind < 2
), search AS (
    SELECT DISTINCT journey, "time" FROM once WHERE kind = 2
), known AS (
    SELECT
        c.origin, c.index_in_event, o.conversions,
        epoch(least(i."time", s."time")) - epoch(c."time") AS seconds
    FROM clicked c
        ASOF LEFT JOIN in_list i
            ON c.journey = i.journey AND c.list = i.list AND c."time" < i."time"
        ASOF LEFT JOIN search s ON c.journey = s.journey AND c."time" < s."time"
        LEFT JOIN of_click o ON (c.origin, c.index_in_event) = o.click
)
SELECT
    origin, index_in_event, conversions,
    CASE WHEN seconds <= $longest THEN seconds END AS dwell_seconds
FROM known
UNION ALL
SELECT NULL, NULL, conversions, NULL FROM of_click WHERE click IS NULL;

-- name: select_shown
SELECT s.visit, p.page, s.query, s.ad, s.slot AS position, s."time", s."user", s.origin
FROM slotted s JOIN page p USING (showing)
WHERE s.query >= 0;

-- name: select_clicks
WITH nameless AS (
    SELECT p.visit, p.page FROM showing s JOIN page p USING (showing) WHERE s.query < 0
)
SELECT visit, page, ad, position, "time", origin, dwell_seconds, conversions
FROM clicked ANTI JOIN nameless USING (visit, page) JOIN outcome USING (origin, index_in_event)
ORDER BY origin, index_in_event;

-- name: count_repeats
SELECT sum(times - 1)::BIGINT FROM once;

-- name: count_without_term
SELECT count(*) FROM slotted WHERE search_term < 0 AND query >= 0;

-- name: count_without_query
SELECT count(*) FROM slotted WHERE query < 0;

-- name: count_clicks_without_query
SELECT count(*)
FROM clicked SEMI JOIN (
    SELECT p.visit, p.page FROM showing s JOIN page p USING (showing) WHERE s.query < 0
) USING (visit, page);

-- name: count_other_conversions
SELECT coalesce(sum(conversions), 0)::BIGINT FROM outcome WHERE origin IS NULL;

-- name: count_without_index
SELECT count(*) FROM slotted WHERE lacks_positions;
