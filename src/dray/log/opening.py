"""The one way to open a log: by its URL, for owner, joiner, reader and child alike.

    who                                     opens             has
    keeps the directory (holds its lock)    local:DIR         `FileLog`, to append and to serve
    joins, looks, or makes a checkpoint     unix:, tcp:       `ClientLog`
    looks where nobody runs (holds it too)  local:DIR         `ClosedLog`, by `look_at_log`
    is one of several machines              postgresql://     `PostgresLog`, whoever it is
                                            etcd://           `EtcdLog`, whoever it is
                                            oxia://           `OxiaLog`, whoever it is
    has a bucket, or a shared directory     deltalog:         `DeltaLog`, whoever it is
    has no directory                        memory:           `MemoryLog`

An engine is an adapter of `dray.log.port`, a kind of URL in `dray.log.urls`
and one branch of `open_log`, which imports it there: whoever does not use it
does not load what it needs.
"""

import asyncio
import uuid
from dataclasses import dataclass
from typing import assert_never, overload

from dray.clock import Clock
from dray.disk import Disk
from dray.errors import Invalid
from dray.log.client import CALL_SECONDS, ClientLog, connect
from dray.log.closed import ClosedLog
from dray.log.files import SEGMENT_BYTES, FileLog
from dray.log.limits import MAX_ENTRY_BYTES
from dray.log.memory import MemoryLog
from dray.log.port import Log
from dray.log.urls import DeltaLogs, EtcdLogs, LocalLogs, LogUrl, MemoryLogs, OxiaLogs, PostgresLogs, ServedLogs
from dray.objects.port import Objects
from dray.offload import Offload


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEffects:
    """What a log needs from its process."""

    clock: Clock
    disk: Disk
    offload: Offload
    reads: Offload | None = None
    """Where history is read, so that appends never wait for it. None: with the rest."""
    objects: Objects | None = None
    """The cluster's store, for a log that is kept in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How a log behaves. An engine takes what it has a use for."""

    segment_bytes: int = SEGMENT_BYTES
    """Of the files of a log that is kept here."""
    max_entry_bytes: int = MAX_ENTRY_BYTES
    cluster_id: uuid.UUID | None = None
    """Whose log it must be, where another process answers for it. None: anybody's."""
    call_seconds: float = CALL_SECONDS
    """How long another process may take for an answer."""


_DEFAULTS = LogOptions()


@overload
async def open_log(url: LocalLogs, domain: int, effects: LogEffects, options: LogOptions = ...) -> FileLog: ...
@overload
async def open_log(url: LogUrl, domain: int, effects: LogEffects, options: LogOptions = ...) -> Log: ...
async def open_log(url: LogUrl, domain: int, effects: LogEffects, options: LogOptions = _DEFAULTS) -> Log:
    """The log of a domain, to read and to append to. Who opens files of this machine holds the lock on them."""
    match url:
        case LocalLogs():
            return await FileLog.open(
                url.directory(domain), disk=effects.disk, offload=effects.offload, clock=effects.clock,
                segment_bytes=options.segment_bytes, max_entry_bytes=options.max_entry_bytes, reads=effects.reads,
            )  # fmt: skip
        case ServedLogs():
            return ClientLog(
                url.address, domain, cluster_id=options.cluster_id, max_entry_bytes=options.max_entry_bytes,
                call_seconds=options.call_seconds,
            )  # fmt: skip
        case PostgresLogs():
            try:
                from dray.log.postgres import PostgresLog
            except ModuleNotFoundError as error:
                raise Invalid("a log in PostgreSQL needs an extra: pip install 'dray[postgres]'") from error

            return await PostgresLog.open(
                url, domain, max_entry_bytes=options.max_entry_bytes, call_seconds=options.call_seconds
            )
        case EtcdLogs():
            from dray.log.etcd.log import EtcdLog

            return await EtcdLog.open(
                url, domain, clock=effects.clock, max_entry_bytes=options.max_entry_bytes,
                call_seconds=options.call_seconds,
            )  # fmt: skip
        case OxiaLogs():
            from dray.log.oxia.log import OxiaLog  # the extra `oxia`

            return await OxiaLog.open(
                url, domain, max_entry_bytes=options.max_entry_bytes, call_seconds=options.call_seconds
            )
        case DeltaLogs():
            from dray.log.delta.opening import open_delta_log

            return await open_delta_log(
                url, domain, objects=effects.objects, clock=effects.clock, disk=effects.disk, offload=effects.offload,
                max_entry_bytes=options.max_entry_bytes,
            )  # fmt: skip
        case MemoryLogs():
            return MemoryLog(max_entry_bytes=options.max_entry_bytes)
        case _:
            assert_never(url)


def look_at_log(url: LocalLogs, domain: int, disk: Disk) -> ClosedLog:
    """The log of a domain as its files lie, for reading only: no tail is cut, nothing repaired. See its `survey`."""
    return ClosedLog(url.directory(domain), disk)


async def is_served(url: ServedLogs, limit_s: float) -> bool:
    """Whether a process listens there."""
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await connect(url.address)
    except OSError:
        return False
    writer.close()
    return True
