"""One stream: its index, its producers, where it starts and ends.

Invariants
    H4  A batch gets offsets only in an open stream, from the object that its
        entry's own session wrote; start = previous end, end = start +
        records, size = previous + 4 + bytes. A refused batch changes nothing
        and hinders no other.
"""

from collections.abc import Iterator
from typing import Final

from dray.machine import producers
from dray.machine.append import FULL
from dray.machine.command import MAX_SIGNED
from dray.machine.garbage import Objects
from dray.machine.index import LENGTH_BYTES, Index, IndexRow
from dray.machine.keys import Shape, overlap
from dray.machine.names import ObjectId, StreamId, TopicId
from dray.machine.noun import Fields, Listing
from dray.machine.producers import ProducerState

STREAM_KEY: Final = Shape("streams/#")
LOG_END_KEY: Final = Shape("streams/#/hwm")
LOG_START_KEY: Final = Shape("streams/#/log-start")
INDEX_KEY: Final = Shape("streams/#/offset-index/#/#")
PRODUCER_KEY: Final = Shape("streams/#/producers/#")


class Stream:
    """One stream."""

    __slots__ = (
        "closed", "id", "index", "opened_ms", "partition", "producer_floor", "producers", "start", "topic_id", "txns",
    )  # fmt: skip

    def __init__(self, number: StreamId, topic_id: TopicId, partition: int, opened_ms: int) -> None:
        self.id = number
        self.topic_id = topic_id
        self.partition = partition
        self.opened_ms = opened_ms
        self.closed = False
        self.start = 0
        self.producer_floor = 0
        """Producers below this id may begin anywhere (P2)."""
        self.producers = bytearray()
        self.index = Index()
        self.txns: dict[bytes, tuple[int, int]] = {}
        """The last transactions: their base offset here and their records (AI2)."""

    @property
    def end(self) -> int:
        return self.index.end

    @property
    def kept_bytes(self) -> int:
        """Bytes of the rows that are still there."""
        return self.index.size - self.index.first_size

    @property
    def batch_bytes(self) -> int:
        """Bytes of the batches themselves."""
        return max(0, self.kept_bytes - LENGTH_BYTES * len(self.index))

    def take(
        self, owner: ObjectId, stamp: int, producer: int, sequence: int, records: int, size: int, position: int,
        epoch: int, now_min: int,
    ) -> int:  # fmt: skip
        """Give a well-formed batch its offsets: the base, or why not (H4)."""
        index = self.index
        base = index.end
        end, total = base + records, index.size + size + LENGTH_BYTES
        if end > MAX_SIGNED or total > MAX_SIGNED:
            return FULL
        if producer >= 0:
            given = producers.take(
                self.producers, self.producer_floor, producer, epoch, sequence, records, base, now_min
            )
            if given < 0:
                return given
        index.append(end, total, owner, position, stamp)
        return base

    def show(self, prefix: str, objects: Objects) -> Listing:
        """Its keys in order; of rows and producers only what may begin with the prefix."""
        key = STREAM_KEY.build(self.id)
        if not overlap(key, prefix):
            return
        yield key, self._fields()
        yield LOG_END_KEY.build(self.id), {"offset": self.end}
        yield LOG_START_KEY.build(self.id), {"offset": self.start}
        for row in self._rows_under(prefix):
            yield INDEX_KEY.build(self.id, row.end, row.cumulative_size), _row_fields(self.id, row, objects)
        for producer in producers.producer_ids(self.producers):
            state = producers.find(self.producers, producer)
            if state is not None:
                yield PRODUCER_KEY.build(self.id, producer), _producer_fields(state)

    def _rows_under(self, prefix: str) -> Iterator[IndexRow]:
        """A whole key is found by bisection, not by walking over a million rows."""
        wanted = INDEX_KEY.parse(prefix)
        if wanted is not None:
            found = self.index.find(int(wanted[1]) - 1)
            return iter(()) if found is None else iter((self.index.row(found),))
        listed = overlap(f"{STREAM_KEY.build(self.id)}/offset-index", prefix)
        return self.index.rows(self.start) if listed else iter(())

    def _fields(self) -> Fields:
        return {
            "topicId": self.topic_id.hex(), "partition": self.partition, "closed": self.closed,
            "logStart": self.start, "logEnd": self.end, "rows": len(self.index), "bytes": self.kept_bytes,
            "producers": len(self.producers) // producers.SIZE, "producerFloor": self.producer_floor,
            "openedAt": self.opened_ms,
        }  # fmt: skip


def _row_fields(stream: StreamId, row: IndexRow, objects: Objects) -> Fields:
    owner = objects.find(row.object)
    fields: Fields = {
        "streamId": stream, "startOffset": row.start, "endOffset": row.end,
        "cumulativeSize": row.cumulative_size, "recordCount": row.end - row.start,
        "messageCount": row.end - row.start, "maxTimestampMs": row.max_timestamp_ms,
        "position": row.position, "length": row.size,
    }  # fmt: skip
    if owner is None:
        return fields
    fields |= {"fileType": owner.kind.name, "createdAtMs": owner.created_ms}
    if owner.file is None:
        return fields | {"walId": owner.wal_id.hex(), "zone": owner.zone}
    return fields | {
        "recordCount": owner.file.records, "messageCount": owner.file.records,
        "minTimestampMs": owner.file.min_timestamp_ms, "parquetId": owner.wal_id.hex(),
        "parquetPath": owner.path(), "parquetSizeBytes": owner.size,
    }  # fmt: skip


def _producer_fields(state: ProducerState) -> Fields:
    return {
        "producerId": state.producer_id, "epoch": state.epoch, "lastSequence": state.last_sequence,
        "lastUsedMin": state.used_min,
        "batches": [{"sequence": first, "records": records, "base": base} for first, records, base in state.batches],
    }  # fmt: skip
