"""Options that several commands have, and what they mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.output import Format
from dray.cli.settings import SECTIONS
from dray.config import Config, Override, load, parse_set


def default_of(key: str) -> str:
    """What a setting is when nobody says otherwise, for the help of the option that stands for it."""
    section, _, name = key.partition(".")
    return str(SECTIONS[section].model_fields[name].default)


ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The YAML file with the settings.")
]
Sets: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting; may be given several times."),
]
DataOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data directory.", show_default=default_of("broker.data")),
]
FormatOption: TypeAlias = Annotated[
    Format, typer.Option("--format", help="Text for people, or one JSON object for programs.")
]

KeyName: TypeAlias = Annotated[str, typer.Option("--name", help="What people call it.")]
KeyPrincipal: TypeAlias = Annotated[
    str, typer.Option("--principal", metavar="User:NAME", help="Who uses it. Default: User:key-ID.")
]
KeyExpires: TypeAlias = Annotated[
    str, typer.Option("--expires", metavar="30d", help="It works no more after this long. Default: never.")
]
KEY_ROLE_HELP: Final = "What it may do. Default: admin for the first key of a cluster, else operator."


def load_config(file: Path | None, sets: Sequence[str] | None, flags: Sequence[Override] = ()) -> Config:
    """The settings of this process. `flags` are options of a command that stand for a setting.

    Raises:
        BadConfig: the command ends with exit code 2.
    """
    return load(SECTIONS, file=file, overrides=[*(parse_set(argument) for argument in sets or ()), *flags])
