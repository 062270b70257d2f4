"""Our Parquet files: rows of one stream, as a table and as what consumers read. Needs pyarrow."""
