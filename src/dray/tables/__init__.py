"""Topics as Iceberg tables, through PyIceberg. Only the compactor loads it, and calls it in threads: it blocks."""
