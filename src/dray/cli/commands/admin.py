"""Look at the metadata of a cluster, verify and recover it; its heaps, keys, tables and audit files."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Final, TypeAlias

import typer

from dray.cli.commands._heaps import dlq, heap
from dray.cli.commands._keys import audit, key
from dray.cli.commands._moving import export_cluster, import_cluster
from dray.cli.commands._pins import pins
from dray.cli.options import ConfigFile, FormatOption, Sets, load_config
from dray.cli.output import Format, answer
from dray.cli.places import CommandPlace, Where, only_directory, run_at
from dray.cli.table_commands import table
from dray.clock import SystemClock
from dray.disk import DirectoryLock, LocalDisk
from dray.errors import Corrupt, Invalid, NotFound
from dray.ids import SystemEntropy
from dray.log.port import Position
from dray.machine import listing
from dray.machine.keys import ROOT
from dray.machine.machine import Machine
from dray.node.activation import activate
from dray.node.growth import add_domains
from dray.node.history import state_of_version
from dray.node.inspection import Inspected, current_machine, inspect, verify
from dray.node.recovery import Recovered, recovered
from dray.node.rules import newest_version

app: Final = typer.Typer()
meta: Final = typer.Typer(help="The metadata of a cluster, beside running brokers or with none.")
app.add_typer(meta, name="meta")
meta.command("export")(export_cluster)
meta.command("import")(import_cluster)
app.add_typer(table, name="table")
app.add_typer(pins, name="pins")
app.add_typer(heap, name="heap")
app.add_typer(dlq, name="dlq")
app.add_typer(key, name="key")
app.add_typer(audit, name="audit")

DomainOption: TypeAlias = Annotated[int, typer.Option("--domain", min=0, max=0xFFFF, help="Which domain to look at.")]


@app.callback()
def admin() -> None:
    """Look at the metadata of a cluster, verify and recover it; its heaps, keys, tables and audit files."""


@meta.command("ls")
def list_keys(
    where: Where,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX")] = ROOT,
    domain: DomainOption = 0,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """List the state under the specification's keys, in order."""
    machine = run_at(where, config, sets, lambda asked: _machine(asked, domain))
    pairs = list(listing.ls(machine, prefix))
    answer(form, {"keys": [{"key": key, "value": value} for key, value in pairs]}, "\n".join(key for key, _ in pairs))


