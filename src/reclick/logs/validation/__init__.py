"""Check every row of a log: encode its columns as arrays, then apply the rules.

Bad rows are found here, and counted in `read_summary`. What `cleaning` removes later is not bad.
"""
