"""Who leads what: a pure function of ids, the same on every broker and under every hash seed.

A domain goes to the broker with the highest weight for it, and a broker takes
no more than its share: the pairs of domains and brokers are gone through from
the heaviest on, and a pair counts if the domain is still free and the broker
has room. So a broker that goes moves its own domains and few others.

Invariants
    RG3  With B brokers and D domains every domain has a leader, and every
         broker leads D / B of them, rounded down or up.
"""

import hashlib
from collections.abc import Sequence


def bounded_leaders(domains: Sequence[int], brokers: Sequence[int]) -> dict[int, int]:
    """The leader of each domain; nobody leads without brokers."""
    if not brokers:
        return {}
    share, more = divmod(len(domains), len(brokers))  # RG3: `more` brokers lead one more than the others
    pairs = sorted((_weight(str(domain), broker), domain, broker) for domain in domains for broker in brokers)
    load = dict.fromkeys(brokers, 0)
    leaders: dict[int, int] = {}
    for _, domain, broker in reversed(pairs):
        if domain in leaders or load[broker] >= share + (more > 0):
            continue
        leaders[domain] = broker
        load[broker] += 1
        more -= load[broker] > share
    return leaders


def rendezvous(key: str, brokers: Sequence[int], *, default: int) -> int:
    """The broker with the highest weight for a key."""
    return max(brokers, key=lambda broker: _weight(key, broker), default=default)


def rank(key: str, brokers: Sequence[int], own: int) -> int:
    """How many of the brokers have a higher weight for a key."""
    return sum(_weight(key, other) > _weight(key, own) for other in brokers)


def _weight(key: str, broker: int) -> tuple[bytes, int]:
    return hashlib.blake2b(f"{key} {broker}".encode(), digest_size=8).digest(), broker
