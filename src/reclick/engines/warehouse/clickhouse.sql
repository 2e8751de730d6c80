-- name: number
Nullable(Float64)

-- name: page_length
length(ads)

-- name: query_bytes
length(query)

-- name: has_null_ad
arrayExists(ad -> ad is null or ad = '', ads)

-- name: has_long_ad
arrayExists(ad -> length(ad) > {max_text_bytes}, ads)

-- name: has_null_click
arrayExists(click -> click is null, clicks)

-- name: has_click_outside
arrayExists(click -> click < 1 or click > length(ads), clicks)

-- name: distinct_clicks
arrayFilter((click, place) -> indexOf(clicks, click) = place, clicks, arrayEnumerate(clicks))

-- name: each_ad
array join ads as ad, arrayEnumerate(ads) as position

-- name: ad
ad

-- name: position
position

-- name: is_clicked
has(click_order, position)

-- name: last_click
click_order[-1]

-- name: clicks_text
arrayStringConcat(arrayMap(click -> toString(click), click_order), ',')
