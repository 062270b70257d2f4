"""The commands of `dray`, which asks a running cluster; one module each."""
