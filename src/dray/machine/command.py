"""What a command is: a number, the version it came with, and its bytes.

Each command stands with the noun it changes. Most are MessagePack arrays of
typed, bounded fields (`Packed`); `Append` has a layout of its own.

How to change the rules, for whoever must:

    a new command      give it the next free number and `since = ` the version
                       that is being made; put it into `commands` of its noun
    a new field        at the end, with a default that means "as before", and
                       its version in `fields_since`
    a new noun         `since = ` that version; into the one tuple of `Machine`
    another rule       asks the head's active version; the old branch stays
    other bytes of a   `dump` and `load` get the version: the old branch stays
    checkpoint

Nothing above the active version has any effect, in builds that know it and in
those that do not: both refuse it. So an old and a new build can share a log
until an operator's `Activate`, after which only builds that know the version
are let in. A version is open for changes until it is released, and never after.

Invariants
    M1  Decoding gives a command or raises `BadCommand`, whatever the bytes;
        every length is bounded by what was received.
    M2  No command touches more than `MAX_ROWS` rows (Q8). `needs` says how
        many a command takes of its entry's; a slice needs one, and takes at
        most what the others leave.
    M10  A command above the active version, or with a field above it, is
         refused, whether or not this build knows it; no writer sends one.
    M11  A number once given to a command is never given to another.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, ClassVar, Final, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from dray.buffers import Buffer
from dray.errors import Invalid
from dray.machine.names import ObjectId, SessionId, StreamId, TopicId

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
TopicField: TypeAlias = Annotated[TopicId, Meta(min_length=16, max_length=16)]
StreamField: TypeAlias = Annotated[StreamId, Meta(ge=0, le=MAX_SIGNED)]
SessionField: TypeAlias = Annotated[SessionId, Meta(ge=0, le=MAX_SIGNED)]
ObjectField: TypeAlias = Annotated[ObjectId, Meta(ge=0, le=MAX_SIGNED)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Text: TypeAlias = Annotated[str, Meta(max_length=255)]
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=249)]
Value: TypeAlias = Annotated[str, Meta(max_length=8_192)]
Configs: TypeAlias = Annotated[dict[Key, Value], Meta(max_length=200)]
Partition: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]


class BadCommand(Invalid):
    """The bytes are not a command of the active version; every replica says so alike (M1, M10)."""


class NotActive(Invalid):
    """The active version has no such command or field: an operator must activate a newer one first."""

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(f"{message}: run `drayd admin meta activate`", **facts)


class Command(Protocol):
    """What the machine can be asked to do."""

    number: ClassVar[int]
    since: ClassVar[int]
    """The first version of the rules that has it."""

    def needs(self) -> int:
        """How many of an entry's `MAX_ROWS` rows it takes (M2)."""
        ...

    def payload(self, version: int) -> bytes:
        """Its bytes, as the active version has them."""
        ...

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Command]":
        """What reads those bytes; it raises `msgspec.DecodeError`, `UnicodeDecodeError` or `BadCommand`."""
        ...


_ENCODER: Final = msgspec.msgpack.Encoder()


class Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A command that travels as a MessagePack array of its fields."""

    number: ClassVar[int]
    since: ClassVar[int] = 1
    fields_since: ClassVar[Mapping[str, int]] = {}
    """The versions of fields that came later than the command; they stand at its end and have plain defaults."""

    def needs(self) -> int:
        return 1

    def payload(self, version: int) -> bytes:
        known = _known_fields(type(self), version)
        if known == len(self.__struct_fields__):
            return _ENCODER.encode(self)
        for field in msgspec.structs.fields(self)[known:]:
            if getattr(self, field.name) != field.default:
                raise NotActive("a field is above the active version", field=field.name, active=version)  # M10
        return _ENCODER.encode(msgspec.structs.astuple(self)[:known])

    @classmethod
    def reader(cls, version: int) -> "Callable[[Buffer], Packed]":
        return _reader(cls, version)


@cache
def _known_fields(kind: type[Packed], version: int) -> int:
    return sum(kind.fields_since.get(name, kind.since) <= version for name in kind.__struct_fields__)


@cache
def _reader(kind: type[Packed], version: int) -> "Callable[[Buffer], Packed]":
    """Made once for all machines of a process: a decoder knows nothing but its type."""
    decode: Callable[[Buffer], Packed] = msgspec.msgpack.Decoder(kind).decode
    known = _known_fields(kind, version)
    if known == len(kind.__struct_fields__):
        return decode

    def read(payload: Buffer) -> Packed:
        if _array_length(payload) > known:
            raise BadCommand("a field is above the active version", type=kind.number)  # M10
        return decode(payload)

    return read


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """A row inside a packed command."""


def encode(command: Command, version: int) -> tuple[int, bytes]:
    """The type number and payload of a command, for an entry of this version (M10)."""
    if command.since > version:
        raise NotActive("the command is above the active version", command=type(command).__name__, active=version)
    return command.number, command.payload(version)


class Decoders:
    """Bytes to commands, by the active version."""

    def __init__(self, kinds: Iterable[type[Command]]) -> None:
        self._kinds = {kind.number: kind for kind in sorted(kinds, key=lambda kind: kind.number)}
        self._by_version: dict[int, dict[int, Callable[[Buffer], Command]]] = {}

    def decode(self, number: int, payload: Buffer, version: int) -> Command:
        """The command of a type number and payload, or `BadCommand` (M1, M10)."""
        readers = self._by_version.get(version) or self._make_readers(version)
        read = readers.get(number)
        if read is None:
            raise BadCommand("no such command", type=number)
        try:
            return read(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as broken:
            raise BadCommand("payload does not fit its command", type=number, why=broken) from broken

    def _make_readers(self, version: int) -> dict[int, Callable[[Buffer], Command]]:
        self._by_version[version] = {
            number: kind.reader(version) for number, kind in self._kinds.items() if kind.since <= version
        }
        return self._by_version[version]


def _array_length(payload: Buffer) -> int:
    """What a MessagePack array says of its length; 0 where there is none (the decoder refuses that)."""
    head = payload[0] if len(payload) else 0
    if head & 0xF0 == 0x90:
        return head & 0x0F
    if head == 0xDC:
        return int.from_bytes(payload[1:3], "big")
    return int.from_bytes(payload[1:5], "big") if head == 0xDD else 0
