"""What moves between stages: batches, counts, grouped sessions and indexes. No I/O."""
