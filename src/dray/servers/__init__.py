"""Servers: the only place where wire protocols are spoken and errors become wire codes."""
