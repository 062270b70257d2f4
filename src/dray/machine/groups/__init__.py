"""Groups in the machine: who shares the work of which topics, by both protocols."""
