"""The name of a WAL object: which log, which session, which object of it.

    log id (8 bytes) | session (u32) | counter (u32)          big-endian, 16 bytes

An object that the machine does not know, of this very log and of an expired
session, can never be committed any more: orphans need no marker.

Invariants
    W1  Two objects never share a walId: a session is never reused in a log,
        a counter never within a session, a log id never at all.
"""

import struct
from typing import Final, NamedTuple, NewType

from dray.errors import Invalid

WalId = NewType("WalId", bytes)
LogId = NewType("LogId", bytes)
SessionId = NewType("SessionId", int)
"""Given by the machine's counter when an Open is applied; 0 is nobody."""

LOG_ID_SIZE: Final = 8
_LAYOUT: Final = struct.Struct(">8sII")
assert _LAYOUT.size == 16, "the size of a walId is part of the format"
_COUNTER_AT: Final = 12
_U32_MAX: Final = 0xFFFFFFFF


class WalIdParts(NamedTuple):
    """The parts of a walId; a tuple, because each append takes one apart."""

    log_id: LogId
    session: SessionId
    counter: int


def wal_id(log_id: LogId, session: int, counter: int) -> WalId:
    """The walId of the `counter`-th object of a session (W1)."""
    if len(log_id) != LOG_ID_SIZE:
        raise Invalid("a log id has 8 bytes", size=len(log_id))
    if not (0 < session <= _U32_MAX and 0 <= counter <= _U32_MAX):
        raise Invalid("session and counter of a walId are 32 bits wide", session=session, counter=counter)
    return WalId(_LAYOUT.pack(log_id, session, counter))


def parse_wal_id(raw: bytes) -> WalIdParts:
    """The parts of a walId; the inverse of `wal_id`."""
    if len(raw) != _LAYOUT.size:
        raise Invalid("a walId has 16 bytes", size=len(raw))
    return WalIdParts._make(_LAYOUT.unpack(raw))


def is_made_by(raw: bytes, log_id: LogId, session: SessionId) -> bool:
    """Does a walId name an object of this session of this log?"""
    return raw[:_COUNTER_AT] == log_id + session.to_bytes(4, "big")
