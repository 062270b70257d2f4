"""Groups: how far each has come."""
