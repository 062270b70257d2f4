"""`drayd admin meta export` and `import`: a cluster's metadata as a file, and a cluster begun with one."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dray.cli.options import ConfigFile, FormatOption, Sets, load_config
from dray.cli.output import Format, answer
from dray.cli.places import Where, parse_where, place_at, run_process
from dray.config import parse_duration
from dray.disk import LocalDisk
from dray.log.settings import LogSettings
from dray.machine.holds import LONGEST_MS
from dray.node import moving
from dray.node.effects import ProcessEffects
from dray.node.exports import unpack_export, write_export
from dray.node.settings import BrokerSettings

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
    hold_ms, settings = _hold_ms(hold), load_config(config, sets)

    async def work(process: ProcessEffects) -> None:
        export = await moving.export_cluster(place_at(source, settings, process.effects), process.effects, hold_ms)
        size = write_export(file.absolute(), export, process.effects.disk)
        document = {"cluster": export.cluster_id, "domains": len(export.checkpoints), "bytes": size, "file": str(file)}
        answer(
            form, document, f"cluster {export.cluster_id}: {len(export.checkpoints)} domains, {size} bytes in {file}"
        )

    run_process(settings, work)


def import_cluster(
    file: ExportFile, target: Where, config: ConfigFile = None, sets: Sets = None, form: FormatOption = Format.TEXT
) -> None:
    """Begin a cluster with the state of a file, where there is none yet. Stop the brokers of the old one first."""
    settings = load_config(config, sets)
    found = parse_where(target)
    log = settings.get(LogSettings).place if found is None else found
    place = settings.get(BrokerSettings).data.absolute() if log is None else log
    export = unpack_export(bytes(LocalDisk().read(file.absolute())))

    async def work(process: ProcessEffects) -> None:
        if isinstance(place, Path):
            moved = await moving.import_directory(export, place, process.effects)
        else:
            moved = await moving.import_engine(export, place, process.store, process.effects)
        document = {
            "cluster": export.cluster_id,
            "domains": [
                {"domain": one.domain, "position": one.position, "generation": one.generation} for one in moved
            ],
        }
        lines = [f"cluster {export.cluster_id} begins anew at {target}, read back and equal"]
        lines += [f"domain {one.domain}: behind position {one.position}, generation {one.generation}" for one in moved]
        answer(form, document, "\n".join(lines))

    run_process(settings, work)


def _hold_ms(text: str) -> int:
    try:
        hold_ms = parse_duration(text) // timedelta(milliseconds=1) if text else 0
    except ValueError as bad:
        raise typer.BadParameter(str(bad), param_hint="--hold") from bad
    if not 0 <= hold_ms <= LONGEST_MS:
        raise typer.BadParameter(f"expected at most {LONGEST_MS // 86_400_000}d", param_hint="--hold")
    return hold_ms
