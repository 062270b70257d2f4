"""How often somebody may guess: buckets that fill again with time.

A key that is wrong costs its sender a token of two buckets: that of its id
and address, and that of the address. With either empty nothing is checked
any more, so guessing costs the broker nothing. A right key gives its tokens
back, and one that was right lately needs none: who holds a key cannot be
locked out by those who guess at it from elsewhere.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from dray.access.errors import OverLimit
from dray.clock import Clock

K = TypeVar("K", bound=Hashable)

PER_KEY: Final = 10
PER_ADDRESS: Final = 30
MINUTE_NS: Final = 60_000_000_000
MOST_BUCKETS: Final = 10_000
_V6_NETWORK: Final = 56


class Buckets(Generic[K]):
    """Tokens by name: so many, and as many again each minute. The bucket that was longest unused is forgotten."""

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock = clock
        self._size = size
        self._left: OrderedDict[K, tuple[float, int]] = OrderedDict()

    def take(self, name: K) -> bool:
        """One token, if there is one."""
        left = self._now(name)
        self._put(name, left - 1.0 if left >= 1.0 else left)
        return left >= 1.0

    def give_back(self, name: K) -> None:
        self._put(name, min(self._size, self._now(name) + 1.0))

    def _now(self, name: K) -> float:
        left, at_ns = self._left.get(name, (float(self._size), self._clock.boot_ns()))
        return min(float(self._size), left + (self._clock.boot_ns() - at_ns) * self._size / MINUTE_NS)

    def _put(self, name: K, left: float) -> None:
        self._left[name] = left, self._clock.boot_ns()
        self._left.move_to_end(name)
        if len(self._left) > MOST_BUCKETS:
            self._left.popitem(last=False)


class Guesses:
    """Who may still try."""

    def __init__(self, clock: Clock) -> None:
        self._by_key: Buckets[tuple[str, str]] = Buckets(clock, PER_KEY)
        self._by_address: Buckets[str] = Buckets(clock, PER_ADDRESS)

    def take(self, key_id: str, address: str) -> None:
        """A try, before it is judged; `OverLimit` when there were too many."""
        network = network_of(address)
        if not self._by_address.take(network):
            raise OverLimit("too many wrong keys from this address: wait a minute")
        if not self._by_key.take((key_id, network)):
            raise OverLimit("too many wrong tries for this key: wait a minute")

    def was_right(self, key_id: str, address: str) -> None:
        network = network_of(address)
        self._by_address.give_back(network)
        self._by_key.give_back((key_id, network))


def network_of(address: str) -> str:
    """What one guesser has at least: an address, or with IPv6 a /56."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _V6_NETWORK), strict=False))
