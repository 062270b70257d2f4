"""Serve the log of a cluster, and nothing else: brokers of this machine join it.

No broker is special then: each can be stopped, killed or erased, and the
others go on. `drayd dev --brokers N` starts one of these and N brokers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

import typer

from dray.cli.options import ConfigFile, DataOption, Sets, load_config
from dray.cli.serving import Running, serve
from dray.config import Config, Override
from dray.node.roles.meta import run_meta

app: Final = typer.Typer()


@app.callback(invoke_without_command=True)
def meta(
    config: ConfigFile = None,
    sets: Sets = None,
    data: DataOption = None,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects",
            metavar="URL",
            help="Where the brokers keep their records: a directory, s3://, gs:// or az://.",
            show_default="DIR/objects",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where to serve health and metrics.",
            show_default="nowhere",
        ),
    ] = None,
) -> None:
    """Serve the log of a cluster, and nothing else: brokers of this machine join it."""
    given = {
        "broker.data": ("--data", None if data is None else str(data)),
        "objects.url": ("--objects", objects),
        "http.listen": ("--http", http),
    }
    flags = [Override(key=key, value=value, flag=flag) for key, (flag, value) in given.items() if value is not None]
    serve(load_config(config, sets, flags), _as_meta)


@asynccontextmanager
async def _as_meta(config: Config) -> AsyncIterator[Running]:
    async with run_meta(config) as meta:
        at = "" if meta.http is None else f" http={meta.http.url}"
        yield Running(ready=f"log={meta.directory.served}{at}", failed=meta.failed)
