"""The commands of a domain: values to (type, payload) and back.

Rare commands are MessagePack arrays of typed, bounded fields. `Append` is
fixed-width rows instead, so that one length check validates all of it and a
native kernel can read it as it lies:

    walId 16 | size u32 | created_ms i64 | rows u16 | zone length u8 | zone | rows x 50 B

A number once given to a command is never given to another.

Invariants
    M1  `decode` gives a command or raises `BadCommand`, whatever the bytes;
        every length is bounded by what was received.
    M2  No command touches more than `MAX_ROWS` rows (Q8). `weigh` says how
        many a command needs of its entry's; a slice needs one, and takes at
        most what the others leave.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import starmap
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from dray.buffers import Buffer
from dray.errors import Invalid
from dray.machine.names import ObjectId, ProducerId, SessionId, StreamId, TopicId, WalId

MAX_ROWS: Final = 3_000
MAX_SIGNED: Final = (1 << 63) - 1
MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999: what a wall clock may say at most."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_SIGNED)]
Millis: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
MaybeMillis: TypeAlias = Annotated[int, Meta(ge=-1, le=MAX_TIME_MS)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_ROWS)]
Version: TypeAlias = Annotated[int, Meta(ge=1, le=255)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Topic: TypeAlias = Annotated[TopicId, Meta(min_length=16, max_length=16)]
Stream: TypeAlias = Annotated[StreamId, Meta(ge=0, le=MAX_SIGNED)]
Session: TypeAlias = Annotated[SessionId, Meta(ge=0, le=MAX_SIGNED)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Text: TypeAlias = Annotated[str, Meta(max_length=255)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=249)]
Value: TypeAlias = Annotated[str, Meta(max_length=8_192)]
Configs: TypeAlias = Annotated[dict[Key, Value], Meta(max_length=200)]
Partition: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Objects: TypeAlias = Annotated[tuple[Annotated[ObjectId, Meta(ge=0, le=MAX_SIGNED)], ...], Meta(max_length=MAX_ROWS)]


class BadCommand(Invalid):
    """The bytes are not a command of this version; every replica says so alike (M1)."""


class SessionKind(IntEnum):
    """What a session is for. Brokers and compactors have a say in upgrades."""

    BROKER = 0
    COMPACTOR = 1
    TOOL = 2


class FloorReason(IntEnum):
    """Why a log start rises, and so what `RaiseFloor.bound` means."""

    TIME = 0
    """Bound: the retention in ms of machine time. Refused while time is paused (Q7)."""
    SIZE = 1
    """Bound: the bytes to keep at least."""
    DELETE_RECORDS = 2
    """Bound: the new log start."""


class OffsetReason(IntEnum):
    """Why committed offsets go."""

    EXPIRED = 0
    DELETED = 1
    TOPIC_GONE = 2


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A command that travels as a MessagePack array of its fields."""


class Genesis(_Packed, frozen=True, kw_only=True):
    """The first entry of a log, alone, by nobody (session 0, n 0)."""

    cluster_id: Nonce
    log_id: Annotated[bytes, Meta(min_length=8, max_length=8)]
    domain: Annotated[int, Meta(ge=0, le=0xFFFF)]
    domains: Annotated[int, Meta(ge=1, le=0xFFFF)]
    """Data domains of the cluster; 1: the catalog is the only domain."""
    version: Version = 1
    generation: Annotated[int, Meta(ge=0, le=(1 << 22) - 1)] = 0
    min_grace_ms: Millis = 60_000
    """No `MarkDeleting` may be hastier than this."""


class Open(_Packed, frozen=True, kw_only=True):
    """Begin a session; alone in its entry, by nobody (session 0, n 0)."""

    name: Name
    nonce: Nonce
    seen: Session
    """The newest session id that the opener had seen (Q4)."""
    instance: Nonce
    """Stays the same when the same installation starts again."""
    kind: SessionKind
    lowest_version: Version
    highest_version: Version
    wall_ms: Millis
    store_date_ms: MaybeMillis = -1
    """What the object store says the time is; -1: not asked."""
    accept_clock: bool = False
    owner: bool = False
    """The opener holds the lock of the data directory."""


class Close(_Packed, frozen=True, kw_only=True):
    """End the entry's own session."""


class KeepAlive(_Packed, frozen=True, kw_only=True):
    """Say that the entry's session is alive."""


class Expire(_Packed, frozen=True, kw_only=True):
    """End a silent session, if it has not moved on (Q5)."""

    session: Session
    last_n: Count


class Activate(_Packed, frozen=True, kw_only=True):
    """From here on the rules of this version hold."""

    version: Version


class Checkpointed(_Packed, frozen=True, kw_only=True):
    """A checkpoint of `position` was written, or read back and found equal."""

    position: Count
    hash: Annotated[bytes, Meta(min_length=32, max_length=32)]
    size: Count
    confirms: bool = False


class Listener(_Packed, frozen=True, kw_only=True):
    """Where clients reach a broker."""

    name: Name
    host: Name
    port: Annotated[int, Meta(ge=0, le=0xFFFF)]


