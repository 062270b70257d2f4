"""Reads records: of partitions that are named, or as a member of a group.

Invariants
    CL2  A group's offset moves only over records that were handed on with
         `done_with`: what its reader did not keep is read again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Assigned

from dray.errors import Unavailable
from dray.kafka_client.cluster import TopicPartition
from dray.kafka_client.errors import SaidNo, TopicNotThere
from dray.kafka_client.library import Options, settings, silent
from dray.kafka_client.record import Incoming

AT_ONCE: Final = 200
POLL_S: Final = 0.2
_LONGEST_PAUSE_MS: Final = 86_400_000
"""Whoever reads our output may pause: a pager is no reason to lose a group's partitions."""
_NO_GROUP: Final = "dray-consume"
"""The library wants a name; nothing joins, and nothing is committed."""


class RecordReader:
    """One consumer. `ends` holds where to stop in each partition; without, a partition ends where it ends now."""

    def __init__(
        self,
        bootstrap: str,
        own: Options,
        *,
        follow: bool,
        timeout_s: float,
        warn: Callable[[str], None],
    ) -> None:
        both: Options = {
            "enable.partition.eof": True,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
        self._consumer = Consumer({**settings(bootstrap), **both, **own, "error_cb": self._trouble}, logger=silent())
        self._follow = follow
        self._patience = max(1, round(timeout_s / POLL_S))
        self._quiet = 0
        self._warn = warn
        self._warned = False
        self._ends: Mapping[TopicPartition, int] = {}
        self._open: set[TopicPartition] | None = None
        """What is not at its end yet; None: a group has not told what to read."""

    @property
    def finished(self) -> bool:
        """Whether all that there was is read."""
        return not self._follow and self._open is not None and not self._open

    def poll(self) -> list[Incoming]:
        """The next records; none after a short wait.

        Raises:
            TopicNotThere: it is gone.
            SaidNo: the broker refuses.
            Unavailable: nothing came for too long, unless one follows.
        """
        messages = self._consumer.consume(AT_ONCE, POLL_S)
        if messages:
            self._quiet, self._warned = 0, False
        else:
            self._quiet += 1
        if self._quiet > self._patience and not self._follow:
            raise Unavailable("no broker told anything for too long", seconds=round(self._patience * POLL_S))
        return [record for message in messages if (record := self._taken(message)) is not None]

    def done_with(self, records: Sequence[Incoming]) -> None:
        """These were kept, and all before them (CL2)."""
        after = {(record.topic, record.partition): record.offset + 1 for record in records}
        for (topic, partition), offset in after.items():
            try:
                self._consumer.store_offsets(offsets=[Assigned(topic, partition, offset)])
            except KafkaException as error:
                # Somebody else has the partition by now, and reads this again.
                if error.args[0].code() != KafkaError._STATE:
                    raise

    def close(self) -> None:
        """Leave, and commit what was done with."""
        self._consumer.close()

    def assign(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None) -> None:
        """Read these partitions from here on; up to `ends`, or as one follows."""
        wanted = [place for place, start in starts.items() if ends is None or start < ends[place]]
        self._ends = ends or {}
        self._open = set(wanted)
        self._consumer.assign([Assigned(one.topic, one.partition, starts[one]) for one in wanted])

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read what the group gives us."""
        self._consumer.subscribe(list(topics), on_assign=self._gained, on_revoke=self._gave, on_lost=self._gave)

    def _taken(self, message: Message) -> Incoming | None:
        """A record to hand on, if it is one: ends and errors come as messages too."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise _refusal(error, message.topic())
        record = _record(message)
        place = TopicPartition(record.topic, record.partition)
        end = self._ends.get(place)
        if self._open is not None and (error is not None or (end is not None and record.offset + 1 >= end)):
            self._open.discard(place)
        return record if error is None and (end is None or record.offset < end) else None

    def _gained(self, _: Consumer, partitions: list[Assigned]) -> None:
        self._open = {TopicPartition(one.topic, one.partition) for one in partitions}

    def _gave(self, _: Consumer, partitions: list[Assigned]) -> None:
        self._open = None

    def _trouble(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self._warned:
            self._warned = True
            self._warn("no broker answers: waiting for one")


def read_partitions(
    bootstrap: str,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    *,
    timeout_s: float,
    warn: Callable[[str], None],
) -> RecordReader:
    """Read partitions by themselves; without ends, for ever."""
    own: Options = {"group.id": _NO_GROUP, "enable.auto.commit": False}
    reader = RecordReader(bootstrap, own, follow=ends is None, timeout_s=timeout_s, warn=warn)
    reader.assign(starts, ends)
    return reader


def read_as_member(
    bootstrap: str,
    group: str,
    topics: Sequence[str],
    *,
    latest: bool,
    follow: bool,
    timeout_s: float,
    warn: Callable[[str], None],
) -> RecordReader:
    """Read as a member of a group: from where it is, or from an end where it never was."""
    own: Options = {
        "group.id": group,
        "enable.auto.commit": True,
        "auto.offset.reset": "latest" if latest else "earliest",
        "max.poll.interval.ms": _LONGEST_PAUSE_MS,
    }
    reader = RecordReader(bootstrap, own, follow=follow, timeout_s=timeout_s, warn=warn)
    reader.subscribe(topics)
    return reader


def _record(message: Message) -> Incoming:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise Unavailable("the library told of a record without its place")
    kind, at_ms = message.timestamp()
    headers = message.headers() or ()
    return Incoming(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=at_ms if kind else None,
        key=message.key(),
        value=message.value() if message.error() is None else None,
        headers=tuple(
            (name, value.encode() if isinstance(value, str) else value)
            for name, value in (headers.items() if isinstance(headers, dict) else headers)
        ),
    )


def _refusal(error: KafkaError, topic: str | None) -> Exception:
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return TopicNotThere("the topic is gone", topic=topic)
    return SaidNo("reading failed", code=error.name(), reason=repr(error.str()))
