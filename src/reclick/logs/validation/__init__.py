"""Check every row of a log: encode its columns as arrays, then apply the rules."""
