"""`drayd`: finds the command, runs it, and turns what it raised into an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Only the module
of the command that was called is imported, so `drayd config` never waits for
what a broker needs.
"""

import ast
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.exceptions import TyperException

from dray import __version__
from dray.cli import commands
from dray.cli.output import FAILURE, OK, USAGE, refuse, report, wanted_format
from dray.errors import DrayError

_SUMMARY: Final = "Streams for Kafka clients, on an object store and one log of commands."


def main() -> None:
    """The entry point of the executable."""
    code = run(sys.argv[1:])
    if "obstore" in sys.modules:
        # Its threads may touch Python while the interpreter goes down, which aborts the process
        # now and then (obstore 0.12). Everything is closed by now: leave without taking it down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    form = wanted_format(argv)
    try:
        code = build(argv)(args=list(argv) or ["--help"], prog_name="drayd", standalone_mode=False)
        return code if isinstance(code, int) else OK
    except DrayError as error:
        return report(form, error)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "drayd"
        refuse(form, [_lowered(error.format_message())], kind="invalid", then=f"see `{path} --help`")
        return USAGE if error.exit_code == USAGE else FAILURE
    except typer.Abort:
        refuse(form, ["stopped by the user"], kind="invalid", then="run it again when you are ready")
        return FAILURE
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        told = f"internal error: {type(error).__name__}: {error}"
        refuse(form, [told], kind="internal", then="run `drayd --debug ...` for the traceback, and report a bug")
        return FAILURE


def build(argv: Sequence[str]) -> typer.Typer:
    """The application in which the called command is real and the others are only listed.

    Without arguments all are real: that is how a shell asks for completions.
    """
    called = next((argument for argument in argv if not argument.startswith("-")), None)
    app = typer.Typer(
        name="drayd",
        help=_SUMMARY,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in command_names():
        if not argv or name == called:
            app.add_typer(_load(name), name=name, help=_summary(name))
        else:
            app.command(name, help=_summary(name))(_listed)
    return app


def command_names() -> list[str]:
    """Every module of `dray.cli.commands` that is a command."""
    found = (module.name for module in pkgutil.iter_modules(commands.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drayd {__version__} (Python {sys.version.split()[0]})")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    """Options of `drayd` itself; both are looked at elsewhere."""


def _listed() -> None:
    """Stands for a command that was not called."""


def _load(name: str) -> typer.Typer:
    app = importlib.import_module(f"{commands.__name__}.{name}").app
    assert isinstance(app, typer.Typer), f"{name} exports its command as `app`"
    return app


def _summary(name: str) -> str:
    """The first line of the module's docstring, read without importing it."""
    spec = importlib.util.find_spec(f"{commands.__name__}.{name}")
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_bytes())) or ""
    return text.partition("\n")[0]


def _lowered(text: str) -> str:
    """A sentence of Typer as our messages are: lowercase, without a full stop."""
    return (text[:1].lower() + text[1:]).removesuffix(".")
