"""A machine as bytes, and back.

    magic 8 | format u16 | reserved u16 | length u64 | body | blake2b-256 of all before

Since version 2 of the rules the body is the head and a section for each noun
(format 2):

    head row | section count | (name row | u64 length | the noun's own bytes)*

A noun that came after the active version is not written, and one that is not
there is empty. Under version 1 the parts lie behind each other in a fixed
order, without names (format 1); builds that know only that one must find the
same bytes.

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
        `CheckpointTooNew` for bytes of newer software; never anything else.
"""

import struct
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from dray.errors import Corrupt, DrayError, Kind
from dray.machine.machine import Machine
from dray.machine.names import LogId, ProducerId
from dray.machine.noun import Noun
from dray.machine.packing import Reader, Row, Writer

MAGIC: Final = b"DRAYCKP\x01"
_HEAD: Final = struct.Struct("<8sHHQ")
_HASH_BYTES: Final = 32
_FIRST_BYTES: Final = 64 << 10
"""Of its beginning: the head, and the row that says what it is of."""
UNNAMED: Final = 1
SECTIONS: Final = 2
FIRST_WITH_SECTIONS: Final = 2
"""The version of the rules."""


class CheckpointTooNew(DrayError):
    """The checkpoint was written by newer software: upgrade this one."""

    kind = Kind.CORRUPT
    advice = "run the build that its brokers run: nothing was changed"


def dump(machine: Machine) -> bytes:
    """The checkpoint of a machine (K2)."""
    return b"".join(dump_runs(machine))


def dump_runs(machine: Machine) -> list[bytes | bytearray]:
    """The same, for who keeps it in pages: each large column by itself, and uncopied. The machine must stand still."""
    out = Writer()
    if machine.version < FIRST_WITH_SECTIONS:
        form = UNNAMED
        _dump_unnamed(machine, out)
    else:
        form = SECTIONS
        _dump_sections(machine, out)
    first, *others = out.runs()
    runs = [_HEAD.pack(MAGIC, form, 0, out.size()) + first, *others]
    runs[-1] += _hash(*runs)
    return runs


def load(checkpoint: bytes | bytearray | memoryview, kind: type[Machine] = Machine) -> Machine:
    """The machine of a checkpoint (K3)."""
    form, body = _unwrap(memoryview(checkpoint))
    machine = kind()
    source = Reader(body)
    try:
        row = source.row()
        _load_head(machine, row)
        if form == UNNAMED:
            _load_unnamed(machine, row, source)
        else:
            _load_sections(machine, row, source)
        source.finish()
    except (ValueError, OverflowError, KeyError) as broken:
        raise Corrupt("checkpoint holds a value that makes no sense") from broken
    return machine


def _load_head(machine: Machine, row: Row) -> None:
    head = machine.head
    machine.position, machine.digest, head.version = row.number(), row.number(), row.number()
    if head.version > machine.supported:
        raise CheckpointTooNew(
            "checkpoint has a newer active version", version=head.version, supported=machine.supported
        )
    head.cluster_id, head.log_id = row.raw(), LogId(row.raw())
    head.domain, head.domains, head.generation = row.number(), row.number(), row.number()


def _dump_unnamed(machine: Machine, out: Writer) -> None:
    head, timeline = machine.head, machine.timeline
    out.values([
        machine.position, machine.digest, head.version, head.cluster_id, head.log_id,
        head.domain, head.domains, head.generation, machine.producer_ids.next,
        timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms,
    ])  # fmt: skip
    for noun in _unnamed(machine):
        noun.dump(out, machine.version)


def _load_unnamed(machine: Machine, row: Row, source: Reader) -> None:
    timeline = machine.timeline
    machine.producer_ids.next = ProducerId(row.number())
    timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms = row.number(), row.number(), row.number()
    for noun in _unnamed(machine):
        noun.load(source, machine.version)


def _unnamed(machine: Machine) -> tuple[Noun, ...]:
    return (
        machine.sessions, machine.objects, machine.streams, machine.topics,
        machine.offsets, machine.brokers, machine.confirmations,
    )  # fmt: skip


