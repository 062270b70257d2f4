"""One good request of every API and version that is served, and ways to spoil it."""

import random
import struct

from dray.servers.kafka.messages.api_versions import ApiVersionsRequest
from dray.servers.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.servers.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.servers.kafka.messages.find_coordinator import FindCoordinatorRequest
from dray.servers.kafka.messages.init_producer_id import InitProducerIdRequest
from dray.servers.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.servers.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.servers.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.servers.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dray.servers.kafka.support import APIS
from tests.golden.asking import batch, fetch_request, produce_request, schema
from tests.hostile.admin_frames import admin_messages
from tests.hostile.group_frames import group_messages
from tests.kafka.wire import request_bytes

TOPIC = "fuzzed"
INTERESTING = (
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\x00\x00\x00",
    b"\0" * 8,
)
LONG_VARINT = b"\xff" * 9 + b"\x01"

_MESSAGES = {
    0: produce_request(TOPIC, {0: batch(b"1", b"2"), 1: batch(b"3")}),
    1: fetch_request([(TOPIC, 0, 0), (TOPIC, 1, 0)], max_wait_ms=1),
    2: ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(timestamp=-1)])]
    ),
    3: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False),
    8: OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(committed_offset=1)])],
    ),
    9: OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])],
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
            )
        ],
    ),
    10: FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]),
    18: ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"),
    19: CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="made-by-fuzz",
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
                assignments=[CreatableReplicaAssignment(broker_ids=[1])],
            )
        ],
        validate_only=True,
    ),
    20: DeleteTopicsRequest(topics=[DeleteTopicState(name="nobody")], topic_names=["nobody"]),
    22: InitProducerIdRequest(transactional_id=None),
    **group_messages(TOPIC),
    **admin_messages(TOPIC),
}


def good_frames() -> list[bytes]:
    """With their lengths; all versions of all APIs."""
    return [
        request_bytes(schema(api.key), version, _MESSAGES[api.key], 7)
        for api in APIS
        for version in range(api.served[0], api.served[1] + 1)
    ]


def newest_frames() -> list[bytes]:
    return [request_bytes(schema(api.key), api.served[1], _MESSAGES[api.key], 7) for api in APIS]


def sealed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def spoiled(dice: random.Random, frame: bytes) -> bytes:
    """The frame with a few things wrong; its length is mostly right, so that the rest is looked at."""
    body = bytearray(frame[4:])
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(body)) if body else 0
        match dice.randrange(7):
            case 0 if body:
                body[at] ^= 1 << dice.randrange(8)
            case 1 if body:
                body[at] = dice.randrange(256)
            case 2:
                wrong = dice.choice(INTERESTING)
                body[at : at + len(wrong)] = wrong
            case 3:
                body[at:at] = dice.choice((*INTERESTING, LONG_VARINT, dice.randbytes(dice.randrange(1, 20))))
            case 4:
                del body[at : at + dice.randrange(1, 12)]
            case 5:
                del body[at:]
            case _:
                other = dice.randrange(len(body) + 1)
                body += body[min(at, other) : max(at, other)]
    if dice.random() < 0.05:
        return struct.pack(">i", dice.choice((-1, 0, 5, 1 << 30, len(body) + 1, max(0, len(body) - 1)))) + bytes(body)
    return sealed(bytes(body))
