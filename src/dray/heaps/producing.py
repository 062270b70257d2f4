"""Messages as producers want them: checked, packed, and told what became of them.

Invariants
    HP3  No value is made of a payload that is checked to be JSON: an array of
         8 MiB would hold the loop for a second.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from dray.errors import DrayError
from dray.heaps.bodies import Body, pack_body
from dray.heaps.errors import BadMessage, BatchUndecided, HeapFull, TornBatch, UnknownHeap
from dray.heaps.ids import MessageId
from dray.heaps.packing import NewMessage
from dray.heaps.partitions import partition_of
from dray.machine.heaps import answers
from dray.machine.heaps.answers import MessageGiven
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import MAX_RETRIES
from dray.machine.heaps.packets import BY_STRING, JSON, MAX_SEQ, RELATIVE, EnqueueRow
from dray.machine.heaps.shard import MAX_DUE_MS
from dray.machine.names import domain_of

MAX_HEADER_BYTES: Final = 16 << 10
MAX_NAME_BYTES: Final = 1_024
MAX_WAIT_MS: Final = MAX_DUE_MS >> 1
_SURELY_SHORT: Final = MAX_NAME_BYTES // 4
"""Letters: none has more than four bytes."""
_PRODUCERS: Final = 4_096
"""Whose keys are not computed again."""
_FULL: Final = {
    answers.FULL: ("the heap has as many messages as it may", "messages"),
    answers.DEDUP_FULL: ("the heap remembers as many producers and keys as it may", "dedup_keys"),
    answers.HISTORY_FULL: ("the heap's history is not told so fast", "history"),
    answers.INLINE_FULL: ("the domain holds as many bodies as it may", "inline_bytes"),
}
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
_UNDECIDED: Final = "the message belongs to a batch that is not decided yet"


class HeapMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a producer wants it."""

    payload: bytes
    priority: int = 0
    delay_ms: int = 0
    not_before_ms: int = 0
    partition_key: str = ""
    producer: str = ""
    epoch: int = 0
    seq: int = 0
    """With a producer: a repeat of the same three is the same message."""
    dedup_key: str = ""
    """Instead of a producer."""
    max_retries: int = -1
    headers: Mapping[str, str] | None = None
    json: bool | None = None
    asker: str = ""
    """Who was let in with it, for the heap's history; the producer, where nobody has to say who they are."""


class TakenMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message is durable: its id, and whether it was so before."""

    id: MessageId
    duplicate: bool
    partition: int


class MessagePacker:
    """Turns messages into what the lane takes; knows whose turn it is among partitions."""

    def __init__(self) -> None:
        self._anonymous = 0

    def pack(self, heap: Heap, message: HeapMessage) -> NewMessage:
        check_message(heap, message)
        key = dedup_key_of(message)
        body = Body(
            payload=message.payload, headers=dict(message.headers or {}), partition_key=message.partition_key,
            producer=message.producer, epoch=message.epoch if message.producer else None,
            seq=message.seq if message.producer else None,
        )  # fmt: skip
        is_json = heap.config.json if message.json is None else message.json
        row = EnqueueRow(
            priority=message.priority, wait=message.delay_ms or message.not_before_ms,
            partition=self._partition(heap, message), retries=message.max_retries,
            flags=(RELATIVE if message.delay_ms else 0) | (BY_STRING if message.dedup_key else 0)
            | (JSON if is_json else 0),
            seq=message.seq if message.producer else 0,
        )  # fmt: skip
        who = (message.asker or message.producer) if heap.config.history else ""
        return NewMessage(row, pack_body(body), key, who)

    def _partition(self, heap: Heap, message: HeapMessage) -> int:
        if heap.partitions == 1:
            return 0
        if message.partition_key:
            return partition_of(message.partition_key.encode(), heap.partitions)
        if message.producer:
            return partition_of(f"{message.producer}/{message.epoch}".encode(), heap.partitions)
        self._anonymous += 1
        return self._anonymous % heap.partitions


def check_message(heap: Heap, message: HeapMessage) -> None:
    """Everything that can be refused without asking the machine."""
    if len(message.payload) > heap.config.max_payload_bytes:
        raise BadMessage("the payload is too large", size=len(message.payload), most=heap.config.max_payload_bytes)
    if message.headers and _header_bytes(message.headers) > MAX_HEADER_BYTES:
        raise BadMessage("the headers are too large", most=MAX_HEADER_BYTES)
    if not -(1 << 63) <= message.priority < 1 << 63:
        raise BadMessage("a priority is a signed number of 64 bits")
    for name in (message.partition_key, message.producer, message.dedup_key):
        if len(name) > _SURELY_SHORT and len(name.encode()) > MAX_NAME_BYTES:
            raise BadMessage("a key or a producer is too long", most=MAX_NAME_BYTES)
    if message.producer and message.dedup_key:
        raise BadMessage("a message has a producer or a dedup key, not both")
    if not 0 <= message.seq <= MAX_SEQ or not 0 <= message.epoch < 1 << 64:
        raise BadMessage("a sequence has 36 bits, and an epoch 64")
    _check_times(message)
    if heap.config.json if message.json is None else message.json:
        _check_json(message.payload)


def _header_bytes(headers: Mapping[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def _check_times(message: HeapMessage) -> None:
    if not -1 <= message.max_retries <= MAX_RETRIES:
        raise BadMessage("retries are not negative, and not that many", most=MAX_RETRIES)
    if not 0 <= message.delay_ms <= MAX_WAIT_MS or not 0 <= message.not_before_ms <= MAX_WAIT_MS:
        raise BadMessage("a delay is not negative, and not that long", most_ms=MAX_WAIT_MS)
    if message.delay_ms and message.not_before_ms:
        raise BadMessage("a message has a delay or a time to wait for, not both")


def _check_json(payload: bytes) -> None:
    """It is looked through, and nothing is made of it: what is short as text may be large and slow as values (HP3)."""
    try:
        payload.decode()  # what is passed over is not checked to be text
        _JSON.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadMessage("the payload is not JSON") from bad
    except RecursionError as deep:
        raise BadMessage("the payload is nested too deeply") from deep


def dedup_key_of(message: HeapMessage) -> bytes | None:
    """Sixteen bytes for a producer and its epoch, or for a dedup key; the two never meet."""
    if message.producer:
        return _producer_key(message.producer, message.epoch)
    if message.dedup_key:
        return blake2b(message.dedup_key.encode(), digest_size=16, person=b"dedup-key").digest()
    return None


@lru_cache(_PRODUCERS)
def _producer_key(producer: str, epoch: int) -> bytes:
    return blake2b(producer.encode() + epoch.to_bytes(8, "big"), digest_size=16, person=b"producer").digest()


def taken(heap: Heap, message: NewMessage, given: MessageGiven) -> TakenMessage:
    """What the machine said of one message; raises what is wrong with it."""
    outcome = outcome_of(heap, message, given)
    if isinstance(outcome, DrayError):
        raise outcome
    return outcome


def outcome_of(heap: Heap, message: NewMessage, given: MessageGiven) -> TakenMessage | DrayError:
    """What the machine said of one message: its id, or why it was not taken."""
    if given.slot < answers.DUPLICATE:
        return _refusal_of(heap, given)
    identity = MessageId(given.begun_ms, domain_of(heap.shard), given.number, given.seq)
    return TakenMessage(id=identity, duplicate=given.slot == answers.DUPLICATE, partition=message.row.partition)


def _refusal_of(heap: Heap, given: MessageGiven) -> DrayError:
    match given.slot:
        case answers.CLOSED:
            return UnknownHeap("no such heap", heap=heap.name)
        case answers.TORN:
            return tear(heap.name, given.seq, given.number)
        case answers.MALFORMED:
            return BadMessage("the heap takes no such message", heap=heap.name)
        case answers.UNDECIDED:
            return BatchUndecided(_UNDECIDED, heap=heap.name)
        case _:
            text, which = _FULL[given.slot]
            return HeapFull(text, heap=heap.name, which=which)


def tear(name: str, why: int, index: int) -> DrayError:
    """What one message, of this index, did to its batch."""
    if why == answers.UNDECIDED:
        return BatchUndecided(_UNDECIDED, heap=name, index=index)
    if why in _FULL:
        text, which = _FULL[why]
        return HeapFull(text, heap=name, which=which, index=index)
    return TornBatch("one message of the batch would be refused", heap=name, index=index)
