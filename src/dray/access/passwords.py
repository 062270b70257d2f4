"""Argon2id: what a key is stored as (19 MiB, two passes, about 60 ms of a core).

The library is loaded with the first key. Both functions block: they run in
threads of their own, never on the loop (AC9).
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from argon2 import PasswordHasher

MEMORY_KIB: Final = 19 << 10
PASSES: Final = 2
SALT_BYTES: Final = 16


def hash_of(secret: str, salt: bytes) -> str:
    """The text that is stored."""
    return _hasher().hash(secret, salt=salt)


def fits(secret: str, stored: str) -> bool:
    """Is this the secret that was stored?"""
    from argon2.exceptions import Argon2Error, InvalidHashError

    try:
        return _hasher().verify(stored, secret)
    except (Argon2Error, InvalidHashError):
        return False


def _hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=1)
