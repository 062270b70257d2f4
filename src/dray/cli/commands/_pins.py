"""`drayd admin pins`: what keeps dead objects in the store."""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from dray.cli.options import FormatOption
from dray.cli.output import Format, answer
from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.node.directory import DataDirectory
from dray.node.holding import HeldPin, drop_pin, list_pins
from dray.node.metadata import Effects
from dray.offload import InlineOffload

pins: Final = typer.Typer(help="What keeps dead objects in the store for readers, and until when.")


@pins.command("ls")
def list_held(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory.")],
    form: FormatOption = Format.TEXT,
) -> None:
    """List them, the oldest of each domain first: from there on nothing is deleted."""
    found = asyncio.run(list_pins(_at(directory), _effects()))
    answer(form, {"pins": [asdict(one) for one in found]}, "\n".join(map(_line, found)) or "nothing is held")


@pins.command("drop")
def drop(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory.")],
    pin: Annotated[str, typer.Argument(metavar="PIN", help="Its name, as `ls` tells it.")],
    form: FormatOption = Format.TEXT,
) -> None:
    """End one before its time. A read that still needs it fails, and names the object that is gone."""
    domains = asyncio.run(drop_pin(_at(directory), pin, _effects()))
    answer(form, {"pin": pin, "domains": domains}, f"{pin} is dropped")


def _line(one: HeldPin) -> str:
    until = f"session {one.session}" if one.seconds_left is None else f"{one.seconds_left:,.0f} s left"
    return f"domain {one.domain}  position {one.position}  {until}  {one.pin}"


def _at(directory: Path) -> DataDirectory:
    disk = LocalDisk()
    DataDirectory(directory).read_identity(disk)
    return DataDirectory.at(directory, disk)


def _effects() -> Effects:
    return Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
