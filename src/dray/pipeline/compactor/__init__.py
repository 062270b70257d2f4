"""The compactor: WAL objects become Parquet files of one stream each, files of tables, and rows of the index."""
