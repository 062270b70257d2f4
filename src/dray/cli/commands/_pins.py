"""`drayd admin pins`: what keeps dead objects in the store."""

from dataclasses import asdict
from typing import Annotated, Final

import typer

from dray.cli.options import ConfigFile, FormatOption, Sets
from dray.cli.output import Format, answer
from dray.cli.places import Where, run_at
from dray.node.holding import HeldPin, drop_pin, list_pins

pins: Final = typer.Typer(help="What keeps dead objects in the store for readers, and until when.")


@pins.command("ls")
def list_held(where: Where, config: ConfigFile = None, sets: Sets = None, form: FormatOption = Format.TEXT) -> None:
    """List them, the oldest of each domain first: from there on nothing is deleted."""
    found = run_at(where, config, sets, lambda asked: list_pins(asked.place, asked.effects))
    answer(form, {"pins": [asdict(one) for one in found]}, "\n".join(map(_line, found)) or "nothing is held")


@pins.command("drop")
def drop(
    where: Where,
    pin: Annotated[str, typer.Argument(metavar="PIN", help="Its name, as `ls` tells it.")],
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """End one before its time. A read that still needs it fails, and names the object that is gone."""
    domains = run_at(where, config, sets, lambda asked: drop_pin(asked.place, pin, asked.effects))
    answer(form, {"pin": pin, "domains": domains}, f"{pin} is dropped")


def _line(one: HeldPin) -> str:
    until = f"session {one.session}" if one.seconds_left is None else f"{one.seconds_left:,.0f} s left"
    return f"domain {one.domain}  position {one.position}  {until}  {one.pin}"