@meta.command("get")
def get_key(
    where: Where,
    key: str,
    domain: DomainOption = 0,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Show the value of one key."""
    value = listing.get(run_at(where, config, sets, lambda asked: _machine(asked, domain)), key)
    if value is None:
        raise NotFound("no such key: list them with `drayd admin meta ls`", key=key)
    answer(form, {"key": key, "value": value}, json.dumps(value, indent=2))


@meta.command("at")
def list_version(
    version: Annotated[int, typer.Argument(metavar="VERSION", min=0, help="Of the delta log.")],
    prefix: Annotated[str, typer.Argument(metavar="PREFIX")] = ROOT,
    config: ConfigFile = None,
    sets: Sets = None,
    domain: DomainOption = 0,
    form: FormatOption = Format.TEXT,
) -> None:
    """List the state as of a version of a delta log, beside the brokers that write it."""
    machine = asyncio.run(state_of_version(load_config(config, sets, []), domain, version))
    pairs = list(listing.ls(machine, prefix))
    answer(form, {"keys": [{"key": key, "value": value} for key, value in pairs]}, "\n".join(key for key, _ in pairs))


@meta.command("tail")
def show_entries(
    where: Where,
    domain: DomainOption = 0,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin behind this position.")] = 0,
    lines: Annotated[int, typer.Option("-n", min=1, help="Show the last this many entries.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is appended.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Print entries of the log, one JSON object a line."""
    run_at(where, config, sets, lambda asked: _print_entries(asked, domain, after, lines, follow=follow))


@meta.command("verify")
def verify_log(
    where: Where,
    domain: DomainOption = 0,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Fold the whole log, compare every checkpoint with it, and tell the digest."""

    async def check(asked: CommandPlace) -> None:
        async with inspect(asked.place, domain, LocalDisk()) as inspected:
            found = await verify(inspected)
            torn = inspected.torn
        document = {
            "first": found.first, "last": found.last, "digest": f"{found.digest:016x}",
            "checkpoints_equal": list(found.checkpoints), "checkpoints_unproven": list(found.skipped),
            "torn_bytes": torn.cut if torn else 0,
        }  # fmt: skip
        text = f"the log is whole: entries {found.first} to {found.last}, digest {found.digest:016x}"
        text += (
            f"\ncheckpoints equal to the fold: {len(found.checkpoints)}, not provable any more: {len(found.skipped)}"
        )
        if torn:
            text += f"\na torn tail of {torn.cut} bytes was never acknowledged; the next start cuts it"
        answer(form, document, text)

    run_at(where, config, sets, check)


@meta.command("recover")
def recover(
    where: Where,
    domain: DomainOption = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Begin a new log with what a damaged or rolled-back one still tells; the old one is kept aside."""

    async def begin(asked: CommandPlace) -> Recovered:
        directory = only_directory(
            asked.place,
            "restore it by its own means, or from a file of `drayd admin meta export` with `drayd admin meta import`",
        )
        if not yes:
            typer.confirm("What was acknowledged behind the damage is lost for good. Begin a new log?", abort=True)
        lock = DirectoryLock(directory.root)
        try:
            return await recovered(directory, domain, LocalDisk(), SystemEntropy(), SystemClock())
        finally:
            lock.release()

    found = run_at(where, config, sets, begin)
    document = {
        "position": found.position, "generation": found.generation, "log_id": found.log_id.hex(),
        "lost_bytes": found.salvage.lost_bytes, "aside": str(found.aside),
        "set_back_ms": found.set_back_ms,
    }  # fmt: skip
    text = f"a new log begins behind position {found.position}, generation {found.generation}"
    text += f"\n{found.salvage.lost_bytes} bytes could not be read; the old log is kept in {found.aside}"
    if found.set_back_ms:
        text += (
            f"\nthe log's time was ahead of this machine's clock and is set back by {found.set_back_ms / 3.6e6:.1f} h"
        )
    answer(form, document, text)


@meta.command("activate")
def activate_version(
    where: Where,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", min=1, max=255, help="Default: the newest this build knows.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Let a newer version of the rules hold, once every broker knows it; older builds cannot open the log any more."""
    wanted = newest_version() if version is None else version
    if wanted > newest_version():
        raise Invalid("this build does not know that version: upgrade it first", version=wanted, knows=newest_version())
    if not yes:
        typer.confirm(f"There is no way back from version {wanted}. Activate it?", abort=True)
    done = run_at(where, config, sets, lambda asked: activate(asked.place, wanted, asked.effects))
    document = {"domains": [{"domain": n, "before": old, "active": new} for n, (old, new) in sorted(done.items())]}
    lines = [f"domain {n}: version {new} is active (was {old})" for n, (old, new) in sorted(done.items())]
    answer(form, document, "\n".join(lines))


@meta.command("add-domains")
def add_data_domains(
    where: Where,
    domains: Annotated[int, typer.Argument(metavar="N", min=2, max=256, help="How many there are to be.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigFile = None,
    sets: Sets = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Give a cluster that nobody runs at the moment more data domains, so that more brokers can lead some."""
    if not yes:
        typer.confirm(f"Domains are never taken away again. Let there be {domains}?", abort=True)
    before, after = run_at(where, config, sets, lambda asked: add_domains(asked.place, domains, asked.effects))
    text = f"there are {after} data domains (were {before}): new partitions are spread over all of them"
    answer(form, {"before": before, "domains": after}, text)


async def _machine(asked: CommandPlace, domain: int) -> Machine:
    async with inspect(asked.place, domain, LocalDisk()) as inspected:
        _refuse_damage(inspected)
        return await current_machine(inspected)


def _refuse_damage(inspected: Inspected) -> None:
    if inspected.damage is not None:
        damage = inspected.damage
        raise Corrupt(
            "the log is damaged: run `drayd admin meta recover`", reason=damage.reason, position=damage.position
        )


async def _print_entries(asked: CommandPlace, domain: int, after: int, lines: int, *, follow: bool) -> None:
    async with inspect(asked.place, domain, LocalDisk()) as inspected:
        tail = await inspected.log.tail()
        start = after if after else max(after, tail - lines)
        async for line in _entries(inspected, start, tail, follow=follow and inspected.live):
            typer.echo(line)


async def _entries(inspected: Inspected, after: int, tail: int, *, follow: bool) -> AsyncIterator[str]:
    if after >= tail and not follow:
        return
    machine = Machine()
    async for position, entry in inspected.log.follow(Position(after)):
        yield json.dumps({"position": position, **listing.render(machine, entry)})
        if position >= tail and not follow:
            return
