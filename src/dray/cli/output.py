"""What a command says: text for people, or one JSON object for programs.

Answers go to stdout, errors to stderr; under `--format json` an error is the
one JSON object on stdout, so that a program reads one place only.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import typer

from dray.errors import DrayError, Kind

OK: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
ADVICE: Final = {
    Kind.INVALID: "correct what the line above names, then run it again",
    Kind.NOT_FOUND: "check the name and the path, then run it again",
    Kind.CONFLICT: "something else has it: stop that, or choose another",
    Kind.LOST: "another process has taken over; start this one again if it should serve",
    Kind.UNAUTHENTICATED: "give a key that is valid: `drayd admin key create DIR` makes one",
    Kind.FORBIDDEN: "use a key of another role, or ask an administrator",
    Kind.UNAVAILABLE: "nothing was changed: mend what the line above names, then run it again",
    Kind.UNKNOWN: "it may have happened: look before you repeat it",
    Kind.CORRUPT: "do not write there: restore a backup, or see `drayd doctor` and `drayd admin meta --help`",
    Kind.INTERNAL: "run `drayd --debug ...` for the traceback, and report a bug",
}
"""What a person does next, where the error does not say it better. The values of `Kind` speak to code."""


class Format(Enum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


def answer(form: Format, document: Mapping[str, object], text: str) -> None:
    """Print one of the two forms."""
    typer.echo(json.dumps(document) if form is Format.JSON else text)


def wanted_format(argv: Sequence[str]) -> Format:
    """What the command line asks for, also where it is too wrong to be parsed."""
    for index, argument in enumerate(argv):
        if argument == "--format=json" or (argument == "--format" and [*argv, ""][index + 1] == "json"):
            return Format.JSON
    return Format.TEXT


def report(form: Format, error: DrayError, program: str = "drayd") -> int:
    """Tell an error and what to do next; returns the exit code."""
    if "dray.config" in sys.modules:  # who raises its error has loaded it; others do not wait for Pydantic
        from dray.config import BadConfig

        if isinstance(error, BadConfig):
            told = [str(problem) for problem in error.problems]
            problems = [
                {"key": problem.key, "message": problem.message, "origin": problem.origin} for problem in error.problems
            ]
            then = "mend this, then run `drayd config check`"
            refuse(form, told, kind="invalid", then=then, details={"problems": problems})
            return USAGE
    refuse(form, [str(error)], kind=error.kind.name.lower(), then=next_step(error), program=program)
    return FAILURE


def next_step(error: DrayError) -> str:
    """Advice for the person who reads the error."""
    return error.advice or ADVICE[error.kind]


def refuse(
    form: Format,
    told: Sequence[str],
    *,
    kind: str,
    then: str,
    details: Mapping[str, object] | None = None,
    program: str = "drayd",
) -> None:
    """Print an error: its lines, and what to do next."""
    if form is Format.JSON:
        body = {"kind": kind, "message": "; ".join(told), "next": then, **(details or {})}
        typer.echo(json.dumps({"error": body}))
        return
    for line in told:
        typer.echo(f"{program}: {line}", err=True)
    typer.echo(f"  next: {then}", err=True)


def nobody_reads() -> None:
    """What is still to be written goes nowhere: the end of the process must not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
