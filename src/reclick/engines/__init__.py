"""An engine answers "count": the same `Counts` from every engine. One is embedded; another is one file here."""
