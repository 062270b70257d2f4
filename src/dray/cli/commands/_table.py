"""`drayd admin table`: the Iceberg table of a topic."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import typer

from dray.cli.commands.compactor import run
from dray.cli.compacting import check_installed, options_of
from dray.cli.options import ConfigFile, DataOption, Sets, load_config
from dray.cli.tables import TableFormat, TableOption
from dray.config import Override
from dray.tables.options import CompactorOptions

table: Final = typer.Typer(help="The Iceberg table of a topic, beside a running broker or with none.")
TableTopic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="The name of the topic.")]


@table.command("status")
def status(
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Its newest snapshot and its files, and how far each partition is behind the log."""
    _ask("status", topic, data, config, sets, form)


@table.command("verify")
def verify(
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Prove with Spark that table and log hold the same records, or name those that they do not; exit code 1 then."""
    _ask("verify", topic, data, config, sets, form)


@table.command("compact")
def compact(
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Compact it now, whatever is due. What another compactor has in hand is left to it."""
    options = _options(data, config, sets)
    raise typer.Exit(run(msgspec.structs.replace(options, once=True, topic=topic), form))


@table.command("rebuild")
def rebuild(
    topic: TableTopic,
    data: DataOption = None,
    config: ConfigFile = None,
    sets: Sets = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Make it show what the log says, whatever became of it: dropped, rewritten, set back, moved. No file is read."""
    _ask("rebuild", topic, data, config, sets, form)


@table.command("wait")
def wait(
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
    options = _options(data, config, sets)
    asked = msgspec.structs.replace(
        options, ask="wait", topic=topic, offset=offset, partition=partition, timeout_s=timeout
    )
    raise typer.Exit(run(asked, form))


def _ask(
    what: Literal["status", "verify", "rebuild"],
    topic: str,
    data: DataOption,
    config: ConfigFile,
    sets: Sets,
    form: TableFormat,
) -> None:
    options = _options(data, config, sets)
    raise typer.Exit(run(msgspec.structs.replace(options, ask=what, topic=topic), form))


def _options(data: DataOption, config: ConfigFile, sets: Sets) -> CompactorOptions:
    flags = [] if data is None else [Override(key="broker.data", value=str(data), flag="--data")]
    loaded = load_config(config, sets, flags)
    check_installed()
    return options_of(loaded)