def _dump_sections(machine: Machine, out: Writer) -> None:
    head, timeline = machine.head, machine.timeline
    out.values([
        machine.position, machine.digest, head.version, head.cluster_id, head.log_id,
        head.domain, head.domains, head.generation, timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms,
        timeline.running_ms,
    ])  # fmt: skip
    nouns = [noun for noun in machine.nouns if noun.since <= head.version]
    out.values([len(nouns)])
    for noun in nouns:
        section = Writer()
        noun.dump(section, head.version)
        out.values([noun.name])
        out.section(section)


def _load_sections(machine: Machine, row: Row, source: Reader) -> None:
    timeline = machine.timeline
    timeline.time_ms, timeline.sure_ms, timeline.pause_end_ms = row.number(), row.number(), row.number()
    timeline.running_ms, timeline.runs = row.number(), True
    left = {noun.name: noun for noun in machine.nouns if noun.since <= machine.version}
    (sections,) = source.ints(1)
    for _ in range(sections):
        noun = left.pop(source.row().text())  # a name that is unknown, or stands twice, makes no sense
        section = Reader(source.blob())
        noun.load(section, machine.version)
        section.finish()


class Summary(NamedTuple):
    """What is said of a checkpoint where its bytes are not at hand."""

    position: int
    digest: int
    hash: bytes  # by which checkpoints of one position are compared (`Checkpointed.hash`)
    size: int
    time_ms: int  # machine time at its position
    log_id: LogId
    generation: int  # of the log: the one that begins with its state has the next


def summary(checkpoint: bytes | memoryview) -> Summary:
    """What a whole, undamaged checkpoint says of itself, without building its machine."""
    return summary_of([checkpoint])


def summary_of(parts: Iterable[bytes | memoryview]) -> Summary:
    """The same of one that comes in parts: no two of them need be in memory."""
    hashed = blake2b(digest_size=_HASH_BYTES)
    first, last, size = b"", b"", 0
    for part in parts:
        view = memoryview(part)
        size += len(view)
        first += view[: max(0, _FIRST_BYTES - len(first))]
        if len(view) < _HASH_BYTES:
            view, last = memoryview(last + view), b""
        hashed.update(last)
        hashed.update(view[:-_HASH_BYTES])
        last = bytes(view[-_HASH_BYTES:])
    form = _form(first, size, lambda: hashed.digest() == last)
    row = Reader(memoryview(first)[_HEAD.size :]).row()
    position, digest, _ = row.number(), row.number(), row.number()
    row.raw()
    log_id = LogId(row.raw())
    numbers = [row.number() for _ in range(5 if form == UNNAMED else 4)]
    return Summary(position, digest, last, size, numbers[-1], log_id, numbers[2])


def fingerprint(machine: Machine) -> str:
    """A short name of a state: equal if and only if the states are."""
    return blake2b(dump(machine), digest_size=16).hexdigest()


def _hash(*parts: bytes | bytearray | memoryview) -> bytes:
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _unwrap(checkpoint: memoryview) -> tuple[int, memoryview]:
    """The format and the body of a whole checkpoint."""
    end = len(checkpoint) - _HASH_BYTES
    form = _form(checkpoint, len(checkpoint), lambda: _hash(checkpoint[:end]) == checkpoint[end:])
    return form, checkpoint[_HEAD.size : end]


def _form(start: bytes | memoryview, size: int, is_whole: Callable[[], bool]) -> int:
    """The format of a checkpoint of which the first bytes are at hand; `Corrupt` if it is damaged."""
    if size < _HEAD.size + _HASH_BYTES:
        raise Corrupt("checkpoint is too short", size=size)
    magic, form, _, length = _HEAD.unpack_from(start)
    if magic != MAGIC:
        raise Corrupt("these bytes are no checkpoint")
    if length != size - _HEAD.size - _HASH_BYTES:
        raise Corrupt("checkpoint has another size than it says", size=size, body=length)
    if not is_whole():
        raise Corrupt("checkpoint does not match its hash: it was damaged")
    if form > SECTIONS:  # behind the hash: a flipped bit does not make it newer
        raise CheckpointTooNew("checkpoint has a newer format", version=form, supported=SECTIONS)
    return int(form)
