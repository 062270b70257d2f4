"""When clients can connect, the cluster knows where."""

import pytest
from confluent_kafka.admin import AdminClient

from dray.servers.kafka.server import KafkaServer
from dray.testing import broker


def test_a_broker_is_registered_before_anybody_can_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """RG2: a client that comes back at once after a restart is never told of a cluster without brokers."""
    listen, known = KafkaServer.listen, []

    async def watched(self, listener):
        known.append([node.port for node in self.core.services.routing.view(listener.name).nodes.values()])
        return await listen(self, listener)

    monkeypatch.setattr(KafkaServer, "listen", watched)
    with broker() as running:
        told = AdminClient({"bootstrap.servers": running.bootstrap}).list_topics(timeout=30).brokers
        assert known == [[node.port for node in told.values()]]
        assert len(told) == 1
