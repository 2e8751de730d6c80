-- name: number
double precision

-- name: page_length
cardinality(coalesce(ads, '{{}}'))

-- name: query_bytes
octet_length(query)

-- name: has_null_ad
exists (select 1 from unnest(ads) as shown(ad) where ad is null or ad = '')

-- name: has_long_ad
exists (select 1 from unnest(ads) as shown(ad) where octet_length(ad) > {max_text_bytes})

-- name: has_null_click
exists (select 1 from unnest(clicks) as clicked(click) where click is null)

-- name: has_click_outside
exists (select 1 from unnest(clicks) as clicked(click) where click < 1 or click > cardinality(ads))

-- name: distinct_clicks
coalesce((
        select array_agg(click order by place)
        from (
            select click, min(place) as place
            from unnest(clicks) with ordinality as clicked(click, place)
            group by click
        ) as first_click
    ), '{{}}')

-- name: each_ad
cross join lateral unnest(ads) with ordinality as shown(ad, position)

-- name: ad
ad

-- name: position
position

-- name: is_clicked
position = any (click_order)

-- name: last_click
click_order[cardinality(click_order)]

-- name: clicks_text
array_to_string(click_order, ',')
