"""A tape with one broker, topics and objects: what most tests of streams need."""

from dray.machine.append import Append, Appended, pack_rows
from dray.machine.names import StreamId, TopicId, WalId, wal_id
from dray.machine.streams import OpenStream
from dray.machine.topics import CreateTopic, TopicCreated, TopicReady
from dray.machine.verdict import Done

from .scribe import LOG, NOW, Tape, Writer


def row(
    stream: int, records: int = 1, *, producer: int = -1, sequence: int = -1, epoch: int = -1, size: int = 100,
    position: int = 53, stamp: int = NOW,
) -> tuple[int, int, int, int, int, int, int, int, int]:  # fmt: skip
    return stream, stamp, stamp, producer, sequence, records, size, position, epoch


class Shop:
    """One broker on one tape."""

    def __init__(self, **genesis) -> None:
        self.tape = Tape(**genesis)
        self.machine = self.tape.machine
        self.writer: Writer = self.tape.open("broker")
        self.topics = 0

    def reopen(self, **fields) -> None:
        self.writer = self.tape.open("broker", **fields)

    def topic_id(self) -> TopicId:
        self.topics += 1
        return TopicId(self.topics.to_bytes(16, "big"))

    def topic(self, name: str, partitions: int) -> list[StreamId]:
        topic_id = self.topic_id()
        created = self.writer.do(CreateTopic(topic_id=topic_id, name=name, partitions=partitions))
        assert isinstance(created, TopicCreated), created
        for partition, stream in enumerate(created.streams):
            opening = OpenStream(
                stream=stream, topic_id=topic_id, partition=partition,
                name_existed_before=created.name_existed_before, producer_floor=created.producer_floor,
            )  # fmt: skip
            assert self.writer.do(opening) == Done()
        assert self.writer.do(TopicReady(topic_id=topic_id)) == Done()
        return list(created.streams)

    def next_wal(self) -> WalId:
        self.writer.wal += 1
        return wal_id(LOG, self.writer.session, self.writer.wal)

    def command(self, *rows, name: WalId | None = None, size: int = 1 << 20, zone: str = "a") -> Append:
        return Append(
            wal_id=name if name is not None else self.next_wal(), size=size, created_ms=NOW, zone=zone,
            packed=pack_rows(rows),
        )  # fmt: skip

    def append(self, *batches: tuple[int, int]) -> list:
        """Append (stream, records) pairs as one object."""
        return self.append_rows(*(row(stream, records) for stream, records in batches))

    def append_rows(self, *rows) -> list:
        appended = self.writer.do(self.command(*rows))
        assert isinstance(appended, Appended), appended
        return list(appended)
