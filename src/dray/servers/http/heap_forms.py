"""From the JSON of heaps to what the service takes, and back."""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from dray.heaps.bodies import Body
from dray.heaps.consumers import Delivery
from dray.heaps.ids import format_id, format_token
from dray.heaps.peek import PeekedMessage
from dray.heaps.producing import HeapMessage, TakenMessage
from dray.heaps.stats import HeapBacklog, HeapStats
from dray.machine.heaps.catalog import Heap
from dray.machine.heaps.config import HeapConfig, Mode
from dray.machine.heaps.packets import JSON
from dray.machine.heaps.rows import State
from dray.servers.http.errors import BadRequest
from dray.servers.http.heap_models import (
    BackoffOut,
    DlqOut,
    EnqueuedOut,
    EnqueueIn,
    HeapConfigIn,
    HeapConfigOut,
    HeapOut,
    HeapStatsOut,
    MessageOut,
    PeekedOut,
)
from dray.servers.http.values import duration, millis, ms_of, time_of

LONG_S: Final = 36_500 * 86_400.0
_PLAIN: Final = (
    "k", "max_retries", "max_payload_bytes", "compression", "paused", "max_messages", "max_inflight",
    "max_leases_per_consumer", "max_dedup_keys", "history",
)  # fmt: skip
_SPANS: Final = (
    ("visibility_timeout", "visibility_ms"), ("max_lease", "max_lease_ms"), ("dedup_window", "dedup_window_ms"),
    ("message_ttl", "message_ttl_ms"), ("retention", "retention_ms"),
)  # fmt: skip
NO_BODY: Final = Body(payload=b"")


def config_of(given: HeapConfigIn, before: HeapConfig) -> HeapConfig:
    """What was given, over what was there before; its bounds are judged where it is used."""
    changes: dict[str, object] = {name: found for name in _PLAIN if (found := getattr(given, name)) is not None}
    spans: list[tuple[msgspec.Struct, str, str]] = [(given, field, name) for field, name in _SPANS]
    if given.backoff is not None:
        spans += [(given.backoff, "base", "backoff_base_ms"), (given.backoff, "cap", "backoff_cap_ms")]
        if given.backoff.jitter is not None:
            changes["jitter"] = given.backoff.jitter
    if given.dlq is not None:
        spans.append((given.dlq, "retention", "retention_ms"))
        if given.dlq.enabled is not None:
            changes["dead_letters"] = given.dlq.enabled
    for holder, field, name in spans:
        text = getattr(holder, field)
        if text is not None:
            changes[name] = millis(text, most_s=LONG_S, name=field)
    if given.payload_format is not None:
        changes["json"] = given.payload_format == "JSON"
    if given.on_unavailable is not None:
        changes["block"] = given.on_unavailable == "BLOCK"
    return msgspec.structs.replace(before, **changes)


def heap_to(heap: Heap, durability: str) -> HeapOut:
    return HeapOut(
        topic=heap.name, mode="MAX" if heap.mode is Mode.MAX else "MIN", partitions=heap.partitions,
        replication_factor=heap.replication_factor, config=_config_to(heap.config), spread=False,
        revision=str(heap.revision), created=time_of(heap.created_ms), heap_id=heap.id.hex(), durability=durability,
    )  # fmt: skip


def _config_to(config: HeapConfig) -> HeapConfigOut:
    retention = duration(config.retention_ms)
    return HeapConfigOut(
        k=config.k, visibility_timeout=duration(config.visibility_ms), max_lease=duration(config.max_lease_ms),
        max_retries=config.max_retries,
        backoff=BackoffOut(
            base=duration(config.backoff_base_ms), cap=duration(config.backoff_cap_ms), jitter=config.jitter
        ),
        dlq=DlqOut(enabled=config.dead_letters, retention=retention), retention=retention,
        dedup_window=duration(config.dedup_window_ms), message_ttl=duration(config.message_ttl_ms),
        max_payload_bytes=config.max_payload_bytes, payload_format="JSON" if config.json else "BYTES",
        compression=config.compression, on_unavailable="BLOCK" if config.block else "SERVE", paused=config.paused,
        max_messages=str(config.max_messages), max_inflight=config.max_inflight,
        max_leases_per_consumer=config.max_leases_per_consumer, max_dedup_keys=config.max_dedup_keys,
        history=config.history,
    )  # fmt: skip


