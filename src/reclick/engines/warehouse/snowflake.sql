-- name: number
double

-- name: page_length
coalesce(array_size(ads), 0)

-- name: query_bytes
octet_length(query)

-- name: has_null_ad
array_size(filter(ads, ad -> ad is null or is_null_value(ad) or ad::varchar = '')) > 0

-- name: has_long_ad
array_size(filter(ads, ad -> octet_length(ad::varchar) > {max_text_bytes})) > 0

-- name: has_null_click
array_size(filter(coalesce(clicks, array_construct()), click -> click is null or is_null_value(click))) > 0

-- name: has_click_outside
array_size(filter(coalesce(clicks, array_construct()), click -> click::integer < 1 or click::integer > array_size(ads))) > 0

-- name: distinct_clicks
reduce(
        coalesce(clicks, array_construct()), array_construct(),
        (found, click) -> iff(array_contains(click, found), found, array_append(found, click))
    )

-- name: each_ad
, lateral flatten(input => ads) as shown

-- name: ad
shown.value::varchar

-- name: position
(shown.index + 1)

-- name: is_clicked
array_contains((shown.index + 1)::variant, click_order)

-- name: last_click
click_order[array_size(click_order) - 1]::integer

-- name: clicks_text
array_to_string(click_order, ',')
