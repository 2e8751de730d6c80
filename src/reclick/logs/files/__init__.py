"""Find and read files: Parquet, CSV, JSON Lines, tables in memory."""
