"""Long-lived work that outlives its own bugs."""
