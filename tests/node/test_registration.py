"""When clients can connect, the cluster knows where."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from dray.clock import SystemClock
from dray.disk import LocalDisk
from dray.ids import SystemEntropy
from dray.log.urls import DeltaLogs
from dray.machine.brokers import RegisterBroker
from dray.node.growth import add_domains
from dray.node.metadata import Effects
from dray.node.registration import Grown, register
from dray.node.visiting import cluster_place
from dray.offload import InlineOffload
from dray.replica.replica import Replica
from dray.servers.kafka.server import KafkaServer
from dray.tables.options import Store
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


@pytest.mark.slow
def test_a_broker_that_was_slow_to_start_does_not_serve_without_domains_that_were_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ND8: they are added when it has opened its logs and is not registered yet."""
    effects = Effects(clock=SystemClock(), entropy=SystemEntropy(), disk=LocalDisk(), offload=InlineOffload())
    place = cluster_place(DeltaLogs(), Store(url=str(tmp_path / "objects")), effects)
    settings = {"log__url": "deltalog:", "objects__url": str(tmp_path / "objects")}
    with broker(tmp_path / "a", **settings):
        pass

    async def grow_first(catalog: Replica, registration: RegisterBroker) -> None:
        assert await add_domains(place, 2, effects) == (1, 2)
        await register(catalog, registration)

    with monkeypatch.context() as late:
        late.setattr("dray.node.roles.broker.register", grow_first)
        with pytest.raises(Grown, match="start it again"), broker(tmp_path / "a", **settings):
            pass
    with broker(tmp_path / "a", **settings):
        pass
