"""The addresses of a broker, taken before anything else is touched.

A taken port is the commonest mistake of a first use. It is told at once, in
words, and not after a directory was made, a lock taken and a log opened. The
sockets are bound and do not listen yet: who connects too early is refused.
"""

import errno
import socket
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Final

from dray.errors import DrayError, Unavailable
from dray.node import telemetry
from dray.node.addresses import BadAddress, HostPort, advertised, parse_host_port
from dray.servers.grpc.settings import GrpcSettings
from dray.servers.http.settings import HttpSettings
from dray.servers.kafka.settings import KafkaSettings
from dray.telemetry import logger

GUARDED: Final = "grpc.listen"
"""Who listens there beyond loopback asks for a key (`access.required`), or says by itself that it does not."""


class PortTaken(Unavailable):
    """Another process listens there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An address that is ours."""

    address: HostPort
    sockets: tuple[socket.socket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The addresses of a broker, bound."""

    kafka: Taken
    advertised: HostPort
    """Where Kafka clients are told to connect."""
    outside: Taken | None
    """The second listener of Kafka's, if there is one."""
    outside_advertised: HostPort | None
    http: Taken
    told_http: HostPort
    """Where clients of the API are sent."""
    grpc: Taken | None
    """None: heaps are not served over gRPC."""
    grpc_advertised: HostPort | None

    @property
    def addresses(self) -> list[HostPort]:
        """Where this broker listens."""
        return [taken.address for taken in (self.kafka, self.outside, self.http, self.grpc) if taken]


def take_ports(stack: AsyncExitStack, kafka: KafkaSettings, http: HttpSettings, grpc: GrpcSettings) -> Ports:
    """Take all ports or none, before anything is made or opened."""
    taken = _take(stack, kafka.listen, "kafka.listen", "--kafka")
    outside = None
    if kafka.outside_listen is not None:
        outside = _take(stack, kafka.outside_listen, "kafka.outside_listen", "--set kafka.outside_listen=")
    on_http = take_http(stack, http)
    on_grpc = _take(stack, grpc.listen, "grpc.listen", "--grpc") if grpc.listen else None
    return Ports(
        kafka=taken,
        advertised=_advertised(taken.address, kafka.advertise),
        outside=outside,
        outside_advertised=None if outside is None else _advertised(outside.address, kafka.outside_advertise),
        http=on_http,
        told_http=advertised(on_http.address, http.advertise, "http.advertise"),
        grpc=on_grpc,
        grpc_advertised=None if on_grpc is None else _advertised(on_grpc.address, grpc.advertise),
    )


def _advertised(at: HostPort, wanted: str | None) -> HostPort:
    told = advertised(at, wanted)
    if at.is_wildcard and wanted is None:
        logger().warning(telemetry.ADVERTISED, host=told.host, port=told.port)
    return told


def take_http(stack: AsyncExitStack, http: HttpSettings) -> Taken:
    """Take the HTTP port, before anything is made or opened."""
    return _take(stack, http.listen, "http.listen", "--http")


def _take(stack: AsyncExitStack, text: str, key: str, flag: str) -> Taken:
    taken = take(text, key, flag)
    for bound in taken.sockets:
        stack.callback(bound.close)
    if not taken.address.is_loopback and key != GUARDED:
        logger().warning(telemetry.EXPOSED, listener=key.partition(".")[0], host=taken.address.host)
    return taken


def take(text: str, key: str, flag: str) -> Taken:
    """Bind every address that HOST:PORT means; port 0 takes a free one.

    Raises:
        BadAddress: it is no address, or none of this machine.
        PortTaken: somebody else has it.
    """
    wanted = parse_host_port(text, key)
    sockets: list[socket.socket] = []
    with ExitStack() as undo:
        for family, host in _resolved(wanted, key):
            port = int(sockets[0].getsockname()[1]) if sockets else wanted.port
            bound = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            sockets.append(bound)
            try:
                _bind(bound, family, host, port)
            except OSError as error:
                raise refusal(error, HostPort(host=wanted.host, port=port), key, flag) from error
        undo.pop_all()
    host, port = sockets[0].getsockname()[:2]
    return Taken(address=HostPort(host=str(host), port=int(port)), sockets=tuple(sockets))


def refusal(error: OSError, address: HostPort, key: str, flag: str) -> DrayError:
    """Why an address cannot be listened on, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            taken = PortTaken(f"port {address.port} is taken: another process listens on {address}", key=key)
            taken.advice = (
                f"stop what listens there (`ss -ltnp 'sport = :{address.port}'` names it), or choose another "
                f"address with {flag} HOST:PORT"
            )
            return taken
        case errno.EADDRNOTAVAIL:
            foreign = BadAddress(f"{address.host} is no address of this machine", key=key)
            foreign.advice = (
                f"give {flag} an address that `ip address` lists, or 0.0.0.0 for all of them; "
                "what clients are told is set by --advertise"
            )
            return foreign
        case errno.EACCES:
            denied = BadAddress(f"this user may not listen on port {address.port}", key=key)
            denied.advice = f"choose a port from 1024 on with {flag} HOST:PORT"
            return denied
        case _:
            return Unavailable(f"cannot listen on {address}", key=key, reason=error.strerror)


def _resolved(wanted: HostPort, key: str) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadAddress(f"no address is known for the host {wanted.host!r}", key=key) from error
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind(bound: socket.socket, family: socket.AddressFamily, host: str, port: int) -> None:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    bound.bind((host, port))
    bound.setblocking(False)
