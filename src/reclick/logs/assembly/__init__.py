"""Assemble events into pages, in logs larger than memory: DuckDB joins partitions on disk.

The SQL is in .sql files; `load_sql` splits them into named statements.
"""
