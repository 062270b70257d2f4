"""The names of things in a domain, and how the composed ones are made.

A stream id is `counter << 16 | domain`, so it says where it lives. A WAL id
is `log id (8) | session (u32) | counter (u32)`, big-endian, so it says who
wrote the object and an orphan needs no marker.

Invariants
    T1  The low 16 bits of a stream id are its domain, for ever; the counter
        above them is given once.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Final, NewType

SessionId = NewType("SessionId", int)
"""Given by the machine's counter when Open is applied (Q1); 0 is nobody."""

StreamId = NewType("StreamId", int)
TopicId = NewType("TopicId", bytes)
"""The 16 bytes of a UUID, drawn by the proposer; never zero."""

LogId = NewType("LogId", bytes)
WalId = NewType("WalId", bytes)
ObjectId = NewType("ObjectId", int)
"""The machine's ordinal of an object: dense, never reused."""

ProducerId = NewType("ProducerId", int)

NOBODY: Final = SessionId(0)
ZERO_TOPIC: Final = TopicId(bytes(16))
DOMAIN_BITS: Final = 16
MAX_STREAM_COUNTER: Final = (1 << 47) - 1
MAX_SESSION: Final = (1 << 32) - 1
PRODUCER_BITS: Final = 40
"""Ids of one generation of a log: a recovered log begins above all ids of the lost one (Q6)."""

_WAL_ID: Final = struct.Struct(">8sII")
assert _WAL_ID.size == 16, "the size of a WAL id is part of the format"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalName:
    """What a WAL id says."""

    log_id: LogId
    session: SessionId
    counter: int


def wal_id(log_id: LogId, session: SessionId, counter: int) -> WalId:
    return WalId(_WAL_ID.pack(log_id, session, counter))


def parse_wal_id(name: WalId) -> WalName:
    log_id, session, counter = _WAL_ID.unpack(name)
    return WalName(log_id=LogId(log_id), session=SessionId(session), counter=counter)


def stream_id(counter: int, domain: int) -> StreamId:
    return StreamId(counter << DOMAIN_BITS | domain)  # T1


def domain_of(stream: StreamId) -> int:
    return stream & ((1 << DOMAIN_BITS) - 1)


def domain_for(topic: TopicId, partition: int, domains: int) -> int:
    """The domain of a new partition: neighbours spread, topics start anywhere.

    With one data domain the catalog holds the streams itself; otherwise the
    data domains are 1..`domains` and the catalog holds none.
    """
    if domains == 1:
        return 0
    start = int.from_bytes(hashlib.blake2b(topic, digest_size=8).digest(), "big")
    return 1 + (start + partition) % domains
