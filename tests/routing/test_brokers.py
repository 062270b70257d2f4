"""Which brokers a client is told of."""

import pytest

from dray.log.memory import MemoryLog
from dray.machine.brokers import Listener, RegisterBroker
from dray.machine.head import Genesis, founding
from dray.machine.names import StreamId
from dray.machine.sessions import KeepAlive
from dray.replica.domains import Domains
from dray.replica.writer import Timing
from dray.routing.service import Routing
from tests.kafka.wire import eventually
from tests.replica.domain import CLUSTER, LOG_ID, new_log, replica_on, running

PATIENT = Timing(ttl_ms=600_000, keepalive_ms=1_000)
MUTE = Timing(ttl_ms=600_000, keepalive_ms=200_000)
"""Says nothing unless it is asked."""

REGISTRATION = RegisterBroker(
    broker_id=7, zone="", rack="", listeners=(Listener(name="client", host="h", port=9092),), started_ms=1
)


async def test_a_broker_names_itself_also_between_two_of_its_sessions():
    """RG2: librdkafka forgets a broker that a Metadata answer leaves out, and what it coordinates."""
    replica = replica_on(await new_log())
    routing = Routing(domains=Domains({0: replica}), cluster_id="c")
    async with running(replica):
        assert routing.view("client").nodes == {}
        await replica.propose(REGISTRATION)
        before = routing.view("client")
        assert list(before.nodes) == [routing.broker_id] == [7]
        await replica.close_session()
        assert replica.machine.brokers.all() == []
        assert routing.view("client") is before, "nothing has changed for clients"
        assert before.coordinator("g") == before.nodes[7]
        await replica.propose(REGISTRATION)
        assert routing.view("client").nodes == before.nodes


def registration(broker_id: int, *, zone: str = "", draining: bool = False) -> RegisterBroker:
    listeners = (Listener(name="client", host="h", port=9000 + broker_id),)
    return RegisterBroker(broker_id=broker_id, zone=zone, rack="", listeners=listeners, started_ms=1, draining=draining)


def told(routing: Routing, zone: str = "", listener: str = "client") -> list[int]:
    """The ids that clients of a zone are told."""
    return list(routing.view(listener, zone).nodes)


async def version_two() -> MemoryLog:
    log = MemoryLog()
    await log.append(founding(Genesis(cluster_id=CLUSTER, log_id=LOG_ID, domain=0, domains=1, version=2), 1))
    return log


async def test_all_brokers_name_one_controller_the_lowest_of_those_there_are() -> None:
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    views = [Routing(domains=Domains({0: replica}), cluster_id="c") for replica in (one, two)]
    async with running(one, two):
        assert views[0].view("client").controller == -1
        await one.propose(registration(8))
        await two.propose(registration(3))
        await one.sync()
        assert [view.view("client").controller for view in views] == [3, 3]
        assert [view.view("another").controller for view in views] == [-1, -1]


async def test_a_broker_that_is_about_to_stop_is_left_out_by_all_and_by_itself() -> None:
    """RG4: but for a broker that is alone, which goes on answering for itself."""
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    views = [Routing(domains=Domains({0: replica}), cluster_id="c") for replica in (one, two)]
    async with running(one, two):
        await one.propose(registration(1))
        await two.propose(registration(2))
        await one.propose(registration(1, draining=True))
        await two.sync()
        for view in views:
            assert told(view) == [2]
            assert view.view("client").leaders == {0: 2}
        await two.close_session()
        await one.sync()
        assert told(views[0]) == [1]


@pytest.mark.slow
async def test_a_broker_that_is_not_heard_for_two_keep_alives_is_left_out_until_it_is_heard() -> None:
    log = await version_two()
    one, two = replica_on(log, "broker-1", timing=PATIENT), replica_on(log, "broker-2", timing=MUTE)
    routing = Routing(domains=Domains({0: one}), cluster_id="c")
    async with running(one, two):
        await one.propose(registration(1))
        await two.propose(registration(2))
        await one.sync()
        assert told(routing) == [1, 2]
        await eventually(lambda: told(routing) == [1])
        assert 2 in one.machine.brokers.live, "advice only: it is no more than silent"
        assert list(routing.settled_view("client").nodes) == [1, 2], "the log has it still"
        await two.propose(KeepAlive())
        await one.sync()
        assert told(routing) == [1, 2]


async def test_clients_of_a_zone_are_told_of_its_brokers_and_of_all_if_there_are_none() -> None:
    """R-066, R-067, R-072, RG4, RG6: whatever is filtered, who leads and who coordinates is in the list."""
    log = await version_two()
    brokers = [replica_on(log, f"broker-{number}") for number in (1, 2, 3)]
    views = [Routing(domains=Domains({0: replica}), cluster_id="c") for replica in brokers]
    zones = {1: "a", 2: "b", 3: "a"}
    async with running(*brokers):
        for number, replica in enumerate(brokers, 1):
            await replica.propose(registration(number, zone=zones[number]))
        for replica in brokers:
            await replica.sync()
        for routing in views:
            assert told(routing) == told(routing, "nowhere") == told(routing, "A") == [1, 2, 3]
            assert (told(routing, "a"), told(routing, "b")) == ([1, 3], [2])
            assert told(routing, "a", "another") == [], "no broker has that listener"
            for zone in ("", "a", "b", "nowhere"):
                view = routing.view("client", zone)
                assert {*view.leaders.values(), view.controller, view.coordinator("g").broker_id} <= {*view.nodes}
            assert routing.view("client", "b") is routing.view("client", "b"), "kept while nothing changes"
        groups = [f"g{n}" for n in range(50)]
        for zone in ("", "a", "b"):
            chosen = [[routing.view("client", zone).coordinator(group) for group in groups] for routing in views]
            assert chosen[0] == chosen[1] == chosen[2], "all answer alike"
        await brokers[1].close_session()
        await brokers[0].sync()
        assert told(views[0], "b") == told(views[0]) == [1, 3]
        await brokers[0].propose(registration(1, zone="a", draining=True))
        assert (told(views[0], "a"), told(views[0])) == ([3], [3])


async def test_a_reader_is_sent_to_its_zone_once_and_stays_there() -> None:
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    a, b = (Routing(domains=Domains({0: replica}), cluster_id="c") for replica in (one, two))
    async with running(one, two):
        await one.propose(registration(1, zone="a"))
        await two.propose(registration(2, zone="b"))
        await one.sync()
        stream = StreamId(0)
        assert (a.nearer("client", "b", stream), b.nearer("client", "b", stream)) == (2, -1)
        assert (a.nearer("client", "a", stream), b.nearer("client", "a", stream)) == (-1, 1)
        assert (a.nearer("client", "nowhere", stream), b.nearer("client", "nowhere", stream)) == (-1, -1)
