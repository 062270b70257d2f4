"""`dray table` and `drayd admin table`, which are the same: the Iceberg table of a topic."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import typer

from dray.cli.compacting import check_installed, options_of
from dray.cli.compactor_answers import run
from dray.cli.options import ConfigFile, DataOption, Sets, load_config
from dray.cli.tables import TableFormat, TableOption
from dray.config import Override
from dray.tables.options import CompactorOptions

table: Final = typer.Typer(
    no_args_is_help=True, help="The Iceberg table of a topic, beside a running broker or with none."
)
TableTopic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]


@table.command("status")
def status(
    context: typer.Context,
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Its newest snapshot and its files, and how far each partition is behind the log."""
    _ask(context, "status", topic, data, config, sets, form)


@table.command("verify")
def verify(
    context: typer.Context,
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Prove with Spark that table and log hold the same records, or name those that they do not; exit code 1 then."""
    _ask(context, "verify", topic, data, config, sets, form)


@table.command("compact")
def compact(
    context: typer.Context,
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Compact it now, whatever is due. What another compactor has in hand is left to it."""
    options = _options(context, data, config, sets)
    raise typer.Exit(run(msgspec.structs.replace(options, once=True, topic=topic), form, _program(context)))


@table.command("rebuild")
def rebuild(
    context: typer.Context,
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make it show what the log says, whatever became of it: dropped, rewritten, set back, moved. No file is read."""
    _ask(context, "rebuild", topic, data, config, sets, form)


@table.command("wait")
def wait(
    context: typer.Context,
    topic: TableTopic,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, metavar="N", help="For the record at this offset.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="For everything that was acknowledged before.")] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="In this partition, not in all.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Give up after this, with exit code 1.")
    ] = 600,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Wait until it has a record, or all that the log has now. It compacts nothing itself."""
    if (offset is None) != now:
        raise typer.BadParameter("give one of --offset N and --now", param_hint="--offset")
    options = _options(context, data, config, sets)
    asked = msgspec.structs.replace(
        options, ask="wait", topic=topic, offset=offset, partition=partition, timeout_s=timeout
    )
    raise typer.Exit(run(asked, form, _program(context)))


def _ask(
    context: typer.Context,
    what: Literal["status", "verify", "rebuild"],
    topic: str,
    data: DataOption,
    config: ConfigFile,
    sets: Sets,
    form: TableFormat,
) -> None:
    options = _options(context, data, config, sets)
    raise typer.Exit(run(msgspec.structs.replace(options, ask=what, topic=topic), form, _program(context)))


def _program(context: typer.Context) -> str:
    """Who was called, for what is said on stderr."""
    return context.find_root().info_name or "drayd"


def _options(context: typer.Context, data: DataOption, config: ConfigFile, sets: Sets) -> CompactorOptions:
    flags = [] if data is None else [Override(key="broker.data", value=str(data), flag="--data")]
    loaded = load_config(config, sets, flags)
    check_installed()
    options = options_of(loaded)
    # Who asks wants the answer; what a compactor logs is for who runs one.
    return msgspec.structs.replace(options, log_level="warning") if _program(context) == "dray" else options
