"""Asks Kafka brokers, ours and others, over the wire: what the command line knows, any client could."""
