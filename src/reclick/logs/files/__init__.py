"""Find and read files and tables: every reader yields the same kind of batches."""
