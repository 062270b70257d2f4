"""Spark over Dray: a topic as a DataFrame, straight from the objects, with no broker in between."""
