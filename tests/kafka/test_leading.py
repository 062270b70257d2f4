"""Brokers that see different brokers do not send a client to and fro."""

from types import SimpleNamespace
from typing import cast

import pytest

from dray.groups.placement import domain_of_group
from dray.machine.names import StreamId
from dray.replica.domains import Domains
from dray.replica.replica import Replica
from dray.routing.errors import NotCoordinator, NotLeader
from dray.routing.sending import Sending
from dray.routing.service import Routing
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.handler import ALONE, Context, Peer, Services
from dray.servers.kafka.leading import Leading, check_coordinator
from dray.servers.kafka.support import Matrix
from tests.kafka.wire import eventually
from tests.replica.domain import replica_on, running
from tests.routing.test_brokers import MUTE, PATIENT, registration, told, version_two

STREAM = StreamId(0)
PEER = Peer(address="", port=0, listener="client")


class Away(Domains):
    """Its data domain is not loaded until somebody waits for it."""

    is_whole = False
    loaded = False

    def has(self, stream: StreamId) -> bool:
        return self.loaded

    async def ready(self, domain: int) -> None:
        self.loaded = True


class Place:
    """One broker, as far as these questions go."""

    def __init__(self, replica: Replica, *, enforced: bool = True, away: bool = False) -> None:
        self.domains = domains = Away({0: replica}) if away else Domains({0: replica})
        self.routing = Routing(domains=domains, cluster_id="c", keeps=domain_of_group if away else None)
        self.sending = Sending(enforced=enforced)
        services = SimpleNamespace(domains=domains, routing=self.routing, sending=self.sending)
        self._services = cast(Services, services)

    def context(self, client_id: str = "") -> Context:
        return Context(0, client_id, PEER, self._services, Matrix(), ALONE)

    async def refusal(self, client_id: str = "") -> NotLeader | None:
        leading = Leading(self.context(client_id), Asked(self._services))
        found = None
        try:
            await leading.check(STREAM)
        except NotLeader as error:
            found = error
        assert [node.broker_id for node in leading.told] == ([] if found is None else [found.leader.broker_id])
        return found

    async def coordinates(self, group: str) -> bool:
        try:
            await check_coordinator(group, self.context())
        except NotCoordinator:
            return False
        return True


async def hops(places: dict[int, Place], first: int) -> int:
    """How often a client is sent on that asks a broker first, and then whom it is told."""
    at, count = first, 0
    while (error := await places[at].refusal()) is not None:
        assert error.leader.broker_id != at, "nobody sends to itself"
        at, count = error.leader.broker_id, count + 1
        assert count < 10, "it goes to and fro"
    return count


@pytest.mark.slow
async def test_a_client_arrives_while_brokers_hear_different_ones() -> None:
    """R-071, SV5: one hears nobody but itself, the others hear all; whoever is asked first, somebody serves."""
    log = await version_two()
    timing = {1: PATIENT, 2: MUTE, 3: MUTE}
    replicas = {number: replica_on(log, f"broker-{number}", timing=timing[number]) for number in timing}
    places = {number: Place(replica) for number, replica in replicas.items()}
    async with running(*replicas.values()):
        for number, replica in replicas.items():
            await replica.propose(registration(number))
        for replica in replicas.values():
            await replica.sync()
        alike = [await hops(places, number) for number in places]
        assert sorted(alike) == [0, 1, 1], "all hear all: one serves, the others know it"
        await eventually(lambda: told(places[1].routing) == [1])
        assert [told(places[number].routing) for number in (2, 3)] == [[1, 2, 3]] * 2
        assert all([await hops(places, number) <= 2 for number in places])
        for group in (f"g{n}" for n in range(20)):
            assert any([await place.coordinates(group) for place in places.values()])


async def test_a_broker_that_is_about_to_stop_leaves_partitions_to_the_others_and_no_groups() -> None:
    """SV4: it names the new leader; alone, it serves to the end."""
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    place, other = Place(one, enforced=False), Place(two, enforced=False)
    async with running(one, two):
        await one.propose(registration(1))
        await two.propose(registration(2))
        await one.sync()
        assert (await place.refusal(), await other.refusal()) == (None, None), "any broker serves"
        await one.propose(registration(1, draining=True))
        place.sending.leave()
        refusal = await place.refusal()
        assert refusal is not None
        assert (refusal.leader.broker_id, refusal.leader.port) == (2, 9002)
        assert await place.coordinates("g")
        await two.close_session()
        await one.sync()
        assert await place.refusal() is None


async def test_who_leads_is_judged_by_what_the_client_is_told() -> None:
    """R-071: in each zone somebody else leads."""
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    places = {1: Place(one), 2: Place(two)}
    async with running(one, two):
        await one.propose(registration(1, zone="a"))
        await two.propose(registration(2, zone="b"))
        await one.sync()
        for zone, leader in (("zone_id=a", 1), ("zone_id=b", 2)):
            found = {number: await place.refusal(zone) for number, place in places.items()}
            assert found.pop(leader) is None
            assert [error.leader.broker_id for error in found.values() if error is not None] == [leader]


async def test_a_domain_that_is_not_loaded_is_left_to_its_leader_who_loads_it() -> None:
    """SV6, RG7: partitions and groups, though nothing is enforced."""
    log = await version_two()
    replicas = {number: replica_on(log, f"broker-{number}") for number in (1, 2)}
    places = {number: Place(replica, enforced=False, away=True) for number, replica in replicas.items()}
    async with running(*replicas.values()):
        for number, replica in replicas.items():
            await replica.propose(registration(number))
        await replicas[1].sync()
        (leader,) = [number for number, place in places.items() if 0 in (place.routing.led() or ())]
        other = places[3 - leader]
        refusal = await other.refusal()
        assert refusal is not None
        assert refusal.leader.broker_id == leader
        assert not await other.coordinates("g")
        assert not other.domains.has(STREAM)
        assert other.routing.view("client").coordinator("g").broker_id == leader
        assert (places[leader].routing.rank("g"), other.routing.rank("g")) == (0, 1)
        assert await places[leader].refusal() is None
        assert places[leader].domains.has(STREAM), "it loads it"
        assert await places[leader].coordinates("g")
