"""The audit files of a data directory, looked at from outside: whole, and as the log of commands has it.

DIR/audit/          what the broker of this directory was asked
DIR/audit/admin/    what `drayd admin` was
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dray.access.audit import ChainEnd, check_chain, deeds
from dray.disk import Disk
from dray.errors import Unavailable
from dray.log.envelope import BadEntry, decode_commands, decode_head
from dray.log.port import Log, Position, Trimmed
from dray.machine.command import BadCommand
from dray.machine.machine import Machine
from dray.node.directory import DataDirectory
from dray.node.metadata import Effects
from dray.node.reaching import DirectoryOrCluster, reach
from dray.replica.domains import CATALOG_DOMAIN

BROKER_PLACE: Final = "audit"
ADMIN_PLACE: Final = "audit/admin"
PLACES: Final = (BROKER_PLACE, ADMIN_PLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCommand:
    """A command of an administrator, as the log has it."""

    position: int
    command: str
    actor: str
    request: str


def check_audit(directory: DataDirectory, disk: Disk) -> dict[str, ChainEnd]:
    """Both chains of a directory, by their place below it.

    Raises:
        Corrupt: a line was changed, dropped or inserted.
    """
    directory.read_identity(disk)
    return {place: check_chain(directory.root / place, disk) for place in PLACES}


async def unlisted(place: DirectoryOrCluster, root: Path, effects: Effects) -> tuple[int, list[AskedCommand]]:
    """How many commands of administrators the catalog's log still holds, and those that no line names.

    Another broker may have served them: each writes down what was asked of it.
    """
    async with reach(place, effects) as reached, reached.reading(CATALOG_DOMAIN, effects) as log:
        starts = [0, *await (await reached.checkpoints(log, CATALOG_DOMAIN, effects)).confirmed()]
        asked = await _asked(log, starts)
    # Read behind the log: a line is written after its command.
    named = {line["request"] for one in PLACES for line in deeds(root / one, effects.disk)}
    return len(asked), [one for one in asked if one.request not in named]


async def _asked(log: Log, starts: list[int]) -> list[AskedCommand]:
    """From the first of these positions on behind which there is a log."""
    tail = await log.tail()
    for start in starts:
        try:
            return [one async for position, entry in _entries(log, start, tail) for one in _commands(position, entry)]
        except Trimmed:
            continue
    raise Unavailable("the log is trimmed faster than it can be read")


async def _entries(log: Log, after: int, upto: int) -> AsyncIterator[tuple[int, bytes]]:
    if after >= upto:
        return
    async for position, entry in log.follow(Position(after)):
        yield position, entry
        if position >= upto:
            return


def _commands(position: int, entry: bytes) -> Iterator[AskedCommand]:
    try:
        packed = decode_commands(entry, decode_head(entry).count)
    except BadEntry:
        return
    for kind, payload in packed:
        try:
            command = _DECODERS.decode(kind, payload, Machine.supported)
        except BadCommand:
            continue
        request = getattr(command, "request", "")
        if isinstance(request, str) and request:
            actor = str(getattr(command, "actor", ""))
            yield AskedCommand(position=position, command=type(command).__name__, actor=actor, request=request)


_DECODERS: Final = Machine().decoders
