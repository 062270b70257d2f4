"""Randomness, as a port: ids, nonces, jitter."""

import os
import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    """Where random bytes and jitter come from."""

    def random_bytes(self, count: int) -> bytes: ...

    def uniform(self, low: float, high: float) -> float: ...


class SystemEntropy:
    """The operating system's dice."""

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class SeededEntropy:
    """Dice that fall the same way for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def new_uuid(entropy: Entropy) -> uuid.UUID:
    """A random (version 4) UUID; never zero."""
    return uuid.UUID(bytes=entropy.random_bytes(16), version=4)
