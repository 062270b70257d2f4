"""The state of a machine under the spec's keys, and the entries of its log, for people.

`ls` and `get` show plain values that JSON can carry; `render` does the same
for an entry. Nothing here is read by the machine or by a service.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from dray.errors import Invalid
from dray.log.envelope import BadEntry, decode_commands, decode_head
from dray.machine import producers
from dray.machine.brokers import Broker
from dray.machine.commands import Append, BadCommand, decode
from dray.machine.garbage import WalObject
from dray.machine.index import IndexRow
from dray.machine.keys import ROOT, Key, KeyKind, build, parse
from dray.machine.machine import Machine
from dray.machine.names import SessionId, StreamId
from dray.machine.offsets import Committed
from dray.machine.producers import ProducerState
from dray.machine.streams import Stream
from dray.machine.topics import Topic, TopicState

Value: TypeAlias = "int | str | bool | list[Value] | dict[str, Value] | None"
Fields: TypeAlias = dict[str, Value]
Listing: TypeAlias = Iterator[tuple[str, Fields]]


def ls(machine: Machine, prefix: str = ROOT) -> Listing:
    """Every key under a prefix and its value, in key order (R-046)."""
    for section, listed in _SECTIONS.items():
        root = f"{ROOT}/{section}"
        if _overlap(root, prefix):
            for key, fields in listed(machine, prefix):
                if key.startswith(prefix):
                    yield key, fields


def get(machine: Machine, key: str) -> Fields | None:
    """The value of one key; none if there is no such state."""
    try:
        wanted = parse(key)
    except Invalid:
        return None
    if wanted.kind is KeyKind.INDEX:
        return _get_row(machine, wanted)
    return next((fields for found, fields in ls(machine, key) if found == key), None)


def render(entry: bytes) -> Fields:
    """An entry of the log, whatever is in it."""
    try:
        head = decode_head(entry)
        packed = decode_commands(entry, head.count)
    except BadEntry as bad:
        return {"bad": str(bad), "bytes": entry.hex()}
    return {
        "version": head.version, "session": head.session, "n": head.n, "time_ms": head.time_ms,
        "seen": {"position": head.seen_position, "digest": f"{head.seen_digest:016x}"},
        "commands": [_render_command(kind, bytes(payload)) for kind, payload in packed],
    }  # fmt: skip


def _render_command(kind: int, payload: bytes) -> Value:
    try:
        command = decode(kind, payload)
    except BadCommand as bad:
        return {"type": kind, "bad": str(bad), "bytes": payload.hex()}
    if isinstance(command, Append):
        return {
            "type": "Append", "wal_id": command.wal_id.hex(), "size": command.size,
            "created_ms": command.created_ms, "zone": command.zone,
            "rows": [dict(row._asdict()) for row in command.rows()],
        }  # fmt: skip
    fields = _plain(command)
    assert isinstance(fields, dict)
    return {"type": type(command).__name__} | fields


def _plain(value: object) -> Value:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, int | str):
        return value
    raise TypeError(f"no plain form for {type(value).__name__}")


def _overlap(key: str, prefix: str) -> bool:
    """May something at or under a key begin with the prefix?"""
    return key.startswith(prefix) or prefix.startswith(key)


def _list_machine(machine: Machine, prefix: str) -> Listing:
    yield build(KeyKind.MACHINE), {
        "clusterId": machine.cluster_id.hex(), "logId": machine.log_id.hex(), "domain": machine.domain,
        "domains": machine.domains, "version": machine.version, "generation": machine.generation,
        "position": machine.position, "digest": f"{machine.digest:016x}", "timeMs": machine.time_ms,
        "sureTimeMs": machine.timeline.sure_ms, "pausedUntilMs": machine.timeline.pause_end_ms,
        "nextProducerId": machine.producer_ids.next,
    }  # fmt: skip


def _list_brokers(machine: Machine, prefix: str) -> Listing:
    for broker in machine.brokers.all():
        yield build(KeyKind.BROKER, machine.cluster_id, broker.broker_id), _broker(broker)


def _list_checkpoints(machine: Machine, prefix: str) -> Listing:
    for mark in machine.confirmations.marks:
        yield build(KeyKind.CHECKPOINT, mark.position), {
            "hash": mark.hash.hex(), "size": mark.size, "maker": mark.maker,
            "confirmed": mark.confirmed, "disputed": mark.disputed,
        }  # fmt: skip


def _list_groups(machine: Machine, prefix: str) -> Listing:
    found = []
    for group in machine.offsets.groups():
        for topic_id, partition, committed in machine.offsets.of_group(group):
            topic = machine.topics.find(topic_id)
            key = build(KeyKind.GROUP_OFFSET, group, topic_id, partition)
            found.append((key, _offset(committed, topic)))
    yield from sorted(found, key=lambda item: item[0])


def _list_sessions(machine: Machine, prefix: str) -> Listing:
    sessions = machine.sessions
    for session in sorted({*sessions.live, *sessions.ended}):
        yield build(KeyKind.SESSION, session), _session(machine, session)
        for (holder, pin), position in sorted(machine.objects.pins.items()):
            if holder == session:
                yield build(KeyKind.PIN, session, pin), {"position": position}


def _list_streams(machine: Machine, prefix: str) -> Listing:
    for stream in machine.streams.all():
        key = build(KeyKind.STREAM, stream.id)
        if not _overlap(key, prefix):
            continue
        yield key, _stream(machine, stream)
        yield build(KeyKind.LOG_END, stream.id), {"offset": stream.end}
        yield build(KeyKind.LOG_START, stream.id), {"offset": stream.start}
        rows = stream.index.rows(stream.start) if _overlap(f"{key}/offset-index", prefix) else ()
        for row in rows:
            yield build(KeyKind.INDEX, stream.id, row.end, row.cumulative_size), _row(machine, stream, row)
        for producer in producers.producer_ids(stream.producers):
            state = producers.find(stream.producers, producer)
            if state is not None:
                yield build(KeyKind.PRODUCER, stream.id, producer), _producer(state)


def _list_topics(machine: Machine, prefix: str) -> Listing:
    found = []
    for topic in machine.topics.all.values():
        if topic.state is TopicState.DELETING:
            continue  # its name may be another's by now
        found.append((build(KeyKind.TOPIC, topic.name), _topic(topic)))
        for partition in range(len(topic.streams)):
            key = build(KeyKind.PARTITION, topic.name, partition)
            found.append((key, _partition(topic, partition)))
    yield from sorted(found, key=lambda item: item[0])


def _list_garbage(machine: Machine, prefix: str) -> Listing:
    found = []
    for identity, death in machine.objects.dead.items():
        owner = machine.objects.find(identity)
        if owner is not None:
            fields: Fields = {
                "deadSinceMs": death.time_ms, "deadAtPosition": death.position, "deleting": death.deleting,
                "object": owner.id,
            }  # fmt: skip
            found.append((build(KeyKind.WAL_GC, machine.domain, owner.wal_id), fields))
    yield from sorted(found, key=lambda item: item[0])


def _list_objects(machine: Machine, prefix: str) -> Listing:
    found = [
        (build(KeyKind.WAL_OBJECT, machine.domain, owner.wal_id), _object(owner)) for owner in machine.objects.all()
    ]
    yield from sorted(found, key=lambda item: item[0])


_SECTIONS: Final[dict[str, Callable[[Machine, str], Listing]]] = {
    "checkpoints": _list_checkpoints,
    "cluster": _list_brokers,
    "groups": _list_groups,
    "machine": _list_machine,
    "sessions": _list_sessions,
    "streams": _list_streams,
    "topics": _list_topics,
    "wal/gc": _list_garbage,
    "wal/objects": _list_objects,
}


def _broker(broker: Broker) -> Fields:
    return {
        "brokerId": broker.broker_id, "session": broker.session, "name": broker.name, "zoneId": broker.zone,
        "rack": broker.rack, "startedAt": broker.started_ms, "buildInfo": broker.build,
        "advertisedListeners": [_plain(listener) for listener in broker.listeners],
        "capacityHints": dict(broker.capacity),
    }  # fmt: skip


def _topic(topic: Topic) -> Fields:
    return {
        "topicId": topic.id.hex(), "partitionCount": len(topic.streams), "replicationFactor": topic.replication_factor,
        "createdAt": topic.created_ms, "revision": topic.revision, "state": topic.state.name,
        "config": dict(topic.configs),
    }  # fmt: skip


def _partition(topic: Topic, partition: int) -> Fields:
    return {
        "streamId": topic.streams[partition], "state": "READY" if partition < topic.visible else "CREATING",
        "createdAt": topic.opened_ms[partition],
        "configOverrides": {},
    }  # fmt: skip


def _stream(machine: Machine, stream: Stream) -> Fields:
    return {
        "topicId": stream.topic_id.hex(), "partition": stream.partition, "closed": stream.closed,
        "logStart": stream.start, "logEnd": stream.end, "rows": len(stream.index), "bytes": stream.kept_bytes,
        "producers": len(stream.producers) // producers.SIZE, "producerFloor": stream.producer_floor,
        "openedAt": stream.opened_ms,
    }  # fmt: skip


def _row(machine: Machine, stream: Stream, row: IndexRow) -> Fields:
    owner = machine.objects.find(row.object)
    fields: Fields = {
        "streamId": stream.id, "startOffset": row.start, "endOffset": row.end,
        "cumulativeSize": row.cumulative_size, "fileType": "WAL", "recordCount": row.end - row.start,
        "messageCount": row.end - row.start, "maxTimestampMs": row.max_timestamp_ms,
        "position": row.position, "length": row.size,
    }  # fmt: skip
    if owner is not None:
        fields |= {"walId": owner.wal_id.hex(), "createdAtMs": owner.created_ms, "zone": owner.zone}
    return fields


def _object(owner: WalObject) -> Fields:
    return {
        "walId": owner.wal_id.hex(), "object": owner.id, "sizeBytes": owner.size, "createdAt": owner.created_ms,
        "zone": owner.zone, "rows": owner.rows,
    }  # fmt: skip


def _producer(state: ProducerState) -> Fields:
    return {
        "producerId": state.producer_id, "epoch": state.epoch, "lastSequence": state.last_sequence,
        "lastUsedMin": state.used_min,
        "batches": [{"sequence": first, "records": records, "base": base} for first, records, base in state.batches],
    }  # fmt: skip


def _offset(committed: Committed, topic: Topic | None) -> Fields:
    return {
        "offset": committed.offset, "leaderEpoch": committed.leader_epoch, "metadata": committed.metadata,
        "commitTimestampMs": committed.commit_ms, "expireTimestampMs": committed.expire_ms,
        "topic": topic.name if topic else None,
    }  # fmt: skip


def _session(machine: Machine, number: SessionId) -> Fields:
    live = machine.sessions.live.get(number)
    if live is not None:
        return {
            "name": live.name, "kind": live.kind.name, "state": "LIVE", "lastN": live.last_n,
            "openedAtPosition": live.opened_position, "lastPosition": live.last_position,
            "versions": [live.lowest_version, live.highest_version],
        }  # fmt: skip
    ended = machine.sessions.ended[number]
    return {
        "name": ended.name, "kind": ended.kind.name, "state": ended.reason.name,
        "endedAtPosition": ended.position, "endedAtMs": ended.time_ms,
    }  # fmt: skip


def _get_row(machine: Machine, key: Key) -> Fields | None:
    identity, end, size = (int(part) for part in key.parts)
    stream = machine.streams.find(StreamId(identity))
    found = stream.index.find(end - 1) if stream is not None else None
    if stream is None or found is None:
        return None
    row = stream.index.row(found)
    return _row(machine, stream, row) if (row.end, row.cumulative_size) == (end, size) else None
