"""A broker makes itself known to its cluster, and sees to it that it stays known.

Invariants
    ND8  A registered broker has every domain that the catalog names. Domains
         are added only while no broker has a session (M14), so one that was
         slow to start, or slept, finds them when it is registered, and ends.
"""

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

import dray
from dray.clock import Clock
from dray.errors import Conflict, DrayError, Unavailable
from dray.machine.brokers import BrokerRegistered, Listener, RegisterBroker
from dray.machine.head import all_domains
from dray.node import telemetry
from dray.node.addresses import HostPort
from dray.node.settings import BrokerSettings
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.replica.wakeups import CATALOG
from dray.telemetry import logger

LISTENER: Final = "client"
OUTSIDE: Final = "outside"
HTTP: Final = "http"
GRPC: Final = "grpc"
WITHDRAW_S: Final = 3.0
"""What a stop gives the log for the news."""


class Grown(Conflict):
    """The cluster has domains that this process does not know."""


def registration_of(
    settings: BrokerSettings,
    told: HostPort,
    clock: Clock,
    *,
    outside: HostPort | None = None,
    http: HostPort | None = None,
    grpc: HostPort | None = None,
) -> RegisterBroker:
    """What the cluster is told: where clients reach this broker."""
    listeners = [Listener(name=LISTENER, host=told.host, port=told.port)]
    for name, at in ((OUTSIDE, outside), (HTTP, http), (GRPC, grpc)):
        if at is not None:
            listeners.append(Listener(name=name, host=at.host, port=at.port))
    return RegisterBroker(
        broker_id=settings.id,
        zone=settings.zone,
        rack=settings.rack or settings.zone,
        listeners=tuple(listeners),
        started_ms=clock.wall_ms(),
        build=dray.__version__,
    )


async def register(catalog: Replica, registration: RegisterBroker) -> None:
    """Be known to the cluster; `Unavailable` if another broker has our id."""
    (verdict,) = await catalog.propose(registration)
    if not isinstance(verdict, BrokerRegistered):
        raise Unavailable("the broker could not be registered: is another one running with this id?", verdict=verdict)


def check_not_grown(domains: Domains) -> None:
    """Raise `Grown` if the catalog names a domain that this process does not have (ND8)."""
    missing = {*all_domains(domains.catalog.machine.head.domains)} - set(domains.all)
    if missing:
        raise Grown(
            "domains were added while this broker started or slept: start it again",
            missing=",".join(map(str, sorted(missing))),
        )


async def withdraw(catalog: Replica, registration: RegisterBroker) -> None:
    """Tell the cluster that this broker is about to stop. A log that does not answer, or is too old, keeps nobody."""
    leaving = msgspec.structs.replace(registration, draining=True)
    try:
        async with asyncio.timeout(WITHDRAW_S):
            await register(catalog, leaving)
    except (DrayError, TimeoutError) as error:
        logger().warning(telemetry.NOT_WITHDRAWN, error=str(error) or "the log does not answer")


async def keep_registered(domains: Domains, registration: RegisterBroker, failed: "asyncio.Future[DrayError]") -> None:
    """A broker record lives as long as its session (M8): a session that was opened anew needs a new one.

    `failed` is told if meanwhile there are domains that this process does not have (ND8).
    """
    catalog = domains.catalog
    with catalog.waiter((CATALOG,)) as waiter:
        while True:
            waiter.clear()
            session = catalog.session
            if session is None or catalog.machine.brokers.of_session(session.id) is None:
                with suppress(DrayError):  # tried again at the next look; readiness tells meanwhile
                    await register(catalog, registration)
                _tell_growth(domains, failed)
            await waiter.wait(1.0)


def _tell_growth(domains: Domains, failed: "asyncio.Future[DrayError]") -> None:
    try:
        check_not_grown(domains)
    except Grown as error:
        if not failed.done():
            failed.set_result(error)
