"""Start everything on one directory.

Topics are made when clients ask for them. Nothing asks for a password, so
listen on this machine only.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from dray.cli.compacting import as_broker_that_compacts
from dray.cli.options import ConfigFile, DataOption, Sets, default_of, load_config
from dray.cli.serving import serve
from dray.cli.together import MOST_BROKERS, as_cluster, inherited
from dray.config import Config, Level, Override

OWN_DEFAULTS: Final = {"topics.auto_create": "true", "groups.initial_delay": "0s", "compaction.max_age": "60s"}
"""One person tries things out: nothing has to be made first, nobody else is waited for, and tables are fresh."""
app: Final = typer.Typer()


@app.callback(invoke_without_command=True)
def dev(
    config: ConfigFile = None,
    sets: Sets = None,
    data: DataOption = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="Where to listen for Kafka clients; a port alone is on 127.0.0.1.",
            show_default=default_of("kafka.listen"),
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="Where clients are told to connect, if not where we listen.",
            show_default="where it listens; for 0.0.0.0 an address of this machine",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where to serve the page, health and metrics.",
            show_default=default_of("http.listen"),
        ),
    ] = None,
    grpc: Annotated[
        str | None,
        typer.Option(
            "--grpc",
            metavar="HOST:PORT",
            help="Where to serve heaps over gRPC; empty: nowhere.",
            show_default=default_of("grpc.listen"),
        ),
    ] = None,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects",
            metavar="URL",
            help="Where records are kept: a directory, s3://, gs:// or az://.",
            show_default="DIR/objects",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--log",
            metavar="URL",
            help="The log of commands: local:DIR, memory:, or unix:DIR/meta.sock to join the broker of DIR.",
            show_default="in DIR/meta",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            "--brokers",
            metavar="N",
            min=1,
            max=MOST_BROKERS,
            help="Run a log server and N brokers as processes of their own; each takes the next port.",
            show_default="one process for everything",
        ),
    ] = None,
    zones: Annotated[
        int | None,
        typer.Option(
            "--zones",
            metavar="N",
            min=1,
            max=MOST_BROKERS,
            help="With --brokers: put them into the zones z1, z2 ... in turn, to try what clients of a zone are told.",
            show_default="no zones",
        ),
    ] = None,
) -> None:
    """Start everything on one directory, in one process or, with --brokers, in several."""
    given = {
        "broker.data": ("--data", None if data is None else str(data)),
        "kafka.listen": ("--kafka", kafka),
        "kafka.advertise": ("--advertise", advertise),
        "http.listen": ("--http", http),
        "grpc.listen": ("--grpc", grpc),
        "objects.url": ("--objects", objects),
        "log.url": ("--log", log),
    }
    flags = [Override(key=key, value=value, flag=flag) for key, (flag, value) in given.items() if value is not None]
    loaded = load_config(config, sets, flags)
    if brokers is not None:
        serve(loaded, lambda known: as_cluster(known, brokers, zones or 0, inherited(config, sets)))
        return
    if zones is not None:
        raise typer.BadParameter("only with --brokers: one broker has its zone by broker.zone", param_hint="--zones")
    serve(load_config(config, sets, [*flags, *unless_given(loaded, OWN_DEFAULTS)]), as_broker_that_compacts)


def unless_given(config: Config, defaults: Mapping[str, str]) -> list[Override]:
    """Settings of this command that nobody has given otherwise."""
    given_by = {entry.key: entry.origin.level for entry in config.entries()}
    return [
        Override(key=key, value=value, flag="drayd dev")
        for key, value in defaults.items()
        if given_by[key] is Level.DEFAULT
    ]
