"""What a heap costs in the machine: microseconds a message, bytes a message, seconds to load.

A cycle is the enqueue, the lease and the ack of one message, each as a packed
entry that is decoded, judged and applied, fifty messages at a time. All times
are CPU time of this process; bodies lie in objects, as those of a large heap do.
"""

import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bench.harness import Absolute, Comparison
from bench.machine import LOG, NOW, resident_bytes
from dray.log import envelope
from dray.machine import checkpoint
from dray.machine.command import Command, encode
from dray.machine.head import Genesis
from dray.machine.heaps.answers import Enqueued, Granted, Settled
from dray.machine.heaps.catalog import CreateHeap, HeapCreated, HeapReady
from dray.machine.heaps.commands import OpenShard
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import (
    IN_OBJECT,
    Enqueue,
    Lease,
    Settle,
    Settlement,
    Spill,
    SpillRow,
    pack_messages,
    pack_settlements,
    pack_spilled,
)
from dray.machine.machine import Machine
from dray.machine.names import wal_id
from dray.machine.sessions import Open, SessionKind

ROWS = 50
FEW, MANY = 20_000, 2_000_000
HEAP = b"h" * 16
PRODUCERS = tuple(bytes([number]) * 16 for number in range(16))


class Feeder:
    """A heap of so many messages, and a broker that goes on with it."""

    def __init__(self, messages: int, *, dedup: bool = False) -> None:
        self.machine = Machine()
        self.dice = random.Random(1)
        self.dedup = dedup
        self.sequences = [0] * len(PRODUCERS)
        self.n = self.wal = 0
        genesis = Genesis(cluster_id=b"c" * 16, log_id=LOG, domain=0, domains=1, version=2)
        opening = Open(
            name="b", nonce=b"n" * 16, seen=0, instance=b"i" * 16, kind=SessionKind.BROKER,
            lowest_version=1, highest_version=2, wall_ms=NOW,
        )  # fmt: skip
        for command in (genesis, opening):
            self.machine.apply(self.machine.position + 1, wrapped(command, session=0, n=0, time_ms=NOW))
        limits = HeapConfig(max_inflight=10**9, max_leases_per_consumer=10**9)
        created = self.do(CreateHeap(heap_id=HEAP, name="jobs", mode=Mode.MIN, partitions=16, config=limits))
        assert isinstance(created, HeapCreated)
        self.shard = created.shard
        self.do(OpenShard(shard=self.shard, heap_id=HEAP, mode=Mode.MIN, partitions=16, revision=0, config=limits))
        self.do(HeapReady(heap_id=HEAP, revision=0))
        catalog = self.machine.heap_catalog
        assert [heap.name for heap in catalog.visible()] == ["jobs"]
        assert not list(catalog.unfinished())
        for _ in range(messages // ROWS):
            self.apply(self.entry(self.enqueue()))

    def entry(self, command: Command) -> bytes:
        self.n += 1
        return wrapped(command, session=1, n=self.n, time_ms=NOW + self.n // 10)

    def apply(self, entry: bytes, want: bool = False) -> object:
        applied = self.machine.apply(self.machine.position + 1, entry, want)
        return applied.verdicts[0] if applied.verdicts else None

    def do(self, command: Command) -> object:
        return self.apply(self.entry(command), True)

    def enqueue(self) -> Enqueue:
        rows = []
        for slot in range(ROWS):
            key = self.dice.randrange(len(PRODUCERS)) + 1 if self.dedup else 0
            seq = self.sequences[key - 1]
            self.sequences[key - 1] += 1
            priority, partition = self.dice.randrange(10), self.dice.randrange(16)
            rows.append((priority, 0, partition, -1, 0, key, seq if key else 0, 53 + 1_100 * slot, 1_024))
        self.wal += 1
        return Enqueue(
            shard=self.shard, packed=pack_messages(rows), keys=PRODUCERS if self.dedup else (), flags=IN_OBJECT,
            wal_id=wal_id(LOG, 1, self.wal), size=60_000, created_ms=NOW,
        )  # fmt: skip

    def cycle(self, turns: int) -> dict[str, float]:
        """Seconds of CPU for each part of `turns` cycles of fifty messages."""
        spent = dict.fromkeys(("enqueue", "lease", "ack"), 0.0)

        def timed(part: str, command: Command) -> object:
            entry = self.entry(command)
            began = time.process_time()
            verdict = self.apply(entry, True)
            spent[part] += time.process_time() - began
            return verdict

        for _ in range(turns):
            enqueued = timed("enqueue", self.enqueue())
            assert isinstance(enqueued, Enqueued)
            nonce = self.dice.randbytes(16)
            last = (1 << 63) - 1
            granted = timed(
                "lease",
                Lease(shard=self.shard, visibility_ms=30_000, limit=ROWS, nonce=nonce, holder="c", worst=last),
            )
            assert isinstance(granted, Granted)
            acks = [(Settlement.ACK, message.slot, message.arrival, nonce, 0) for message in granted.messages]
            settled = timed("ack", Settle(shard=self.shard, packed=pack_settlements(acks)))
            assert isinstance(settled, Settled)
            assert settled.codes == [0] * ROWS
        return spent


def wrapped(command: Command, *, session: int, n: int, time_ms: int) -> bytes:
    return envelope.encode(
        [encode(command, 2)], version=2, session=session, n=n, time_ms=time_ms, seen_position=0, seen_digest=0
    )


@cache
def feeder(messages: int) -> Feeder:
    return Feeder(messages)


def part_us(messages: int, part: str | None = None) -> Callable[[], float]:
    """Microseconds of one message in one part of a cycle, or in all of it."""

    def run() -> float:
        turns = 200
        feed = feeder(messages)
        gc.collect()
        spent = feed.cycle(turns)
        return (sum(spent.values()) if part is None else spent[part]) / turns / ROWS * 1e6

    return run


def rate(messages: int, part: str | None = None) -> Callable[[], float]:
    return lambda: 1e6 / part_us(messages, part)()


def dedup_us() -> float:
    turns = 200
    return Feeder(FEW, dedup=True).cycle(turns)["enqueue"] / turns / ROWS * 1e6


def spill_us() -> float:
    """Of a body that moves from one object to another."""
    feed, turns = Feeder(FEW), 100
    shard = feed.machine.heaps.find(feed.shard)
    assert shard is not None
    spent = 0.0
    for turn in range(turns):
        slots = range(turn * ROWS, (turn + 1) * ROWS)
        rows = [SpillRow(slot, shard.messages.rows.arrival(slot), 53, 1_024) for slot in slots]
        feed.wal += 1
        command = Spill(
            shard=feed.shard, packed=pack_spilled(rows), wal_id=wal_id(LOG, 1, feed.wal), size=60_000, created_ms=NOW
        )
        entry = feed.entry(command)
        began = time.process_time()
        feed.apply(entry)
        spent += time.process_time() - began
    return spent / turns / ROWS * 1e6


@cache
def _checkpoint(messages: int) -> bytes:
    return checkpoint.dump(feeder(messages).machine)


def load_seconds(messages: int = MANY) -> float:
    packed = _checkpoint(messages)
    gc.collect()
    began = time.process_time()
    machine = checkpoint.load(packed)
    spent = time.process_time() - began
    assert sum(len(shard.messages.rows) for shard in machine.heaps) >= messages
    heap = machine.heap_catalog.named("jobs")
    shard = None if heap is None else machine.heaps.find(heap.shard)
    assert shard is not None
    assert len(shard.messages.ready.best(ROWS)) == ROWS
    return spent


def dump_seconds(messages: int = MANY) -> float:
    feed = feeder(messages)
    gc.collect()
    began = time.process_time()
    checkpoint.dump(feed.machine)
    return time.process_time() - began


def measure_message(messages: int = MANY) -> float:
    """Bytes of memory a message, its part of an object's record included."""
    feed = Feeder(0)
    before = resident_bytes()
    for _ in range(messages // ROWS):
        feed.apply(feed.entry(feed.enqueue()))
    return (resident_bytes() - before) / messages


def apart(expression: str) -> Callable[[], float]:
    """The value of an expression in a fresh process."""

    def run() -> float:
        program = f"from bench import heaps_machine; print(heaps_machine.{expression})"
        root = Path(__file__).parent.parent
        told = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
        return float(told.stdout)

    return run


def cases() -> list[Absolute | Comparison]:
    return [
        Absolute("cycle at 20,000 messages", part_us(FEW), 12.0, "us CPU", at_most=True),
        Absolute("enqueue at 20,000 messages", part_us(FEW, "enqueue"), 6.0, "us CPU", at_most=True),
        Absolute("enqueue with dedup at 20,000 messages", dedup_us, 9.0, "us CPU", at_most=True),
        Absolute("lease at 20,000 messages", part_us(FEW, "lease"), 6.0, "us CPU", at_most=True),
        Absolute("ack at 20,000 messages", part_us(FEW, "ack"), 6.0, "us CPU", at_most=True),
        Absolute("spill of a body", spill_us, 6.0, "us CPU", at_most=True),
        Comparison(
            "cycles at 2,000,000 messages against 20,000", rate(MANY), rate(FEW), 1 / 2, "cycles/s"
        ),
        Comparison(
            "leases at 2,000,000 messages against 20,000", rate(MANY, "lease"), rate(FEW, "lease"), 1 / 2.5, "leases/s"
        ),
        Absolute("memory of a message at 2,000,000", apart("measure_message()"), 160, "bytes", at_most=True),
        Absolute("load of a checkpoint of 2,000,000 messages", load_seconds, 2.0, "s CPU", at_most=True),
        Absolute("dump of a checkpoint of 2,000,000 messages", dump_seconds, 1.0, "s CPU", at_most=True),
    ]  # fmt: skip
