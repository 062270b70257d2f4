"""Confirmed checkpoints in the object store: they belong to nobody's disk.

    meta/v1/<log id>/domain=<domain>/<position>-<hash of the bytes>.checkpoint

Objects are written once. The name carries what the bytes are, so whoever
publishes the same checkpoint writes the same object, and two that differ are
two names: a dispute, which anybody sees who lists.

Invariants
    CK6  What is published was confirmed before. Of a position with two
         checkpoints none is taken.
"""

from contextlib import suppress
from hashlib import blake2b

from dray.errors import NotFound
from dray.objects.paths import (
    META_PREFIX,
    checkpoint_path,
    checkpoints_prefix,
    log_of_checkpoint,
    parse_checkpoint_path,
)
from dray.objects.port import AlreadyExists, Objects
from dray.offload import Offload
from dray.replica import telemetry
from dray.telemetry import logger

_HASH_BYTES = 16


class PublishedCheckpoints:
    """The confirmed checkpoints of one domain of one log."""

    def __init__(self, objects: Objects, *, log_id: bytes, domain: int, offload: Offload) -> None:
        self._objects = objects
        self._log_id = log_id
        self._domain = domain
        self._offload = offload
        self._names: dict[int, list[str]] = {}
        """As of the last listing, by position."""

    async def confirmed(self) -> list[int]:
        """Positions, ascending; one that is disputed is left out (CK6)."""
        names: dict[int, list[str]] = {}
        async for found in self._objects.list(checkpoints_prefix(self._log_id, self._domain)):
            position = parse_checkpoint_path(found.path)
            if position is not None:
                names.setdefault(position, []).append(found.path)
        self._names = names
        for position, known in names.items():
            if len(known) > 1:
                logger().error(telemetry.CHECKPOINT_DISPUTED, position=position, domain=self._domain)
        return sorted(position for position, known in names.items() if len(known) == 1)

    async def read(self, position: int) -> bytes:
        """The bytes; `NotFound` if there is no such checkpoint, or two."""
        if position not in self._names:
            await self.confirmed()
        match self._names.get(position):
            case [name]:
                return bytes(await self._objects.get(name))
            case _:
                raise NotFound("no such checkpoint", position=position)

    async def publish(self, position: int, data: bytes) -> None:
        """Let everybody have a checkpoint that was confirmed; again is fine."""
        digest = await self._offload.run(_digest, data)
        path = checkpoint_path(self._log_id, self._domain, position, digest)
        if path in self._names.get(position, ()):
            return
        with suppress(AlreadyExists):  # damaged in the store: who reads it passes it over
            await self._objects.put(path, [data])
        self._names.setdefault(position, []).append(path)

    async def remove(self, upto: int) -> None:
        """Forget the checkpoints up to a position and with it, whoever published them."""
        for position in sorted(position for position in self._names if position <= upto):
            for name in self._names.pop(position):
                await self._objects.delete(name)


async def published_logs(objects: Objects, domain: int) -> set[bytes]:
    """The logs of which checkpoints of a domain are published."""
    found = set()
    async for one in objects.list(META_PREFIX):
        log = log_of_checkpoint(one.path, domain)
        if log is not None:
            found.add(log)
    return found


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_HASH_BYTES).digest()
