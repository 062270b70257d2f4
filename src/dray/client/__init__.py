"""The SDK for heaps: priority queues with leases.

async with Client("127.0.0.1:7432") as client:
    await client.make_heap("jobs")
    await client.heap("jobs").enqueue({"id": 1}, priority=5)
    async for job in client.heap("jobs").pop():
        async with job:
            print(job.payload)
"""

from dray.client.client import Client, HeapInfo, HeapOptions, Mode
from dray.client.codecs import BYTES, JSON_OR_BYTES, Codec, Payload
from dray.client.consumer import Consumer
from dray.client.errors import (
    AlreadyExists,
    BrokerFault,
    BrokerUnavailable,
    ClientClosed,
    ClientError,
    Conflicting,
    Disconnected,
    InvalidRequest,
    LeaseLost,
    LimitReached,
    NotConfirmed,
    NotFound,
    NotServed,
    OutcomeUnknown,
    PermissionDenied,
    Unauthenticated,
)
from dray.client.grpc import Tls
from dray.client.heap import DeadLetterBox, Heap, NewMessage, Peeked, State, Stats
from dray.client.job import Job, Reject, Retry
from dray.client.keys import CreatedKey, KeyInfo, KeyRole, Keys
from dray.client.producer import Enqueued

__all__ = [
    "BYTES",
    "JSON_OR_BYTES",
    "AlreadyExists",
    "BrokerFault",
    "BrokerUnavailable",
    "Client",
    "ClientClosed",
    "ClientError",
    "Codec",
    "Conflicting",
    "Consumer",
    "CreatedKey",
    "DeadLetterBox",
    "Disconnected",
    "Enqueued",
    "Heap",
    "HeapInfo",
    "HeapOptions",
    "InvalidRequest",
    "Job",
    "KeyInfo",
    "KeyRole",
    "Keys",
    "LeaseLost",
    "LimitReached",
    "Mode",
    "NewMessage",
    "NotConfirmed",
    "NotFound",
    "NotServed",
    "OutcomeUnknown",
    "Payload",
    "Peeked",
    "PermissionDenied",
    "Reject",
    "Retry",
    "State",
    "Stats",
    "Tls",
    "Unauthenticated",
]
