"""What the active version does not have yet: every server says so, once, and what an operator does about it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from kafka.errors import UnsupportedVersionError

from dray.api.v1 import heaps_pb2 as pb
from dray.kafka_client.link import BrokerLink
from dray.servers.kafka.error_codes import ErrorCode
from dray.servers.kafka.messages import consumer_group_heartbeat, incremental_alter_configs
from tests.durability.daemon import Drayd, free_port
from tests.grpc.wire import wire

from .recordings import unpack_directory

pytestmark = pytest.mark.slow  # brokers are processes
ADVICE = "run `drayd admin meta activate`"
GROUP_CONFIG = 32


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Iterator[Drayd]:
    """A broker on a directory of version 1."""
    directory = unpack_directory(tmp_path_factory.mktemp("old"))
    with Drayd(directory, "--grpc", f"127.0.0.1:{free_port()}") as daemon:
        yield daemon


def at(daemon: Drayd, path: str) -> str:
    base = daemon.http.partition(" ")[0].removesuffix("/")
    return f"http://{base}/v1{path}"


def asked(daemon: Drayd, path: str, body: dict[str, object] | None = None) -> tuple[int, dict[str, object]]:
    """The status and the error of a POST, or without a body of a GET."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(at(daemon, path), data, {"content-type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    return refused.value.code, json.loads(refused.value.read())["error"]


def described(daemon: Drayd, method: str, path: str) -> set[str]:
    """The statuses that the API says an endpoint has."""
    with urllib.request.urlopen(at(daemon, "/openapi.json"), timeout=60) as answer:
        return set(json.loads(answer.read())["paths"][path][method]["responses"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/heaps", {"topic": "jobs"}),
        ("/keys", {"role": "admin"}),
        ("/topics/orders/ack", {"group": "workers", "acks": [{"partition": 0, "offsets": [0]}]}),
        ("/topics/orders/partitions/0/records", {"expected_version": 60, "records": [{"value": "eA=="}]}),
    ],
)
def test_over_http_it_is_501(old, path, body):
    """M10"""
    status, error = asked(old, path, body)
    assert (status, error.get("retryable", False)) == (501, False)
    assert ADVICE in error["message"]


def test_a_group_whose_leases_pass_is_told_501_as_the_api_says(old):
    """M10, CO8: its records were handed out, and that they failed cannot be written."""
    consume = "/topics/orders/consume?group=sleepers&max=1000&lease=1s"
    with urllib.request.urlopen(at(old, consume), timeout=60) as answer:
        assert json.loads(answer.read())["records"]
    status, error = asked(old, f"{consume}&wait=30s")
    assert (status, ADVICE in error["message"]) == (501, True)
    assert "501" in described(old, "get", "/topics/{topic}/consume")


async def test_over_grpc_it_is_unimplemented(old):
    """M10"""
    async with wire(old.flags[-1]) as client:
        code, said = await client.refused("MakeHeap", pb.MakeHeapReq(topic="jobs", mode=pb.MIN, partitions=1))
    assert code == "UNIMPLEMENTED"
    assert ADVICE in said


@pytest.mark.parametrize("epoch", [0, 3, -1], ids=["joins", "stays", "leaves"])
async def test_members_of_consumer_groups_are_told_an_unsupported_version(old, epoch):
    """M10: as by a broker of Kafka whose feature is off."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"], topic_partitions=[],
    )  # fmt: skip
    link = await BrokerLink.open("127.0.0.1", old.port)
    answer = await link.ask(consumer_group_heartbeat.SCHEMA, request, most=1)
    link.close()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ADVICE in answer.error_message


async def test_configs_of_groups_are_told_an_unsupported_version(old):
    """M10"""
    change = incremental_alter_configs.AlterableConfig(name="consumer.session.timeout.ms", value="50000")
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_CONFIG, resource_name="g", configs=[change]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    link = await BrokerLink.open("127.0.0.1", old.port)
    (answer,) = (await link.ask(incremental_alter_configs.SCHEMA, request, most=1)).responses
    link.close()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ADVICE in answer.error_message


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_tells_its_user_and_does_not_wait_for_it_to_pass(old, protocol):
    consumer = Consumer({"bootstrap.servers": old.bootstrap, "group.id": protocol, "group.protocol": protocol})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert "API version not supported" in str(message.error())
    consumer.close()


def test_kafka_python_raises(old):
    consumer = KafkaConsumer("orders", bootstrap_servers=old.bootstrap, group_id="kafka-python")
    with pytest.raises(UnsupportedVersionError):
        next(consumer)
    consumer.close()


async def test_aiokafka_raises(old):
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=old.bootstrap, group_id="aiokafka")
    with pytest.raises(KafkaError, match="UnsupportedVersionError"):
        await consumer.start()
    await consumer.stop()
