"""Topics and partitions that a request names: found in one place, and denied only after a sync."""

import inspect
import pkgutil
from importlib import import_module
from types import SimpleNamespace
from typing import cast

import pytest

from dray.clock import ManualClock
from dray.errors import Unavailable
from dray.replica.replica import Replica
from dray.servers.kafka import apis, configured, described, plain
from dray.servers.kafka.asked import Asked
from dray.servers.kafka.handler import Services
from dray.topics.errors import TopicExists, UnknownPartition, UnknownTopic, UnknownTopicId
from dray.topics.service import NewTopic
from tests.produce.broker import Broker, GatedObjects, broker
from tests.replica.domain import new_log


def asked_of(one: Broker) -> Asked:
    return Asked(cast(Services, SimpleNamespace(topics=one.topics, domains=one.domains)))


def topic(name: str, partitions: int = 1) -> NewTopic:
    return NewTopic(name=name, partitions=partitions, replication_factor=1, configs={})


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[Replica]:
    """The replicas that were synced."""
    seen: list[Replica] = []
    sync = Replica.sync

    async def counted(self: Replica) -> None:
        seen.append(self)
        await sync(self)

    monkeypatch.setattr(Replica, "sync", counted)
    return seen


async def test_what_is_known_needs_no_sync_and_what_is_not_one_for_the_whole_request(syncs: list[Replica]) -> None:
    """TS1, RP20."""
    async with broker({0: await new_log()}, GatedObjects(), clock=ManualClock()) as one:
        made = await one.topics.create(topic("orders", 2))
        syncs.clear()
        asked = asked_of(one)
        assert await asked.topic("orders") is made
        assert await asked.topic_of_id(made.id) is made
        assert [await asked.stream(made, number) for number in (0, 1)] == list(made.streams)
        assert syncs == []
        for unknown in ("elsewhere", "nowhere"):
            with pytest.raises(UnknownTopic):
                await asked.topic(unknown)
        with pytest.raises(UnknownTopicId):
            await asked.topic_of_id(bytes(16))
        for number in (-1, 2, 1 << 31):
            with pytest.raises(UnknownPartition):
                await asked.stream(made, number)
        await asked.check_free("elsewhere")
        with pytest.raises(TopicExists):
            await asked.check_free("orders")
        assert [found.name for found in await asked.everything()] == ["orders"]
        assert len(syncs) == 1


async def test_what_another_broker_made_is_found_by_the_sync() -> None:
    """TS1: neither a topic nor a partition is denied from memory."""
    log = await new_log()
    clock = ManualClock()
    async with (
        broker({0: log}, GatedObjects(), clock=clock) as one,
        broker({0: log}, GatedObjects(), name="broker-2", clock=clock) as two,
    ):
        await one.topics.create(topic("orders"))
        found = await asked_of(two).topic("orders")
        assert found.visible == 1
        await one.topics.add_partitions(await asked_of(one).topic("orders"), 3)
        assert await asked_of(two).stream(found, 2) == found.streams[2]


async def test_a_sync_that_fails_is_no_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    """E1: whoever could not ask says so."""

    async def cut_off(self: Replica) -> None:
        raise Unavailable("the log does not answer")

    async with broker({0: await new_log()}, GatedObjects(), clock=ManualClock()) as one:
        made = await one.topics.create(topic("orders"))
        monkeypatch.setattr(Replica, "sync", cut_off)
        with pytest.raises(Unavailable):
            await asked_of(one).topic("elsewhere")
        with pytest.raises(Unavailable):
            await asked_of(one).stream(made, 7)
        monkeypatch.undo()


def test_no_handler_finds_a_topic_by_itself() -> None:
    """KP23."""
    names = [module.name for module in pkgutil.iter_modules(apis.__path__)]
    assert "metadata" in names
    for module in (plain, configured, described, *(import_module(f"{apis.__name__}.{name}") for name in names)):
        source = inspect.getsource(module)
        for way in ("topics.peek", "topics.find", "topics.visible", "topics.check", "catalog.machine", "Freshness("):
            assert way not in source, f"{module.__name__} must ask dray.servers.kafka.asked instead of {way}"
