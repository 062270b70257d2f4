"""Version 1: `heaps.proto`, and what `tools/generate_api.py` makes of it."""
