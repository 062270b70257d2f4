"""A running Dray: what is wired to what."""
