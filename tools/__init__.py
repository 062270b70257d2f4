"""What `make check` runs beside the linters."""
