"""An answer as a tree of plain values, the same in every run: ids, times and addresses are masked.

Lists of topics, partitions, groups and members are sorted, because the
protocol promises no order in them. Of records the header fields of every whole
batch are kept.
"""

import re
from typing import TypeAlias

from crc32c import crc32c

from dray.records.layout import CRC_FROM, HEADER, HEADER_SIZE, LENGTH_FROM
from dray.servers.kafka.codec import Message
from dray.servers.kafka.support import APIS

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | bool | None"

_HOUR_MS = 3_600_000
_NO_ID = bytes(16)
_TEXTS = ("error_message", "batch_index_error_message", "cluster_id", "host", "documentation")
_BROKERS = ("node_id", "leader_id", "controller_id", "replica_nodes", "isr_nodes", "broker_id")
_TIMES = ("timestamp", "log_append_time_ms")
_UNORDERED = (
    "topics", "responses", "partitions", "partition_responses", "topic_partitions", "groups", "results", "members",
    "subscribed_topic_names",
)  # fmt: skip
_NAMES = (
    "name", "topic", "topic_id", "partition_index", "index", "group_id", "member_id", "group_instance_id",
    "resource_type", "resource_name",
)  # fmt: skip
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_UUID = re.compile(r"[\w-]{22}")
"""How Kafka writes the id that it gives a member of a consumer group."""


class Mask:
    """What one server and one run gave, and what it is called instead."""

    def __init__(self, prefix: str, now_ms: int) -> None:
        self._prefix = prefix
        self._now_ms = now_ms
        self._ids: dict[bytes, str] = {_NO_ID: "none"}
        self._times: dict[int, str] = {}
        self._members: dict[str, str] = {}

    def know(self, topic_id: bytes, name: str) -> None:
        self._ids[topic_id] = f"id of {self.text(name)}"

    def forget(self) -> None:
        """Times and members are counted anew in each scene."""
        self._times.clear()
        self._members.clear()

    def text(self, value: str) -> str:
        return _UUID.sub(lambda found: self._member(found[0]), value.replace(self._prefix, ""))

    def member(self, value: str) -> str:
        """An id that a server may have given; what a client calls itself is kept."""
        return self._member(value) if _SHORT_UUID.fullmatch(value) else self.text(value)

    def _member(self, given: str) -> str:
        return self._members.setdefault(given, f"id {len(self._members) + 1}")

    def topic_id(self, value: bytes) -> str:
        return self._ids.get(value, "an id")

    def time(self, value: int) -> Tree:
        """A test's own time by its distance from the run's; the server's by a number of its own."""
        away = value - self._now_ms
        if _HOUR_MS - 600_000 < away < _HOUR_MS + 900_000:
            return self._times.setdefault(value, f"server time {len(self._times) + 1}")
        return f"now{away:+}" if abs(away) < 10**11 else value


def render(value: object, mask: Mask, field: str = "") -> Tree:
    """The tree of a message or of one of its fields."""
    if isinstance(value, Message):
        return _message(value, mask)
    if field == "records":
        return None if value is None else _batches(_joined(value), mask)
    if isinstance(value, list | tuple):
        return _list(value, mask, field)
    if isinstance(value, bytes | memoryview):
        return mask.topic_id(bytes(value)) if field == "topic_id" else mask.text(repr(bytes(value))[2:-1])
    if isinstance(value, str) and field in ("member_id", "leader"):
        return mask.member(value)
    if isinstance(value, str):
        return "text" if value and field in _TEXTS else mask.text(value)
    assert value is None or isinstance(value, int), field
    return _number(value, mask, field)


def apis_of_dray(tree: Tree) -> Tree:
    """An answer in which only those APIs are named that Dray speaks, and whether there are others."""
    told = tree.get("api_keys") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(told, dict) or not told:
        return tree
    ours = {str(api.key): api.name for api in APIS}
    spans: dict[str, Tree] = {ours[key]: span for key, span in told.items() if key in ours}
    return {**tree, "api_keys": {**spans, "others": "some" if told.keys() - ours.keys() else "none"}}


def _message(message: Message, mask: Mask) -> Tree:
    found = {name: getattr(message, name) for name in message.__struct_fields__ if name != "throttle_time_ms"}
    return {name: render(value, mask, name) for name, value in found.items()}


def _number(value: int | None, mask: Mask, field: str) -> Tree:
    if value is None or isinstance(value, bool):
        return value
    if field in _BROKERS:
        return "a broker" if value >= 0 else value
    if field == "producer_id" and value >= 0:
        return "an id"
    if field == "last_timestamp" and value > 0:
        return "a time"
    if field == "port" and value > 0:
        return "a port"
    if field in ("session_id", "finalized_features_epoch") and value > 0:
        return "a number"
    return mask.time(value) if field in _TIMES and value > 0 else value


def _list(values: list[object] | tuple[object, ...], mask: Mask, field: str) -> Tree:
    found = [render(value, mask, field) for value in values]
    if field == "api_keys":
        return {
            str(one["api_key"]): f"{one['min_version']}-{one['max_version']}" for one in found if isinstance(one, dict)
        }
    if field in ("supported_features", "finalized_features"):
        return ", ".join(sorted(str(one["name"]) for one in found if isinstance(one, dict)))
    if field == "configs":
        return {str(one.pop("name")): one for one in found if isinstance(one, dict)}
    if field in _UNORDERED:
        found.sort(key=_identity)
    return found


def _identity(one: Tree) -> list[str]:
    if not isinstance(one, dict):
        return [f"{one!s:>12}"]
    return [f"{one.get(name, '')!s:>12}" for name in _NAMES]


def _joined(records: object) -> bytes:
    if isinstance(records, bytes | bytearray | memoryview):
        return bytes(records)
    assert isinstance(records, list | tuple)
    return b"".join(bytes(part) for part in records)


def _batches(records: bytes, mask: Mask) -> Tree:
    """The whole batches; what is cut at the end is as if it were not there."""
    found: list[Tree] = []
    at = 0
    while at + HEADER_SIZE <= len(records):
        base, length, epoch, magic, crc, attributes, delta, _, newest, *_, count = HEADER.unpack_from(records, at)
        end = at + LENGTH_FROM + length
        if end > len(records):
            break
        found.append(
            f"offset {base} epoch {epoch} magic {magic} attributes {attributes} last {delta} count {count}"
            f" newest {mask.time(newest) if newest > 0 else newest}"
            f" crc {'right' if crc32c(records[at + CRC_FROM : end]) == crc else 'wrong'}"
        )
        at = end
    return found
