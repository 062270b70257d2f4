"""Heaps: priority queues with leases, as nouns of the machine."""
