"""Which partition a message is in: a label of its row, by its key.

A jump hash: with another partition only those keys move that it gets, and it
costs the same for four thousand partitions as for a few (D-060).
"""

from hashlib import blake2b
from typing import Final

_MASK: Final = (1 << 64) - 1
_STEP: Final = 2862933555777941757


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, the same for the same number of partitions."""
    state = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    found, following = 0, 0
    while following < partitions:
        found = following
        state = (state * _STEP + 1) & _MASK
        following = int((found + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return found
