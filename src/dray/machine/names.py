"""The names of things in a domain, and how the composed ones are made.

A stream id is `counter << 16 | domain`, so it says where it lives. The name of
a WAL object is in `dray.wal.ids`.

Invariants
    T1  The low 16 bits of a stream id are its domain, for ever; the counter
        above them is given once.
"""

import hashlib
from typing import Final, NewType

from dray.wal.ids import LogId as LogId
from dray.wal.ids import SessionId as SessionId
from dray.wal.ids import WalId as WalId
from dray.wal.ids import is_made_by as is_made_by
from dray.wal.ids import parse_wal_id as parse_wal_id
from dray.wal.ids import wal_id as wal_id

StreamId = NewType("StreamId", int)
TopicId = NewType("TopicId", bytes)
"""The 16 bytes of a UUID, drawn by the proposer; never zero."""

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
