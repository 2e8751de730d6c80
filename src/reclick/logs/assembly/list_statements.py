"""The SQL that finds the pages in one bucket of list views, clicks and searches.

Texts are numbers here, from 0; -1 is none. A row's `origin` is a number: its file, and its number in it.
"""

from __future__ import annotations

# Kinds: 0 is a list view, 1 a click, 2 a search.
ONCE = """
CREATE OR REPLACE TEMP TABLE once AS
SELECT kind, visit, list, term, page, ad, position, "time", place, any_value("user") AS "user", min(origin) AS origin, count(*) AS times
FROM event GROUP BY kind, visit, list, term, page, ad, position, "time", place
"""

# The query is the term of the view, else that of the last search at the same address, else the list. Views of one list and query at one time are
# one showing; all showings of a list for a query are a series.
SHOWINGS = """
CREATE OR REPLACE TEMP TABLE showing AS
WITH seen AS (
    SELECT visit, list, term, page, "time", count(*) AS ads, count(position) AS placed FROM once WHERE kind = 0
    GROUP BY visit, list, term, page, "time"
), search AS (
    SELECT visit, page, "time", arg_min(term, origin) AS term FROM once WHERE kind = 2 AND term >= 0 GROUP BY visit, page, "time"
), named AS (
    SELECT v.*, if(v.term >= 0, v.term, coalesce(s.term, -1)) AS said, if(said >= 0, said, v.list) AS query
    FROM seen v ASOF LEFT JOIN search s ON v.visit = s.visit AND v.page = s.page AND v."time" >= s."time"
)
SELECT *, dense_rank() OVER (ORDER BY visit, list, query) AS series, dense_rank() OVER (ORDER BY visit, list, query, "time") AS showing,
    sum(placed) OVER same < sum(ads) OVER same AS unplaced
FROM named WINDOW same AS (PARTITION BY visit, list, query, "time")
"""

# Where an ad without an index was shown, all ads of the showing stand in the order of the event.
SLOTS = """
CREATE OR REPLACE TEMP TABLE slotted AS
SELECT s.series, s.showing, s.visit, s.list, s.query, s.said, s."time", o."user", o.ad, o.origin, o.position AS slot, false AS unplaced
FROM once o JOIN showing s USING (visit, list, term, page, "time") WHERE o.kind = 0 AND NOT s.unplaced
UNION ALL
SELECT s.series, s.showing, s.visit, s.list, s.query, s.said, s."time", o."user", o.ad, o.origin,
    row_number() OVER (PARTITION BY s.showing ORDER BY o.origin, o.place), true
FROM once o JOIN showing s USING (visit, list, term, page, "time") WHERE o.kind = 0 AND s.unplaced
"""

# An index that comes for the n-th time starts the n-th page of its series: until then, showings add to the page before them, as a list does that
# loads while the user scrolls.
PAGES = """
CREATE OR REPLACE TEMP TABLE page AS
WITH often AS (
    SELECT series FROM showing GROUP BY series HAVING min(showing) < max(showing)
), counted AS (
    SELECT series, showing, dense_rank() OVER (PARTITION BY series, slot ORDER BY showing) AS times FROM slotted SEMI JOIN often USING (series)
), highest AS (
    SELECT series, showing, max(times) AS times FROM counted GROUP BY series, showing
), nth AS (
    SELECT showing, max(times) OVER (PARTITION BY series ORDER BY showing) AS sheet FROM highest
), sheets AS (
    SELECT DISTINCT s.visit, s.series, s.showing, s."time", coalesce(n.sheet, 1) AS sheet FROM showing s LEFT JOIN nth n USING (showing)
)
SELECT showing, visit, "time", dense_rank() OVER (PARTITION BY visit ORDER BY series, sheet) AS page FROM sheets
"""

# A click is on the last page before it that shows its ad in its list (in any list, when it names none), else on the last page of the visit.
CLICKS = """
CREATE OR REPLACE TEMP TABLE clicked AS
WITH click AS (
    SELECT * FROM once WHERE kind = 1
), shown AS (
    SELECT s.visit, s.ad, s.list, s."time", p.page FROM slotted s SEMI JOIN click USING (visit, ad) JOIN page p USING (showing)
), listed AS (
    FROM shown UNION ALL SELECT visit, ad, -1, "time", page FROM shown WHERE list >= 0
), first AS (
    SELECT visit, ad, list, "time", min(page) AS page FROM listed GROUP BY visit, ad, list, "time"
), last AS (
    SELECT visit, "time", max(page) AS page FROM page GROUP BY visit, "time"
)
SELECT c.visit, c.ad, c.position, c."time", c.origin, c.place, coalesce(s.page, l.page) AS page
FROM click c
ASOF LEFT JOIN first s ON c.visit = s.visit AND c.ad = s.ad AND c.list = s.list AND c."time" >= s."time"
ASOF LEFT JOIN last l ON c.visit = l.visit AND c."time" >= l."time"
"""

FIND = (ONCE, SHOWINGS, SLOTS, PAGES, CLICKS)

SHOWN = """
SELECT s.visit, p.page, s.query, s.ad, s.slot AS position, s."time", s."user", s.origin FROM slotted s JOIN page p USING (showing) WHERE s.query >= 0
"""
CLICKED = """
WITH nameless AS (SELECT p.visit, p.page FROM showing s JOIN page p USING (showing) WHERE s.query < 0)
SELECT visit, page, ad, position, "time", origin FROM clicked ANTI JOIN nameless USING (visit, page) ORDER BY origin, place
"""

NO_QUERY_CLICKS = """
SELECT count(*) FROM clicked SEMI JOIN (SELECT p.visit, p.page FROM showing s JOIN page p USING (showing) WHERE s.query < 0) USING (visit, page)
"""
AGAIN = "SELECT sum(times - 1)::BIGINT FROM once"
NO_TERM = "SELECT count(*) FROM slotted WHERE said < 0 AND query >= 0"
NO_QUERY = "SELECT count(*) FROM slotted WHERE query < 0"
NO_INDEX = "SELECT count(*) FROM slotted WHERE unplaced"
