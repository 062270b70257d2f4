"""What an operator says about a heap; the machine judges by it when a command is applied (L11)."""

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from dray.errors import Corrupt
from dray.machine.command import Part

MAX_PARTITIONS: Final = 4_096
MAX_RETRIES: Final = 32_000
DAY_MS: Final = 86_400_000
_LONG_MS: Final = 36_500 * DAY_MS
_U32: Final = (1 << 32) - 1

Delay: TypeAlias = Annotated[int, Meta(ge=0, le=_LONG_MS)]
Lasting: TypeAlias = Annotated[int, Meta(ge=1_000, le=43_200_000)]
Ceiling: TypeAlias = Annotated[int, Meta(ge=1, le=_U32)]


class Mode(IntEnum):
    """Which priority is the best: it never changes."""

    MIN = 0
    MAX = 1


class HeapConfig(Part, frozen=True, kw_only=True):
    """All of it may be changed while the heap lives."""

    k: Annotated[int, Meta(ge=1, le=_U32)] = 1
    """The promise: fewer than `k` ready messages are better than one that is granted. Kept exactly here."""
    visibility_ms: Lasting = 30_000
    """How long a lease is, unless the consumer says so."""
    max_lease_ms: Lasting = 43_200_000
    """How long one lease may become by extensions."""
    max_retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = 10
    backoff_base_ms: Delay = 1_000
    backoff_cap_ms: Delay = 300_000
    jitter: bool = True
    """Each delay is drawn between zero and what the backoff says."""
    dead_letters: bool = True
    """Without them, what is out of retries is dropped and counted."""
    retention_ms: Delay = 14 * DAY_MS
    """How long a dead message is kept."""
    dedup_window_ms: Annotated[int, Meta(ge=60_000, le=7 * DAY_MS)] = DAY_MS
    message_ttl_ms: Delay = 0
    """A message this old is not granted any more; 0: for ever."""
    max_payload_bytes: Annotated[int, Meta(ge=0, le=8 << 20)] = 1 << 20
    json: bool = False
    """Payloads are checked to be JSON, unless their message says otherwise."""
    compression: bool = False
    """On the wire."""
    block: bool = False
    """Wait where a promise cannot be kept, rather than serve without it."""
    paused: bool = False
    """Messages are taken and none are granted."""
    max_messages: Ceiling = 10_000_000
    max_inflight: Ceiling = 100_000
    max_leases_per_consumer: Ceiling = 10_000
    max_dedup_keys: Ceiling = 1_000_000
    history: Annotated[str, Meta(max_length=249)] = ""
    """The topic that is told what happens to each message; none: nothing is written down (HI3)."""


_DECODER: Final = msgspec.msgpack.Decoder(HeapConfig)


def pack_config(config: HeapConfig) -> bytes:
    """For a checkpoint."""
    return msgspec.msgpack.encode(config)


def unpack_config(packed: bytes) -> HeapConfig:
    try:
        return _DECODER.decode(packed)
    except msgspec.DecodeError as broken:
        raise Corrupt("the config of a heap does not decode") from broken
