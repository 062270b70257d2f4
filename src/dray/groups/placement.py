"""Where a group lives: 1,024 buckets, spread over the data domains."""

from hashlib import blake2b
from typing import Final, Protocol

BUCKETS: Final = 1_024


class BrokerOrder(Protocol):
    """In which order brokers look after a group."""

    def rank(self, group: str) -> int:
        """How many come before this one."""
        ...


def bucket_of(group: str) -> int:
    """The bucket of a group; it never changes."""
    return int.from_bytes(blake2b(group.encode(), digest_size=8).digest(), "big") % BUCKETS


def domain_of_group(group: str, domains: int) -> int:
    """The domain that keeps a group, of the data domains that the cluster was born with: it never moves (M13).

    With one data domain that is the catalog's own.
    """
    return 0 if domains == 1 else 1 + bucket_of(group) % domains
