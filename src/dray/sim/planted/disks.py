"""Mistakes of brokers on data directories: what is durable, who may serve, what a server tells."""

from pathlib import Path

from dray.disk import Disk
from dray.errors import DrayError, Unknown
from dray.log.port import NotAppended
from dray.log.server import _Connection
from dray.log.wire import Frame, FrameKind, encode_error, encode_position
from dray.machine.confirmations import Checkpointed, CheckpointMark, Confirmations
from dray.machine.producer_ids import ProducerIds
from dray.machine.step import Step
from dray.node.directory import BORN
from dray.replica.checkpointer import Checkpointer
from dray.replica.checkpoints.files import CONFIRMED, MADE, PART, FileCheckpoints


def written_without_sync(self: FileCheckpoints, path: Path, data: bytes) -> None:
    """A checkpoint gets its name before its bytes are on the disk."""
    self._disk.make_dir(self._directory)
    temporary = path.with_suffix(f"{PART}{self._maker}")
    self._disk.remove(temporary)
    file = self._disk.create(temporary)
    file.write([data])
    file.close()
    self._disk.rename(temporary, path)
    self._disk.sync_dir(self._directory)


def confirmed_without_sync(self: FileCheckpoints, position: int) -> None:
    """The name under which a checkpoint may be loaded is not made durable."""
    self._disk.rename(self._path(position, MADE), self._path(position, CONFIRMED))


async def tidies_something(self: Checkpointer, newest: int) -> None:
    """Who tidies up takes it that there is something, and fails at the end of a look that found nothing."""
    oldest = min(await self._store.made())
    if oldest <= newest:
        await self._store.discard(oldest)


def born_without_sync(disk: Disk, home: Path) -> None:
    """The mark that a log was begun is not made durable."""
    if BORN not in disk.list(home):
        disk.create(home / BORN).close()


def ids_go_on(self: ProducerIds) -> None:
    """A recovered log gives ids again that were given by what it lost."""


async def unknown_is_refused(self: _Connection, frame: Frame) -> None:
    """Whatever an append ended with, its client is told that it did not happen."""
    try:
        position = await self._call(frame)
    except Unknown as error:
        await self._send(FrameKind.ERROR, frame.id, encode_error(NotAppended(str(error))))
    except DrayError as error:
        await self._send(FrameKind.ERROR, frame.id, encode_error(error))
    else:
        await self._send(FrameKind.POSITION, frame.id, encode_position(position))
    finally:
        self._in_flight_bytes -= len(frame.payload)
        self._fewer_in_flight.set()


def maker_confirms_itself(self: Confirmations, step: Step, mark: CheckpointMark, command: Checkpointed) -> None:
    """Who made a checkpoint may also confirm it, whoever else is alive."""
    if (mark.hash, mark.size) != (command.hash, command.size):
        mark.disputed = True
    elif command.confirms or step.session != mark.maker:
        mark.confirmed = True
