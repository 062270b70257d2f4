"""Who asks, what they may do, and what is kept of it: the same for every server."""