class RegisterBroker(_Packed, frozen=True, kw_only=True):
    """Be a broker for as long as the entry's session lives."""

    broker_id: Int32
    """-1: the machine gives one, the same for the same session name."""
    zone: Text
    rack: Text
    listeners: Annotated[tuple[Listener, ...], Meta(max_length=32)]
    started_ms: Millis
    build: Text = ""
    capacity: Configs = {}


class CreateTopic(_Packed, frozen=True, kw_only=True):
    """Reserve a name, give a topic its streams; invisible until `TopicReady`."""

    topic_id: Topic
    name: Key
    partitions: Limit
    replication_factor: Annotated[int, Meta(ge=-1, le=(1 << 15) - 1)] = 1
    configs: Configs = {}


class TopicReady(_Packed, frozen=True, kw_only=True):
    """All streams of the topic are open: show it, and any added partitions."""

    topic_id: Topic


class DeleteTopic(_Packed, frozen=True, kw_only=True):
    """Free the name at once; the streams are closed next."""

    topic_id: Topic


class TopicGone(_Packed, frozen=True, kw_only=True):
    """Every stream of a deleted topic is closed: forget it."""

    topic_id: Topic


class AlterTopic(_Packed, frozen=True, kw_only=True):
    """Change configs, add partitions, or both."""

    topic_id: Topic
    set: Configs = {}
    remove: Annotated[tuple[Key, ...], Meta(max_length=200)] = ()
    partitions: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = 0
    """The new number of partitions; 0: as it is."""
    expected_revision: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)] = -1
    """Refuse if the topic was altered since this revision; -1: do not ask."""


class OpenStream(_Packed, frozen=True, kw_only=True):
    """Make a stream in its own domain; again is harmless."""

    stream: Stream
    topic_id: Topic
    partition: Partition
    name_existed_before: bool = False
    producer_floor: Count = 0
    """The catalog's next producer id when the topic was created."""


class CloseStream(_Packed, frozen=True, kw_only=True):
    """Take no more batches; drop at most `limit` rows. A slice: ask again while rows are left."""

    stream: Stream
    limit: Limit = MAX_ROWS


class RaiseFloor(_Packed, frozen=True, kw_only=True):
    """Let the log start rise, and drop at most `limit` rows below it. A slice."""

    stream: Stream
    reason: FloorReason
    bound: Count
    limit: Limit = MAX_ROWS


class AllocateProducerId(_Packed, frozen=True, kw_only=True):
    """One producer id, unique over the cluster's life."""


class ExpireProducers(_Packed, frozen=True, kw_only=True):
    """Look at `limit` producer states from id `start` on; drop the ones idle for `idle_ms`. A slice."""

    stream: Stream
    idle_ms: Millis
    start: Count = 0
    limit: Limit = MAX_ROWS


class OffsetRow(_Packed, frozen=True, kw_only=True):
    """One committed offset."""

    topic_id: Topic
    partition: Partition
    offset: Annotated[int, Meta(ge=-1, le=MAX_SIGNED)]
    leader_epoch: Int32 = -1
    metadata: Annotated[str, Meta(max_length=32_767)] = ""


class CommitOffsets(_Packed, frozen=True, kw_only=True):
    """Remember how far a group has come."""

    group: Annotated[str, Meta(max_length=32_767)]
    rows: Annotated[tuple[OffsetRow, ...], Meta(max_length=MAX_ROWS)]
    retention_ms: MaybeMillis = -1
    """From the request; -1: the server's default, known when offsets expire."""
    generation: Int32 = -1
    member: Annotated[str, Meta(max_length=32_767)] = ""


class OffsetKey(_Packed, frozen=True, kw_only=True):
    """A committed offset as it was when somebody decided that it should go."""

    topic_id: Topic
    partition: Partition
    commit_position: Count


class ExpireOffsets(_Packed, frozen=True, kw_only=True):
    """Drop committed offsets that have not moved since they were looked at."""

    group: Annotated[str, Meta(max_length=32_767)]
    reason: OffsetReason
    rows: Annotated[tuple[OffsetKey, ...], Meta(max_length=MAX_ROWS)]
    retention_ms: Millis = 604_800_000


class Pin(_Packed, frozen=True, kw_only=True):
    """Keep every object that dies from here on, while the entry's session lives."""

    pin: Name


class Unpin(_Packed, frozen=True, kw_only=True):
    pin: Name


class MarkDeleting(_Packed, frozen=True, kw_only=True):
    """Dead objects whose grace is over may now be deleted from the store."""

    objects: Objects
    grace_ms: Millis


class Gone(_Packed, frozen=True, kw_only=True):
    """These objects are no longer in the store: forget them."""

    objects: Objects


class Swept(_Packed, frozen=True, kw_only=True):
    """The orphans of these ended sessions are gone: forget the sessions."""

    sessions: Annotated[tuple[Session, ...], Meta(max_length=MAX_ROWS)]


