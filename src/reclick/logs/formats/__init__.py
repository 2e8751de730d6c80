"""Other people's formats: one file each, and `known.py`, which lists them."""
