"""For tests: a broker in this process, and a checker of what clients saw."""

from dray.testing.broker import TestBroker, broker

__all__ = ["TestBroker", "broker"]
