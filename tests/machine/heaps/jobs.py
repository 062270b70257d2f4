"""One heap in one domain, and what its clients say, for tests that tell a story."""

from dray.machine.heaps.answers import Enqueued, Granted, GrantedMessage, Settled
from dray.machine.heaps.catalog import CreateHeap, HeapCreated, HeapReady
from dray.machine.heaps.commands import OpenShard, Tick
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import (
    Enqueue,
    EnqueueRow,
    Lease,
    Settle,
    Settlement,
    pack_messages,
    pack_settlements,
)
from dray.machine.names import StreamId, wal_id

from ..scribe import LOG, Tape, Writer

HEAP = b"h" * 16
LAST = (1 << 63) - 1


class Jobs:
    """A heap that is open; `writer` is the broker that speaks."""

    def __init__(self, *, mode: Mode = Mode.MIN, partitions: int = 1, tape: Tape | None = None, **config) -> None:
        self.tape = tape or Tape(version=2)
        self.writer = self.tape.open("b1")
        self.mode, self.partitions, self.config = mode, partitions, HeapConfig(**config)
        created = self.writer.do(
            CreateHeap(heap_id=HEAP, name="jobs", mode=mode, partitions=partitions, config=self.config)
        )
        assert isinstance(created, HeapCreated), created
        self.id: StreamId = created.shard
        self.nonces = 0
        self.tell(0)
        self.writer.do(HeapReady(heap_id=HEAP, revision=0))

    @property
    def shard(self):
        return self.tape.machine.heaps.all[self.id]

    def tell(self, revision: int):
        return self.writer.do(
            OpenShard(
                shard=self.id, heap_id=HEAP, mode=self.mode, partitions=self.partitions, revision=revision,
                config=self.config,
            )
        )  # fmt: skip

    def enqueue(self, *rows: EnqueueRow, body: bytes = b"", flags: int = 0, writer: Writer | None = None, **fields):
        """One answer a row; every message has the same body."""
        packed = pack_messages([row._replace(length=len(body)) for row in rows])
        command = Enqueue(shard=self.id, packed=packed, bodies=body * len(rows), flags=flags, **fields)
        verdict = (writer or self.writer).do(command)
        return verdict.given if isinstance(verdict, Enqueued) else verdict

    def new_object(self) -> bytes:
        self.writer.wal += 1
        return wal_id(LOG, self.writer.session, self.writer.wal)

    def lease(
        self, limit: int = 1, *, holder: str = "c", seconds: float = 30, worst: int | None = None
    ) -> list[GrantedMessage]:
        """What was granted; its token is `self.nonce`."""
        self.nonces += 1
        self.nonce = self.nonces.to_bytes(16, "big")
        last = -LAST - 1 if self.mode is Mode.MAX else LAST
        verdict = self.writer.do(
            Lease(
                shard=self.id, visibility_ms=int(seconds * 1_000), limit=limit, nonce=self.nonce, holder=holder,
                worst=last if worst is None else worst,
            )
        )  # fmt: skip
        assert isinstance(verdict, Granted), verdict
        return verdict.messages

    def settle(self, kind: Settlement, message: GrantedMessage, nonce: bytes, argument: int = 0, note: str = "") -> int:
        rows = pack_settlements([(kind, message.slot, message.arrival, nonce, argument)])
        verdict = self.writer.do(Settle(shard=self.id, packed=rows, notes={0: note} if note else {}))
        assert isinstance(verdict, Settled), verdict
        self.left_ms = verdict.left_ms.get(0)
        return verdict.codes[0]

    def ack(self, message: GrantedMessage, nonce: bytes) -> int:
        return self.settle(Settlement.ACK, message, nonce)

    def tick(self):
        return self.writer.do(Tick(shard=self.id))

    def after(self, seconds: float) -> None:
        self.writer.live(int(seconds * 1_000))
