"""Options that `dray produce` and `dray consume` share."""

from typing import Annotated, TypeAlias

import typer

from dray.cli.asking._connecting import addresses, given, selected
from dray.cli.record_forms import Encoding, LineForm, unescape

KeySeparator: TypeAlias = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help=r"A line is key, this, value; \t and \xNN are known."),
]
Delimiter: TypeAlias = Annotated[
    str, typer.Option("--delimiter", metavar="TEXT", help=r"What ends a record of text; \0 for `find -print0`.")
]
Null: TypeAlias = Annotated[
    str | None, typer.Option("--null", metavar="TEXT", help="The text that stands for null, in keys and in values.")
]
EncodingOption: TypeAlias = Annotated[
    Encoding, typer.Option("--encoding", help="How keys and values are written: as they are, or for binary ones.")
]


def bootstrap_servers(bootstrap: str | None, profile: str | None) -> str:
    """Where to connect, as the library takes it."""
    return ",".join(str(at) for at in addresses(selected(bootstrap, profile)))


def line_form(separator: str | None, null: str | None, encoding: Encoding) -> LineForm:
    """What the options say about lines."""
    return LineForm(
        encoding=encoding,
        separator=None if separator is None else given("--key-separator", unescape, separator),
        null=None if null is None else null.encode(errors="surrogateescape"),
    )
