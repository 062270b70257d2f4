"""The protocol between a log server and its clients: frames to values and back.

    frame = length u32 | kind u8 | request id u64 | payload       (little-endian; length counts what follows it)

A connection begins with HELLO and WELCOME. Then it carries either calls
(APPEND, TAIL, TRIM; pipelined, answered by id in any order) or one FOLLOW,
which turns it into a stream of ENTRY frames for the rest of its life: so a
slow follower is held back by its own socket and by nothing else.

HELLO names the newest version that the client speaks, WELCOME the one that is
spoken: the older of both. So the processes of one machine can be upgraded one
by one, in any order, as long as each still speaks the oldest of them.

Invariants
    LG19  A connection speaks the newest version that both sides know.
"""

import asyncio
import struct
import uuid
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dray.errors import Corrupt, DrayError, Invalid, Unavailable
from dray.log.port import LostReply, NotAppended, Trimmed

VERSION: Final = 1
"""The newest version of this protocol that this build speaks."""
OLDEST: Final = 1
MAGIC: Final = b"DRAYMETA"
HEAD: Final = struct.Struct("<IBQ")
SMALL: Final = 1 << 16
"""The largest frame that carries no entry."""

_LENGTH: Final = struct.Struct("<I")
_AFTER_LENGTH: Final = HEAD.size - _LENGTH.size
_HELLO: Final = struct.Struct("<8sH")
_WELCOME: Final = struct.Struct("<8sH16sIH")
_DOMAIN: Final = struct.Struct("<I")
_DOMAIN_POSITION: Final = struct.Struct("<IQ")
_POSITION: Final = struct.Struct("<Q")


class FrameKind(IntEnum):
    HELLO = 1
    APPEND = 2
    TAIL = 3
    TRIM = 4
    FOLLOW = 5
    WELCOME = 65
    POSITION = 66
    ENTRY = 67
    ERROR = 68


class BadFrame(Invalid):
    """The bytes are not a frame of this protocol; the connection is of no more use."""


_ERRORS: Final[dict[int, type[DrayError]]] = {
    1: NotAppended,
    2: LostReply,
    3: Trimmed,
    4: Invalid,
    5: Unavailable,
    6: Corrupt,
}
_UNKNOWN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    kind: int
    id: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """What a server says about itself."""

    version: int
    cluster_id: uuid.UUID
    max_entry_bytes: int
    domains: tuple[int, ...]


def encode_frame(kind: FrameKind, request: int, *parts: bytes) -> list[bytes]:
    """Buffers to write behind each other; payload parts are passed on as they are."""
    size = _AFTER_LENGTH + sum(map(len, parts))
    return [HEAD.pack(size, kind, request), *parts]


async def read_frame(reader: asyncio.StreamReader, max_entry_bytes: int) -> Frame:
    """The next frame; `BadFrame` before anything longer than allowed is taken in."""
    size, kind, request = HEAD.unpack(await reader.readexactly(HEAD.size))
    if not _AFTER_LENGTH <= size <= max_entry_bytes + SMALL:
        raise BadFrame("a frame declares a length that is not allowed", length=size)
    payload = await reader.readexactly(size - _AFTER_LENGTH) if size > _AFTER_LENGTH else b""
    return Frame(kind=kind, id=request, payload=payload)


def hello(version: int = VERSION) -> bytes:
    return _HELLO.pack(MAGIC, version)


def answer_hello(frame: Frame, newest: int = VERSION) -> int:
    """The version to speak (LG19); `BadFrame` unless a client of a log server speaks."""
    if frame.kind != FrameKind.HELLO or len(frame.payload) != _HELLO.size:
        raise BadFrame("a connection must begin with a hello")
    magic, version = _HELLO.unpack(frame.payload)
    if magic != MAGIC:
        raise BadFrame("this is not a client of a log server")
    if version < OLDEST:
        raise BadFrame("the client is too old for this log server: upgrade it", client=version, oldest=OLDEST)
    return min(int(version), newest)  # LG19


def encode_welcome(welcome: Welcome) -> bytes:
    head = _WELCOME.pack(
        MAGIC, welcome.version, welcome.cluster_id.bytes, welcome.max_entry_bytes, len(welcome.domains)
    )
    return head + b"".join(map(_DOMAIN.pack, welcome.domains))


def decode_welcome(payload: bytes) -> Welcome:
    if len(payload) < _WELCOME.size:
        raise BadFrame("the welcome of the log server is too short", size=len(payload))
    magic, version, cluster, max_entry_bytes, count = _WELCOME.unpack_from(payload)
    if magic != MAGIC or len(payload) != _WELCOME.size + count * _DOMAIN.size:
        raise BadFrame("the other side is not a log server")
    domains = tuple(domain for (domain,) in _DOMAIN.iter_unpack(payload[_WELCOME.size :]))
    return Welcome(
        version=version, cluster_id=uuid.UUID(bytes=cluster), max_entry_bytes=max_entry_bytes, domains=domains
    )


def encode_domain(domain: int) -> bytes:
    return _DOMAIN.pack(domain)


def decode_domain(payload: bytes) -> int:
    """The domain at the start of a request."""
    if len(payload) < _DOMAIN.size:
        raise BadFrame("a request is too short for its domain", size=len(payload))
    domain: int = _DOMAIN.unpack_from(payload)[0]
    return domain


def entry_of_append(payload: bytes) -> bytes:
    return payload[_DOMAIN.size :]


def encode_domain_position(domain: int, position: int) -> bytes:
    return _DOMAIN_POSITION.pack(domain, position)


def position_of_request(payload: bytes) -> int:
    """The position in a TRIM or a FOLLOW."""
    if len(payload) != _DOMAIN_POSITION.size:
        raise BadFrame("a request does not have the length of its kind", size=len(payload))
    position: int = _DOMAIN_POSITION.unpack(payload)[1]
    return position


def encode_position(position: int) -> bytes:
    return _POSITION.pack(position)


def decode_position(payload: bytes) -> int:
    """The position at the start of an answer."""
    if len(payload) < _POSITION.size:
        raise BadFrame("an answer is too short for its position", size=len(payload))
    position: int = _POSITION.unpack_from(payload)[0]
    return position


def entry_of_answer(payload: bytes) -> bytes:
    return payload[_POSITION.size :]


def encode_error(error: DrayError) -> bytes:
    """Kind and text of an error; one without a code of its own may have happened (E1)."""
    code = next((code for code, kind in _ERRORS.items() if isinstance(error, kind)), _UNKNOWN)
    return bytes([code]) + str(error).encode("utf-8", "replace")[: SMALL // 2]


def decode_error(payload: bytes) -> DrayError:
    if not payload or payload[0] not in _ERRORS:
        raise BadFrame("the log server reports an error of an unknown kind")
    return _ERRORS[payload[0]](payload[1:].decode("utf-8", "replace"))
