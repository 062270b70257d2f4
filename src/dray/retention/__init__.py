"""Retention: what time, size and deletion take away, until it is gone from the store."""
