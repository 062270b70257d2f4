"""Messages of the wire to the words of the service, and back.

Invariants
    GF1  A duration or a moment that cannot be told in milliseconds of 64 bits
         is refused, never rounded into another meaning.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from dray.api.v1 import heaps_pb2 as pb
from dray.errors import Invalid
from dray.heaps.bodies import Body
from dray.heaps.consumers import Delivery
from dray.heaps.errors import BadHeap, BadMessage
from dray.heaps.ids import format_id, format_token, parse_token
from dray.heaps.peek import PeekedMessage
from dray.heaps.producing import HeapMessage
from dray.heaps.settling import SettleOne
from dray.heaps.stats import HeapBacklog, HeapStats
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import JSON, Settlement
from dray.machine.heaps.rows import State

_MOST_S: Final = 36_500 * 86_400
_KEPT: Final = 1_024
_PLAIN: Final = (
    "k", "max_retries", "max_payload_bytes", "compression", "paused", "max_messages", "max_inflight",
    "max_leases_per_consumer", "max_dedup_keys", "history",
)  # fmt: skip
_SPANS: Final = (
    ("visibility_timeout", "visibility_ms"), ("max_lease", "max_lease_ms"), ("dedup_window", "dedup_window_ms"),
    ("message_ttl", "message_ttl_ms"), ("retention", "retention_ms"),
)  # fmt: skip
_KINDS: Final = {kind.value: kind for kind in Settlement}
_STATES: Final = {State.READY: pb.READY, State.DELAYED: pb.DELAYED, State.LEASED: pb.LEASED, State.DEAD: pb.DEAD}


class BadDuration(Invalid):
    """It is negative, or longer than a hundred years."""


def milliseconds(duration: Duration, what: str, *, at_least: int = 0) -> int:
    """Rounded up: nothing is shorter than it was wanted (GF1)."""
    if not at_least <= duration.seconds <= _MOST_S or not 0 <= duration.nanos < 1_000_000_000:
        raise BadDuration(f"{what}: a duration is between 0 and 36500 days")
    return duration.seconds * 1_000 + -(-duration.nanos // 1_000_000)


def moment_ms(moment: Timestamp, what: str) -> int:
    if not 0 <= moment.seconds <= _MOST_S * 3 or not 0 <= moment.nanos < 1_000_000_000:
        raise BadDuration(f"{what}: a moment is after 1970 and in this age")
    return moment.seconds * 1_000 + -(-moment.nanos // 1_000_000)


def duration_of(ms: int) -> Duration:
    return Duration(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


def moment_of(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


# -- heaps -----------------------------------------------------------------


def config_of(given: pb.HeapConfig, before: HeapConfig) -> HeapConfig:
    """What was given, over what was there before. Its bounds are judged where it is used."""
    changes: dict[str, object] = {name: getattr(given, name) for name in _PLAIN if given.HasField(name)}
    spans: list[tuple[Message, str, str]] = [(given, field, name) for field, name in _SPANS]
    spans += [(given.backoff, "base", "backoff_base_ms"), (given.backoff, "cap", "backoff_cap_ms")]
    spans += [(given.dlq, "retention", "retention_ms")]
    changes |= {
        name: milliseconds(getattr(holder, field), field) for holder, field, name in spans if holder.HasField(field)
    }
    if given.backoff.HasField("jitter"):
        changes["jitter"] = given.backoff.jitter
    if given.dlq.HasField("enabled"):
        changes["dead_letters"] = given.dlq.enabled
    if given.HasField("payload_format"):
        changes["json"] = _is_json(given.payload_format)
    if given.HasField("on_unavailable"):
        changes["block"] = _enum(given.on_unavailable, pb.OnUnavailable.Name, "on_unavailable") == "BLOCK"
    return msgspec.structs.replace(before, **changes)


def _enum(value: int, name_of: Callable[[int], str], field: str) -> str:
    try:
        return name_of(value)
    except ValueError as bad:
        raise BadHeap(f"{field} has no such value", value=value) from bad


def _is_json(value: int) -> bool:
    if value == pb.BYTES:
        return False
    return _enum(value, pb.PayloadFormat.Name, "payload_format") == "JSON"


def mode_of(value: int) -> Mode:
    try:
        return Mode(value)
    except ValueError as bad:
        raise BadHeap("a mode is MIN or MAX", value=value) from bad


def config_to(config: HeapConfig) -> pb.HeapConfig:
    return pb.HeapConfig(
        k=config.k,
        visibility_timeout=duration_of(config.visibility_ms),
        max_lease=duration_of(config.max_lease_ms),
        max_retries=config.max_retries,
        backoff=pb.Backoff(
            base=duration_of(config.backoff_base_ms), cap=duration_of(config.backoff_cap_ms), jitter=config.jitter
        ),
        dlq=pb.DlqPolicy(enabled=config.dead_letters, retention=duration_of(config.retention_ms)),
        retention=duration_of(config.retention_ms),
        dedup_window=duration_of(config.dedup_window_ms),
        message_ttl=duration_of(config.message_ttl_ms),
        max_payload_bytes=config.max_payload_bytes,
        payload_format=pb.JSON if config.json else pb.BYTES,
        compression=config.compression,
        on_unavailable=pb.BLOCK if config.block else pb.SERVE,
        paused=config.paused,
        max_messages=config.max_messages,
        max_inflight=config.max_inflight,
        max_leases_per_consumer=config.max_leases_per_consumer,
        max_dedup_keys=config.max_dedup_keys,
        history=config.history,
    )


def heap_to(heap: Heap, durability: str) -> pb.Heap:
    return pb.Heap(
        topic=heap.name,
        mode=pb.MAX if heap.mode is Mode.MAX else pb.MIN,
        partitions=heap.partitions,
        replication_factor=heap.replication_factor,
        config=config_to(heap.config),
        revision=heap.revision,
        created=moment_of(heap.created_ms),
        heap_id=heap.id.hex(),
        durability=durability,
    )


# -- messages --------------------------------------------------------------


def message_of(given: pb.EnqueueReq, asker: str = "") -> HeapMessage:
    """As the service wants it; what only it can judge it judges."""
    when = given.WhichOneof("when")
    if given.producer_id and not given.HasField("seq"):
        raise BadMessage("a producer numbers its messages: seq is missing")
    if not given.producer_id and (given.HasField("seq") or given.HasField("epoch")):
        raise BadMessage("epoch and seq are a producer's: producer_id is missing")
    return HeapMessage(
        payload=given.payload,
        priority=given.priority,
        delay_ms=milliseconds(given.delay, "delay") if when == "delay" else 0,
        not_before_ms=moment_ms(given.not_before, "not_before") if when == "not_before" else 0,
        partition_key=given.partition_key,
        producer=given.producer_id,
        epoch=given.epoch,
        seq=given.seq,
        dedup_key=given.dedup_key,
        max_retries=given.max_retries if given.HasField("max_retries") else -1,
        headers=dict(given.headers) if given.headers else None,
        json=_is_json(given.payload_format) if given.HasField("payload_format") else None,
        asker=asker,
    )


def peeked_to(peeked: PeekedMessage, wall_ms: int) -> pb.PeekedMessage:
    """Never with a token."""
    row, body = peeked.row, peeked.body
    item = pb.PopItem(
        message_id=format_id(peeked.id),
        priority=row.priority,
        attempts=row.attempts,
        partition_id=row.partition,
        enqueued_time=moment_of(row.enqueued_ms),
        max_retries=row.max_retries,
        payload_format=pb.JSON if row.flags & JSON else pb.BYTES,
    )
    if body is not None:
        _add_body(item, body)
    told = pb.PeekedMessage(message=item, state=_STATES[peeked.state], holder=peeked.holder)
    told.last_error = peeked.last_error
    if peeked.state is State.LEASED:
        item.lease_for.CopyFrom(duration_of(max(0, peeked.lease_ms)))
        item.lease_deadline.CopyFrom(moment_of(wall_ms + max(0, peeked.lease_ms)))
        told.message.CopyFrom(item)
    if peeked.not_before_ms:
        told.not_before.CopyFrom(moment_of(peeked.not_before_ms))
    if peeked.dead_ms:
        told.dead_time.CopyFrom(moment_of(peeked.dead_ms))
    return told


def stats_to(stats: HeapStats, *, by_partition: bool, by_priority: bool) -> list[pb.HeapStats]:
    """The whole heap first, then its partitions if they were asked for."""
    totals, backlog = stats.totals, stats.backlog
    whole = _backlog_to(stats.heap.name, backlog)
    whole.oldest_ready.CopyFrom(duration_of(int(stats.oldest_ready_s * 1_000)))
    whole.enqueued_total = totals.enqueued
    whole.duplicates_total = totals.duplicates
    whole.granted_total = totals.granted
    whole.acked_total = totals.acked
    whole.failed_total = totals.failed
    whole.lease_timeouts_total = totals.expired
    whole.dead_total = totals.died
    whole.dropped_total = totals.dropped
    if by_priority:
        whole.ready_by_priority.update(stats.ready_by_priority)
    told = [whole]
    if by_partition:
        for number, part in stats.partitions.items():
            told.append(_backlog_to(stats.heap.name, part))
            told[-1].partition = number
    return told


def _backlog_to(name: str, backlog: HeapBacklog) -> pb.HeapStats:
    return pb.HeapStats(
        topic=name,
        ready=backlog.ready,
        delayed=backlog.delayed,
        leased=backlog.leased,
        dead=backlog.dead,
        payload_bytes=backlog.payload_bytes,
    )


def _add_body(item: pb.PopItem, body: Body) -> None:
    item.payload = body.payload
    if body.headers:
        item.headers.update(body.headers)
    item.producer_id = body.producer
    item.partition_key = body.partition_key
    if body.epoch is not None:
        item.epoch = body.epoch
    if body.seq is not None:
        item.seq = body.seq


def add_item(answer: pb.PopDelivery | pb.PopResp, delivery: Delivery, wall_ms: int, boot_ns: int) -> None:
    """As it is told at this moment: `lease_for` is what is left now."""
    message, body = delivery.message, delivery.body
    left_ms = max(0, (delivery.until_ns - boot_ns) // 1_000_000)
    item = answer.items.add(
        message_id=format_id(delivery.id),
        payload=body.payload,
        priority=message.priority,
        lease_token=format_token(delivery.token),
        attempts=message.attempts,
        partition_id=message.partition,
        max_retries=message.max_retries,
        producer_id=body.producer,
        epoch=body.epoch,
        seq=body.seq,
        payload_format=pb.JSON if message.flags & JSON else pb.BYTES,
        partition_key=body.partition_key,
    )
    item.MergeFrom(_times(wall_ms + left_ms, left_ms, message.enqueued_ms))
    if body.headers:
        item.headers.update(body.headers)


@lru_cache(_KEPT)
def _times(deadline_ms: int, left_ms: int, enqueued_ms: int) -> pb.PopItem:
    """To be copied into items, never changed: those of one entry have the same, and each takes longer than a text."""
    return pb.PopItem(
        lease_deadline=moment_of(deadline_ms), lease_for=duration_of(left_ms), enqueued_time=moment_of(enqueued_ms)
    )


# -- settlements -----------------------------------------------------------


def state_of(value: int) -> State:
    """Nothing said: the ready ones."""
    try:
        return State(value or State.READY)
    except ValueError as bad:
        raise BadMessage("there is no such state", value=value) from bad


def settlement_of(given: pb.SettleOne) -> SettleOne:
    """A kind of 0 is refused: a forgotten field must not delete."""
    kind = _KINDS.get(given.kind)
    if kind is None:
        raise BadMessage("a settlement says what it is: ACK, NACK, RELEASE, REJECT, EXTEND or RENEW")
    return SettleOne(
        kind=kind,
        token=parse_token(given.lease_token),
        duration_ms=milliseconds(given.duration, "duration") if given.HasField("duration") else None,
        note=given.error,
    )
