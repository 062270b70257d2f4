"""`drayd` and `dray`: find the command, run it, and turn what it raised into an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration. Only the module
of the command that was called is imported, so `drayd config` never waits for
what a broker needs. `drayd` is a server and what is done to its directory;
`dray` asks a running cluster.
"""

import ast
import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Final

import typer
from typer.exceptions import TyperException

from dray import __version__
from dray.cli import asking, commands
from dray.cli.output import FAILURE, OK, USAGE, nobody_reads, refuse, report, wanted_format
from dray.errors import DrayError


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An executable, and the package that has a module for each of its commands."""

    name: str
    package: ModuleType
    summary: str


DRAYD: Final = Program(
    name="drayd",
    package=commands,
    summary="Streams for Kafka clients, on an object store and one log of commands.",
)
DRAY: Final = Program(name="dray", package=asking, summary="Asks a running cluster, Dray's or Apache Kafka's.")


def main() -> None:
    """The entry point of `drayd`."""
    _leave(DRAYD)


def main_asking() -> None:
    """The entry point of `dray`."""
    _leave(DRAY)


def _leave(program: Program) -> None:
    try:
        code = run(sys.argv[1:], program)
        sys.stdout.flush()
    except BrokenPipeError:  # an error, told to nobody
        code = FAILURE
        nobody_reads()
    if "obstore" in sys.modules:
        # Its threads may touch Python while the interpreter goes down, which aborts the process
        # now and then (obstore 0.12). Everything is closed by now: leave without taking it down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(argv: Sequence[str], program: Program = DRAYD) -> int:
    """Run one command line and return its exit code."""
    form = wanted_format(argv)
    try:
        code = build(argv, program)(args=list(argv) or ["--help"], prog_name=program.name, standalone_mode=False)
        return code if isinstance(code, int) else OK
    except DrayError as error:
        return report(form, error, program.name)
    except TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else program.name
        told = [_lowered(error.format_message())]
        refuse(form, told, kind="invalid", then=f"see `{path} --help`", program=program.name)
        return USAGE if error.exit_code == USAGE else FAILURE
    except typer.Abort:
        then = "run it again when you are ready"
        refuse(form, ["stopped by the user"], kind="invalid", then=then, program=program.name)
        return FAILURE
    except SystemExit as end:
        # Typer and Rich leave with 1 when nobody reads what they say (`| head`), which is no failure.
        if end.code == FAILURE:
            return OK
        raise
    except Exception as error:
        if "--debug" in argv:
            traceback.print_exc()
        told = [f"internal error: {type(error).__name__}: {error}"]
        then = f"run `{program.name} --debug ...` for the traceback, and report a bug"
        refuse(form, told, kind="internal", then=then, program=program.name)
        return FAILURE


def build(argv: Sequence[str], program: Program = DRAYD) -> typer.Typer:
    """The application in which the called command is real and the others are only listed.

    Without arguments all are real: that is how a shell asks for completions.
    """
    called = next((argument for argument in argv if not argument.startswith("-")), None)
    app = typer.Typer(
        name=program.name,
        help=program.summary,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root_of(program))
    for name in command_names(program):
        if not argv or name == called:
            _add(app, program, name)
        else:
            app.command(name, help=_summary(program, name))(_listed)
    return app


def command_names(program: Program = DRAYD) -> list[str]:
    """Every module of the program's package that is a command."""
    found = (module.name for module in pkgutil.iter_modules(program.package.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def _root_of(program: Program) -> Callable[[bool, bool], None]:
    """The options of the program itself."""

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{program.name} {__version__} (Python {sys.version.split()[0]})")
            raise typer.Exit

    def root(
        version: Annotated[
            bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version and exit.")
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
    ) -> None:
        """Both are looked at elsewhere."""

    return root


def _listed() -> None:
    """Stands for a command that was not called."""


def _add(app: typer.Typer, program: Program, name: str) -> None:
    """The real command: a function, or an application with commands of its own."""
    module = importlib.import_module(f"{program.package.__name__}.{name}")
    if hasattr(module, "command"):
        app.command(name)(module.command)
        return
    assert isinstance(module.app, typer.Typer), f"{name} exports its command as `command` or `app`"
    app.add_typer(module.app, name=name, help=_summary(program, name))


def _summary(program: Program, name: str) -> str:
    """The first line of the module's docstring, read without importing it."""
    spec = importlib.util.find_spec(f"{program.package.__name__}.{name}")
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_bytes())) or ""
    return text.partition("\n")[0]


def _lowered(text: str) -> str:
    """A sentence of Typer as our messages are: lowercase, without a full stop."""
    return (text[:1].lower() + text[1:]).removesuffix(".")
