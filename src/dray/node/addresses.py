"""HOST:PORT, read and written."""

import ipaddress
from dataclasses import dataclass

from dray.errors import Invalid


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


def parse_host_port(text: str, key: str) -> HostPort:
    """An address from a setting; brackets go around IPv6."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise Invalid("expected HOST:PORT, such as 127.0.0.1:9092", key=key, value=text)
    return HostPort(host=host, port=int(port))
