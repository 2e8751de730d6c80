"""Check rows and encode them as batches."""
