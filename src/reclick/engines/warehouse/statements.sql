-- Counts of a table of sessions, in the SQL of any warehouse. What differs between warehouses is in
-- braces here, and is filled in from the file of the dialect. The rules, and their order, are those
-- of reclick.logs.validation.

-- name: session
with source as (
    select {query} as query, {ads} as ads, {clicks} as clicks, {weight} as weight
    from {table}{where}
), checked as (
    select query, ads, clicks, weight, {page_length} as page_length,
        case
            when query is null or query = '' then '{no_query}'
            when {query_bytes} > {max_text_bytes} then '{query_too_long}'
            when {page_length} = 0 then '{no_ads}'
            when {page_length} > {max_ads} then '{page_too_long}'
            when {has_null_ad} then '{null_ad}'
            when {has_long_ad} then '{not_readable}'
            when weight is null or not (weight >= 0 and weight <= {max_weight}) then '{bad_weight}'
            when {has_null_click} then '{null_click}'
            when {has_click_outside} then '{click_outside}'
        end as reason
    from source
), session as (
    select query, ads, {distinct_clicks} as click_order, page_length, weight
    from checked
    where reason is null and weight > 0
)

-- name: pairs
{session}
select query, {ad} as ad, sum(weight) as impressions,
    sum(case when {is_clicked} then weight else 0 end) as clicks,
    sum(case when {last_click} = {position} then weight else 0 end) as last_clicks
from session
{each_ad}
group by query, {ad}

-- name: visits
{session}, visit as (
    select query, page_length, {clicks_text} as click_sequence, weight
    from session
)
select query, page_length, click_sequence, sum(weight) as sessions
from visit
group by query, page_length, click_sequence

-- name: dropped
{session}
select reason, count(*) as dropped
from checked
where reason is not null
group by reason
