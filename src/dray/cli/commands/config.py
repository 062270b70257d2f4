"""Check, show and describe the configuration.

The three subcommands read the same sources in the same way as every other
command of `drayd`, so what is shown is what a broker would use.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Final

import typer
import yaml

from dray.cli.options import ConfigFile, FormatOption, Sets, load_config
from dray.cli.output import Format, answer
from dray.cli.settings import SECTIONS
from dray.config import Entry, Level, schema

app: Final = typer.Typer()


@app.command()
def check(config: ConfigFile = None, sets: Sets = None, form: FormatOption = Format.TEXT) -> None:
    """Read the configuration and tell what is wrong with it: exit code 0 or 2."""
    entries = load_config(config, sets).entries()
    changed = sum(entry.origin.level is not Level.DEFAULT for entry in entries)
    text = f"the configuration is valid: {len(entries)} settings, {changed} of them set"
    answer(form, {"valid": True, "settings": len(entries), "set": changed}, text)


@app.command()
def show(
    config: ConfigFile = None,
    sets: Sets = None,
    origin: Annotated[bool, typer.Option("--origin", help="Tell where each value came from.")] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show the effective settings, as YAML that can be used again; secrets are hidden."""
    entries = load_config(config, sets).entries()
    document = {entry.key: {"value": entry.value, "origin": str(entry.origin)} for entry in entries}
    answer(form, {"settings": document}, "\n".join(_lines(entries, origin=origin)))


@app.command(name="schema")
def show_schema() -> None:
    """Print the JSON Schema of the configuration file, for an editor."""
    typer.echo(json.dumps(schema(SECTIONS), indent=2))


def _lines(entries: Sequence[Entry], *, origin: bool) -> list[str]:
    lines: list[str] = []
    open_path: list[str] = []
    for entry in entries:
        *path, name = entry.key.split(".")
        for depth, step in enumerate(path):
            if open_path[depth : depth + 1] != [step]:
                lines.append(f"{'  ' * depth}{step}:")
                open_path = path[: depth + 1]
        open_path = path
        comment = f"  # {entry.origin}" if origin else ""
        lines.append(f"{'  ' * len(path)}{name}: {_scalar(entry.value)}{comment}")
    return lines


def _scalar(value: object) -> str:
    """A value on one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1 << 30, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")
