-- name: number
float64

-- name: page_length
coalesce(array_length(ads), 0)

-- name: query_bytes
byte_length(query)

-- name: has_null_ad
exists (select 1 from unnest(ads) as ad where ad is null or ad = '')

-- name: has_long_ad
exists (select 1 from unnest(ads) as ad where byte_length(ad) > {max_text_bytes})

-- name: has_null_click
exists (select 1 from unnest(clicks) as click where click is null)

-- name: has_click_outside
exists (select 1 from unnest(clicks) as click where click < 1 or click > array_length(ads))

-- name: distinct_clicks
array(
        select click
        from unnest(clicks) as click with offset as place
        group by click
        order by min(place)
    )

-- name: each_ad
cross join unnest(ads) as ad with offset as place

-- name: ad
ad

-- name: position
(place + 1)

-- name: is_clicked
(place + 1) in unnest(click_order)

-- name: last_click
click_order[safe_ordinal(array_length(click_order))]

-- name: clicks_text
array_to_string(array(select cast(click as string) from unnest(click_order) as click with offset as place order by place), ',')
