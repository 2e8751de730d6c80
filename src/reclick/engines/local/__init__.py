"""The in-memory engine: compiled counting and grouping."""
