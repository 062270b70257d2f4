"""From the bytes that a client sent to a batch that can be stored: whoever publishes does so through here.

    bytes -> rules of the topic -> header, CRC -> records (off the loop, in turns, if compressed) -> NewBatch

Everything that can be refused about a batch without asking the machine is
refused here, whatever protocol it came by.
"""

from typing import NamedTuple

from crc32c import crc32c

from dray.buffers import Buffer
from dray.clock import Clock
from dray.machine.names import ProducerId, StreamId
from dray.machine.topics import Topic
from dray.produce.batches import NewBatch, Stored, received, stamped
from dray.produce.rules import RuleBook
from dray.produce.unpacking import Unpacking
from dray.records import BatchRules, ScratchPool, Validated, check_records, inspect, takes
from dray.records.errors import BadCodec
from dray.records.layout import CRC_FROM, Codec
from dray.records.pure_request import Row


class Checked(NamedTuple):
    """A batch that may be submitted."""

    batch: NewBatch
    stamp_ms: int
    """The time that it was given here; -1: its producer's counts."""


def appended_ms(stamp_ms: int, stored: Stored) -> int:
    """The time the broker gave a batch, which is an earlier one if it is a duplicate; -1: its producer's counts."""
    return stored.timestamp_ms if stamp_ms >= 0 <= stored.timestamp_ms else stamp_ms


class Intake:
    """Checks what is to be stored. One for all servers of a process."""

    def __init__(self, *, clock: Clock, unpacking: Unpacking, scratch: ScratchPool | None = None) -> None:
        self._clock = clock
        self._unpacking = unpacking
        self._scratch = scratch or ScratchPool()
        self._rules = RuleBook()

    async def check(
        self, topic: Topic, stream: StreamId, data: Buffer, *, owner: object, knows_zstd: bool = True
    ) -> Checked:
        """The batch, if the topic takes it. Compressed ones of one owner are unpacked one at a time (KP21).

        Raises:
            InvalidBatch: its class says why; nothing will be stored.
        """
        rules = self._rules.of(topic).batch
        now_ms = self._clock.wall_ms()
        validated = await self._validate(data, rules, now_ms, owner, knows_zstd=knows_zstd)
        if rules.append_time:
            return Checked(stamped(stream, validated, now_ms), now_ms)
        return Checked(received(stream, validated), -1)

    def take_row(self, topic: Topic, frame: memoryview, row: Row, now_ms: int) -> NewBatch | None:
        """As `check`, of a batch that the kernel has read in its frame; None: it is for `check`, which says why."""
        _, partition, start, end, crc, records, least, greatest, null_key, producer, epoch, sequence = row
        rules = self._rules.of(topic).batch
        data = frame[start:end]
        if rules.append_time or end - start > rules.max_bytes or crc32c(data[CRC_FROM:]) != crc:
            return None
        if not takes(least, greatest, null_key, rules, now_ms):
            return None
        return NewBatch(topic.streams[partition], data, records, least, greatest, ProducerId(producer), epoch, sequence)

    async def _validate(
        self, data: Buffer, rules: BatchRules, now_ms: int, owner: object, *, knows_zstd: bool
    ) -> Validated:
        batch = inspect(data, rules)
        if batch.codec is Codec.ZSTD and not knows_zstd:
            raise BadCodec("zstd needs a newer version of the request")
        if batch.is_compressed:
            return await self._unpacking.run(owner, check_records, batch, rules, self._scratch, now_ms)
        return check_records(batch, rules, self._scratch, now_ms)
