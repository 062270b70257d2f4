"""Which brokers a client is told of."""

from dray.machine.brokers import Listener, RegisterBroker
from dray.replica.domains import Domains
from dray.routing.service import Routing
from tests.replica.domain import new_log, replica_on, running

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
