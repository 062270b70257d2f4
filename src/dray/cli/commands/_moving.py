"""`drayd admin meta export` and `import`: a cluster's metadata as a file, and a cluster begun with one."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar

import typer

from dray.cli.options import ConfigFile, FormatOption, Sets, load_config
from dray.cli.output import Format, answer
from dray.config import parse_duration
from dray.disk import LocalDisk
from dray.log.urls import LogUrl, parse_log_url
from dray.machine.holds import LONGEST_MS
from dray.node.directory import DataDirectory
from dray.node.effects import ProcessEffects, of_process
from dray.node.exports import unpack_export, write_export
from dray.node.moving import export_directory, export_engine, import_directory, import_engine

T = TypeVar("T")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
Where: TypeAlias = Annotated[
    str, typer.Argument(metavar="DIR|URL", help="A data directory; or the log.url of brokers that share one.")
]
ExportFile: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="The file.", dir_okay=False)]


def export_cluster(
    source: Where,
    file: ExportFile,
    hold: Annotated[
        str,
        typer.Option("--hold", metavar="2h", help="Keep what the file names in the store for so long, to copy it."),
    ] = "",
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Write the state of all domains into one file; beside running brokers too. Records stay in their store."""
    place = _place(source)
    hold_ms = _hold_ms(hold)

    async def work(process: ProcessEffects) -> None:
        if isinstance(place, Path):
            export = await export_directory(DataDirectory.at(place, process.effects.disk), process.effects, hold_ms)
        else:
            export = await export_engine(place, process.store, process.effects, hold_ms)
        size = write_export(file.absolute(), export, process.effects.disk)
        document = {"cluster": export.cluster_id, "domains": len(export.checkpoints), "bytes": size, "file": str(file)}
        answer(
            form, document, f"cluster {export.cluster_id}: {len(export.checkpoints)} domains, {size} bytes in {file}"
        )

    _run(config, sets, work)


def import_cluster(
    file: ExportFile, target: Where, config: ConfigFile = None, sets: Sets = None, form: FormatOption = Format.TEXT
) -> None:
    """Begin a cluster with the state of a file, where there is none yet. Stop the brokers of the old one first."""
    place = _place(target)
    export = unpack_export(bytes(LocalDisk().read(file.absolute())))

    async def work(process: ProcessEffects) -> None:
        if isinstance(place, Path):
            moved = await import_directory(export, place, process.effects)
        else:
            moved = await import_engine(export, place, process.store, process.effects)
        document = {
            "cluster": export.cluster_id,
            "domains": [
                {"domain": one.domain, "position": one.position, "generation": one.generation} for one in moved
            ],
        }
        lines = [f"cluster {export.cluster_id} begins anew at {target}, read back and equal"]
        lines += [f"domain {one.domain}: behind position {one.position}, generation {one.generation}" for one in moved]
        answer(form, document, "\n".join(lines))

    _run(config, sets, work)


def _hold_ms(text: str) -> int:
    try:
        hold_ms = parse_duration(text) // timedelta(milliseconds=1) if text else 0
    except ValueError as bad:
        raise typer.BadParameter(str(bad), param_hint="--hold") from bad
    if not 0 <= hold_ms <= LONGEST_MS:
        raise typer.BadParameter(f"expected at most {LONGEST_MS // 86_400_000}d", param_hint="--hold")
    return hold_ms


def _place(text: str) -> Path | LogUrl:
    return parse_log_url(text) if _URL.match(text) else Path(text).absolute()


def _run(config: Path | None, sets: list[str] | None, work: Callable[[ProcessEffects], Coroutine[None, None, T]]) -> T:
    settings = load_config(config, sets)

    async def run() -> T:
        async with AsyncExitStack() as stack:
            return await work(of_process(stack, settings))

    return asyncio.run(run())
