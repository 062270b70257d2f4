"""How a log lies in Oxia, and the requests that change it. Pure.

    <prefix>.00003.head                        one record: the layout, the log's id, and where it was cut
    <prefix>.00003.fence                       written before the tail is read, so that only who leads can answer
    <prefix>.00003.<id>-00000000000000000042   the entry at position 42: a key that Oxia makes, one behind the last

All of them have one partition key, `<prefix>.00003`, so they are in one
shard. There is no `/` in a key, by which Oxia would sort it in its own way.

Invariants
    LG50  A put of a sequence is made in one place, which gives it its
          partition key and the delta 1 and bounds its size: without the
          first two it stays in the server's own log as something that it can
          never apply, and a server that dies does not start again; above the
          third no write passes any more.
    LG51  The newest entry is never deleted: Oxia counts from what is there.
"""

import re
from dataclasses import dataclass
from typing import Final

from dray.errors import Invalid
from dray.log.oxia import oxia_pb2 as pb
from dray.log.port import Position

LARGEST_PUT: Final = 32 << 20
"""Oxia's own log has segments of 64 MiB; a put that does not fit into one ends all writes of its shard."""

_LAYOUT: Final = "1"
_HEAD: Final = re.compile(rb"1 ([0-9a-f]{16}) ([0-9]{1,20})")
_END: Final = "-:"
"""Behind every position: `:` sorts behind the digits."""
ABSENT: Final = -1
"""The version that is expected of a record which must not be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """What is known of a log besides its entries."""

    log_id: str
    """16 hex digits, drawn when the log was begun: what is begun anew in its place is another log."""
    cut: int
    """Entries at or below are let go of."""

    def encode(self) -> bytes:
        return f"{_LAYOUT} {self.log_id} {self.cut}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "LogHead":
        found = _HEAD.fullmatch(value)
        if found is None:
            raise Invalid("this log in Oxia has another layout", found=value[:100].decode(errors="replace"))
        return cls(log_id=found[1].decode(), cut=int(found[2]))


class Layout:
    """The names of one log."""

    def __init__(self, prefix: str, domain: int) -> None:
        self.partition_key: Final = f"{prefix}.{domain:05d}"
        self.head: Final = f"{self.partition_key}.head"
        self._fence: Final = f"{self.partition_key}.fence"

    def sequence(self, log_id: str) -> str:
        """What every key of an entry begins with."""
        return f"{self.partition_key}.{log_id}"

    def entry_key(self, log_id: str, position: int) -> str:
        return f"{self.sequence(log_id)}-{position:020d}"

    def position_of(self, log_id: str, key: str) -> Position | None:
        """The position that a key stands for; None: it is no entry of this log."""
        base, _, digits = key.rpartition("-")
        if base != self.sequence(log_id) or len(digits) != 20 or not digits.isdecimal():
            return None
        return Position(int(digits))

    def put_entry(self, shard: int, log_id: str, entry: bytes) -> pb.WriteRequest:
        """The next entry; nobody else makes a put of a sequence (LG50)."""
        if not log_id or not entry or len(entry) > LARGEST_PUT:
            raise Invalid("this put would break the server", size=len(entry), limit=LARGEST_PUT)
        put = pb.Put(
            key=self.sequence(log_id), value=entry, partition_key=self.partition_key, sequence_deltas=[1]
        )  # fmt: skip
        return pb.WriteRequest(shard=shard, puts=[put])

    def put_head(self, shard: int, head: LogHead, version: int) -> pb.WriteRequest:
        """Only over the version that was read; `ABSENT` for a new one."""
        return self._put(shard, pb.Put(key=self.head, value=head.encode(), expected_version=version))

    def put_fence(self, shard: int) -> pb.WriteRequest:
        return self._put(shard, pb.Put(key=self._fence))

    def put_first(self, shard: int, log_id: str, position: int) -> pb.WriteRequest:
        """Let a sequence that has no entry go on behind a position: a record at it, which is empty as no entry is."""
        return self._put(shard, pb.Put(key=self.entry_key(log_id, position)))

    def delete(self, shard: int, log_id: str, start: int, end: int) -> pb.WriteRequest:
        """The entries in [start, end)."""
        gone = pb.DeleteRange(start=self.entry_key(log_id, start), end=self.entry_key(log_id, end))
        return pb.WriteRequest(shard=shard, delete_ranges=[gone])

    def get_head(self) -> pb.Get:
        return pb.Get(key=self.head, include_value=True)

    def get_last(self, log_id: str) -> pb.Get:
        """The newest entry, or whatever sorts before it in the shard."""
        return pb.Get(key=self.sequence(log_id) + _END, comparison=pb.LOWER)

    def get_first(self, log_id: str) -> pb.Get:
        """The oldest entry, or whatever sorts behind it in the shard."""
        return pb.Get(key=self.entry_key(log_id, 0), comparison=pb.CEILING)

    def _put(self, shard: int, put: pb.Put) -> pb.WriteRequest:
        put.partition_key = self.partition_key
        return pb.WriteRequest(shard=shard, puts=[put])
