"""Routing: which brokers a client is told of, and which of them it should ask."""
