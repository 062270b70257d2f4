"""Where a cluster is, as a command of `drayd admin` is told: a data directory, a log, or the settings."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import typer

from dray.cli.options import load_config
from dray.config import Config
from dray.errors import Invalid
from dray.log.settings import LogSettings
from dray.log.urls import LocalLogs, LogUrl, MemoryLogs, ServedLogs, parse_log_url
from dray.node.directory import DataDirectory
from dray.node.effects import ProcessEffects, of_process
from dray.node.joining import HasJoined, has_joined
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster
from dray.node.settings import BrokerSettings
from dray.node.store import store_of
from dray.node.visiting import OpenObjects, cluster_place, open_beside
from dray.objects.port import Objects
from dray.objects.settings import ObjectsSettings

T = TypeVar("T")
BY_SETTINGS: Final = "-"
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
Where: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DIR|URL|-",
        help="A data directory; the log.url of brokers that share a log; or -, what the settings say of both.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlace:
    """Where a command is to work, and with what."""

    place: DirectoryOrCluster
    root: Path
    """The data directory of this machine, where what was done is written down."""
    effects: Effects
    open_objects: OpenObjects
    """The store of the cluster; closed by who opened it."""


def parse_where(text: str) -> Path | LogUrl | None:
    """A directory, a log, or None: what the settings say."""
    if text == BY_SETTINGS:
        return None
    return parse_log_url(text) if _URL.match(text) else Path(text).absolute()


def place_at(text: str, config: Config, effects: Effects) -> DirectoryOrCluster:
    """The place that an argument means.

    Raises:
        Invalid: there is none that a command can work on; it says what to give instead.
    """
    data, where = config.get(BrokerSettings).data.absolute(), parse_where(text)
    log = config.get(LogSettings).place if where is None else where
    match log:
        case Path():
            return _directory(log, effects)
        case None:
            return _directory(data, effects)
        case LocalLogs(root=root):
            return DataDirectory(data, root)
        case ServedLogs(address=Path() as socket):
            return _directory(socket.parent, effects)
        case ServedLogs() | MemoryLogs():
            raise Invalid("this log can be asked by its brokers alone: give the data directory", log=str(log))
        case _:
            return cluster_place(log, store_of(config.get(ObjectsSettings)), effects)


def run_at(
    where: str, config: Path | None, sets: list[str] | None, work: Callable[[CommandPlace], Coroutine[None, None, T]]
) -> T:
    """Do something at a place, with threads that end with it."""
    settings = load_config(config, sets)

    async def run(process: ProcessEffects) -> T:
        place = place_at(where, settings, process.effects)
        root = place.root if isinstance(place, DataDirectory) else settings.get(BrokerSettings).data.absolute()
        objects = _objects_of(place, settings, process.effects)
        return await work(CommandPlace(place=place, root=root, effects=process.effects, open_objects=objects))

    return run_process(settings, run)


def run_process(config: Config, work: Callable[[ProcessEffects], Coroutine[None, None, T]]) -> T:
    async def run() -> T:
        async with AsyncExitStack() as stack:
            return await work(of_process(stack, config))

    return asyncio.run(run())


def only_directory(place: DirectoryOrCluster, instead: str) -> DataDirectory:
    """For what can be done to files of this machine alone."""
    if isinstance(place, DataDirectory):
        return place
    raise Invalid(f"this works on the files of a data directory, not on a log that brokers share: {instead}")


def _objects_of(place: DirectoryOrCluster, config: Config, effects: Effects) -> OpenObjects:
    if not isinstance(place, DataDirectory):
        return place.open_objects
    store = store_of(config.get(ObjectsSettings))
    address = store.url or str(place.objects)

    async def open_objects() -> Objects:
        return await open_beside(address, store, effects)

    return open_objects


def _directory(root: Path, effects: Effects) -> DataDirectory:
    if has_joined(root, effects.disk):
        raise HasJoined(
            "the broker of this directory uses a log that is kept elsewhere: give its log.url, or -, with the --config "
            "of that broker",
            path=root,
        )
    return DataDirectory.at(root, effects.disk)
