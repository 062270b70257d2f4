"""Writes records, and knows what became of each.

Invariants
    CL1  Each record that was taken is counted once: as stored, as failed, or
         as unknown where it may have been stored (E1).
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dray.kafka_client.library import Options, settings, silent
from dray.kafka_client.record import Outgoing

LARGEST_BYTES: Final = 100 << 20
"""Of one record: what a broker of Kafka takes in one request, on its defaults."""
QUEUE_KIB: Final = 128 << 10
"""What may wait to be sent; whoever writes more waits. A largest record fits."""
FAILURES_KEPT: Final = 10
_WAIT_S: Final = 0.1
_CHOSEN: Final = -1
"""The library chooses the partition, by the key if there is one."""
_MAYBE: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""After these a record may be stored or not: nobody was told."""


@dataclass(slots=True, kw_only=True)
class StoredRange:
    """What one partition took."""

    records: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """Why one record was not stored, or may not have been."""

    record: int
    code: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of all records so far (CL1)."""

    stored: int = 0
    failed: int = 0
    unknown: int = 0
    partitions: dict[int, StoredRange] = field(default_factory=dict)
    failures: list[RecordFailure] = field(default_factory=list)
    """The first few."""

    @property
    def good(self) -> bool:
        return not self.failed and not self.unknown

    def refuse(self, failure: RecordFailure, *, maybe: bool = False) -> None:
        """Count a record that was not stored, or `maybe` was."""
        if maybe:
            self.unknown += 1
        else:
            self.failed += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(failure)

    def accept(self, partition: int, offset: int) -> None:
        """Count a record that is stored."""
        self.stored += 1
        told = self.partitions.get(partition)
        if told is None:
            self.partitions[partition] = StoredRange(records=1, first=offset, last=offset)
        else:
            told.records += 1
            told.first, told.last = min(told.first, offset), max(told.last, offset)


class RecordWriter:
    """Sends records to one topic, in their order, each once: retries make no doubles."""

    def __init__(self, bootstrap: str, topic: str, *, compression: str, timeout_s: float) -> None:
        own: Options = {
            "enable.idempotence": True,
            "compression.type": compression,
            # As the Java client does it: a key goes to the same partition whoever wrote it.
            "partitioner": "murmur2_random",
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
            "message.max.bytes": LARGEST_BYTES + (64 << 10),
            "queue.buffering.max.kbytes": QUEUE_KIB,
        }
        self._producer = Producer({**settings(bootstrap), **own}, logger=silent())
        self._topic = topic
        self.tally = Tally()

    def write(self, number: int, record: Outgoing) -> None:
        """Take one record; waits while too much is on its way. What became of it is told by `poll`."""
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=_CHOSEN if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(record.headers),
                    on_delivery=partial(self._settle, number),
                )
                break
            except BufferError:
                self._producer.poll(_WAIT_S)
            except KafkaException as error:
                self._count(number, error.args[0])
                break

    def poll(self) -> None:
        """Hear what became of records; waits for nothing."""
        self._producer.poll(0)

    def pending(self) -> int:
        """Records whose end is not known yet, after a short wait for it."""
        return self._producer.flush(_WAIT_S)

    def abandon(self) -> None:
        """Give up what is still on its way: what was sent already may be stored."""
        self._producer.purge()
        self._producer.flush(_WAIT_S)

    def _settle(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._count(number, error)
            return
        partition, offset = message.partition(), message.offset()
        self.tally.accept(-1 if partition is None else partition, -1 if offset is None else offset)

    def _count(self, number: int, error: KafkaError) -> None:
        failure = RecordFailure(record=number, code=error.name(), reason=error.str())
        self.tally.refuse(failure, maybe=error.code() in _MAYBE)
