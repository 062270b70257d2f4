"""The Kafka wire protocol."""
