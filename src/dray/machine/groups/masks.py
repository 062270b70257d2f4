"""Sets of partitions as bit masks: bit p of an `int` is partition p.

A mask is as long as its highest partition, so masks are made only of numbers
that somebody has bounded: what a client sends is compared with the size of
its topic first, what a command carries with `MAX_PARTITIONS`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from dray.machine.names import TopicId

MAX_PARTITIONS: Final = 1_000_000
FEW: Final = 24
"""Up to here shifting is faster than filling bytes."""

Masks: TypeAlias = dict[TopicId, int]
Run: TypeAlias = tuple[int, int]
"""Partitions and the epoch since which they are held: `(since, mask)`."""
Runs: TypeAlias = dict[TopicId, tuple[Run, ...]]


def mask_of(partitions: Sequence[int]) -> int:
    """The set of these partitions, in any order; each must be in bounds."""
    if len(partitions) <= FEW:
        mask = 0
        for partition in partitions:
            mask |= 1 << partition
        return mask
    filled = bytearray((max(partitions) >> 3) + 1)
    for partition in partitions:
        filled[partition >> 3] |= 1 << (partition & 7)
    return int.from_bytes(filled, "little")


def partitions_of(mask: int) -> list[int]:
    """The partitions of a set, ascending."""
    found = []
    if mask.bit_count() <= FEW:
        while mask:
            lowest_bit = mask & -mask
            found.append(lowest_bit.bit_length() - 1)
            mask ^= lowest_bit
        return found
    for at, byte in enumerate(to_bytes(mask)):
        if byte:
            found.extend(at << 3 | bit for bit in _BITS[byte])
    return found


def first(partitions: int) -> int:
    """The set of the partitions below a number."""
    return (1 << partitions) - 1


def lowest(mask: int, count: int) -> int:
    """The `count` lowest partitions of a set, or all where it has no more."""
    if mask.bit_count() <= count:
        return mask
    low, high = 0, mask.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (mask & first(middle)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return mask & first(low)


def held(runs: Iterable[Run]) -> int:
    """The partitions of some runs."""
    mask = 0
    for _, part in runs:
        mask |= part
    return mask


def masks_of(runs: Runs) -> Masks:
    return {topic: held(parts) for topic, parts in runs.items()}


def size_of(masks: Mapping[TopicId, int]) -> int:
    """How many partitions there are in all."""
    return sum(mask.bit_count() for mask in masks.values())


def to_bytes(mask: int) -> bytes:
    """Little-endian, without zeros at the end: short where a set is dense."""
    return mask.to_bytes((mask.bit_length() + 7) >> 3, "little")


def from_bytes(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def pack(partitions: Iterable[int]) -> bytes:
    """Ascending partitions as varints of the steps between them: short where a set is sparse."""
    out = bytearray()
    before = -1
    for partition in partitions:
        step = partition - before - 1
        before = partition
        while step > 0x7F:
            out.append(step & 0x7F | 0x80)
            step >>= 7
        out.append(step)
    return bytes(out)


def unpack(packed: bytes) -> int:
    """The set that `pack` wrote.

    Raises:
        ValueError: a partition is out of bounds, or the last number does not end.
    """
    found = []
    at, step, shift = -1, 0, 0
    for byte in packed:
        step |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80:
            if shift > 21:
                raise ValueError("a step between partitions is too long")
            continue
        at += step + 1
        if at >= MAX_PARTITIONS:
            raise ValueError("a partition is out of bounds")
        found.append(at)
        step = shift = 0
    if shift:
        raise ValueError("the last step does not end")
    return mask_of(found)


_BITS: Final = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
