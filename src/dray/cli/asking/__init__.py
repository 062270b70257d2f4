"""The commands of `dray`, which asks a running cluster; one module each.

A module exports `command`, a function, or `app`, a `typer.Typer` with commands
of its own; else they are as the commands of `drayd` are (`dray.cli.commands`).
"""
