"""Heaps, as services: what waits between a request and the machine."""
