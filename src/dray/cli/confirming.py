"""What destroys something is asked for twice."""

import sys
from typing import Annotated, TypeAlias

import typer

from dray.cli.tables import TableFormat
from dray.errors import Invalid

DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class NotConfirmed(Invalid):
    """Nobody said that it should be done."""

    advice = "look with --dry-run first; then add --yes"


class NotConfirmedBlind(NotConfirmed):
    """The same, where there is no --dry-run."""

    advice = "add --yes"


def confirm(name: str, yes: bool, what: str, *, blind: bool = False) -> None:
    """The name again, typed by a person; a program says --yes. `blind`: the command has no --dry-run."""
    if yes:
        return
    if not sys.stdin.isatty() or typer.prompt(f"{what}? type {name} to confirm", err=True) != name:
        raise (NotConfirmedBlind if blind else NotConfirmed)("this was not confirmed", would=what)


def tell_dry_run(dry_run: bool, form: TableFormat) -> None:
    """The last line of what would have been done."""
    if dry_run and form is TableFormat.TEXT:
        typer.echo("nothing was changed")
