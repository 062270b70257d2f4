"""Rows for people and for programs: aligned text with a heading, TSV without one, or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Final, TypeAlias

import typer


class TableFormat(Enum):
    """How a command that has rows answers."""

    TEXT = "text"
    JSON = "json"
    TSV = "tsv"


TableOption: TypeAlias = Annotated[
    TableFormat,
    typer.Option("--format", help="Text for people; one JSON object, or tab-separated rows without a heading."),
]
Cell: TypeAlias = str | int | None
_ESCAPES: Final = str.maketrans(
    {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r", ord("\\"): "\\\\"}
)


def show(
    form: TableFormat, document: Mapping[str, object], heading: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> None:
    """Print one of the forms. `document` is what JSON says; a missing cell is `-` in the others."""
    match form:
        case TableFormat.JSON:
            typer.echo(json.dumps(document))
        case TableFormat.TSV:
            for row in rows:
                typer.echo("\t".join(_plain(cell) for cell in row))
        case TableFormat.TEXT:
            for line in aligned([heading, *rows]):
                typer.echo(line)


def facts(named: Mapping[str, Cell]) -> None:
    """What stands above a table for people."""
    for line in aligned([(f"{name}:", None if value is None else str(value)) for name, value in named.items()]):
        typer.echo(line)


def aligned(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Columns under each other; numbers end where their column ends."""
    cells = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    numeric = [all(not isinstance(row[column], str) for row in rows[1:]) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]


def _plain(cell: Cell) -> str:
    """One cell on one line, whatever is in it: a terminal must not take a name for orders."""
    if cell is None or cell == "":
        return "-"
    text = str(cell)
    return text if text.isprintable() and "\\" not in text else text.translate(_ESCAPES)
