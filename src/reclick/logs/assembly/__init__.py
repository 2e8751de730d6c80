"""Turn events larger than memory into pages, with DuckDB."""
