"""The Iceberg table of a topic, in a data directory: status, verify, compact, wait, rebuild."""

from dray.cli.table_commands import table as app

__all__ = ["app"]
