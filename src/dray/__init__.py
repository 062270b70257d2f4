"""Dray: streams, heaps and tables whose only durable state is an object store and a log of commands."""

__version__ = "0.1.0"
