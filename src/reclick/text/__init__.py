"""The text of ads: tokens, and attractiveness from words."""
