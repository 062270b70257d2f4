"""Idempotent producers: what a stream remembers of each, and how a batch is judged.

A state is 78 packed bytes, and the states of a stream lie in one bytearray
sorted by producer id: a broker may see a hundred thousand short-lived
producers a day. The last use is kept in minutes, which 32 bits can count until
the year 9999. Sequences of remembered batches follow each other, so the
last one and five counts tell them all.

Invariants
    P1  A batch that is one of its producer's last five is never appended
        again; it is answered with its first offset.
    P2  A batch is appended only if its sequence follows the last one, or is
        0 under a newer epoch, or begins a producer the stream does not know:
        at 0, or anywhere if its id is below the stream's floor.
    P3  A batch of an older epoch is fenced.
    P5  States expire by a logged command, and each raises the floor above
        its id, so a producer whose state is gone may go on where it was.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from dray.errors import Corrupt
from dray.machine.append import FENCED, FIRST_DUPLICATE, GAP
from dray.machine.names import ProducerId

STATE: Final = struct.Struct("<qhiI5I5q")
assert STATE.size == 78, "the size of a state is part of the checkpoint format"
SIZE: Final = STATE.size
SEQUENCES: Final = 1 << 31
_WRAP: Final = SEQUENCES - 1
_ID: Final = struct.Struct("<q")
_USED: Final = struct.Struct("<I")
_USED_AT: Final = 14


def take(
    states: bytearray, floor: int, producer: int, epoch: int, sequence: int, records: int, base: int, now_min: int
) -> int:
    """Judge a batch that would get offset `base`, and remember it if it is accepted.

    Returns `base`, GAP, FENCED, or FIRST_DUPLICATE - the offset it has already.
    """
    at = _place(states, producer) if len(states) > SIZE else 0
    if at < len(states):
        found, known, last, _, a, b, c, d, e, p, q, r, s, t = STATE.unpack_from(states, at)
        if found == producer:
            if epoch != known:
                return _renew(states, at, producer, known, epoch, sequence, records, base, now_min)
            if sequence != (last + 1) & _WRAP:  # P2
                return _duplicate(sequence, records, last, (a, b, c, d, e), (p, q, r, s, t))
            last = (last + records) & _WRAP
            STATE.pack_into(states, at, producer, epoch, last, now_min, records, a, b, c, d, base, p, q, r, s)
            return base
    if sequence != 0 and producer >= floor:  # P2
        return GAP
    at, last = _place(states, producer), (sequence + records - 1) & _WRAP
    states[at:at] = STATE.pack(producer, epoch, last, now_min, records, 0, 0, 0, 0, base, 0, 0, 0, 0)
    return base


def expire(states: bytearray, start: int, limit: int, used_before_min: int) -> tuple[list[int], int]:
    """Drop the idle ones of `limit` states from id `start` on: (their ids, the id to go on from or -1)."""
    first = _place(states, start)
    upto = min(len(states), first + limit * SIZE)
    kept = bytearray()
    gone = []
    for at in range(first, upto, SIZE):
        if _USED.unpack_from(states, at + _USED_AT)[0] < used_before_min:
            gone.append(_ID.unpack_from(states, at)[0])
        else:
            kept += states[at : at + SIZE]
    following = _ID.unpack_from(states, upto)[0] if upto < len(states) else -1
    if gone:
        states[first:upto] = kept
    return gone, following


def cap_used(states: bytearray, latest_min: int) -> None:
    """Let no last use be later than a time: for a log that begins anew."""
    for at in range(_USED_AT, len(states), SIZE):
        if _USED.unpack_from(states, at)[0] > latest_min:
            _USED.pack_into(states, at, latest_min)


def producer_ids(states: bytearray) -> list[ProducerId]:
    """The producers that a stream knows, ascending."""
    return [ProducerId(_ID.unpack_from(states, at)[0]) for at in range(0, len(states), SIZE)]


class ProducerState:
    """One state, unpacked for people and services."""

    def __init__(self, packed: bytes) -> None:
        fields = STATE.unpack(packed)
        self.producer_id = ProducerId(fields[0])
        self.epoch: int = fields[1]
        self.last_sequence: int = fields[2]
        self.used_min: int = fields[3]
        counts, bases = fields[4:9], fields[9:14]
        self.batches: list[tuple[int, int, int]] = []
        """(first sequence, records, base offset), newest first."""
        last = self.last_sequence
        for count, base in zip(counts, bases, strict=True):
            if not count:
                break
            first = (last - count + 1) & _WRAP
            self.batches.append((first, count, base))
            last = (first - 1) & _WRAP


def all_states(states: bytearray) -> Iterator[ProducerState]:
    """All that a stream knows, by id."""
    for at in range(0, len(states), SIZE):
        yield ProducerState(bytes(states[at : at + SIZE]))


def find(states: bytearray, producer: int) -> ProducerState | None:
    at = _place(states, producer)
    if at >= len(states) or _ID.unpack_from(states, at)[0] != producer:
        return None
    return ProducerState(bytes(states[at : at + SIZE]))


def some(states: bytearray, wanted: Iterable[int]) -> bytearray:
    """The states of these producers, of those that there are."""
    found = bytearray()
    for producer in sorted(wanted):
        at = _place(states, producer)
        if at < len(states) and _ID.unpack_from(states, at)[0] == producer:
            found += states[at : at + SIZE]
    return found


def check_loaded(states: bytearray) -> bytearray:
    """States from a checkpoint must be whole and sorted."""
    if len(states) % SIZE:
        raise Corrupt("producer states end inside a state", size=len(states))
    return states


def _place(states: bytearray, producer: int) -> int:
    """The byte where the state of a producer is, or would be inserted."""
    low, high = 0, len(states) // SIZE
    while low < high:
        middle = (low + high) >> 1
        if _ID.unpack_from(states, middle * SIZE)[0] < producer:
            low = middle + 1
        else:
            high = middle
    return low * SIZE


def _renew(
    states: bytearray, at: int, producer: int, known: int, epoch: int, sequence: int, records: int, base: int,
    now_min: int,
) -> int:  # fmt: skip
    """A batch of another epoch than the known one."""
    if epoch < known:
        return FENCED  # P3
    if sequence != 0:  # P2
        return GAP
    STATE.pack_into(states, at, producer, epoch, records - 1, now_min, records, 0, 0, 0, 0, base, 0, 0, 0, 0)
    return base


def _duplicate(sequence: int, records: int, last: int, counts: tuple[int, ...], bases: tuple[int, ...]) -> int:
    """Is it one of the remembered batches, the same to the record (P1)?"""
    for count, base in zip(counts, bases, strict=True):
        if not count:
            break
        first = (last - count + 1) & _WRAP
        if first == sequence and count == records:
            return FIRST_DUPLICATE - base
        last = (first - 1) & _WRAP
    return GAP