class AppendRow(NamedTuple):
    """One batch of an `Append`, in the order of its packed form."""

    stream: StreamId
    max_timestamp_ms: int
    min_timestamp_ms: int
    producer_id: ProducerId
    base_sequence: int
    records: int
    size: int
    """Bytes of the batch, without the 4 bytes of its length."""
    position: int
    """Of the first byte of the batch in its object."""
    epoch: int


ROW: Final = struct.Struct("<QqqqiIIIh")
assert ROW.size == 50, "the row size is part of the format"
APPEND_HEAD: Final = struct.Struct("<16sIqHB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """The batches of one WAL object, to be given offsets."""

    wal_id: WalId
    size: int
    created_ms: int
    zone: str
    packed: bytes
    """The rows, as `pack_rows` makes them."""

    def rows(self) -> Iterator[AppendRow]:
        return starmap(AppendRow, ROW.iter_unpack(self.packed))


Command: TypeAlias = (
    Genesis | Open | Close | KeepAlive | Expire | Activate | Checkpointed | RegisterBroker
    | CreateTopic | TopicReady | DeleteTopic | TopicGone | AlterTopic
    | OpenStream | CloseStream | Append | RaiseFloor
    | AllocateProducerId | ExpireProducers | CommitOffsets | ExpireOffsets
    | Pin | Unpin | MarkDeleting | Gone | Swept
)  # fmt: skip

APPEND: Final = 16
TYPES: Final[dict[int, type[_Packed]]] = {
    1: Genesis, 2: Open, 3: Close, 4: KeepAlive, 5: Expire, 6: Activate, 7: Checkpointed, 8: RegisterBroker,
    9: CreateTopic, 10: TopicReady, 11: DeleteTopic, 12: TopicGone, 13: AlterTopic,
    14: OpenStream, 15: CloseStream, 17: RaiseFloor,
    18: AllocateProducerId, 19: ExpireProducers, 20: CommitOffsets, 21: ExpireOffsets,
    22: Pin, 23: Unpin, 24: MarkDeleting, 25: Gone, 26: Swept,
}  # fmt: skip
NUMBERS: Final = {kind: number for number, kind in TYPES.items()}

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final[dict[int, Callable[[Buffer], Command]]] = {
    number: msgspec.msgpack.Decoder(kind).decode  # type: ignore[misc]
    for number, kind in TYPES.items()
}


def encode(command: Command) -> tuple[int, bytes]:
    """The type number and payload of a command."""
    if isinstance(command, Append):
        return APPEND, _encode_append(command)
    return NUMBERS[type(command)], _ENCODER.encode(command)


def decode(number: int, payload: Buffer) -> Command:
    """The command of a type number and payload, or `BadCommand` (M1)."""
    if number == APPEND:
        return _decode_append(payload)
    decoder = _DECODERS.get(number)
    if decoder is None:
        raise BadCommand("no such command", type=number)
    try:
        return decoder(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise BadCommand("payload does not fit its command", type=number, why=broken) from broken


def pack_rows(rows: Iterable[tuple[int, int, int, int, int, int, int, int, int]]) -> bytes:
    """The packed form of rows in the order of `AppendRow`."""
    return b"".join(starmap(ROW.pack, rows))


def weigh(command: Command) -> int:
    """How many of an entry's `MAX_ROWS` rows the command needs (M2)."""
    match command:
        case Append():
            return max(1, len(command.packed) // ROW.size)
        case CreateTopic() | AlterTopic():
            return max(1, command.partitions)
        case CommitOffsets() | ExpireOffsets():
            return max(1, len(command.rows))
        case MarkDeleting() | Gone():
            return max(1, len(command.objects))
        case Swept():
            return max(1, len(command.sessions))
        case _:
            return 1


def _encode_append(command: Append) -> bytes:
    zone = command.zone.encode()
    rows = len(command.packed) // ROW.size
    head = APPEND_HEAD.pack(command.wal_id, command.size, command.created_ms, rows, len(zone))
    return b"".join((head, zone, command.packed))


def _decode_append(payload: Buffer) -> Append:
    size = len(payload)
    if size < APPEND_HEAD.size:
        raise BadCommand("append is shorter than its head", size=size)
    wal_id, object_size, created_ms, rows, zone_size = APPEND_HEAD.unpack_from(payload)
    start = APPEND_HEAD.size + zone_size
    if size != start + rows * ROW.size or rows > MAX_ROWS:  # M2
        raise BadCommand("append has another size than its head says", size=size, rows=rows)
    try:
        zone = str(payload[APPEND_HEAD.size : start], "utf-8")
    except UnicodeDecodeError as broken:
        raise BadCommand("zone is not text") from broken
    if not 0 <= created_ms <= MAX_TIME_MS:
        raise BadCommand("creation time is out of range", created_ms=created_ms)
    return Append(wal_id=wal_id, size=object_size, created_ms=created_ms, zone=zone, packed=bytes(payload[start:]))
