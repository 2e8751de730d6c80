-- name: number
double

-- name: page_length
coalesce(len(ads), 0)

-- name: query_bytes
strlen(query)

-- name: has_null_ad
exists (select 1 from unnest(ads) as shown(ad) where ad is null or ad = '')

-- name: has_long_ad
exists (select 1 from unnest(ads) as shown(ad) where strlen(ad) > {max_text_bytes})

-- name: has_null_click
exists (select 1 from unnest(clicks) as clicked(click) where click is null)

-- name: has_click_outside
exists (select 1 from unnest(clicks) as clicked(click) where click < 1 or click > len(ads))

-- name: distinct_clicks
coalesce((
        select list(click order by place)
        from (
            select click, min(place) as place
            from unnest(clicks) with ordinality as clicked(click, place)
            group by click
        ) as first_click
    ), [])

-- name: each_ad
cross join unnest(ads) with ordinality as shown(ad, position)

-- name: ad
ad

-- name: position
position

-- name: is_clicked
list_contains(click_order, position)

-- name: last_click
click_order[-1]

-- name: clicks_text
array_to_string(click_order, ',')
