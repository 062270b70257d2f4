"""Fetch: batches found by the offset index, read from memory or the store, and sent as they lie."""
