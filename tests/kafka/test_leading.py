"""Brokers that see different brokers do not send a client to and fro."""

from types import SimpleNamespace
from typing import cast

import pytest

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


class Place:
    """One broker, as far as these questions go."""

    def __init__(self, replica: Replica, *, enforced: bool = True) -> None:
        domains = Domains({0: replica})
        self.routing = Routing(domains=domains, cluster_id="c")
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
