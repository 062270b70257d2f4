"""Produce: what waits between a batch and its offsets."""