def message_of(given: EnqueueIn, asker: str = "") -> HeapMessage:
    """As the service wants it; what only it can judge it judges."""
    if given.producer_id and given.seq is None:
        raise BadRequest("a producer numbers its messages: seq is missing")
    if not given.producer_id and (given.seq is not None or given.epoch is not None):
        raise BadRequest("epoch and seq are a producer's: producer_id is missing")
    if given.delay is not None and given.not_before is not None:
        raise BadRequest("a message has a delay or a time to wait for, not both")
    inline = not isinstance(given.payload_json, UnsetType)
    if inline and (given.payload is not None or given.payload_format == "BYTES"):
        raise BadRequest("a message has a payload in base64 or as JSON, not both")
    payload = bytes(given.payload_json) if not isinstance(given.payload_json, UnsetType) else given.payload or b""
    is_json = None if given.payload_format is None else given.payload_format == "JSON"
    return HeapMessage(
        payload=payload, priority=given.priority,
        delay_ms=0 if given.delay is None else millis(given.delay, most_s=LONG_S, name="delay"),
        not_before_ms=0 if given.not_before is None else max(0, ms_of(given.not_before)),
        partition_key=given.partition_key, producer=given.producer_id, epoch=given.epoch or 0, seq=given.seq or 0,
        dedup_key=given.dedup_key, max_retries=-1 if given.max_retries is None else given.max_retries,
        headers=given.headers, json=True if inline else is_json, asker=asker,
    )  # fmt: skip


def taken_to(taken: TakenMessage) -> EnqueuedOut:
    return EnqueuedOut(message_id=format_id(taken.id), duplicate=taken.duplicate, partition_id=taken.partition)


def delivery_to(delivery: Delivery, left_ms: int, wall_ms: int) -> MessageOut:
    """A message that is its consumer's for so long."""
    message, body = delivery.message, delivery.body
    is_json = bool(message.flags & JSON)
    return MessageOut(
        message_id=format_id(delivery.id), priority=str(message.priority), attempts=message.attempts,
        payload=UNSET if is_json else body.payload, payload_json=msgspec.Raw(body.payload) if is_json else UNSET,
        payload_format="JSON" if is_json else "BYTES", max_retries=message.max_retries,
        partition_id=message.partition, enqueued_time=time_of(message.enqueued_ms),
        lease_token=format_token(delivery.token), lease_for=duration(left_ms),
        lease_deadline=time_of(wall_ms + left_ms), headers=body.headers, partition_key=body.partition_key,
        producer_id=body.producer, epoch=UNSET if body.epoch is None else str(body.epoch),
        seq=UNSET if body.seq is None else str(body.seq),
    )  # fmt: skip


def peeked_to(peeked: PeekedMessage, wall_ms: int) -> PeekedOut:
    """Never with a token."""
    row, body = peeked.row, peeked.body
    is_json, shown = bool(row.flags & JSON), body or NO_BODY
    leased = peeked.state is State.LEASED
    message = MessageOut(
        message_id=format_id(peeked.id), priority=str(row.priority), attempts=row.attempts,
        payload=UNSET if body is None or is_json else body.payload,
        payload_json=UNSET if body is None or not is_json else msgspec.Raw(body.payload),
        payload_format="JSON" if is_json else "BYTES", max_retries=row.max_retries, partition_id=row.partition,
        enqueued_time=time_of(row.enqueued_ms), headers=shown.headers, partition_key=shown.partition_key,
        producer_id=shown.producer, epoch=UNSET if shown.epoch is None else str(shown.epoch),
        seq=UNSET if shown.seq is None else str(shown.seq),
        lease_for=duration(peeked.lease_ms) if leased else UNSET,
        lease_deadline=time_of(wall_ms + peeked.lease_ms) if leased else UNSET,
    )  # fmt: skip
    return PeekedOut(
        message=message, state=peeked.state.name, holder=peeked.holder,  # type: ignore[arg-type]
        not_before=time_of(peeked.not_before_ms) if peeked.not_before_ms else UNSET,
        last_error=peeked.last_error, dead_time=time_of(peeked.dead_ms) if peeked.dead_ms else UNSET,
    )  # fmt: skip


def stats_to(stats: HeapStats, *, by_partition: bool, by_priority: bool) -> list[HeapStatsOut]:
    """The whole heap first, then its partitions if they were asked for."""
    totals, name = stats.totals, stats.heap.name
    whole = msgspec.structs.replace(
        _backlog_to(name, stats.backlog),
        oldest_ready=duration(int(stats.oldest_ready_s * 1_000)), enqueued_total=str(totals.enqueued),
        duplicates_total=str(totals.duplicates), granted_total=str(totals.granted), acked_total=str(totals.acked),
        failed_total=str(totals.failed), lease_timeouts_total=str(totals.expired), dead_total=str(totals.died),
        dropped_total=str(totals.dropped),
        ready_by_priority={str(priority): str(count) for priority, count in stats.ready_by_priority.items()}
        if by_priority else UNSET,
    )  # fmt: skip
    parts = stats.partitions.items() if by_partition else ()
    return [whole, *(msgspec.structs.replace(_backlog_to(name, part), partition=number) for number, part in parts)]


def _backlog_to(name: str, backlog: HeapBacklog) -> HeapStatsOut:
    return HeapStatsOut(
        topic=name, ready=str(backlog.ready), delayed=str(backlog.delayed), leased=str(backlog.leased),
        dead=str(backlog.dead), payload_bytes=str(backlog.payload_bytes),
    )  # fmt: skip
