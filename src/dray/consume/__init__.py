"""Consume: records of a topic handed out one by one, and settled one by one."""
