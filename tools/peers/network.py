"""Networks that can be cut: a namespace with an interface of its own, and addresses on our side that it reaches.

    here                       the namespace
    10.77.N.1  (one server)  ─┐
    10.77.N.2  (another one) ─┴─ veth ─ 10.77.N.9

What is cut is dropped without a word, in both directions, as a network does
that is broken: no reset, no "unreachable". Needs root and iproute2, nftables.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tools.peers.process import PeerError, run, tool

_TABLE: Final = "inet cut"


class Namespace:
    """A network of its own, joined to ours."""

    def __init__(self, number: int) -> None:
        if os.geteuid() != 0:
            raise PeerError("a network namespace is made by root: run the tests of peers as root")
        self._ip, self._nft = tool("ip", "iproute2"), tool("nft", "nftables")
        self.name = f"dray-{number}"
        self._link = f"dray{number}"
        self._net = f"10.77.{number}"
        self.first, self.second, self.inside = (f"{self._net}.{host}" for host in (1, 2, 9))

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command is run with to be in there."""
        return (self._ip, "netns", "exec", self.name)

    def make(self) -> None:
        self._on_ip("netns", "add", self.name)
        self._on_ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        for host in (self.first, self.second):
            self._on_ip("addr", "add", f"{host}/24", "dev", self._link)
        self._on_ip("link", "set", self._link, "up")
        for words in (["addr", "add", f"{self.inside}/24", "dev", "eth0"], ["link", "set", "eth0", "up"],
                      ["link", "set", "lo", "up"]):  # fmt: skip
            self._on_ip("-n", self.name, *words)
        self._rules(f"add table {_TABLE}")
        for hook in ("input", "output"):
            self._rules(f"add chain {_TABLE} {hook} {{ type filter hook {hook} priority 0; }}")

    def cut(self, *addresses: str) -> None:
        """From now on nothing passes between the namespace and these addresses of ours."""
        for address in addresses:
            self._rules(f"add rule {_TABLE} input ip saddr {address} drop")
            self._rules(f"add rule {_TABLE} output ip daddr {address} drop")

    def heal(self) -> None:
        self._rules(f"flush table {_TABLE}")

    def remove(self) -> None:
        with contextlib.suppress(PeerError):
            self._on_ip("link", "del", self._link)
        with contextlib.suppress(PeerError):
            self._on_ip("netns", "del", self.name)

    def _rules(self, text: str) -> None:
        run([*self.prefix, self._nft, *text.split(" ")])

    def _on_ip(self, *words: str) -> None:
        run([self._ip, *words])


@contextmanager
def namespace() -> Iterator[Namespace]:
    """One that nobody else on this machine has, until the end of the block."""
    taken = subprocess.run([tool("ip", "iproute2"), "-o", "link"], capture_output=True, text=True, check=True).stdout
    numbers = (1 + (os.getpid() + step) % 250 for step in range(250))
    made = Namespace(next(one for one in numbers if f"dray{one}@" not in taken and f"dray{one}:" not in taken))
    try:
        made.make()
        yield made
    finally:
        made.remove()
