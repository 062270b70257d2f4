"""Handlers, one module for each API."""
