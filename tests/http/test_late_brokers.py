"""What another broker has just made is found over HTTP, on a broker that has not heard of it yet."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from dray.access.audit import Audit
from dray.access.key_service import KeyService
from dray.access.service import AccessService
from dray.access.settings import AccessSettings
from dray.offload import InlineOffload
from dray.servers.http.api import ApiServices, make_api
from dray.servers.http.settings import HttpSettings
from dray.topics.service import NewTopic
from tests.topics.late import FEW, MANY, LateBroker, two_brokers

LAST = MANY - 1
RECORD = {"value_text": "a"}
FOUND = [
    ("GET", f"/topics/t/partitions/{LAST}", None),
    ("GET", f"/topics/t/partitions/{LAST}/records", None),
    ("GET", f"/topics/t/partitions/{LAST}/records?as_of=0", None),
    ("POST", f"/topics/t/partitions/{LAST}/records", {"records": [RECORD]}),
    ("POST", f"/topics/t/partitions/{LAST}/records", {"records": [RECORD], "expected_version": 0}),
    ("POST", "/topics/t/records", {"records": [RECORD | {"partition": LAST}]}),
    ("POST", "/topics/t/records:batch", {"records": [RECORD | {"partition": LAST}]}),
    ("POST", "/topics/t/records:batch", {
        "records": [RECORD | {"partition": LAST}], "expected_versions": {str(LAST): 0},
    }),
]  # fmt: skip
DENIED = [
    ("GET", f"/topics/t/partitions/{MANY}", None),
    ("GET", f"/topics/t/partitions/{MANY}/records", None),
    ("POST", f"/topics/t/partitions/{MANY}/records", {"records": [RECORD]}),
    ("POST", "/topics/t/ack", {"group": "g", "acks": [{"partition": MANY, "offsets": [0]}]}),
]  # fmt: skip


@asynccontextmanager
async def api_of(late: LateBroker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a broker's API."""
    services, offload = late.services, InlineOffload()
    plane = services.plane
    async with AsyncExitStack() as stack:
        access = AccessService(
            catalog=plane.domains.catalog, clock=plane.clock, entropy=plane.entropy, offload=offload, loopback=True,
            audit=Audit(None, offload), settings=AccessSettings(),
        )  # fmt: skip
        await stack.enter_async_context(access.running())
        served = ApiServices(
            topics=services.topics, publisher=services.publisher, reads=services.reads, consume=services.consume,
            heaps=services.heaps, domains=plane.domains, routing=services.routing, clock=plane.clock,
            offload=offload, durability="memory", access=access,
            keys=KeyService(catalog=plane.domains.catalog, entropy=plane.entropy, offload=offload),
        )  # fmt: skip
        transport = httpx.ASGITransport(make_api(served, HttpSettings()))
        yield await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://broker"))


@pytest.mark.parametrize(("method", "path", "body"), FOUND)
async def test_a_partition_that_another_broker_has_just_added_is_found(method, path, body):
    """TS1"""
    async with two_brokers() as (one, two), api_of(two) as api:
        two.fall_behind()
        await one.grow()
        assert two.topic.visible == FEW, "it has not heard of them"
        answer = await api.request(method, path, json=body)
        assert answer.status_code == 200, answer.text


async def test_records_for_old_and_new_partitions_are_taken_in_one_call():
    """TS1, PB1"""
    async with two_brokers() as (one, two), api_of(two) as api:
        two.fall_behind()
        await one.grow()
        records = [RECORD | {"partition": number} for number in (0, LAST, FEW, LAST)]
        answer = await api.post("/topics/t/records", json={"records": records})
        assert [(told["partition"], told["offset"]) for told in answer.json()["results"]] == [
            (0, "0"), (LAST, "0"), (FEW, "0"), (LAST, "1"),
        ]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), DENIED)
async def test_a_partition_that_nobody_has_is_denied(method, path, body):
    """TS1"""
    async with two_brokers() as (one, two), api_of(two) as api:
        two.fall_behind()
        await one.grow()
        answer = await api.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "NOT_FOUND")
        assert two.topic.visible == MANY, "it has asked"


async def test_the_first_record_whose_partition_nobody_has_is_named():
    """PB2: and nothing is stored of the others."""
    async with two_brokers() as (one, two), api_of(two) as api:
        two.fall_behind()
        await one.grow()
        for path in ("/topics/t/records", "/topics/t/records:batch"):
            records = [RECORD | {"partition": number} for number in (LAST, MANY, 0, MANY + 1)]
            answer = await api.post(path, json={"records": records})
            assert (answer.status_code, answer.json()["error"]["index"]) == (404, 1)
        unknown = {"records": [RECORD | {"partition": LAST}], "expected_versions": {str(MANY): 0}}
        assert (await api.post("/topics/t/records:batch", json=unknown)).status_code == 404
        assert (await api.get(f"/topics/t/partitions/{LAST}")).json()["version"] == "0"


@pytest.mark.parametrize(("path", "body"), [
    ("/topics/new/records", {"records": [RECORD | {"partition": MANY}]}),
    ("/topics/new/records:batch", {"records": [RECORD | {"partition": MANY}]}),
    ("/topics/new/partitions/8/records", {"records": [RECORD]}),
    ("/topics/new/ack", {"group": "g", "acks": [{"partition": MANY, "offsets": [0]}]}),
])  # fmt: skip
async def test_a_topic_and_a_partition_of_one_request_share_a_sync(path, body):
    """RP20: both were unheard of here."""
    async with two_brokers() as (one, two), api_of(two) as api:
        two.fall_behind()
        await one.services.topics.create(NewTopic(name="new", partitions=FEW, replication_factor=1, configs={}))
        tails = two.logs[0].tails
        answer = await api.post(path, json=body)
        assert (answer.status_code, two.logs[0].tails) == (404, tails + 1)
