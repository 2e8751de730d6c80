"""An engine answers "count": the same `Counts` from every engine. One is here; another would be beside it."""
