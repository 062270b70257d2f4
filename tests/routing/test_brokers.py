"""Which brokers a client is told of."""

from dray.log.memory import MemoryLog
from dray.machine.brokers import Listener, RegisterBroker
from dray.machine.head import Genesis, founding
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
        assert routing.nodes("client") == []
        await replica.propose(REGISTRATION)
        before = routing.nodes("client")
        assert [node.broker_id for node in before] == [routing.broker_id] == [7]
        changes = routing.leadership()
        await replica.close_session()
        assert replica.machine.brokers.all() == []
        assert routing.nodes("client") == before
        assert routing.coordinator("g", "client") == before[0]
        assert routing.leadership() == changes
        await replica.propose(REGISTRATION)
        assert routing.nodes("client") == before


def registration(broker_id: int, *, draining: bool = False) -> RegisterBroker:
    listeners = (Listener(name="client", host="h", port=9000 + broker_id),)
    return RegisterBroker(broker_id=broker_id, zone="", rack="", listeners=listeners, started_ms=1, draining=draining)


async def version_two() -> MemoryLog:
    log = MemoryLog()
    await log.append(founding(Genesis(cluster_id=CLUSTER, log_id=LOG_ID, domain=0, domains=1, version=2), 1))
    return log


async def test_all_brokers_name_one_controller_the_lowest_of_those_there_are() -> None:
    log = await version_two()
    one, two = replica_on(log, "broker-1"), replica_on(log, "broker-2")
    views = [Routing(domains=Domains({0: replica}), cluster_id="c") for replica in (one, two)]
    async with running(one, two):
        assert views[0].controller(views[0].nodes("client")) == -1
        await one.propose(registration(8))
        await two.propose(registration(3))
        await one.sync()
        assert [view.controller(view.nodes("client")) for view in views] == [3, 3]
        assert [view.controller(view.nodes("another")) for view in views] == [-1, -1]


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
            assert [node.broker_id for node in view.nodes("client")] == [2]
            assert dict(view.leaders()) == {0: 2}
        await two.close_session()
        await one.sync()
        assert [node.broker_id for node in views[0].nodes("client")] == [1]


async def test_a_broker_that_is_not_heard_for_two_keep_alives_is_left_out_until_it_is_heard() -> None:
    log = await version_two()
    one, two = replica_on(log, "broker-1", timing=PATIENT), replica_on(log, "broker-2", timing=MUTE)
    routing = Routing(domains=Domains({0: one}), cluster_id="c")
    async with running(one, two):
        await one.propose(registration(1))
        await two.propose(registration(2))
        await one.sync()
        assert [node.broker_id for node in routing.nodes("client")] == [1, 2]
        await eventually(lambda: [node.broker_id for node in routing.nodes("client")] == [1])
        assert 2 in one.machine.brokers.live, "advice only: it is no more than silent"
        await two.propose(KeepAlive())
        await one.sync()
        assert [node.broker_id for node in routing.nodes("client")] == [1, 2]
