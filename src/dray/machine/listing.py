"""The state of a machine under the spec's keys, and the entries of its log, for people.

`ls` and `get` show plain values that JSON can carry; `render` does the same
for an entry. Each noun shows its own part. Nothing here is read by the
machine or by a service.
"""

from enum import Enum
from heapq import merge
from typing import Final, Protocol, runtime_checkable

import msgspec

from dray.log.envelope import BadEntry, decode_commands, decode_head
from dray.machine.append import Append
from dray.machine.command import BadCommand
from dray.machine.keys import ROOT, Shape
from dray.machine.machine import Machine
from dray.machine.noun import Fields, Listing, Shown

MACHINE_KEY: Final = Shape("machine")


@runtime_checkable
class Shows(Protocol):
    """A command that says itself what of it people may see."""

    def shown(self) -> Fields: ...


def ls(machine: Machine, prefix: str = ROOT) -> Listing:
    """Every key under a prefix and its value, in key order (R-046)."""
    own = iter([(MACHINE_KEY.build(), _head(machine))])
    parts = (own, *(noun.show(prefix) for noun in machine.nouns))
    return ((key, fields) for key, fields in merge(*parts, key=lambda item: item[0]) if key.startswith(prefix))


def get(machine: Machine, key: str) -> Fields | None:
    """The value of one key; none if there is no such state."""
    return next((fields for found, fields in ls(machine, key) if found == key), None)


def render(machine: Machine, entry: bytes) -> Fields:
    """An entry of the log, whatever is in it; the machine tells which commands there are."""
    try:
        head = decode_head(entry)
        packed = decode_commands(entry, head.count)
    except BadEntry as bad:
        return {"bad": str(bad), "bytes": entry.hex()}
    return {
        "version": head.version, "session": head.session, "n": head.n, "time_ms": head.time_ms,
        "seen": {"position": head.seen_position, "digest": f"{head.seen_digest:016x}"},
        "commands": [_render_command(machine, kind, bytes(payload)) for kind, payload in packed],
    }  # fmt: skip


def _render_command(machine: Machine, kind: int, payload: bytes) -> Shown:
    try:
        command = machine.decoders.decode(kind, payload, machine.supported)
    except BadCommand as bad:
        return {"type": kind, "bad": str(bad), "bytes": payload.hex()}
    if isinstance(command, Append):
        return {
            "type": "Append", "wal_id": command.wal_id.hex(), "size": command.size,
            "created_ms": command.created_ms, "zone": command.zone,
            "rows": [dict(row._asdict()) for row in command.rows()],
        }  # fmt: skip
    if isinstance(command, Shows):
        return {"type": type(command).__name__} | command.shown()
    fields = _plain(command)
    assert isinstance(fields, dict)
    return {"type": type(command).__name__} | fields


def _plain(value: object) -> Shown:
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


def _head(machine: Machine) -> Fields:
    head = machine.head
    return {
        "clusterId": head.cluster_id.hex(), "logId": head.log_id.hex(), "domain": head.domain,
        "domains": head.domains, "groupDomains": head.group_domains, "version": head.version,
        "generation": head.generation,
        "position": machine.position, "digest": f"{machine.digest:016x}", "timeMs": machine.time_ms,
        "sureTimeMs": machine.timeline.sure_ms, "pausedUntilMs": machine.timeline.pause_end_ms,
        "runningMs": machine.timeline.running_ms,
        "nextProducerId": machine.producer_ids.next,
    }  # fmt: skip
