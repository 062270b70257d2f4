"""Where a group lives: 1,024 buckets, spread over the data domains."""

from hashlib import blake2b
from typing import Final

BUCKETS: Final = 1_024


def bucket_of(group: str) -> int:
    """The bucket of a group; it never changes."""
    return int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big") % BUCKETS


def domain_of_group(group: str, domains: int) -> int:
    """The domain that keeps a group's offsets. With one data domain that is the catalog's own."""
    return 0 if domains == 1 else 1 + bucket_of(group) % domains
