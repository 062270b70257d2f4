"""What the machine costs: time a row, bytes a row, seconds to load.

All times are CPU time of this process: the machine never waits. Memory is the
growth of the resident set of a fresh process, divided by what it then holds.
"""

import ctypes
import gc
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bench.harness import Absolute, Comparison
from dray.log import envelope
from dray.machine import checkpoint, producers
from dray.machine.append import Append, pack_rows
from dray.machine.command import Command, encode
from dray.machine.head import Genesis
from dray.machine.index import Index
from dray.machine.machine import Machine
from dray.machine.names import LogId, ObjectId, StreamId, TopicId, wal_id
from dray.machine.sessions import Open, SessionKind
from dray.machine.step import Outcome
from dray.machine.streams import OpenStream
from dray.machine.topics import CreateTopic, TopicCreated, TopicReady

NOW = 1_700_000_000_000
LOG = LogId(b"bench-id")
ROWS = 50
STREAMS = 1_000


class Feeder:
    """A log of Appends: each brings 50 batches of 50 streams, each with a producer state."""

    def __init__(self, rows: int = 0) -> None:
        self.machine = Machine()
        self.streams: list[StreamId] = []
        self.n = 0
        self.turn = itertools.count()
        self.sequences = [0] * STREAMS
        self._found()
        for _ in range(rows // ROWS):
            self.apply(self.entry())

    def _found(self) -> None:
        genesis = Genesis(cluster_id=b"c" * 16, log_id=LOG, domain=0, domains=1)
        opening = Open(
            name="b", nonce=b"n" * 16, seen=0, instance=b"i" * 16, kind=SessionKind.BROKER,
            lowest_version=1, highest_version=1, wall_ms=NOW,
        )  # fmt: skip
        for command in (genesis, opening):
            packed = envelope.encode(
                [encode(command, 1)], version=1, session=0, n=0, time_ms=NOW, seen_position=0, seen_digest=0
            )
            self.machine.apply(self.machine.position + 1, packed)
        topic = TopicId(b"t" * 16)
        created = self._do(CreateTopic(topic_id=topic, name="t", partitions=STREAMS))
        assert isinstance(created, TopicCreated)
        self.streams = list(created.streams)
        for partition, stream in enumerate(self.streams):
            self._do(OpenStream(stream=stream, topic_id=topic, partition=partition))
        self._do(TopicReady(topic_id=topic))

    def _do(self, command: Command) -> object:
        applied = self.machine.apply(self.machine.position + 1, self.wrap(command), True)
        assert applied.verdicts is not None
        return applied.verdicts[0]

    def wrap(self, command: Command) -> bytes:
        self.n += 1
        return envelope.encode(
            [encode(command, 1)], version=1, session=1, n=self.n, time_ms=NOW + self.n, seen_position=0, seen_digest=0
        )

    def command(self) -> Append:
        turn = next(self.turn)
        rows = []
        for slot in range(ROWS):
            number = (turn * ROWS + slot) % STREAMS
            sequence = self.sequences[number]
            self.sequences[number] = sequence + 10
            rows.append((self.streams[number], NOW + turn, NOW + turn, 7, sequence, 10, 1_000, 53 + slot * 1_004, 0))
        return Append(
            wal_id=wal_id(LOG, 1, turn), size=53 + ROWS * 1_004, created_ms=NOW, zone="a", packed=pack_rows(rows)
        )

    def entry(self) -> bytes:
        return self.wrap(self.command())

    def apply(self, entry: bytes) -> None:
        applied = self.machine.apply(self.machine.position + 1, entry)
        assert applied.outcome is Outcome.EXECUTED


@cache
def feeder(rows: int) -> Feeder:
    return Feeder(rows)


def _apply_seconds(feed: Feeder, entries: int) -> float:
    packed = [feed.entry() for _ in range(entries)]
    gc.collect()
    began = time.process_time()
    for entry in packed:
        feed.apply(entry)
    return time.process_time() - began


def apply_us_a_row() -> float:
    """An entry of 50 appends with 50 producer states, as a follower applies it."""
    entries = 400
    return _apply_seconds(feeder(10_000), entries) / entries / ROWS * 1e6


def whole_ms_an_entry() -> float:
    """Encode, decode and apply."""
    feed, entries = feeder(10_000), 200
    began = time.process_time()
    for _ in range(entries):
        feed.apply(feed.entry())
    return (time.process_time() - began) / entries * 1e3


def append_rate(rows: int) -> Callable[[], float]:
    def run() -> float:
        entries = 200
        return entries * ROWS / _apply_seconds(feeder(rows), entries)

    return run


def lookup_rate(rows: int) -> Callable[[], float]:
    """Lookups in one stream of `rows` rows by a hundred consumers, spread evenly, each going forward."""

    @cache
    def index() -> Index:
        filled = Index()
        for number in range(rows):
            filled.append((number + 1) * 10, (number + 1) * 1_004, ObjectId(number // ROWS), 53, NOW + number)
        return filled

    def run() -> float:
        asked, consumers, turns = index(), 100, 400
        began = time.process_time()
        for turn in range(turns):
            for consumer in range(consumers):
                found = asked.find(consumer * (rows * 10 // consumers) + turn % (rows // consumers) * 10)
                asked.row(found if found is not None else 0)
        return turns * consumers / (time.process_time() - began)

    return run


def load_seconds() -> float:
    packed = _checkpoint()
    gc.collect()
    began = time.process_time()
    machine = checkpoint.load(packed)
    spent = time.process_time() - began
    assert machine.streams.rows >= 1_000_000
    return spent


@cache
def _checkpoint() -> bytes:
    return checkpoint.dump(feeder(1_000_000).machine)


def resident_bytes() -> int:
    """After giving back what is free, so that nothing hides in it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure_rows() -> float:
    """Bytes of memory a row, with objects and one producer state a stream, grown live."""
    feed = Feeder()
    before = resident_bytes()
    for _ in range(1_000_000 // ROWS):
        feed.apply(feed.entry())
    return (resident_bytes() - before) / feed.machine.streams.rows


def measure_states(each: int) -> float:
    """Bytes of memory a producer state, with `each` of them in a stream, the stream's bytearray included."""
    count = 1_000_000
    holders: list[bytearray | None] = [None] * (count // each)
    before = resident_bytes()
    for number in range(count // each):
        states = holders[number] = bytearray()
        for producer in range(each):
            producers.take(states, 0, (1 << 40) + producer, 0, 0, 1, 0, NOW // 60_000)
    return (resident_bytes() - before) / count


def apart(expression: str) -> Callable[[], float]:
    """The value of an expression in a fresh process."""

    def run() -> float:
        program = f"from bench import machine; print(machine.{expression})"
        root = Path(__file__).parent.parent
        told = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
        return float(told.stdout)

    return run


def cases() -> list[Absolute | Comparison]:
    flat = 1 / 1.5
    return [
        Absolute("machine: apply of one row", apply_us_a_row, 4.0, "us CPU", at_most=True),
        Absolute("machine: encode, decode and apply 50 rows", whole_ms_an_entry, 0.4, "ms CPU", at_most=True),
        Comparison(
            "machine: append at 1,000,000 rows against 10,000", append_rate(1_000_000), append_rate(10_000), flat,
            "rows/s",
        ),
        Comparison(
            "machine: lookup at 1,000,000 rows against 10,000", lookup_rate(1_000_000), lookup_rate(10_000), flat,
            "lookups/s",
        ),
        Absolute("machine: memory of one row, all in", apart("measure_rows()"), 100, "bytes", at_most=True),
        Absolute("machine: producer state, 100 a stream", apart("measure_states(100)"), 150, "bytes", at_most=True),
        Absolute("machine: producer state, one a stream", apart("measure_states(1)"), 150, "bytes", at_most=True),
        Absolute("machine: load of a checkpoint of 1,000,000 rows", load_seconds, 1.0, "s CPU", at_most=True),
    ]  # fmt: skip
