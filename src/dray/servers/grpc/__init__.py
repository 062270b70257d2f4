"""Heaps over gRPC: `dray.v1`, health, reflection. Loaded only where it is served."""
