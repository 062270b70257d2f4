"""Compact records into Parquet files and Iceberg tables, beside a broker."""

from typing import Annotated, Final

import msgspec
import typer

from dray.cli.compacting import check_installed, options_of
from dray.cli.compactor_answers import run
from dray.cli.options import ConfigFile, DataOption, Sets, load_config
from dray.cli.tables import TableFormat, TableOption
from dray.config import Override

app: Final = typer.Typer()


@app.callback(invoke_without_command=True)
def compactor(
    config: ConfigFile = None,
    sets: Sets = None,
    data: DataOption = None,
    once: Annotated[bool, typer.Option("--once", help="One cycle over what is due; then say what was done.")] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="With --once: this topic, whatever is due.")
    ] = None,
    form: TableOption = TableFormat.TEXT,
) -> None:
    """Compact records into Parquet files and Iceberg tables, beside a broker or with none."""
    if topic is not None and not once:
        raise typer.BadParameter("goes with --once", param_hint="--topic")
    flags = [] if data is None else [Override(key="broker.data", value=str(data), flag="--data")]
    loaded = load_config(config, sets, flags)
    check_installed()
    options = msgspec.structs.replace(options_of(loaded), once=once, topic=topic)
    raise typer.Exit(run(options, form))
