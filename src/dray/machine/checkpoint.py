"""A machine as bytes, and back.

    magic 8 | version u16 | reserved u16 | length u64 | body | blake2b-256 of all before

The body is a pure function of the log up to the machine's position: equal
histories give equal bytes, on every machine and Python, so two checkpoints of
one position can be compared by their hash alone. It carries the digest that
the log's entries are checked against (Q6). Head and hash keep their layout in
every version, so that damage is told from newer software.

The bytes belong to the active version of the rules: they change only with it.

Invariants
    K2  `dump` depends on the entries applied and on nothing else; a machine
        that was loaded goes on exactly like the one that was dumped.
    K3  `load` gives the machine that was dumped or raises `Corrupt`, or
        `TooNew` for bytes of newer software; never anything else.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from dray.errors import Corrupt, DrayError, Kind
from dray.machine.machine import SUPPORTED, Machine
from dray.machine.names import LogId, ProducerId
from dray.machine.packing import Reader, Writer

MAGIC: Final = b"DRAYCKP\x01"
_HEAD: Final = struct.Struct("<8sHHQ")
_HASH_BYTES: Final = 32
FORMAT: Final = 1


class _Part(Protocol):
    def dump(self, out: Writer) -> None: ...

    def load(self, source: Reader) -> None: ...


class TooNew(DrayError):
    """The checkpoint was written by newer software: upgrade this one."""

    kind = Kind.CORRUPT


def dump(machine: Machine) -> bytes:
    """The checkpoint of a machine (K2)."""
    out = Writer()
    out.values([
        machine.position, machine.digest, machine.version, machine.cluster_id, machine.log_id,
        machine.domain, machine.domains, machine.generation, machine.producer_ids.next,
        machine.timeline.time_ms, machine.timeline.sure_ms, machine.timeline.pause_end_ms,
    ])  # fmt: skip
    for part in _parts(machine):
        part.dump(out)
    body = out.body()
    head = _HEAD.pack(MAGIC, FORMAT, 0, len(body))
    return b"".join((head, body, _hash(head, body)))


def load(checkpoint: bytes | memoryview, kind: type[Machine] = Machine) -> Machine:
    """The machine of a checkpoint (K3)."""
    body = _unwrap(memoryview(checkpoint))
    machine = kind()
    source = Reader(body)
    try:
        row = source.row()
        machine.position, machine.digest, machine.version = row.number(), row.number(), row.number()
        machine.cluster_id = row.raw()
        machine.log_id = machine.streams.log_id = LogId(row.raw())
        machine.domain = machine.streams.domain = row.number()
        machine.domains, machine.generation = row.number(), row.number()
        machine.producer_ids.begin(machine.generation)
        machine.producer_ids.next = ProducerId(row.number())
        timeline = machine.timeline
        timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms = row.number(), row.number(), row.number()
        if machine.version > SUPPORTED:
            raise TooNew("checkpoint has a newer active version", version=machine.version, supported=SUPPORTED)
        for part in _parts(machine):
            part.load(source)
        source.finish()
    except (ValueError, OverflowError, KeyError) as broken:
        raise Corrupt("checkpoint holds a value that makes no sense") from broken
    return machine


class Summary(NamedTuple):
    """What is said of a checkpoint where its bytes are not at hand."""

    position: int
    digest: int
    hash: bytes  # by which checkpoints of one position are compared (`Checkpointed.hash`)
    size: int
    time_ms: int  # machine time at its position


def summary(checkpoint: bytes | memoryview) -> Summary:
    """What a whole, undamaged checkpoint says of itself, without building its machine."""
    view = memoryview(checkpoint)
    row = Reader(_unwrap(view)).row()
    position, digest, _ = row.number(), row.number(), row.number()
    row.raw(), row.raw()
    _, _, _, _, time_ms = (row.number() for _ in range(5))
    return Summary(position, digest, bytes(view[-_HASH_BYTES:]), len(view), time_ms)


def fingerprint(machine: Machine) -> str:
    """A short name of a state: equal if and only if the states are."""
    return blake2b(dump(machine), digest_size=16).hexdigest()


def _parts(machine: Machine) -> tuple["_Part", ...]:
    return (
        machine.sessions, machine.objects, machine.streams, machine.topics,
        machine.offsets, machine.brokers, machine.confirmations,
    )  # fmt: skip


def _hash(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _unwrap(checkpoint: memoryview) -> memoryview:
    if len(checkpoint) < _HEAD.size + _HASH_BYTES:
        raise Corrupt("checkpoint is too short", size=len(checkpoint))
    magic, version, _, length = _HEAD.unpack_from(checkpoint)
    if magic != MAGIC:
        raise Corrupt("these bytes are no checkpoint")
    if length != len(checkpoint) - _HEAD.size - _HASH_BYTES:
        raise Corrupt("checkpoint has another size than it says", size=len(checkpoint), body=length)
    end = _HEAD.size + length
    if _hash(checkpoint[:end]) != checkpoint[end:]:
        raise Corrupt("checkpoint does not match its hash: it was damaged")
    if version > FORMAT:  # behind the hash: a flipped bit does not make it newer
        raise TooNew("checkpoint has a newer format", version=version, supported=FORMAT)
    return checkpoint[_HEAD.size : end]
