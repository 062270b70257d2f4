"""HOST:PORT, read and written, and what clients are told."""

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from dray.errors import Invalid

LOOPBACK: Final = "127.0.0.1"
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses that exist nowhere: asking the kernel how it would reach them sends nothing."""
_ALONE: Final = {socket.AF_INET: LOOPBACK, socket.AF_INET6: "::1"}


class BadAddress(Invalid):
    """An address in the settings cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """An address to listen on or to tell clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether it means every address of a machine: fine to listen on, nothing to connect to."""
        try:
            [(_, _, _, _, address), *_] = socket.getaddrinfo(self.host, None, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return False
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return (mapped or found).is_unspecified

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        host = _ALONE[_family(self.host)] if self.is_wildcard else self.host
        return f"http://{HostPort(host=host, port=self.port)}/"


def parse_host_port(text: str, key: str) -> HostPort:
    """An address from a setting; brackets go around IPv6. A port alone is one of this machine's loopback."""
    if _is_port(text):
        return HostPort(host=LOOPBACK, port=int(text))
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not _is_port(port) or (":" in bare and bare == host):
        raise BadAddress(
            f"expected HOST:PORT such as 127.0.0.1:9092 or [::1]:9092, or a port alone, not {text!r}", key=key
        )
    return HostPort(host=bare, port=int(port))


_FLAGS: Final = {"kafka.advertise": " (--advertise)"}


def advertised(listening: HostPort, wanted: str | None, key: str = "kafka.advertise") -> HostPort:
    """What clients are told to connect to: what the settings say, or where we listen, but never a wildcard."""
    if wanted is not None:
        address = parse_host_port(wanted, key)
        if address.is_wildcard or _is_port(wanted):
            raise BadAddress(
                f"clients cannot connect to this: {key}{_FLAGS.get(key, '')} takes the HOST:PORT at which they reach "
                f"this machine, not {wanted!r}",
                key=key,
            )
        return HostPort(host=address.host, port=address.port or listening.port)
    if listening.is_wildcard:
        return HostPort(host=own_address(_family(listening.host)), port=listening.port)
    return listening


def own_address(family: socket.AddressFamily) -> str:
    """The address of this machine from which it reaches others, or its loopback if it reaches nobody."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ELSEWHERE[family], 9))
            return str(probe.getsockname()[0])
        except OSError:
            return _ALONE[family]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= 0xFFFF
